"""Heads whose Gram matrices are off by all that they may be off, and what must still hold.

The checks raise AssertionError; the real code and the mutants go through the same ones.
"""

from dataclasses import replace

import numpy as np

from attention_layer import Layer
from dispersion import search, spread, witness
from dispersion.cholesky import gamma
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Gram, Head
from dispersion.offsets import exact_spread
from dispersion.points import GramData, query_along
from dispersion.rotary import rotary
from dispersion.spectrum import spectrum
from head_checks import EPS, free_spread, lag_spread
from matrix_truth import spread_truth

ERROR = 0.04  # relative to the norms of two rows; far beyond any device, to show above all slack
SMALL = 1e-3  # where larger errors would leave nothing to say
SIGNS = {  # of the errors of all entries
    "less": lambda size: -np.ones((size, size)),
    "more": lambda size: np.ones((size, size)),
    "shrunk": lambda size: -np.eye(size),
    "grown": np.eye,
}


def planted(ball, sign, error=ERROR):
    """The ball with a Gram matrix whose entries have the largest error allowed, and says so."""
    if sign is None:
        return ball
    sizes = np.linalg.norm(ball.matrix, axis=1) * (1 - 2.0**-40)
    value = ball.matrix @ ball.matrix.T + error * SIGNS[sign](len(sizes)) * np.outer(sizes, sizes)
    rounding = gamma(ball.matrix.shape[1] + 16)
    return replace(ball, given=Gram(ball.matrix, value, (error + rounding) * (1 + error)))


def attacked(head, query="less", key="less", error=ERROR):
    return replace(
        head,
        query=planted(head.query, query, error),
        key=planted(head.key, key, error),
    )


def matrices(rng, dim):
    """Rows that are long in one common direction, as the errors are, and of full rank."""
    common = np.outer(rng.choice([-1.0, 1.0], dim), rng.standard_normal(3 * dim))
    return common + 0.5 * rng.standard_normal((dim, 3 * dim))


def heads(seed, turn=None, bias=0.0, count=6):
    rng = np.random.default_rng([43, seed])
    dim = 3 if turn is None else turn.head_dim
    for _ in range(count):
        balls = [
            BallImage(
                matrices(rng, dim),
                offset=bias * rng.standard_normal(dim) if bias else None,
                radius=Enclosure(2.0, 2.0),
            )
            for _ in range(2)
        ]
        yield Head(*balls, scale=Enclosure.exact(0.5), rotary=turn)


def check_unrotated():
    """T9 against the trust-region optimum."""
    for bias in (0.0, 2.0):
        for head in heads(0, bias=bias):
            for query, key in (("less", "less"), ("less", "grown"), ("shrunk", "more")):
                got = spread.spread_bound(attacked(head, query, key)).spread
                assert float(spread_truth(head.query, head.key)) * 0.5 <= got, (bias, query, key)


def check_rotated():
    """T10 against ascent: one pair, where nothing but the attack lies between them, and more."""
    rng = np.random.default_rng(47)
    for turn in (rotary([1.0], 2), rotary([1.0, 0.3], 4), rotary([1.0], 4, rotated=2)):
        for bias in (0.0, 1.0):
            for head in heads(1, turn, bias, count=3):
                reached = free_spread(head, rng)
                got = spread.spread_bound(attacked(head)).spread
                assert reached <= got * (1 + 64 * EPS), (turn, bias, reached, got)


def check_spectrum():
    """Every singular value of s·AᵀC; with rotation for keys that their cover fits exactly."""
    turn = rotary([1.0], 2)
    round_key = BallImage(np.kron(np.eye(2), [[3.0, 4.0]]))
    cases = [*heads(2), *(replace(h, key=round_key) for h in heads(3, turn))]
    partly = rotary([1.0], 3, rotated=2)
    cases += [replace(h, key=BallImage(np.kron(np.eye(3), [[3.0, 4.0]]))) for h in heads(4, partly)]
    for head in cases:
        query, key = (b.matrix * b.radius.lower for b in (head.query, head.key))
        width = max(query.shape[1], key.shape[1])
        query, key = (np.pad(m, ((0, 0), (0, width - m.shape[1]))) for m in (query, key))
        exact = 0.5 * np.linalg.svd(query.T @ key, compute_uv=False)[: len(query)]
        for signs in [*((s, None) for s in SIGNS), *((None, s) for s in SIGNS), ("less", "less")]:
            values = spectrum(attacked(head, *signs)).values
            assert np.all(exact <= values * (1 + 64 * EPS)), (head.rotary, signs, exact, values)


