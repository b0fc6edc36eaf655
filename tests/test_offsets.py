"""Spreads over the real offsets of a context: never below ascent, never above the free bound."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispersion import rigor
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage
from dispersion.lag_pairs import LagPairs
from dispersion.offsets import exact_spread, exact_spreads
from dispersion.rotary import Rotary, rotary
from dispersion.spread import spread_bound
from head_checks import (
    EPS,
    check_offsets,
    counterexample,
    graded,
    lag_spread,
    plain,
    rotated_heads,
)


def exact(head, length):
    return exact_spread(head, length, spread_bound(head).spread).spread


def test_exact_offsets_are_near_what_ascent_reaches():
    check_offsets()


def test_two_keys_at_a_right_angle_spread_by_one():
    assert exact(counterexample(), 2) == pytest.approx(1.0, rel=3e-3)
    assert exact(counterexample(), 2) >= 1.0
    # A third key, turned back by π, makes room for the free bound.
    assert exact(counterexample(), 3) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("kind", ["zero query", "zero key", "both"])
def test_heads_of_zeros_spread_by_nothing(kind):
    a, c = np.random.default_rng(0).standard_normal((2, 4, 3))
    a = a * (kind == "zero key")
    c = c * (kind == "zero query")
    assert exact(plain(a, c, rotary([1.0, 0.3], 4)), 5) <= 1e-100


@pytest.mark.parametrize(("length", "window"), [(1, None), (9, 1)])
def test_one_key_spreads_by_nothing(length, window):
    a, c = np.random.default_rng(0).standard_normal((2, 4, 3))
    head = plain(a, c, rotary([1.0, 0.3], 4), window=window)
    assert exact(head, length) == 0.0


def test_windows_limit_the_lags():
    head = next(iter(rotated_heads(seed=4)))
    windowed = dataclasses.replace(head, window=3)
    assert exact(windowed, 50) == pytest.approx(exact(head, 3), rel=1e-9)
    assert exact(windowed, 2) == pytest.approx(exact(head, 2), rel=1e-9)


def test_later_keys_count_where_attention_is_not_causal():
    rng = np.random.default_rng(2)
    for head in rotated_heads(seed=5, count=4):
        both = dataclasses.replace(head, causal=False)
        reached = lag_spread(head, np.arange(-3, 4), rng, starts=3, steps=25)
        assert reached <= exact(both, 4) * (1 + 64 * EPS)
        assert exact(head, 4) <= exact(both, 4) * 1.002


def test_longer_contexts_never_allow_less():
    for head in rotated_heads(seed=6, count=4):
        free = spread_bound(head).spread
        found = exact_spreads(head, [2, 3, 6, 9], free)
        values = [found[n].spread for n in (2, 3, 6, 9)]
        # The search stops within 0.2 % of the largest pair.
        assert all(x <= y * 1.0021 for x, y in pairwise(values))
        assert all(v <= free for v in values)


def test_a_key_bias_and_the_sign_of_the_lag_matter():
    """The bias' own term is largest at one lag of a three-token context, and signed right."""
    turn = Rotary(2, np.array([1.0]), np.array([[0, 1]]))
    query = BallImage(np.eye(2) * 1e-9, offset=np.array([1.0, 0.0]))
    key = BallImage(np.eye(2) * 1e-9, offset=np.array([0.0, 1.0]))
    head = plain(query, key, turn)
    terms = [np.sin(lag) for lag in range(3)]  # ⟨e1, R(−lag) e2⟩
    true = max(terms) - min(terms)
    assert true <= exact(head, 3) <= true * 1.01
    # Between lags 1 and 2 alone the direction of the rotation decides.
    mirrored = plain(BallImage(np.eye(2) * 1e-9, offset=np.array([1.0, -1.0])), key, turn)
    terms = [np.sin(lag) - np.cos(lag) for lag in range(3)]
    true = max(terms) - min(terms)
    assert true <= exact(mirrored, 3) <= true * 1.01


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(2, 5), st.booleans())
def test_random_heads_survive_ascent(seed, length, biased):
    rng = np.random.default_rng(seed)
    dim = int(rng.choice([2, 4]))
    size = 10.0 ** rng.integers(-3, 3)
    balls = [
        BallImage(
            graded(rng, dim, int(rng.integers(1, 5)), rng.choice([0.0, 2.0])),
            offset=rng.standard_normal(dim) * size if biased else None,
            radius=Enclosure.exact(2.0),
        )
        for _ in range(2)
    ]
    head = plain(*balls, rotary(rng.uniform(-3, 3, int(rng.integers(1, dim // 2 + 1))), dim))
    reached = lag_spread(head, np.arange(length), rng, starts=3, steps=25)
    assert reached <= exact(head, length) * (1 + 64 * EPS)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_searches_that_end_early_leave_the_largest_pair_alone(cap):
    head = dataclasses.replace(next(iter(rotated_heads(seed=4))), soft_cap=cap)
    free, pairs = spread_bound(head).spread, [(i, j) for i in range(7) for j in range(i)]
    work = LagPairs(head, 7)
    whole = [work.pair(i, j, free).bound for i, j in pairs]
    enough = float(np.median(whole))
    early = [work.pair(i, j, free, enough).bound for i, j in pairs]
    # Both searches agree to a hundredth of a percent where they go on.
    for full, found in zip(whole, early, strict=True):
        assert found >= full * (1 - 1e-4)
        assert found <= max(full * (1 + 1e-4), enough)
    assert min(early) > min(whole)


def test_errors_widen_the_bound():
    rng = np.random.default_rng(3)
    turn = rotary([1.0, 0.3], 4)
    a, c = rng.standard_normal((2, 4, 3))
    errors = rng.random((4, 4)) * 0.2
    offset = rng.standard_normal(4)
    query = BallImage(a, offset=offset, row_error=errors[0], offset_error=errors[1])
    key = BallImage(c, offset=offset, row_error=errors[2], offset_error=errors[3])
    got = exact(plain(query, key, turn), 4)
    for _ in range(10):
        moved = []
        for ball, rows, shift in ((query, errors[0], errors[1]), (key, errors[2], errors[3])):
            x = np.outer(rng.choice([-1.0, 1.0], 4), rng.standard_normal(3))
            x *= (rows / np.linalg.norm(x, axis=1))[:, None]
            moved.append(
                BallImage(ball.matrix + x, offset=ball.offset + shift * rng.choice([-1.0, 1.0], 4))
            )
        assert lag_spread(plain(*moved, turn), np.arange(4), rng, starts=3, steps=20) <= got


def test_soft_caps_and_scales_apply():
    head = next(iter(rotated_heads(seed=7)))
    plain_spread = exact(head, 4)
    capped = dataclasses.replace(head, soft_cap=2.0)
    whole = rigor.capped_spread(plain_spread, 2.0).upper
    # The cap also counts what it takes from a top and a bottom of different height.
    assert 0.99 * whole <= exact(capped, 4) <= whole * (1 + 1e-12)
    doubled = dataclasses.replace(head, scale=Enclosure.exact(2.0))
    assert exact(doubled, 4) == pytest.approx(2 * plain_spread, rel=1e-9)


def test_without_time_the_free_bound_stands_in_and_says_so():
    head = next(iter(rotated_heads(seed=8)))
    found = exact_spread(head, 6, 123.0, budget=0.0)
    assert found.spread == 123.0
    assert not found.exact
    assert "time budget" in found.notes[0]
