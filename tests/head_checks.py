"""Checks of bounds on matrices and heads; each raises AssertionError where it fails.

The real functions and the planted mutants go through the same ones.
"""

import math

import mpmath as mp
import numpy as np
from flint import fmpq, fmpq_mat

from attention_layer import layers
from dispersion import norms, offsets, spread, witness
from dispersion.cholesky import lambda_max_upper
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.rotary import Rotary, rotary
from matrix_truth import (
    DIGITS,
    bounds_lambda,
    bounds_norm,
    exact_projector,
    fraction,
    rational,
    spread_truth,
    within_rows,
)

EPS = 2.0**-52
SCALE = Enclosure.exact(1.0)
ROTATIONS = {
    "none": None,
    "whole": rotary([1.0, 0.3], 4),
    "partial": rotary([1.0], 4, rotated=2),
    "interleaved": rotary([1.0, 0.3], 4, interleaved=True),
    "still": rotary([0.0, 0.0], 4),
}


def graded(rng, rows, columns, decades):
    """Rows of very different sizes, half of the time of rank one."""
    rank = 1 if rng.random() < 0.5 else columns
    matrix = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    return matrix * 10.0 ** rng.uniform(-decades, decades, (rows, 1))


def plain(query, key, turn=None, **kind):
    query = query if isinstance(query, BallImage) else BallImage(query)
    key = key if isinstance(key, BallImage) else BallImage(key)
    return Head(query=query, key=key, scale=kind.pop("scale", SCALE), rotary=turn, **kind)


def check_lambda_max(bound=lambda_max_upper, count=60):
    """Never below the exact λ_max, by rational arithmetic, and above it by little."""
    rng = np.random.default_rng(3)
    for index in range(count):
        size = int(rng.integers(1, 8))
        x = graded(rng, size, int(rng.integers(1, 8)), index % 4)
        matrix = x @ x.T if index % 3 else (x[:, :1] * x[:, 0]) - np.diag(np.abs(x[:, 0]))
        matrix = np.tril(matrix) + np.tril(matrix, -1).T
        got = bound(matrix)
        exact = rational(matrix)
        assert bounds_lambda(exact, rational([[got]])[0, 0]), (matrix.tolist(), got)
        trace = float(np.abs(np.diag(matrix)).sum())
        room = 256 * size * size * EPS * max(trace, abs(got))
        assert not bounds_lambda(exact, rational([[got - room]])[0, 0]), (matrix.tolist(), got)


def check_products(bound=spread.spread_bound, count=40, decades=6.0):
    """2σ_max(AᵀC) of graded and rank-one pairs: exact, never below, the median excess tiny."""
    rng = np.random.default_rng(11)
    excess = []
    for _ in range(count):
        rows, columns = (int(x) for x in rng.integers(1, 7, 2))
        a = graded(rng, rows, columns, decades)
        c = graded(rng, rows, columns, 0.0) / np.maximum(np.abs(a).max(axis=1), 1e-30)[:, None]
        got = bound(plain(a, c)).spread
        exact = rational(a).transpose() * rational(c)
        assert bounds_norm(exact, got / 2), (a.tolist(), c.tolist(), got)
        steps = [10.0**-k for k in range(1, 16)]
        excess.append(
            min((s for s in steps if not bounds_norm(exact, got / 2 * (1 - s))), default=1)
        )
    # size·u·trace of the equilibrated product, and the shift that lets a rank-one cover factor.
    assert np.median(excess) <= 1e-9, sorted(excess)


def check_biased(bound=spread.spread_bound, count=25):
    """T9 with query and key biases against the trust-region optimum at 60 digits."""
    rng = np.random.default_rng(5)
    for index in range(count):
        rows, columns = (int(x) for x in rng.integers(1, 6, 2))
        size = 10.0 ** rng.uniform(-4, 4)
        query = BallImage(
            graded(rng, rows, columns, 1.0),
            offset=rng.standard_normal(rows) * size,
            radius=Enclosure(3.0, 3.0),
        )
        key = BallImage(graded(rng, rows, columns, 1.0), offset=rng.standard_normal(rows) * 100)
        if index % 5 == 0:
            query = BallImage(np.zeros((rows, columns)), offset=query.offset)
        got = bound(plain(query, key)).spread
        true = spread_truth(query, key)
        with mp.workdps(DIGITS):
            # 60 digits of the optimum reach 45 of its value.
            assert true <= mp.mpf(got) * (1 + mp.mpf(10) ** -40), (query, key, got, float(true))
            assert true >= mp.mpf(got) * (1 - mp.mpf(10) ** -7), (query, key, got, float(true))


