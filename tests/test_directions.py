"""What norms leave of vectors that do not point everywhere."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import direction_checks
from direction_checks import Case, reached
from dispersion.directions import cone_of
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.narrow import Narrow, closest, narrowed, through
from dispersion.norms import centred_rows, projection_ball, qk_norm_ball, section_ball
from dispersion.spread import spread_bound

cases = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 12),
    width=st.integers(2, 14),
    grading=st.floats(0, 2),
    bias=st.none() | st.floats(-3, 5),
    norm=st.sampled_from(("rms", "layer")),
    centred=st.booleans(),
    eps=st.sampled_from((0.0, 1e-6, 1e-2, 10.0)),
)


class TestSections:
    @given(case=cases, share=st.sampled_from((0.05, 0.5, 0.95)), log=st.sampled_from((0, 1, 3, 6)))
    def test_no_point_that_ascent_reaches_is_outside(self, case, share, log):
        direction_checks.check_sections(case, share, 2.0**log)

    @given(case=cases)
    def test_a_narrower_cone_is_not_proved(self, case):
        direction_checks.check_proofs(case)

    def test_cones_and_subspaces_touch_their_ellipsoids(self):
        for bias, width in ((3.0, 8), (None, 3)):
            case = Case(5, 8, width, 0.3, bias, "rms", False, 0.0)
            section = cone_of(case.points()).section()
            assert 1 - 2.0**-12 < reached(case, section) <= 1

    def test_the_axis_is_cut_where_a_cone_is_thin(self):
        # Columns of size 0.01 beside a bias of 1: y is within 0.01 of the axis, t ≥ t₀ near 1.
        weight = 0.01 * np.eye(6)
        bias = np.zeros(6)
        bias[0] = 6**0.5
        points = projection_ball(weight, norm="rms", bias=bias)
        cone = cone_of(points)
        plain, cut = cone.section(0.9), cone.section(0.9, 64.0, eps=1e-9)
        extents = [np.linalg.norm(s.matrix, axis=1)[0] for s in (plain, cut)]
        assert extents[0] > 1
        assert extents[1] < 0.05
        assert abs(cut.offset[0] - 1) < 0.05

    def test_nothing_is_cut_where_every_direction_is_reached(self):
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((6, 9))
        assert cone_of(projection_ball(weight.copy(), norm="rms")) is None
        assert cone_of(projection_ball(weight.copy(), norm="rms", bias=0.1 * np.ones(6))) is None
        # Centred inputs have one coordinate less.
        square = projection_ball(weight[:, :6].copy(), norm="layer")
        assert cone_of(square) is None
        assert cone_of(square, centred=True).inside == 5

    def test_without_a_norm_in_front_a_bias_makes_no_cone(self):
        points = BallImage(matrix=np.eye(4)[:, :2] * 0.01, offset=np.ones(4))
        assert cone_of(points).levels is not None
        found = cone_of(points, bounded=False)
        assert found.levels is None
        assert found.inside == 3


class TestBalls:
    @given(case=cases, offset=st.sampled_from((0.0, 1.0)), log=st.sampled_from((0, 3)))
    def test_gains_and_biases_behind(self, case, offset, log):
        direction_checks.check_balls(case, offset, 2.0**log)

    def test_the_closest_is_no_looser_than_all_directions(self):
        case = Case(3, 6, 4, 0.5, None, "rms", False, 1e-6)
        gain = case.rng(1).standard_normal(6)
        plain = qk_norm_ball(gain, kind="rms", head_dim=6)
        found = closest(cone_of(case.points()), plain, gain, eps=1e-6)
        assert np.linalg.norm(found.gram) < np.linalg.norm(plain.gram)

    def test_rows_without_their_mean(self):
        rng = np.random.default_rng(2)
        ball = BallImage(matrix=rng.standard_normal((5, 3)), offset=rng.standard_normal(5))
        found = centred_rows(ball)
        np.testing.assert_allclose(found.matrix.sum(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose(found.offset, ball.offset - ball.offset.mean(), rtol=1e-14)
        assert np.all(found.row_error > 0)


class TestLatents:
    @given(case=cases)
    def test_no_point_behind_a_latent_is_outside(self, case):
        direction_checks.check_latents(case)

    def test_few_inputs_of_a_latent_shrink_its_image_to_what_they_reach(self):
        rng = np.random.default_rng(6)
        inner, outer = rng.standard_normal((7, 2)), rng.standard_normal((4, 7))
        plain = projection_ball(outer.copy(), norm="rms")
        found = through(cone_of(projection_ball(inner.copy(), norm="rms")), plain)
        basis = np.linalg.qr(inner)[0]
        largest = np.linalg.norm(outer @ basis, 2)
        assert np.linalg.norm(plain.matrix, 2) > 1.1 * largest
        # Rows across the subspace are 2^13 long, so what is off is of their inverse.
        assert largest <= np.linalg.norm(found.matrix, 2) < largest * (1 + 2.0**-13)
        assert np.all(found.row_error > 0)


class TestHeads:
    def head(self):
        rng = np.random.default_rng(4)
        gains = rng.standard_normal((2, 8))
        plain = [qk_norm_ball(g, kind="rms", head_dim=8) for g in gains]
        balls = []
        for side, gain in zip(plain, gains, strict=True):
            points = projection_ball(rng.standard_normal((8, 3)), norm="rms")
            balls.append(section_ball(cone_of(points).section(), side, gain))
        head = Head(*plain, Enclosure.exact(1.0))
        return replace(head, narrow=Narrow(tuple(plain), tuple(balls)))

    def test_bounds_are_those_of_the_closer_images(self):
        head = self.head()
        closer = narrowed(head)
        assert closer is not head
        bound = spread_bound(head)
        assert bound.spread == spread_bound(closer).spread
        assert bound.spread < 0.9 * spread_bound(replace(head, narrow=None)).spread

    @pytest.mark.parametrize("side", ["query", "key"])
    def test_images_of_other_balls_are_not_used(self, side):
        head = self.head()
        ball = getattr(head, side)
        other = replace(head, **{side: replace(ball, matrix=2 * ball.matrix)})
        assert narrowed(other) is other
        assert spread_bound(other) == spread_bound(replace(other, narrow=None))


@pytest.mark.parametrize(
    ("size", "offset"), [(1.0, 1e-170), (1e-160, 1e-170), (1e149, 1e-161), (1e140, 1e149)]
)
@pytest.mark.parametrize("rows", [1, 3])
def test_nothing_is_said_of_what_is_out_of_range(rows, size, offset):
    matrix = size * np.ones((rows, 2))
    assert cone_of(BallImage(matrix, offset * np.ones(rows))) is None
    assert cone_of(BallImage(np.ones((1, 2)), np.full(1, 100.0))) is None
