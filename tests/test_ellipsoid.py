"""Covers of ball images hold every point, errors included, and lose nothing at the best weight."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.ellipsoid import best_weight, cover
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.head import BallImage
from head_checks import graded
from matrix_truth import DIGITS, largest_norm, to_mp


@st.composite
def balls(draw, decades=(0, 2, 60, 140)):
    """Ball images with each of offset, radius and errors present, absent, tiny or zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    reach = draw(st.sampled_from(decades))
    size = 10.0 ** draw(st.floats(-reach, reach))
    matrix = graded(rng, rows, columns, draw(st.sampled_from([0.0, 1.0, 5.0]))) * size
    matrix[rng.random(rows) < 0.2] = 0.0
    return BallImage(
        matrix,
        offset=rng.standard_normal(rows) * size * 10.0 ** draw(st.integers(-9, 3))
        if draw(st.booleans())
        else None,
        radius=Enclosure.exact(draw(st.sampled_from([0.0, 1e-170, 1.0, 3.7, 64.0]))),
        row_error=rng.random(rows) * size * draw(st.sampled_from([1e-14, 1e-3, 1.0]))
        if draw(st.booleans())
        else None,
        offset_error=rng.random(rows) * size * draw(st.sampled_from([1e-14, 1.0]))
        if draw(st.booleans())
        else None,
    )


def exact_point(ball, rng, toward):
    """A point of one exact set the ball image may stand for, in mpmath: far along `toward`."""
    columns = ball.matrix.shape[1]
    u = ball.matrix.T @ (toward / (np.abs(toward).max() or 1.0))
    u = u if rng.random() < 0.7 and np.any(u) else rng.standard_normal(columns)
    u = to_mp(u / np.abs(u).max())
    u = u / mp.norm(u)
    matrix = to_mp(ball.matrix)
    if ball.row_error is not None:
        # The error that helps most: along u, signed with the direction.
        matrix = matrix + to_mp(np.sign(toward) * ball.row_error) * u.T
    point = matrix * u * mp.mpf(ball.radius.lower)
    if ball.offset is not None:
        point = point + to_mp(ball.offset)
    if ball.offset_error is not None:
        point = point + to_mp(np.sign(toward) * ball.offset_error)
    return point


@given(balls(), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_no_point_of_the_image_lies_outside_its_cover(ball, weight, seed):
    rng = np.random.default_rng(seed)
    found = cover(ball, weight)
    transform = rng.standard_normal((int(rng.integers(1, 5)), ball.head_dim))
    scales = 10.0 ** rng.uniform(-3, 3, ball.head_dim)
    norm, image, scaled = (
        found.norm_upper(),
        found.image_norm_upper(transform),
        (found.norm_upper(scales)),
    )
    with mp.workdps(DIGITS):
        for _ in range(4):
            x = exact_point(ball, rng, rng.standard_normal(ball.head_dim))
            assert mp.norm(x) <= mp.mpf(norm)
            assert mp.norm(x) <= mp.mpf(ball.norm_upper)
            assert mp.norm(to_mp(transform) * x) <= mp.mpf(image)
            assert mp.norm(to_mp(np.diag(scales)) * x) <= mp.mpf(scaled)


@given(balls((2,)))
def test_the_norm_of_an_image_is_tight_without_errors(ball):
    ball = BallImage(ball.matrix, offset=ball.offset, radius=Enclosure.exact(3.0))
    offset = np.zeros(ball.head_dim) if ball.offset is None else ball.offset
    with mp.workdps(DIGITS):
        true = largest_norm(to_mp(ball.matrix) * 3, to_mp(offset))
        assert true <= mp.mpf(ball.norm_upper) * (1 + mp.mpf(10) ** -40)
        # The weight is clamped at 2^-40, and the secular equation solved to about 1e-13.
        assert mp.mpf(ball.norm_upper) <= true * (1 + mp.mpf(10) ** -10) + mp.mpf(10) ** -300


@pytest.mark.parametrize("gap", [1e-8, 1e-3, 1.0])
def test_biases_that_miss_the_top_direction_stay_tight(gap):
    """The hard case of the trust region, and cases close to it."""
    matrix = np.diag([2.0, 2.0 - gap, 0.5])
    for offset in ([0.0, 0.0, 1.0], [0.0, 0.3, 0.0], [1e-12, 1.0, 0.0], [0.0, 0.0, 1e-9]):
        ball = BallImage(matrix, offset=np.array(offset))
        with mp.workdps(DIGITS):
            true = largest_norm(to_mp(matrix), to_mp(np.array(offset)))
            assert true <= mp.mpf(ball.norm_upper) * (1 + mp.mpf(10) ** -15)
            assert mp.mpf(ball.norm_upper) <= true * (1 + mp.mpf(10) ** -9)


def test_the_best_weight_does_not_depend_on_a_common_scale():
    rng = np.random.default_rng(4)
    x, offset = rng.standard_normal((4, 5)), rng.standard_normal(4)
    usual = best_weight(x @ x.T, offset)
    for scale in (2.0**-300, 2.0**-100, 2.0**200):
        assert best_weight(x @ x.T * scale**2, offset * scale) == pytest.approx(usual, rel=1e-9)


def test_offsets_left_out_do_not_count():
    ball = BallImage(np.eye(2), offset=np.array([0.0, 5.0]), offset_error=np.array([0.0, 1.0]))
    keep = np.array([True, False])
    assert cover(ball, keep=keep).norm_upper() == pytest.approx(1.0, rel=1e-12)


def test_an_error_without_an_offset_is_an_error_of_zero():
    ball = BallImage(np.zeros((2, 1)), offset_error=np.array([3.0, 4.0]))
    assert 5.0 <= ball.norm_upper <= 5.0 * (1 + 1e-14)
    assert np.array_equal(ball.offset, np.zeros(2))
    assert ball.offset_point.error >= 5.0


def test_an_image_of_radius_zero_is_its_offset():
    ball = BallImage(np.eye(2), offset=np.array([3.0, 4.0]), radius=Enclosure.exact(0.0))
    assert 5.0 <= ball.norm_upper <= 5.0 * (1 + 1e-11)
    assert BallImage(np.eye(2), radius=Enclosure.exact(0.0)).norm_upper == 0.0


@pytest.mark.parametrize("size", [1e155, 1e300])
def test_matrices_whose_squares_overflow_are_refused(size):
    with pytest.raises(ArgumentError, match="shorter than 1e150"):
        _ = BallImage(np.full((2, 2), size)).gram


@given(balls())
def test_row_sizes_are_upper_bounds(ball):
    with mp.workdps(DIGITS):
        for row, size in zip(ball.matrix, ball.row_sizes, strict=True):
            assert mp.norm(to_mp(row)) <= mp.mpf(size)
            assert (size == 0.0) == (not np.any(row))