def aligned(q, k, turn):
    """R q with every rotated pair turned onto the pair of k."""
    z = q.copy()
    for i, j in turn.pairs:
        size = math.hypot(k[i], k[j])
        if size > 0:
            z[[i, j]] = k[[i, j]] * (math.hypot(q[i], q[j]) / size)
    return z


def free_spread(head, rng, starts=8, steps=60):
    """The largest spread found at any phases: alternating ascent, every step a reached value."""
    query, key, turn = head.query, head.key, head.rotary
    best = 0.0
    a = np.zeros(query.head_dim) if query.offset is None else query.offset
    c = np.zeros(query.head_dim) if key.offset is None else key.offset
    seen = np.zeros(query.head_dim, dtype=bool)
    seen[turn.pairs.ravel()] = True
    for _ in range(starts):
        u = rng.standard_normal(query.matrix.shape[1])
        ends = [rng.standard_normal(key.matrix.shape[1]) for _ in range(2)]
        ends = [v / np.linalg.norm(v) for v in ends]
        for _ in range(steps):
            q = query.radius.lower * query.matrix @ (u / max(np.linalg.norm(u), 1e-300)) + a
            slope, value = np.zeros(len(q)), 0.0
            for index, sign in ((0, 1.0), (1, -1.0)):
                k = key.radius.lower * key.matrix @ ends[index] + np.where(seen, c, 0.0)
                z = aligned(sign * q, k, turn)
                v = key.matrix.T @ z
                ends[index] = v / max(np.linalg.norm(v), 1e-300)
                k = key.radius.lower * key.matrix @ ends[index] + np.where(seen, c, 0.0)
                value += float(z @ k)
                # The same rotation applied to the key: Rᵀk, pair by pair.
                slope += sign * turned_back(sign * q, z, k, turn)
            best = max(best, value)
            u = query.matrix.T @ slope
    return best * head.scale.lower


def turned_back(q, z, k, turn):
    """Rᵀk for the rotation with Rq = z."""
    out = k.copy()
    for i, j in turn.pairs:
        before, after, key = complex(q[i], q[j]), complex(z[i], z[j]), complex(k[i], k[j])
        if abs(before) > 0 and abs(after) > 0:
            key *= (before / after) / abs(before / after)
        out[i], out[j] = key.real, key.imag
    return out


