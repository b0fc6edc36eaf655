"""Heads whose squares leave the range of float64, on one side or in the product of both."""

import math

import numpy as np
import pytest

from dispersion.checking import check_head
from dispersion.covers import factor
from dispersion.ellipsoid import Ellipsoid
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.reach import Reach
from dispersion.rotary import rotary
from dispersion.spectrum import spectrum
from dispersion.verdict import Target

SIZES = [(1e132, 1e29), (1e144, 1e26), (1e112, 1e102), (1e-140, 1e-60), (1e-150, 1e140)]
TARGETS = [Target(7), Target(5, 0.5, "any")]
TURNED = {None: None, 4: [1.0, 0.1], 8: [1.0, 0.3, 0.1, 0.03]}


def head_of(query_size, key_size, turned, *, biased):
    rng = np.random.default_rng(3)
    balls = [
        BallImage(rng.standard_normal((8, 8)) * s, rng.standard_normal(8) * s if biased else None)
        for s in (query_size, key_size)
    ]
    turns = None if turned is None else rotary(TURNED[turned], 8, rotated=turned)
    return Head(balls[0], balls[1], Enclosure.exact(1.0), rotary=turns)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("turned", TURNED)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("offsets", ["free", "exact"])
def test_bounds_grow_with_the_weights(sizes, turned, biased, offsets):
    far, near = (
        check_head(head_of(*pair, turned, biased=biased), TARGETS, offsets=offsets).spread.upper
        for pair in (sizes, (1.0, 1.0))
    )
    ratio = far / (near * sizes[0] * sizes[1])
    # Searches that leave the range end early, and others start differently.
    assert 0.95 <= ratio <= 3


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("turned", TURNED)
def test_singular_values_neither_overflow_nor_vanish(sizes, turned):
    plain = spectrum(head_of(1.0, 1.0, turned, biased=False)).values
    found = spectrum(head_of(*sizes, turned, biased=False)).values
    ratios = found / (plain * (sizes[0] * sizes[1]))
    assert 0.95 <= ratios[0] <= 3
    assert np.all(np.isfinite(ratios))
    assert np.all(ratios > 0)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-15, 1e-200])
def test_a_bias_of_next_to_nothing_changes_nothing(size):
    rng = np.random.default_rng(0)
    rows, bias = rng.standard_normal((2, 4, 4)), rng.standard_normal(4)
    key = BallImage(rows[1])
    turns = rotary([1.0, 0.1], 4)
    plain, found = (
        check_head(
            Head(BallImage(rows[0], offset), key, Enclosure.exact(1.0), rotary=turns),
            [Target(16)],
            offsets="exact",
        ).spread.upper
        for offset in (None, bias * size)
    )
    assert found == pytest.approx(plain, rel=0.02 + 2 * size)


def test_queries_that_are_almost_their_bias_alone():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        query = BallImage(rng.standard_normal((16, 16)) * 1e-19, rng.standard_normal(16) * 1e-11)
        key = BallImage(rng.standard_normal((16, 2)), rng.standard_normal(16))
        turns = rotary([1.0, 0.1], 16, rotated=4)
        found = check_head(Head(query, key, Enclosure.exact(0.25), rotary=turns), TARGETS)
        assert 0 < found.spread.upper <= found.paper_spread < math.inf


@pytest.mark.parametrize("size", [1e-3, 1e-12, 1e-14, 1e-16, 1e-20, 1e-26, 1e-200])
@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_a_bias_of_next_to_nothing_changes_nothing_where_nothing_turns(size, length):
    rng = np.random.default_rng(0)
    rows, bias = rng.standard_normal((2, 4, 8)), rng.standard_normal(4)
    key = BallImage(rows[1])

    def spread(offset):
        query = BallImage(rows[0], offset)
        head = Head(query, key, Enclosure.exact(1.0), reach=Reach(8, 1.0))
        return check_head(head, [Target(length)]).spread

    found, plain = spread(bias * size), spread(None)
    assert found.upper == pytest.approx(plain.upper, rel=8 * size + 2e-6)
    # A little more than nothing may be witnessed of what is next to nothing.
    assert found.lower >= plain.lower * (1 - 8 * size - 1e-3)


@pytest.mark.parametrize(
    "sizes", [(1e70, 1.0), (1e-160, 1e-160), (1e80, 1e-80), (1e-150, 1e150), (1e-250, 1.0)]
)
def test_rows_of_two_keys_out_of_range_have_bounds(sizes):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((2, 4, 8))
    query, key = (BallImage(r * s) for r, s in zip(rows, sizes, strict=True))
    head = Head(query, key, Enclosure.exact(1.0), reach=Reach(8, 1.0))
    two, three = (check_head(head, [Target(n)]).spread.upper for n in (2, 3))
    assert two <= three < math.inf


def test_an_ellipsoid_without_squares_has_no_factor():
    ellipsoid = Ellipsoid(np.full((2, 2), math.inf), np.full(2, 1e160), 0.1, None)
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError):
        factor(ellipsoid)
