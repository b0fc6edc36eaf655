"""Certified spreads of heads: T8, T9, T10 against exact optima and ascent."""

import dataclasses
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.covers import factor, joint_norm, rotated_offset
from dispersion.ellipsoid import cover
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.head import BallImage, Head
from dispersion.norms import qk_norm_ball
from dispersion.rotary import Rotary, rotary
from dispersion.spread import product_bound, spread_bound
from dispersion.testing import heads
from head_checks import (
    EPS,
    ROTATIONS,
    SCALE,
    aligned,
    check_biased,
    check_errors,
    check_free_phases,
    check_products,
    counterexample,
    free_spread,
    graded,
    lag_spread,
    plain,
    random_row,
    rotated_heads,
)
from matrix_truth import DIGITS, bounds_norm, is_semidefinite, rational, spread_truth


def test_products_of_graded_matrices_are_certified_exactly():
    check_products()


def test_products_graded_over_many_decades_are_certified():
    rng = np.random.default_rng(8)
    for _ in range(25):
        a, c = graded(rng, 4, 3, 140.0), graded(rng, 4, 3, 0.0)
        c = c / np.abs(a).max(axis=1, keepdims=True)
        got = spread_bound(plain(a, c)).spread
        assert bounds_norm(rational(a).transpose() * rational(c), got / 2)


def test_biases_reach_the_trust_region_optimum():
    check_biased()


def test_rotated_bounds_survive_free_phases():
    check_free_phases()


def test_products_of_singular_values_are_no_ceiling_under_rotation():
    """σ_max(AᵀC) is exceeded by free phases in every random head; T10 is not."""
    rng = np.random.default_rng(7)
    for _ in range(6):
        a, c = rng.standard_normal((2, 6, 5))
        head = plain(a, c, rotary([1.0, 0.5, 0.2], 6))
        reached = free_spread(head, rng)
        assert reached > 2 * np.linalg.norm(a.T @ c, 2) * 1.01
        assert reached <= spread_bound(head).spread


def test_rank_one_pairs_reach_the_sum_over_pairs():
    rng = np.random.default_rng(9)
    a, c = rng.standard_normal((2, 6, 1))
    head = plain(a, c, rotary([1.0, 0.5, 0.2], 6))
    sizes = [np.hypot(x[:3, 0], x[3:, 0]) for x in (a, c)]
    true = 2 * float(sizes[0] @ sizes[1])
    assert true * (1 - 16 * EPS) <= spread_bound(head).spread <= true * (1 + 1e-3)


def test_free_phases_of_the_counterexample_reach_two_and_its_offsets_one():
    head = counterexample()
    assert spread_bound(head).spread == 2.0
    lags = lag_spread(head, [0, 1], np.random.default_rng(0))
    assert lags == pytest.approx(1.0, rel=1e-12)


@given(heads(), st.integers(0, 2**32))
def test_no_row_of_any_head_spreads_further(head, seed):
    """Random and alternating choices of tokens against spread and level, soft cap included."""
    rng = np.random.default_rng(seed)
    bound = spread_bound(head)
    logits = random_row(head, rng)
    size = float(np.abs(logits).max())
    room = 1e-13 * (1 + size) + 64 * EPS * _operands(head)
    assert logits.max() - logits.min() <= bound.spread + room
    assert size <= bound.level + room


def _operands(head):
    """The largest product that a dot product of this head may cancel."""
    return head.scale.upper * head.query.norm_upper * head.key.norm_upper


