"""The query token's own key in a pair of lags: its logit is a quadratic form in the input.

Without QK norm a token's query ρ_q A u + a and its own key ρ_k C u + c have one input u. They are
kept together in one ellipsoid {(Q z, K z)}, so that the difference of a logit ‖X q‖ + xᵀq at some
other lag and the own logit qᵀk is again a quadratic under a ball: with ‖X q‖ ≤ (‖X q‖²/α + α)/2 and
the bias on one more coordinate, λ_max bounds it.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma, lambda_max_upper
from dispersion.covers import factor
from dispersion.ellipsoid import Ellipsoid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import Head

_UP = 1 + 2.0**-48
_STEPS = 40
FARTHEST = 14.0  # log-odds of the largest and smallest shares tried


class Enough(Exception):
    """A search came low enough."""


def has_own_key(head: Head) -> bool:
    """Whether the own key is known as a function of the query's input."""
    reach = head.reach
    if reach is None or not head.self_attention or head.query is None or head.key is None:
        return False
    if reach.keys is not None:
        return False
    shared = head.query.matrix.shape[1] == head.key.matrix.shape[1]
    return shared and reach.query_norm is None and reach.key_norm is None


@dataclass(frozen=True, eq=False)
class JointBall:
    """Queries and own keys of one input: q = Q z + a + r, k = K z + c + r′, ‖z‖ ≤ 1.

    Attributes:
        query, key: the floats Q and K, shape (head_dim, 2·head_dim).
        query_offset, key_offset: a, and the part of c that the spread sees; zeros for none.
        query_slack, key_slack: bounds on ‖r‖ and ‖r′‖.
    """

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    query_offset: NDArray[np.float64]
    key_offset: NDArray[np.float64]
    query_slack: float
    key_slack: float

    @classmethod
    def of(cls, head: Head, key_offset: NDArray[np.float64] | None) -> JointBall:
        """The joint ellipsoid of a head for which `has_own_key` holds, proved to cover."""
        assert head.query is not None
        assert head.key is not None
        size, width = head.query.matrix.shape
        radii = head.query.radius.upper, head.key.radius.upper
        both = np.concatenate([head.query.matrix * radii[0], head.key.matrix * radii[1]])
        gram = both @ both.T
        coefficient = gamma(width + 24)
        sizes = np.sqrt(np.diag(gram) * (1 + 2 * coefficient)) * _UP
        root, excess = factor(Ellipsoid(gram, sizes, coefficient * (1 + 2 * coefficient), None))
        assert excess == 1.0
        slacks = []
        for ball, radius in zip((head.query, head.key), radii, strict=True):
            slack = (
                0.0 if ball.row_error is None else radius * float(np.linalg.norm(ball.row_error))
            )
            if ball.offset_error is not None:
                slack += float(np.linalg.norm(ball.offset_error))
            slacks.append(slack * _UP)
        zeros = np.zeros(size)
        offset = zeros if head.query.offset is None else head.query.offset
        seen = zeros if key_offset is None else key_offset
        return cls(root[:size], root[size:], offset, seen, slacks[0], slacks[1])

    @property
    def biased(self) -> bool:
        return bool(np.any(self.query_offset) or np.any(self.key_offset))

    def images(self, share: float) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Queries and keys as images of one ball, its last coordinate worth √(1−w) where biased."""
        if not self.biased:
            return self.query, self.key, 1.0
        rest = math.sqrt(1 - share)
        grown = (1 + 8 * UNIT_ROUNDOFF) / math.sqrt(share)
        return (
            np.column_stack([self.query * grown, self.query_offset / rest]),
            np.column_stack([self.key * grown, self.key_offset / rest]),
            rest,
        )


def tuned(
    joint: JointBall,
    form: NDArray[np.float64],
    line: NDArray[np.float64],
    sign: float,
    weights: tuple[float, float],
    *,
    enough: float = 0.0,
) -> tuple[float, float, float, float, NDArray[np.float64]]:
    """α and the share for one lag against the own key; also the norm, own logit and query (floats).

    Args:
        joint: the joint ellipsoid.
        form: XᵀX in head space.
        line: the bias's part x of the other key's logit.
        sign: 1 where the other key is on top, −1 where the own key is.
        weights: slopes of the two logits.
        enough: below which a lower value gains nothing.
    """
    from scipy.optimize import minimize

    base = max(float(np.sum(form * (joint.query @ joint.query.T))), 1e-300)
    best = (math.inf, math.sqrt(base), 0.5, 0.0, 0.0, np.zeros(len(form)))

    def bound(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal best
        size = math.exp(x[0])
        # Beside a bias of next to nothing the best share rounds to 1.
        odds = np.exp(-np.clip(x[1], -FARTHEST, FARTHEST)) if joint.biased else 0.0
        share = float(1 / (1 + odds))
        queries, keys, rest = joint.images(share)
        matrix = assembled(
            queries, keys, rest, form * (weights[0] / (2 * size)), line, sign, weights
        )
        values, vectors = np.linalg.eigh(matrix)
        v = vectors[:, -1]
        q, k = queries @ v, keys @ v
        square = float(q @ form @ q)
        slope = np.zeros_like(x)
        slope[0] = weights[0] * (size / 2 - square / (2 * size))
        if joint.biased:
            one = v[-1] / rest
            parts = []
            for point, offset in ((q, joint.query_offset), (k, joint.key_offset)):
                constant = offset * one
                parts.append(constant / (2 * rest**2) - (point - constant) / (2 * share))
            dq, dk = parts
            along = float(line @ dq) * one + float(line @ q) * one / (2 * rest**2)
            total = weights[0] * (float(q @ form @ dq) / size + sign * along)
            total -= sign * weights[1] * float(dq @ k + q @ dk)
            slope[1] = total * share * (1 - share)
        value = float(values[-1]) + weights[0] * size / 2
        if value < best[0]:
            best = (value, size, share, math.sqrt(max(square, 0.0)), float(q @ k), q)
            if value <= enough:
                raise Enough
        return value, slope

    start = np.array(
        [0.5 * math.log(base / len(form)), 0.0] if joint.biased else [0.5 * math.log(base)]
    )
    with contextlib.suppress(Enough):
        minimize(bound, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return best[1:]


def assembled(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    rest: float,
    form: NDArray[np.float64],
    line: NDArray[np.float64],
    sign: float,
    weights: tuple[float, float],
) -> NDArray[np.float64]:
    """The symmetric matrix of weighted qᵀform q + sign·(xᵀq − qᵀk) over the lifted ball."""
    cross = queries.T @ keys
    matrix = queries.T @ form @ queries - (sign * weights[1] / 2) * (cross + cross.T)
    if queries.shape[1] > 2 * len(queries):
        constant = (sign * weights[0] / (2 * rest)) * (queries.T @ line)
        matrix[-1] += constant
        matrix[:, -1] += constant
    return np.asarray((matrix + matrix.T) / 2)


def certified(
    joint: JointBall,
    turned: NDArray[np.float64],
    keys: Ellipsoid,
    line: NDArray[np.float64],
    sign: float,
    weights: tuple[float, float],
    size: float,
    share: float,
) -> float:
    """Upper bound on the weighted difference between a key at another lag and the own key.

    Slacks of the exact queries and keys are the caller's to add.

    Args:
        joint: the joint ellipsoid.
        turned: R(lag), transposed: turned @ image gives the query in the other key's frame.
        keys: the ellipsoid of the other key, without bias.
        line, sign, weights: as in `tuned`.
        size, share: α and w, any positive number and any in (0, 1).
    """
    share = min(max(share, 2.0**-20), 1 - 2.0**-20)
    queries, own, rest = joint.images(share)
    moved = turned @ queries
    form = keys.gram * (weights[0] / (2 * size))
    matrix = assembled(queries, own, rest, np.zeros_like(form), line, sign, weights)
    matrix += moved.T @ form @ moved
    matrix = (matrix + matrix.T) / 2
    count = 3 * len(queries) + 24
    reach = np.abs(moved).T @ keys.sizes
    error = (keys.coefficient + gamma(count)) * float(reach @ reach) * weights[0] / (2 * size)
    norms = float(np.linalg.norm(queries)), float(np.linalg.norm(own))
    error += gamma(count) * (weights[1] * norms[0] * norms[1])
    error += gamma(count) * weights[0] * norms[0] * float(np.linalg.norm(line)) / rest
    error += 16 * UNIT_ROUNDOFF * float(np.abs(np.diag(matrix)).sum())
    top = max(0.0, lambda_max_upper(matrix, error * 2 * _UP))
    return (top + weights[0] * size / 2) * _UP
