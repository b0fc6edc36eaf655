"""What a spectrum does reach in any-token retrieval: contexts of n keys with a query for each.

The lower side of `dispersion.capacity`. Logits are Σ κ_i u_i v_i with queries u and keys v in unit
balls. Contexts are sought by ascent from spherical codes, the simplex, the cross-polytope and
clusters, and the one found is evaluated with error bounds: its coefficient is reached in exact
arithmetic. That no better context was found proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from dispersion._arrays import check
from dispersion._enclosing import count_of
from dispersion.ascent import climb, least_log
from dispersion.capacity import water_level
from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dispersion.ascent import Array, Model, Pull

LONGEST = 1024
"""Keys in the largest context that is built: a step costs n² numbers."""

_SHARPNESS = (10.0, 40.0, 160.0, 640.0, 2560.0, 10240.0)
_SATURATED = -1e-9  # a context whose every log coefficient is above this needs no ascent
_KEPT = 2  # starts that are climbed to the end


@dataclass(frozen=True, eq=False)
class Context:
    """Keys common to all queries, and the query that retrieves each of them.

    Attributes:
        keys: shape (n, r), row i is what query i looks for; of norm at most 1, proved.
        queries: shape (n, r), of norm at most 1, proved.
        coefficient: every query puts at least this much on its own key. **Lower**, rigorous.

    """

    keys: NDArray[np.float64]
    queries: NDArray[np.float64]
    coefficient: float


def best_context(
    n: int,
    singular_values: Sequence[float] | NDArray[np.float64],
    *,
    seed: int = 0,
    steps: int = 1200,
) -> Context:
    """The best context found in which each of n keys is retrieved. **Lower** for T12 to T13″.

    Deterministic for a seed. A second or so for n = 64, ten for n = 256 in 8 dimensions.

    Args:
        n: keys, 1..1024; the query token's own is not one of them.
        singular_values: κ, shape (r,), in any order, the logit scale included.
        seed: of the random starts.
        steps: iterations of the ascent; 0 for the best start as it is.

    Raises:
        ArgumentError: n is not a whole number in 1..1024, a value is negative, infinite or nan,
            or there are none.
    """
    n = count_of("n", n)
    if n > LONGEST:
        msg = f"n must not exceed {LONGEST} for a context to be built. Got {n}."
        raise ArgumentError(msg)
    given = np.asarray(singular_values, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        msg = f"singular_values must be a list of at least 1 number. Got shape {given.shape}."
        raise ArgumentError(msg)
    check("singular_values", given)
    order = np.argsort(-given, kind="stable")
    used = order[: max(1, np.count_nonzero(given))]
    kappa = given[used]
    # Products this small lose to threads that wait for each other, and one order of summation
    # makes the result repeatable.
    with threadpool_limits(1, user_api="blas"):
        found = _search(n, kappa, np.random.default_rng(seed), steps)
    queries, keys = np.zeros((n, len(given))), np.zeros((n, len(given)))
    queries[:, used], keys[:, used] = (_inside(x) for x in found)
    return Context(keys, queries, coefficient(keys, queries, given))


def coefficient(
    keys: NDArray[np.float64], queries: NDArray[np.float64], singular_values: NDArray[np.float64]
) -> float:
    """The smallest coefficient that a query puts on its own key, evaluated. **Lower**, rigorous.

    Args:
        keys, queries: shape (n, r), taken as exact.
        singular_values: κ, shape (r,), taken as exact.
    """
    weighted = queries * singular_values
    logits = weighted @ keys.T
    sizes = np.abs(weighted) @ np.abs(keys).T
    error = gamma(len(singular_values) + 4) * sizes * (1 + 2.0**-30) + 2.0**-1000
    return least_coefficient(logits - error, logits + error)


def least_coefficient(
    low: NDArray[np.float64], high: NDArray[np.float64], *, extra: NDArray[np.float64] | None = None
) -> float:
    """The smallest coefficient of the targets from enclosed logits. **Lower**, rigorous.

    Takes it that NumPy's exp is accurate to 12 digits.

    Args:
        low, high: ends of the logits, shape (n, n); row i's target is column i.
        extra: upper ends of further logits in each row's denominator, shape (n, m).
    """
    target = np.diagonal(low)[:, None]
    gaps = high - target
    np.fill_diagonal(gaps, 0.0)
    if extra is not None:
        gaps = np.concatenate([gaps, extra - target], axis=1)
    if gaps.shape[1] == 1:
        return 1.0
    with np.errstate(over="ignore", under="ignore"):
        total = np.sum(np.exp(gaps), axis=1)
    # A gap is a rounded difference: its error is at most u times the gap itself.
    wide = float(np.max(np.abs(gaps[np.isfinite(gaps)]), initial=0.0))
    slack = 2.0**-40 + (gaps.shape[1] + 2 * wide) * 2 * UNIT_ROUNDOFF
    return float(max(0.0, np.min(1 / total) * (1 - slack)))


def _search(n: int, kappa: Array, rng: np.random.Generator, steps: int) -> tuple[Array, Array]:
    model = _diagonal(kappa)

    def value(pair: tuple[Array, Array]) -> float:
        return least_log(model(*pair)[0])

    starts = [(x, x) for x in _starts(n, kappa, rng)]
    best = max(starts, key=value)
    if not steps or value(best) > _SATURATED:
        return best
    first = max(10, steps // 12)
    tried = [climb(model, *x, steps=first, sharpness=_SHARPNESS[:1]) for x in starts]
    tried = sorted(tried, key=value, reverse=True)[:_KEPT]
    done = [climb(model, *x, steps=steps, sharpness=_SHARPNESS) for x in tried]
    return max([best, *tried, *done], key=value)


def _diagonal(kappa: Array) -> Model:
    """Logits Σ κ_i u_i v_i."""

    def model(queries: Array, keys: Array) -> tuple[Array, Pull]:
        def pull(slope: Array) -> tuple[Array, Array]:
            return (slope @ keys) * kappa, (slope.T @ queries) * kappa

        return (queries * kappa) @ keys.T, pull

    return model


def _starts(n: int, kappa: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Points to start from, shape (n, r), used as keys and as queries."""
    r = len(kappa)
    index = np.arange(n)
    yield _simplex(n, r)
    # The cross-polytope, its vertices ±e_1, ±e_2, … taken in turn.
    cross = np.zeros((n, r))
    cross[index, (index // 2) % r] = 1.0 - 2.0 * (index % 2)
    yield cross
    # Clusters at ± the first axis, spread a little along the others.
    spread = rng.standard_normal((n, r)) * np.sqrt(kappa / max(float(kappa[0]), 1e-300)) * 0.1
    spread[:, 0] = 1.0 - 2.0 * (index % 2)
    ends = np.zeros((n, r))
    ends[:, 0] = spread[:, 0]
    yield ends
    yield _normalised(spread)
    level = water_level(kappa)
    filled = np.maximum(1 - level / np.maximum(kappa, 1e-300), 0.0)
    for shape in (np.ones(r), np.ones(r), np.sqrt(kappa), np.sqrt(filled)):
        if float(np.max(shape)) > 0:
            yield _normalised(rng.standard_normal((n, r)) * shape)


def _simplex(n: int, r: int) -> Array:
    """A regular simplex on the first m axes, m + 1 ≤ n; further points repeat its vertices."""
    corners = min(n, r + 1)
    points = np.zeros((n, r))
    if corners > 1:
        centred = np.eye(corners) - 1 / corners
        basis = np.linalg.svd(centred)[2][: corners - 1]
        vertices = _normalised(centred @ basis.T)
        points[:, : corners - 1] = vertices[np.arange(n) % corners]
    return points


def _normalised(points: Array) -> Array:
    sizes = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(sizes, 1e-300))


def _inside(points: Array) -> Array:
    """The points scaled until their norm is at most 1 in exact arithmetic too."""
    sizes = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points * ((1 - 2 * gamma(points.shape[1] + 16)) / np.maximum(sizes, 1.0)))