@pytest.mark.parametrize("name", ROTATIONS)
def test_heads_of_zeros_spread_by_nothing(name):
    some, none = np.random.default_rng(0).standard_normal((4, 6)), np.zeros((4, 6))
    for a, c in ((none, some), (some, none), (none, none)):
        assert spread_bound(plain(a, c, ROTATIONS[name])).spread == 0.0


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize(
    ("query", "key"),
    [(1e-170, 1.0), (1.0, 1e-170), (1e-170, 1e150), (1e-140, 1e-140), (1e150, 1e150)],
)
def test_scales_at_the_ends_of_the_range_are_never_undercut(name, query, key):
    a, c = np.random.default_rng(1).standard_normal((2, 4, 6))
    a, c = a * query, c * key
    got = spread_bound(plain(a, c, ROTATIONS[name])).spread
    assert bounds_norm(rational(a).transpose() * rational(c), got / 2)


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e-3, 1.0, 1e6])
def test_offsets_alone_and_beside_matrices_of_any_size(name, size):
    rng = np.random.default_rng(2)
    some, none = rng.standard_normal((4, 6)), np.zeros((4, 6))
    offset = rng.standard_normal(4) * size
    turn = ROTATIONS[name]
    for a, c in ((some, some), (none, some), (some, none), (none, none)):
        head = plain(BallImage(a, offset=offset), BallImage(c, offset=offset), turn)
        got = spread_bound(head).spread
        if turn is None:
            with mp.workdps(DIGITS):
                assert spread_truth(head.query, head.key) <= mp.mpf(got) * (1 + mp.mpf(10) ** -40)
            assert got <= float(spread_truth(head.query, head.key)) * (1 + 1e-7) + 1e-100
        else:
            reached = free_spread(head, rng, starts=3, steps=25)
            assert reached <= got * (1 + 64 * EPS)
            # The bias itself stands in both factors of T10; what it multiplies stays small.
            assert got <= max(reached, 1e-100) * 1.6


@pytest.mark.parametrize("name", ROTATIONS)
def test_radius_zero_leaves_the_offsets(name):
    still = Enclosure.exact(0.0)
    a, c = np.random.default_rng(3).standard_normal((2, 4, 6))
    offset = np.array([1.0, 2.0, 3.0, 4.0])
    query = BallImage(a, offset=offset, radius=still)
    assert spread_bound(plain(query, BallImage(c, radius=still), ROTATIONS[name])).spread <= 1e-100
    turned = spread_bound(
        plain(query, BallImage(c, offset=offset, radius=still), ROTATIONS[name])
    ).spread
    if name == "none":
        assert turned == 0.0
    else:
        seen = {"partial": offset[[0, 1]]}.get(name, offset)
        assert 2 * seen @ seen <= turned <= 2 * seen @ seen * 1.6


def test_a_key_bias_cancels_only_where_nothing_turns():
    a, c = np.random.default_rng(4).standard_normal((2, 4, 6))
    bias = np.array([30.0, 0.0, 0.0, 0.0])
    with_bias = BallImage(c, offset=bias)
    still, turned = ROTATIONS["none"], ROTATIONS["whole"]
    assert spread_bound(plain(a, with_bias)).spread == spread_bound(plain(a, c)).spread
    assert spread_bound(plain(a, with_bias, turned)).spread > 5 * spread_bound(plain(a, c)).spread
    unseen = BallImage(c, offset=bias[::-1].copy())
    partial = ROTATIONS["partial"]
    assert rotated_offset(plain(a, unseen, partial)) is None
    assert rotated_offset(plain(a, with_bias, still)) is None
    level = spread_bound(plain(a, with_bias, still)).level
    assert level > spread_bound(plain(a, with_bias, still)).spread


def test_a_query_bias_never_cancels():
    a, c = np.random.default_rng(5).standard_normal((2, 4, 6))
    bias = np.array([30.0, 0.0, 0.0, 0.0])
    for turn in ROTATIONS.values():
        biased = spread_bound(plain(BallImage(a, offset=bias), c, turn)).spread
        assert biased >= 2 * np.linalg.norm(c.T @ bias) * (1 - 1e-12)


def test_gains_alone_have_a_closed_form_that_free_phases_reach():
    rng = np.random.default_rng(6)
    for kind, turn in ROTATIONS.items():
        gains = rng.standard_normal((2, 4))
        q, k = (qk_norm_ball(g, kind="rms", head_dim=4) for g in gains)
        head = plain(q, k, turn)
        groups = [[i] for i in range(4)]
        if turn is not None:
            groups = [list(p) for p in turn.pairs] + [[i] for i in turn.unrotated]
        big = [[max(abs(gains[s][i]) for i in g) for g in groups] for s in (0, 1)]
        true = 2 * 4 * max(x * y for x, y in zip(*big, strict=True))
        got = spread_bound(head).spread
        assert true * (1 - 4 * EPS) <= got <= true * (1 + 8 * EPS), kind
        if turn is not None:
            reached = max(free_spread(head, rng, starts=30) for _ in range(2))
            assert true * (1 - 1e-6) <= reached <= got * (1 + 8 * EPS), kind


