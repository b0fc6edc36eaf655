"""What a sample of documents says of others: tolerance limits (T16) and correlations. Estimates.

Statements hold for documents drawn like those measured, with the confidence stated, over the draw.
They bound no single input, so none of them is a certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.enclosure import Estimate
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tolerance:
    """With the stated confidence, at most `share` of documents exceed the limit. An estimate.

    Attributes:
        limit: the k-th largest of the documents' values.
        share: the share of documents allowed to exceed it.
        confidence: what was asked for.
        attained: the confidence that T16 gives, at least that.
        rank: k; as large as the confidence allows, so the limit is as low as it allows.
        documents: how many were measured.
        next_exceeds: the probability that the next document exceeds the limit is at most k/(m+1),
            for exchangeable documents.
    """

    limit: Estimate
    share: float
    confidence: float
    attained: float
    rank: int
    documents: int
    next_exceeds: float

    def __str__(self) -> str:
        return (
            f"at {self.confidence:.0%} confidence at most {self.share:.3g} of documents "
            f"exceed {self.limit}"
        )


def tolerance_limit(
    values: ArrayLike, *, share: float = 0.01, confidence: float = 0.95
) -> Tolerance:
    """A limit that few documents exceed, whatever their distribution (T16: order statistics).

    The k-th largest of m independent documents' values is exceeded by at most `share` of all
    documents with confidence P(Bin(m, share) ≥ k). Rows of one document depend on each other, so
    the document is the unit:

    - with every document's *largest* value over its rows, at most `share` of documents have any row
      beyond the limit; a fortiori at most `share` of rows, documents weighted equally, exceed it;
    - with the value of *one row* of each document, drawn at random without looking at it, the
      statement is of rows alone, and the limit lower.

    Args:
        values: shape (documents,).
        share: of documents that may exceed the limit.
        confidence: least confidence.

    Raises:
        ArgumentError: too few documents for any limit (the message says how many it takes), a
            share or confidence outside (0, 1), values that are nan.
    """
    for name, number in (("share", share), ("confidence", confidence)):
        if not 0 < number < 1:
            msg = f"{name} must lie strictly between 0 and 1. Got {number}."
            raise ArgumentError(msg)
    ordered = _vector("values", values)[::-1]
    from scipy.stats import binom

    m = len(ordered)
    # P(Bin(m, share) ≥ k) falls with k: the last k that keeps the confidence.
    chances = binom.sf(np.arange(m), m, share)  # k = 1, 2, …
    rank = int((chances >= confidence).sum())
    if not rank:
        needed = math.ceil(math.log1p(-confidence) / math.log1p(-share))
        msg = (
            f"values must come from at least {needed} documents for a share of {share} at "
            f"confidence {confidence}. Got {m}."
        )
        raise ArgumentError(msg)
    return Tolerance(
        limit=Estimate(float(ordered[rank - 1])),
        share=share,
        confidence=confidence,
        attained=float(chances[rank - 1]),
        rank=rank,
        documents=m,
        next_exceeds=rank / (m + 1),
    )


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its bootstrap percentile interval."""

    value: Estimate
    lower: Estimate
    upper: Estimate


@dataclass(frozen=True)
class Correlation:
    """How two measured quantities go together. Estimates.

    Attributes:
        r_squared: squared Pearson correlation: what a straight line explains.
        rank: Spearman's rank correlation, ties at their mean rank.
        level: of the intervals.
        pairs: how many units were compared.
    """

    r_squared: Interval
    rank: Interval
    level: float
    pairs: int


