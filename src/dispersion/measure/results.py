"""What was measured in one attention layer, as NumPy arrays. Nothing here is a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RowStatistics:
    """Statistics of rows of attention; arrays begin with the same leading axes, head first.

    With a learned sink, coefficients and masses are shares of the whole row, sink included, so
    they add up to 1 - `sink_share`; `entropy` is that of the tokens among themselves.

    Attributes:
        items: unmasked keys n of the row.
        spread: largest logit minus smallest, in logits.
        effective_spread: log((n-1)p/(1-p)) for the largest coefficient p, at least 0: the spread
            that an ideal row needs for it (T14), in logits. For a single row at most `spread`; 0 at
            n = 1. Where all other keys lie more than 87 logits below, float32 can no longer tell
            and it is the smaller of 87 + log(n-1) and the spread.
        entropy: of the coefficients, in nats.
        coefficient: the largest coefficient p.
        log_odds: log(p/(1-p)) of it; inf at n = 1 without a sink, nowhere else above 87.
        sink_share: share of the learned sink; 0 without one.
        mass: last axis as `LayerStatistics.marks`: share of each marked set of keys.
        profile: share of keys by distance from the query; entry 0 is distance 0, entry b ≥ 1 is
            2^(b-1) ≤ distance < 2^b, in tokens.
    """

    items: Floats
    spread: Floats
    effective_spread: Floats
    entropy: Floats
    coefficient: Floats
    log_odds: Floats
    sink_share: Floats
    mass: Floats
    profile: Floats


@dataclass(frozen=True)
class Octaves:
    """Means over the rows whose number of unmasked keys n lies in the same octave.

    What a head does at one length beside what it does at half of it, from a single context: under
    a causal mask the row of query i is what a context of i+1 tokens would show of its last query.
    H heads, b octaves that have rows, by rising n.

    Attributes:
        index: shape (b,): i of 2^i ≤ n < 2^(i+1).
        rows: shape (b,): how many rows; the same for all heads of a layer.
        items: shape (b,): geometric mean of their n.
        mean: shape (H, b) each: means over those rows. `log_odds` only over those where it is
            finite, nan where there are none.
    """

    index: NDArray[np.int64]
    rows: NDArray[np.int64]
    items: Floats
    mean: RowStatistics


@dataclass(frozen=True)
class LayerStatistics:
    """What one attention layer did with one context. Measured, not proved.

    H heads, r chosen queries, s marked sets, t gaps. A query that sees no key has nan in `chosen`
    and no part in means and extremes. Float32, with the errors stated in `logit_error` and
    `sum_error`; means are summed in float64 from blocks.

    Attributes:
        rows: shape (H,): queries that see a key; the means are over them.
        mean: shape (H,) each: means over queries. `log_odds` only over those
            where it is finite, nan where there are none.
        largest: shape (H,) each: largest values over the same queries, each statistic by
            itself.
        positions: shape (r,): the chosen queries.
        chosen: shape (H, r) each: statistics of the chosen queries.
        octaves: means over rows of about the same length.
        gaps: shape (t,): gaps below the top, in logits.
        gap_counts: shape (H, r, t): how many keys lie within each gap of the row's largest
            logit, that one included: N_n(t).
        accumulation_scale: shape (H, r): sup over t > 0 of log N_n(t)/t, per logit; inf where two
            keys share the top, 0 at n = 1. Logits multiplied by much more than it single out the
            top key.
        marks: names of the marked sets.
        token_means: shape (H, K): mean share of the k-th unmasked token over the queries at or
            behind it, for k = 1..K: α_k of Gu et al. 2024, https://arxiv.org/abs/2410.10781.
        logit_error: shape (H,): most by which a logit differs from exact arithmetic on the same
            queries and keys, up to its own rounding: call it e. Spreads are within 2e, and gaps.
        sum_error: relative rounding error r of a sum along a row. Log odds and effective spreads
            are within 2e + r (1-p must be worth less than 87 logits), masses and coefficients
            within e^(2e+r)-1 relative, entropies within 2(e + r)(1 + log n).
    """

    rows: NDArray[np.int64]
    mean: RowStatistics
    largest: RowStatistics
    positions: NDArray[np.int64]
    chosen: RowStatistics
    octaves: Octaves
    gaps: Floats
    gap_counts: Floats
    accumulation_scale: Floats
    marks: tuple[str, ...]
    token_means: Floats
    logit_error: Floats
    sum_error: float

    def mass(self, name: str) -> Floats:
        """Mean share of one marked set, shape (H,).

        Raises:
            ArgumentError: no set of that name.
        """
        if name not in self.marks:
            msg = f"name must be one of {', '.join(self.marks) or 'no marked sets'}. Got {name!r}."
            raise ArgumentError(msg)
        return self.mean.mass[:, self.marks.index(name)]


def sink_rate(
    measured: Iterable[LayerStatistics], *, threshold: float = 0.3, token: int = 1
) -> float:
    """Share of heads, over layers and contexts, whose mean share on a token exceeds a threshold.

    Sink_k^ε of Gu et al. 2024 (https://arxiv.org/abs/2410.10781), who take ε = 0.3 and contexts of
    64 tokens.

    Args:
        measured: one for each layer and context.
        threshold: ε, between 0 and 1.
        token: k, counted from 1.

    Raises:
        ArgumentError: nothing measured, a threshold outside [0, 1], a token that was not measured.
    """
    if not 0 <= threshold <= 1:
        msg = f"threshold must lie between 0 and 1: it is a share. Got {threshold}."
        raise ArgumentError(msg)
    shares = []
    for layer in measured:
        known = layer.token_means.shape[1]
        if not 1 <= token <= known:
            msg = (
                f"token must be between 1 and {known}, the tokens measured: "
                f"measure with tokens={token}. Got {token}."
            )
            raise ArgumentError(msg)
        shares.append(layer.token_means[:, token - 1])
    if not shares:
        msg = "measured must hold at least one layer. Got none."
        raise ArgumentError(msg)
    return float(np.mean(np.concatenate(shares) > threshold))