def test_errors_of_rows_and_offsets_widen_the_bound():
    check_errors()


def test_offset_errors_without_an_offset_count_in_the_level():
    query = BallImage(np.eye(2))
    key = BallImage(np.eye(2), offset_error=np.array([1.0, 0.0]))
    bound = spread_bound(plain(query, key))
    assert bound.spread == pytest.approx(2.0, rel=1e-12)
    assert bound.level >= 2.0


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_soft_caps_bound_spread_and_level(cap, scale):
    a, c = np.eye(2), np.diag([scale, 0.0])
    free = spread_bound(plain(a, c))
    capped = spread_bound(dataclasses.replace(plain(a, c), soft_cap=cap))
    with mp.workdps(DIGITS):
        true = 2 * mp.mpf(cap) * mp.tanh(mp.mpf(2 * scale) / (2 * mp.mpf(cap)))
        assert true <= mp.mpf(capped.spread) <= true * (1 + mp.mpf(10) ** -8)
        assert true / 2 <= mp.mpf(capped.level)
    assert capped.spread <= free.spread * (1 + 1e-12)
    assert capped.spread <= 2 * cap * (1 + 4 * EPS)


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-300, 1e-12, 1e12])
def test_any_scale_multiplies_the_spread(scale):
    head = plain(np.eye(2), np.eye(2), scale=Enclosure.exact(scale))
    got = spread_bound(dataclasses.replace(head, query=BallImage(np.eye(2) * 0.75))).spread
    assert 1.5 * scale <= got <= 1.5 * scale * (1 + 1e-12) + 1e-323


def test_scales_must_not_be_negative():
    with pytest.raises(ArgumentError, match="scale must not be negative"):
        plain(np.eye(2), np.eye(2), scale=Enclosure.exact(-1.0))


def test_the_upper_end_of_every_radius_and_scale_counts():
    wide = Enclosure(1.0, 2.0)
    query, key = BallImage(np.eye(2), radius=wide), BallImage(np.eye(2), radius=wide)
    for turn in (None, rotary([1.0], 2)):
        assert spread_bound(plain(query, key, turn, scale=wide)).spread >= 16.0


def test_unbounded_heads_are_refused():
    head = Head(query=None, key=BallImage(np.eye(2)), scale=SCALE)
    with pytest.raises(ArgumentError, match="norm cap"):
        spread_bound(head)
    assert product_bound(head) == math.inf


def test_factors_dominate_exactly():
    rng = np.random.default_rng(12)
    for index in range(12):
        ball = BallImage(graded(rng, 4, 1 + index % 4, 3.0))
        found = cover(ball)
        root, excess = factor(found)
        exact = rational(ball.matrix) * rational(ball.matrix).transpose()
        assert is_semidefinite(
            rational(root) * rational(root).transpose() * rational([[excess]])[0, 0] - exact
        )


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 1), (64, 1), (130, 2), (3, 200)])
def test_shapes_from_one_to_wide(shape):
    rng = np.random.default_rng(13)
    a, c = rng.standard_normal((2, *shape))
    true = 2 * np.linalg.norm(a.T @ c, 2)
    got = 2 * joint_norm(BallImage(a), BallImage(c))
    assert true * (1 - 64 * EPS) <= got <= true * (1 + 1e-8)


def test_large_rotated_heads_stay_above_ascent():
    """Past 48 coordinates the scales come from single precision."""
    rng = np.random.default_rng(14)
    a, c = rng.standard_normal((2, 64, 32))
    head = plain(a, c, rotary(10000.0 ** (-np.arange(32) / 32), 64))
    reached = free_spread(head, rng, starts=3, steps=40)
    assert reached <= spread_bound(head).spread <= reached * 1.1


def test_the_ascent_reaches_what_it_says():
    """Its value is a logit difference of two explicit keys."""
    head = next(iter(rotated_heads()))
    q, k = np.array([1.0, 2.0]), np.array([-3.0, 0.5])
    pairs = Rotary(2, np.array([1.0]), np.array([[0, 1]]))
    z = aligned(q, k, pairs)
    assert np.linalg.norm(z) == pytest.approx(np.linalg.norm(q), rel=1e-14)
    assert z @ k == pytest.approx(np.linalg.norm(q) * np.linalg.norm(k), rel=1e-14)
    assert free_spread(head, np.random.default_rng(0)) > 0