def check_offsets():
    """Exact offsets against ascent over pairs of lags."""
    rng = np.random.default_rng(59)
    for bias in (0.0, 1.0):
        for head in heads(5, rotary([0.9], 2), bias, count=4):
            other = attacked(head)
            free = spread.spread_bound(other).spread
            got = exact_spread(other, 4, free).spread
            reached = lag_spread(head, np.arange(4), rng)
            assert reached <= got * (1 + 64 * EPS), (bias, reached, got)


def check_norms():
    """The largest norm of an image, with and without an offset."""
    rng = np.random.default_rng(61)
    for bias in (0.0, 2.0):
        for head in heads(6, bias=bias):
            for ball in (head.query, head.key):
                u = rng.standard_normal((4000, ball.matrix.shape[1])) @ ball.matrix.T @ ball.matrix
                x = 2.0 * (u / np.linalg.norm(u, axis=1, keepdims=True)) @ ball.matrix.T
                x = x if ball.offset is None else x + ball.offset
                reached = float(np.linalg.norm(x, axis=1).max())
                if ball.offset is None:
                    reached = 2.0 * float(np.linalg.norm(ball.matrix, 2)) * (1 - 64 * EPS)
                assert reached <= planted(ball, "less").norm_upper, (bias, reached)


def check_row_sizes():
    for head in heads(7):
        exact = np.linalg.norm(head.query.matrix, axis=1)
        assert np.all(planted(head.query, "less").row_sizes >= exact * (1 - 8 * EPS))


def check_points():
    """Queries along a direction and norms ‖Mᵀz‖, both enclosed."""
    rng = np.random.default_rng(67)
    seen = 0
    for head in heads(8):
        ball = head.query
        for sign in SIGNS:
            other = planted(ball, sign, SMALL)
            data = GramData.of(other)
            z = rng.standard_normal((20, ball.head_dim))
            found = data.half_norm(z, 0.0)
            exact = np.linalg.norm(z @ ball.matrix, axis=1)
            assert np.all((found.lower <= exact) & (exact <= found.upper)), sign
            for y in z:
                point = query_along(other, data, y)
                if point is None:  # the error hides its value
                    continue
                seen += 1
                u = ball.matrix.T @ y
                x = 2.0 * ball.matrix @ (u / np.linalg.norm(u))
                assert np.linalg.norm(x - point.value) <= point.error * (1 + 64 * EPS), sign
    assert seen > 100


def check_floors():
    """What no key's logit exceeds at any angle comes of D and c with Gram matrix ⪰ c·diag(D)."""
    for turn in (None, rotary([1.0], 2)):
        for head in heads(9, turn):
            for sign in SIGNS:
                floor, share = witness._key_floor(planted(head.key, sign), turn)
                rest = head.key.matrix @ head.key.matrix.T - share * np.diag(floor)
                room = 64 * EPS * float(np.trace(rest))
                assert np.linalg.eigvalsh(rest)[0] >= -room, (sign, share)


def check_witnesses():
    """Claims of witnesses against an explicit softmax; directions as without the attack."""
    turn = {"frequencies": (1.0, 0.31)}
    kinds = ({}, turn, {"bias": 1.0, **turn}, {"norm": "layer", "norm_bias": True, "scale": 2e-4})
    for index, kind in enumerate(kinds):
        layer = Layer(np.random.default_rng([71, index]), width=40, **({"scale": 1e-3} | kind))
        head = layer.head()
        for sign in SIGNS:
            for n in (3, 7):
                lags = search.candidate_lags(head, n)
                direction = search.best_direction(head, lags, n)
                found = witness.evaluate(attacked(head, sign, sign, SMALL), n, direction, lags)
                assert found is not None
                logits, shares = layer.row(found.inputs(n))
                got = float(shares[-1 - found.target_lag(n)])
                # Inputs are rounded to float64.
                slip = 256 * layer.width * EPS * (1 + float(np.abs(logits).max()))
                assert found.coefficient(n) <= got * (1 + slip), (kind, sign, n)