def rotated_heads(seed=0, count=14):
    """Small rotated heads, with and without biases, whole and partial, both pairings."""
    rng = np.random.default_rng([17, seed])
    for index in range(count):
        dim = int(rng.choice([2, 4, 6]))
        part = dim if index % 3 or dim == 2 else dim - 2
        turn = rotary(
            rng.uniform(0.1, 3.0, part // 2), dim, interleaved=index % 2 == 0, rotated=part
        )
        offsets_ = [
            rng.standard_normal(dim) * (0.0, 0.3, 3.0)[index % 3] if flag else None
            for flag in (index % 4 > 0, index % 4 > 1)
        ]
        rank = int(rng.integers(1, 5))
        yield plain(
            BallImage(graded(rng, dim, rank, 0.5), offset=offsets_[0]),
            BallImage(graded(rng, dim, rank, 0.5), offset=offsets_[1]),
            turn,
        )


def check_free_phases(bound=spread.spread_bound, count=14):
    """T10 is never below ascent over free phases, and not far above it."""
    rng = np.random.default_rng(23)
    ratios = []
    for head in rotated_heads(count=count):
        got = bound(head).spread
        reached = free_spread(head, rng)
        assert reached <= got * (1 + 64 * EPS), (head, got, reached)
        ratios.append(got / reached)
    assert np.median(ratios) < 1.03, ratios


def random_row(head, rng):
    """Logits of a row whose keys are random, extreme and extreme at the wrong phase."""
    u = rng.standard_normal(head.query.matrix.shape[1])
    q = head.query.matrix @ (u / np.linalg.norm(u))
    q = q if head.query.offset is None else q + head.query.offset
    keys, positions = [], rng.integers(0, 50, 12)
    for index, position in enumerate(positions):
        z = q if head.rotary is None else head.rotary.rotate(q, position)
        v = head.key.matrix.T @ z * (-1) ** index
        v = v if index < 8 and np.any(v) else rng.standard_normal(len(v))
        k = head.key.matrix @ (v / np.linalg.norm(v))
        k = k if head.key.offset is None else k + head.key.offset
        keys.append(k if head.rotary is None else head.rotary.rotate(k, -position))
    logits = head.scale.lower * np.array(keys) @ q
    return logits if head.soft_cap is None else head.soft_cap * np.tanh(logits / head.soft_cap)


def check_errors(bound=spread.spread_bound):
    """The exact matrix may be any within the stated errors; the worst of many is tried."""
    rng = np.random.default_rng(10)
    for turn in ROTATIONS.values():
        a, c = rng.standard_normal((2, 4, 5))
        errors = rng.random((4, 4)) * 0.2
        offset = rng.standard_normal(4)
        query = BallImage(a, offset=offset, row_error=errors[0], offset_error=errors[1])
        key = BallImage(c, offset=offset, row_error=errors[2], offset_error=errors[3])
        got = bound(plain(query, key, turn))
        for _ in range(10):
            moved = []
            for ball, rows, shift in ((query, errors[0], errors[1]), (key, errors[2], errors[3])):
                x = (
                    rng.standard_normal((4, 5))
                    if rng.random() < 0.5
                    else np.outer(rng.choice([-1.0, 1.0], 4), rng.standard_normal(5))
                )
                x *= (rows / np.linalg.norm(x, axis=1))[:, None]
                moved.append(
                    BallImage(
                        ball.matrix + x, offset=ball.offset + shift * rng.choice([-1.0, 1.0], 4)
                    )
                )
            other = plain(*moved, turn)
            if turn is None:
                assert float(spread_truth(*moved)) <= got.spread
            else:
                assert free_spread(other, rng, starts=2, steps=15) <= got.spread
            logits = random_row(other, rng)
            assert float(np.abs(logits).max()) <= got.level


def lag_spread(head, lags, rng, starts=5, steps=40):
    """The largest spread found with top and bottom keys at two different lags of `lags`."""
    query, key = head.query, head.key
    a = np.zeros(query.head_dim) if query.offset is None else query.offset
    c = np.zeros(query.head_dim) if key.offset is None else key.offset
    frames = []
    for lag in lags:
        frame = np.eye(query.head_dim)
        for (i, j), frequency in zip(head.rotary.pairs, head.rotary.frequencies, strict=True):
            # A key `lag` tokens earlier, seen from the query: turned by −lag·frequency.
            angle = -lag * frequency
            frame[i, i] = frame[j, j] = math.cos(angle)
            frame[i, j], frame[j, i] = -math.sin(angle), math.sin(angle)
        frames.append(frame)
    best = 0.0
    for x, first in enumerate(frames):
        for y, second in enumerate(frames):
            if x == y:
                continue
            u = rng.standard_normal((starts, query.matrix.shape[1]))
            for _ in range(steps):
                u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-300)
                q = query.radius.lower * u @ query.matrix.T + a
                top, low = q @ first @ key.matrix, q @ second @ key.matrix
                sizes = [np.linalg.norm(v, axis=1) for v in (top, low)]
                gap = first @ c - second @ c
                value = key.radius.lower * (sizes[0] + sizes[1]) + q @ gap
                best = max(best, float(value.max()))
                slope = gap + key.radius.lower * (
                    (top / np.maximum(sizes[0], 1e-300)[:, None]) @ key.matrix.T @ first.T
                    + (low / np.maximum(sizes[1], 1e-300)[:, None]) @ key.matrix.T @ second.T
                )
                u = slope @ query.matrix
    return best * head.scale.lower


