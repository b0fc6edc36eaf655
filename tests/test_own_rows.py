"""Rows of heads that do not rotate, whose own key has the query's input."""

import dataclasses
import math

import numpy as np
import pytest

from dispersion import own_rows
from dispersion.checking import check_head
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.own_rows import own_spreads
from dispersion.picked import picked
from dispersion.position_bias import BoundedBias, LinearBias, TableBias
from dispersion.reach import Reach
from dispersion.spread import spread_bound
from dispersion.verdict import Target

DIM, WIDTH, SCALE = 5, 8, 0.5


def head_of(seed, *, offsets=False, **more):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, DIM, WIDTH))
    key += query * rng.uniform(-1, 1)
    shifts = 2 * rng.standard_normal((2, DIM)) if offsets else (None, None)
    return Head(
        BallImage(query, offset=shifts[0]),
        BallImage(key, offset=shifts[1]),
        Enclosure.exact(SCALE),
        reach=Reach(WIDTH, 1.0),
        **more,
    )


def climbed(head, value):
    """The largest value(norm, own) that ascent on the query's input finds.

    Other keys' logits lie up to `norm` to either side of the key bias's part, the own one's at
    `own`.
    """
    a, c = head.query.matrix, head.key.matrix
    offset = np.zeros(DIM) if head.query.offset is None else head.query.offset
    rng = np.random.default_rng(0)
    best = -math.inf
    for sign in (1.0, -1.0, 0.0):
        u = rng.standard_normal((WIDTH, 40))
        u /= np.linalg.norm(u, axis=0)
        for step in np.geomspace(0.5, 1e-4, 250):
            q = a @ u + offset[:, None]
            pulled = c.T @ q
            norm = np.linalg.norm(pulled, axis=0)
            own = np.einsum("ij,ij->j", q, c @ u)
            best = max(best, float(np.max(value(SCALE * norm, SCALE * own))))
            slope = a.T @ (c @ (pulled / np.maximum(norm, 1e-12)))
            slope = (2.0 - abs(sign)) * slope + sign * (a.T @ (c @ u) + c.T @ q)
            u = u + step * slope / np.linalg.norm(slope, axis=0)
            u /= np.maximum(1.0, np.linalg.norm(u, axis=0))
    return best


def reached(head, biases, own=0):
    """The largest spread of a row of biases, of which the own key has number `own`."""
    others = [b for i, b in enumerate(biases) if i != own]
    most, least = max(others), min(others)
    # One key takes one of two biases: the best of different keys.
    apart = max(
        (x - y for i, x in enumerate(others) for j, y in enumerate(others) if i != j), default=None
    )

    def value(norm, logit):
        found = np.maximum(logit + biases[own] - (-norm + least), norm + most - logit - biases[own])
        return found if apart is None else np.maximum(found, 2 * norm + apart)

    return climbed(head, value)


def spread_of(head, spread, length):
    return own_spreads(head, spread, [length]).get(length)


def bound_of(head, length):
    return check_head(head, [Target(length)]).spread.upper


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("offsets", [False, True])
def test_a_row_of_two_keys_is_bounded_as_closely_as_inputs_reach(seed, offsets):
    head = head_of(seed, offsets=offsets)
    found = reached(head, [0.0, 0.0])
    assert found <= bound_of(head, 2) <= found * (1.05 if offsets else 1.0005)
    narrow = dataclasses.replace(head, window=2)
    assert bound_of(narrow, 50) == bound_of(head, 2) < bound_of(head, 50)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("length", [2, 3, 6])
def test_linear_biases_count_the_own_key_apart(seed, length):
    slope = 0.25 * (1 + seed)
    head = head_of(seed, offsets=seed % 2 == 0, bias=LinearBias(Enclosure.exact(slope)))
    found = reached(head, [-slope * j for j in range(length)])
    assert found <= bound_of(head, length) <= found * 1.05


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("directions", [1, 2])
def test_tables_count_the_own_key_apart(seed, directions):
    rng = np.random.default_rng(seed)
    values = 2 * rng.standard_normal(8 * directions)
    values[0] += 6 * (-1) ** seed
    table = TableBias(tuple(values), 4, 20, directions)
    head = head_of(seed, bias=table, causal=directions == 1)
    # Four tokens: the buckets of distances 1 to 3, on either side where keys may stand there.
    used = [values[0], *values[1:4]]
    if directions == 2:
        used += list(values[9:12])
    found = reached(head, used)
    assert found <= bound_of(head, 4) <= found * 1.001
    usual = spread_bound(head).spread + table.spread(4)
    assert bound_of(head, 4) <= usual * (1 + 2.0**-50)


@pytest.mark.parametrize("cap", [0.5, 3.0, 40.0])
def test_a_soft_cap_stays_above_what_is_reached(cap):
    head = head_of(3, soft_cap=cap)

    def value(norm, own):
        high, low, own = (cap * np.tanh(x / cap) for x in (norm, -norm, own))
        return np.maximum(own - low, high - own)

    assert climbed(head, value) <= bound_of(head, 2)


def test_a_single_key_has_no_spread():
    assert bound_of(head_of(0), 1) == 0
    assert bound_of(head_of(0, window=1), 100) == 0


def test_lengths_together_and_alone_say_the_same():
    head = head_of(1, offsets=True, bias=LinearBias(Enclosure.exact(2.0)))
    for each in (head, head_of(2, window=2)):
        together = own_spreads(each, 10.0, [1, 2, 3, 5])
        assert {n: spread_of(each, 10.0, n) for n in (1, 2, 3, 5)} == together


def test_windows_on_both_sides_show_keys_of_both():
    head = head_of(0, window=2, causal=False)
    assert spread_of(head, 10.0, 2) is not None
    assert spread_of(head, 10.0, 3) is None
    assert spread_of(dataclasses.replace(head, window=1), 10.0, 3) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda head: dataclasses.replace(head, self_attention=False),
        lambda head: dataclasses.replace(head, reach=None),
        lambda head: dataclasses.replace(
            head, reach=dataclasses.replace(head.reach, keys=head.reach)
        ),
        lambda head: dataclasses.replace(head, window=2, chunked=True),
        lambda head: picked(head, 2),
        lambda head: dataclasses.replace(head, bias=BoundedBias(1.0)),
    ],
)
def test_nothing_is_said_where_the_own_key_is_not_known(change):
    assert spread_of(head_of(0), 10.0, 2) is not None
    head = change(head_of(0))
    for length in (1, 2):
        assert spread_of(head, 10.0, length) in (
            None,
            *([0.0] if head.bias and length == 1 else []),
        )


def test_a_lost_own_key_is_caught(monkeypatch):
    found = own_rows._own_differences
    monkeypatch.setattr(
        own_rows, "_own_differences", lambda head: tuple(0.8 * x for x in found(head))
    )
    with pytest.raises((AssertionError, RuntimeError)):
        test_a_row_of_two_keys_is_bounded_as_closely_as_inputs_reach(0, False)
