"""Norms as ball images: what they leave out is smaller than the error they state."""

import mpmath as mp
import numpy as np
import pytest
from flint import fmpq_mat

from dispersion.errors import ArgumentError
from dispersion.norms import capped_ball, projection_ball, qk_norm_ball, unit_ball
from head_checks import check_balls, check_roundings
from matrix_truth import exact_projector, fraction, rational, within_rows


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_projections_state_their_rounding(norm, shift, size):
    check_roundings(norm, shift, size)


def test_gains_shifted_in_float32_stay_within_the_error():
    rng = np.random.default_rng(2)
    gain = rng.standard_normal(16).astype(np.float32) / 3
    model = (np.float32(1) + gain).astype(np.float64)
    weight = rng.standard_normal((4, 16))
    ball = projection_ball(weight, norm="rms", gain=gain.astype(float), gain_offset=1.0)
    assert within_rows(rational(weight) * rational(np.diag(model)), ball.matrix, ball.row_error)
    qk = qk_norm_ball(gain.astype(float), kind="rms", head_dim=16, gain_offset=1.0)
    assert within_rows(rational(np.diag(model)), qk.matrix, qk.row_error)


@pytest.mark.parametrize(("width", "start"), [(4, 0), (12, 0), (12, 8)])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_layer_qk_norms_state_their_rounding(width, start, shift):
    rng = np.random.default_rng(3)
    gain, bias = rng.standard_normal(width), rng.standard_normal(width)
    ball = qk_norm_ball(
        gain,
        kind="layer",
        head_dim=4,
        norm_width=width,
        start=start,
        gain_offset=shift,
        bias=bias,
    )
    exact = exact_projector(width)
    rows = fmpq_mat(
        4,
        width,
        [
            (fraction(gain[start + i]) + fraction(shift)) * exact[start + i, j]
            for i in range(4)
            for j in range(width)
        ],
    )
    assert within_rows(rows, ball.matrix, ball.row_error)
    assert np.array_equal(ball.offset, bias[start : start + 4])


def test_states_never_leave_their_ball_whatever_the_epsilon():
    check_balls()


def test_one_head_may_take_the_whole_layerwise_norm():
    gain = np.arange(1.0, 13.0)
    ball = qk_norm_ball(gain, kind="rms", head_dim=4, norm_width=12, start=4)
    x = np.zeros(12)
    x[7] = 1e-3
    normalised = x / np.sqrt((x * x).mean()) * gain
    assert normalised[7] == pytest.approx(ball.norm_upper, rel=1e-14)
    assert ball.is_diagonal
    assert np.array_equal(np.diag(ball.matrix), gain[4:8])


def test_radii_enclose_the_root_of_the_width():
    for width in (1, 2, 64, 2560, 4096):
        ball = projection_ball(np.ones((1, width)), norm="rms")
        with mp.workdps(40):
            assert mp.mpf(ball.radius.lower) <= mp.sqrt(width) <= mp.mpf(ball.radius.upper)


def test_gains_of_one_are_exact():
    assert qk_norm_ball(None, kind="rms", head_dim=4).row_error is None
    assert projection_ball(np.eye(3), norm="rms").row_error is None


def test_balls_of_a_stated_norm():
    assert capped_ball(np.eye(2), radius=0.0).norm_upper == 0.0
    assert unit_ball(3).norm_upper == 1.0
    for radius in (-1.0, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="input norm"):
            capped_ball(np.eye(2), radius=radius)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: projection_ball(np.ones(3), norm="rms"), "weight"),
        (lambda: projection_ball(np.ones((0, 3)), norm="rms"), "weight"),
        (lambda: projection_ball(np.ones((2, 3)), norm="rms", gain=np.ones(2)), "gain"),
        (lambda: projection_ball(np.ones((2, 3)), norm="rms", bias=np.ones(3)), "bias"),
        (lambda: projection_ball(np.ones((2, 3)), norm="rms", norm_bias=np.ones(2)), "norm_bias"),
        (lambda: qk_norm_ball(np.ones(4), kind="rms", head_dim=4, start=1), "start"),
        (lambda: qk_norm_ball(np.ones(3), kind="rms", head_dim=4), "gain"),
    ],
)
def test_wrong_shapes_are_named(call, match):
    with pytest.raises(ArgumentError, match=match):
        call()