def check_offsets(exact=offsets.exact_spread, count=10, length=5):
    """Never below ascent at the real offsets, never above the free bound, within 5 % of ascent."""
    rng = np.random.default_rng(29)
    for index, head in enumerate(rotated_heads(seed=1, count=count)):
        free = spread.spread_bound(head).spread
        got = exact(head, length, free).spread
        lags = np.arange(length)
        reached = lag_spread(head, lags, rng)
        assert reached <= got * (1 + 64 * EPS), (index, got, reached)
        assert got <= free, (index, got, free)
        assert got <= reached * 1.05, (index, got, reached)


def check_witness(layer, n, build=witness.build, *, close=True):
    """Claims of a witness against an explicit softmax over its explicit inputs."""
    head = layer.head()
    found = build(head, n)
    assert found is not None
    states = found.inputs(n)
    assert states.shape == (n, layer.width)
    # The states lie in the image of the norm, to float64's rounding of the division by gains.
    x = layer.ball_coordinates(states)
    room = 64 * layer.width * EPS * (1 + np.abs(states / (x + (x == 0))).max())
    assert np.linalg.norm(x, axis=1).max() <= 1 + max(room, 1e-12)
    if layer.norm == "layer":
        assert np.abs(x.sum(axis=1)).max() <= max(room, 1e-12) * layer.width
    logits, shares = layer.row(states)
    lag = found.target_lag(n)
    size = float(np.abs(logits).max()) + (0.0 if layer.soft_cap is None else layer.soft_cap)
    # States are rounded to float64, and 1/(1/share² − 1) loses digits when ε is small.
    slip = (256 * layer.width * EPS * (1 + size)) if layer.qk == "none" else 1e-7 * (1 + size)
    claimed = found.coefficient(n)
    if len(shares) > 1:
        got = float(shares[-1 - lag])
        assert claimed <= got * (1 + 4 * slip), (n, claimed, got)
        # At ε = 0 an own key that was asked to vanish points anywhere, and counts as the worst.
        known = layer.qk == "none" or layer.eps > 0
        if close and known and n - 1 <= len(found.lags):
            assert claimed >= got * (1 - 0.02 - 4 * slip), (n, claimed, got)
        assert np.argmax(shares[:-1]) == len(shares) - 1 - lag or got >= shares[:-1].max() * (
            1 - slip
        )
    if layer.qk == "none":
        check_witness_spread(layer, found, states, slip)
    return found, logits, shares


def check_witness_spread(layer, found, states, slip):
    """The claimed spread is one of two keys at two lags, or of a key and the query's own."""
    n = len(states)
    mirrored = states.copy()
    centre = 0.0 if layer.tensors["beta"] is None else layer.tensors["beta"]
    mirrored[:-1] = 2 * centre - states[:-1]
    rows = np.stack([layer.row(states)[0], layer.row(mirrored)[0]])
    low, high, own = rows.min(axis=0)[:-1], rows.max(axis=0)[:-1], rows[0, -1]
    pairs = [high[i] - low[j] for i in range(len(high)) for j in range(len(high)) if i != j]
    reached = max([0.0, *pairs, *(high - own), *(own - low)])
    claimed = found.spread(n)
    assert claimed <= reached + slip, (n, claimed, reached)
    if len(low) <= len(found.lags):
        assert claimed >= reached * (1 - 1e-9) - slip, (n, claimed, reached)


def check_witnesses(build=witness.build, lengths=(1, 2, 3, 7), seed=0):
    """`check_witness` on every kind of layer, and no row spreads further than certified."""
    for name, layer in layers(seed).items():
        bound = spread.spread_bound(layer.head())
        for n in lengths:
            try:
                _, logits, _ = check_witness(layer, n, build)
            except AssertionError as error:
                msg = f"{name}, n={n}: {error}"
                raise AssertionError(msg) from error
            reached = float(logits.max() - logits.min())
            assert reached <= bound.spread * (1 + 1e-9) + 1e-12, (name, n, reached, bound)
            assert float(np.abs(logits).max()) <= bound.level * (1 + 1e-9) + 1e-12, (name, n)


