"""Exact offsets where the query token's own key follows from the query's input."""

import dataclasses

import numpy as np
import pytest

from dispersion import lag_pairs, own_key
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.offsets import exact_spread
from dispersion.reach import Reach
from dispersion.rotary import rotary
from dispersion.spread import spread_bound

DIM, WIDTH, LENGTH = 6, 10, 5


def head_of(seed: int, *, biased: bool, cap: float | None = None) -> Head:
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, DIM, WIDTH))
    # Queries and own keys that point the same way make the own key matter.
    key += query * rng.uniform(-1, 1)
    offsets = 2 * rng.standard_normal((2, DIM)) if biased else (None, None)
    return Head(
        BallImage(query, offset=offsets[0]),
        BallImage(key, offset=offsets[1]),
        Enclosure.exact(0.5),
        rotary=rotary([1.0, 0.3, 0.01], DIM),
        soft_cap=cap,
        reach=Reach(WIDTH, 1.0),
    )


def reached(head: Head, starts: int = 24, steps: int = 250) -> float:
    """The largest spread that ascent on the query's input finds, the own key tied to it."""
    rng = np.random.default_rng(0)
    a, c = head.query.matrix, head.key.matrix
    zeros = np.zeros(DIM)
    offset = zeros if head.query.offset is None else head.query.offset
    bias = zeros if head.key.offset is None else head.key.offset
    turns = [np.eye(DIM)]
    turns += [
        head.rotary.rotate(np.eye(DIM), np.full(DIM, lag), length=LENGTH).T
        for lag in range(1, LENGTH)
    ]

    def cap(x):
        return x if head.soft_cap is None else head.soft_cap * np.tanh(x / head.soft_cap)

    def slope(x):
        return 1.0 if head.soft_cap is None else 1 / np.cosh(x / head.soft_cap) ** 2

    best = 0.0
    for _ in range(starts):
        u = rng.standard_normal(WIDTH)
        u /= np.linalg.norm(u)
        step = 1.0
        for _ in range(steps):
            q = a @ u + offset
            own = 0.5 * q @ (c @ u + bias)
            logits, slopes = [], []
            for sign in (1.0, -1.0):
                values, gradients = [own], [0.5 * (a.T @ (c @ u + bias) + c.T @ q)]
                for turn in turns[1:]:
                    z = turn @ q
                    pulled = c.T @ z
                    size = np.linalg.norm(pulled)
                    values.append(0.5 * (sign * size + bias @ z))
                    gradients.append(
                        0.5 * a.T @ turn.T @ (sign * (c @ pulled) / max(size, 1e-12) + bias)
                    )
                logits.append(np.array(values))
                slopes.append(gradients)
            pairs = [
                (cap(logits[0][i]) - cap(logits[1][j]), i, j)
                for i in range(LENGTH)
                for j in range(LENGTH)
                if i != j
            ]
            value, i, j = max(pairs)
            best = max(best, value)
            gradient = slope(logits[0][i]) * slopes[0][i] - slope(logits[1][j]) * slopes[1][j]
            u = u + step * gradient / (np.linalg.norm(gradient) + 1e-12)
            u /= np.linalg.norm(u)
            step *= 0.97
    return float(best)


def check(head: Head) -> None:
    ascent = reached(head)
    found = exact_spread(head, LENGTH, spread_bound(head).spread)
    assert ascent <= found.spread * (1 + 1e-12), (ascent, found.spread)
    assert found.spread <= 1.05 * ascent, (ascent, found.spread)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("biased", "cap"), [(False, None), (True, None), (False, 3.0)])
def test_the_bound_holds_and_is_near_what_ascent_reaches(seed, biased, cap):
    check(head_of(seed, biased=biased, cap=cap))


def test_the_own_key_matters():
    """Without its tie to the query the own key reaches further, on some heads by far."""
    ratios = []
    for seed in range(6):
        head = head_of(seed, biased=False)
        tied = exact_spread(head, LENGTH, np.inf).spread
        free = exact_spread(dataclasses.replace(head, reach=None), LENGTH, np.inf).spread
        assert tied <= free * (1 + 1e-9)
        ratios.append(free / tied)
    assert max(ratios) > 1.05


def check_all() -> None:
    for seed in range(6):
        check(head_of(seed, biased=True))


def mutant(monkeypatch, change):
    real = own_key.JointBall.of.__func__
    monkeypatch.setattr(
        own_key.JointBall,
        "of",
        classmethod(lambda cls, head, offset: change(real(cls, head, offset))),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda joint: dataclasses.replace(joint, query=joint.query * 0.9),
        lambda joint: dataclasses.replace(joint, key_offset=-joint.key_offset),
        lambda joint: dataclasses.replace(joint, query_offset=0 * joint.query_offset),
    ],
    ids=["a query ball too small", "the sign of the key bias", "the query bias dropped"],
)
def test_planted_errors_are_caught(monkeypatch, change):
    mutant(monkeypatch, change)
    with pytest.raises(AssertionError):
        check_all()


def test_the_other_order_of_a_pair_must_be_tried(monkeypatch):
    real = lag_pairs.LagPairs._with_own_key

    def one_sided(self, lags, slopes, enough):
        return real(self, (max(lags), min(lags)), slopes, enough)

    monkeypatch.setattr(lag_pairs.LagPairs, "_with_own_key", one_sided)
    with pytest.raises(AssertionError):
        check_all()