def correlation(
    x: ArrayLike, y: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Correlation:
    """R² and rank correlation of paired values, with bootstrap intervals over the pairs.

    Pairs must be exchangeable units (documents, or models), not rows or heads of one document.
    Resamples in which a side is constant say nothing and are left out.

    Args:
        x, y: shape (pairs,), at least three, neither side constant.
        level: of the intervals.
        resamples: bootstrap samples.
        seed: of the resampling.

    Raises:
        ArgumentError: these rules.
    """
    if not 0 < level < 1:
        msg = f"level must lie strictly between 0 and 1. Got {level}."
        raise ArgumentError(msg)
    if isinstance(resamples, bool) or int(resamples) != resamples or resamples < 1:
        msg = f"resamples must be a whole number of at least 1. Got {resamples}."
        raise ArgumentError(msg)
    first, second = _vector("x", x, sort=False), _vector("y", y, sort=False)
    if len(first) != len(second) or len(first) < 3:
        msg = f"x and y must pair up at least 3 values. Got {len(first)} and {len(second)}."
        raise ArgumentError(msg)
    for name, side in (("x", first), ("y", second)):
        if not np.isfinite(side).all() or np.ptp(side) == 0:
            msg = f"{name} must hold finite numbers that are not all the same."
            raise ArgumentError(msg)
    draws = np.random.default_rng(seed).integers(0, len(first), (resamples, len(first)))

    def interval(how: Callable[[Floats, Floats], float]) -> Interval:
        found = np.array([how(first[i], second[i]) for i in draws])
        ends = np.nanquantile(found, [0.5 - level / 2, 0.5 + level / 2])
        return Interval(Estimate(how(first, second)), *(Estimate(float(end)) for end in ends))

    return Correlation(
        r_squared=interval(lambda a, b: _pearson(a, b) ** 2),
        rank=interval(lambda a, b: _pearson(_ranks(a), _ranks(b))),
        level=level,
        pairs=len(first),
    )


BOUNDED = ("spread", "effective_spread", "coefficient")


def tolerance_of_heads(
    lines: Sequence[dict[str, Any]],
    statistic: str,
    *,
    share: float = 0.01,
    confidence: float = 0.95,
) -> dict[int, list[tuple[int, int, Tolerance]]]:
    """Limits of every head at every length, from documents as a file of measurements holds them.

    Every document's largest value over its rows is one value (T16): with the confidence, at most
    `share` of documents have any row beyond the limit, and so at most that share of rows.

    Args:
        lines: documents.
        statistic: one of `BOUNDED`.
        share, confidence: as for `tolerance_limit`.

    Returns:
        For each length of documents, in tokens, (layer, head, limit) of every head.

    Raises:
        ArgumentError: another statistic, documents of different models, too few of one length.
    """
    if statistic not in BOUNDED:
        msg = f"statistic must be one of {', '.join(BOUNDED)}. Got {statistic!r}."
        raise ArgumentError(msg)
    if not lines:
        msg = "lines must hold at least one measured document. Got none."
        raise ArgumentError(msg)
    shapes = {tuple((x["layer"], len(x["rows"])) for x in line["layers"]) for line in lines}
    if len(shapes) != 1:
        msg = "lines must be of one model. Got documents with different layers or heads."
        raise ArgumentError(msg)
    found: dict[int, list[tuple[int, int, Tolerance]]] = {}
    for length in sorted({line["tokens"] for line in lines}):
        here = [line for line in lines if line["tokens"] == length]
        found[length] = [
            (
                layer,
                head,
                tolerance_limit(
                    [line["layers"][place]["largest"][statistic][head] for line in here],
                    share=share,
                    confidence=confidence,
                ),
            )
            for place, (layer, heads) in enumerate(next(iter(shapes)))
            for head in range(heads)
        ]
    return found


def _vector(name: str, values: ArrayLike, *, sort: bool = True) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or np.isnan(array).any():
        msg = f"{name} must be one row of numbers, none of them nan. Got shape {array.shape}."
        raise ArgumentError(msg)
    return np.sort(array) if sort else array


def _pearson(a: Floats, b: Floats) -> float:
    # Of any unit: squares of extreme numbers would leave float64.
    a, b = (x / (float(np.abs(x).max(initial=0.0)) or 1.0) for x in (a, b))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else math.nan


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = rankdata(values)
    return ranks