def check_balls(projection=norms.projection_ball, qk=norms.qk_norm_ball):
    """No normalised state leaves its ball's image, whatever the norm's ε, and extremes reach it."""
    rng = np.random.default_rng(31)
    for kind in ("rms", "layer"):
        for eps in (0.0, 1e-12, 1e-5):
            weight, gain = rng.standard_normal((3, 8)), rng.standard_normal(8)
            beta, bias = rng.standard_normal(8), rng.standard_normal(3)
            ball = projection(weight, norm=kind, gain=gain, norm_bias=beta, bias=bias)
            head_norm = qk(gain, kind=kind, head_dim=8, bias=beta)
            for size in (1e-3, 1.0, 1e6):
                x = rng.standard_normal((40, 8)) * size
                y = rng.standard_normal(3)
                # The state whose projection goes furthest along y.
                x[0] = (weight @ np.diag(gain)).T @ y * size
                x[1] = gain * gain * size  # furthest along `gain` after the QK norm
                x = x - x.mean(axis=1, keepdims=True) if kind == "layer" else x
                x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)
                reached = ((x * gain + beta) @ weight.T + bias) @ y
                most = support(ball, y)
                assert reached.max() <= most * (1 + 64 * EPS), (kind, eps, size)
                if eps == 0.0:
                    span = np.abs(ball.matrix).sum() * ball.radius.upper + np.abs(ball.offset).sum()
                    assert reached.max() >= most - 64 * EPS * span * np.abs(y).sum(), (kind, size)
                z = (x * gain + beta) @ gain
                most = support(head_norm, gain)
                assert z.max() <= most * (1 + 64 * EPS), (kind, eps, size)
                assert eps or z.max() >= most * (1 - 64 * EPS), (kind, size)


def check_roundings(norm, shift, size=1.0, projection=norms.projection_ball):
    """Rows and biases of the exact image are within their errors of the stored ones."""
    rng = np.random.default_rng(1)
    for width in (1, 2, 7, 33):
        weight = rng.standard_normal((3, width)) * size
        weight[1] = weight[1].mean() + 1e-9 * weight[1]  # cancels under LayerNorm
        gain = rng.standard_normal(width) * 0.1
        beta, bias = rng.standard_normal(width), rng.standard_normal(3)
        ball = projection(
            weight, norm=norm, gain=gain, gain_offset=shift, norm_bias=beta, bias=bias
        )
        factors = [fraction(g) + fraction(shift) for g in gain]
        diagonal = fmpq_mat(
            width,
            width,
            [factors[i] if i == j else fmpq(0) for i in range(width) for j in range(width)],
        )
        exact = rational(weight) * diagonal
        exact = exact * exact_projector(width) if norm == "layer" else exact
        assert within_rows(exact, ball.matrix, ball.row_error)
        offset = rational(weight) * rational(beta) + rational(bias)
        for i in range(3):
            assert abs(offset[i, 0] - fraction(ball.offset[i])) <= fraction(ball.offset_error[i])
        if ball.row_error is not None:
            # Two roundings and, for gains 1 + w, the models' float32; not a lazy multiple of them.
            most = np.linalg.norm(weight * (np.abs(gain) + shift), axis=1)
            room = (4 + (2 * width + 16 if norm == "layer" else 0)) * 2.0**-53 + shift * 2.0**-24
            assert np.all(ball.row_error <= most * room * 1.01)


def support(ball, direction):
    """Max ⟨x, y⟩ over the stored image with its errors added."""
    value = ball.radius.upper * np.linalg.norm(ball.matrix.T @ direction)
    if ball.row_error is not None:
        value += ball.radius.upper * np.abs(direction) @ ball.row_error
    if ball.offset is not None:
        value += ball.offset @ direction
    if ball.offset_error is not None:
        value += np.abs(direction) @ ball.offset_error
    return float(value)


def counterexample():
    """A = C = diag(1, 0), frequency π/2: two keys can spread by 1 only, free phases by 2."""
    matrix = np.diag([1.0, 0.0])
    return plain(matrix, matrix.copy(), Rotary(2, np.array([np.pi / 2]), np.array([[0, 1]])))
