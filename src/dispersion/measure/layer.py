"""Statistics of one attention layer from its queries and keys, without the attention matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError
from dispersion.measure import reading
from dispersion.measure.results import LayerStatistics, Octaves, RowStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dispersion._arrays import Array

GAPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
BLOCK = 512  # queries, and keys, of a block of logits
UNIT = 2.0**-24  # unit roundoff of float32


def layer_statistics(
    q: Array,
    k: Array,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Array | None = None,
    key_mask: Array | None = None,
    mask: Array | None = None,
    query_offset: int | None = None,
    positions: Sequence[int] | None = None,
    first: Sequence[int] = (1, 4),
    spans: Mapping[str, tuple[int, int]] | None = None,
    tokens: int = 4,
    gaps: Sequence[float] = GAPS,
    block: int = BLOCK,
) -> LayerStatistics:
    """Measure how one layer's heads spread their attention. Measured, not proved (T14).

    Takes the queries and keys that the model's softmax sees: after QK norms, rotation and any
    scaling of queries by length. Arrays of NumPy or JAX, of any floating dtype up to float64;
    computed in float32, with the error stated in the result. Working memory is a few blocks of
    logits, one head's queries and keys where they are not JAX arrays, and O(keys) marks.

    Args:
        q: queries, shape (heads, queries, head_dim).
        k: keys, shape (key_heads, keys, head_dim); equal groups of query heads share a key head.
        scale: factor on q·k; 1/√head_dim by default.
        causal: a query sees no key behind its own position.
        window: a query sees keys at a distance below `window` tokens, its own position included;
            on both sides where not causal.
        soft_cap: c of l = c·tanh(z/c), or None.
        sinks: shape (heads,), learned logits that join the denominator, or None.
        key_mask: shape (keys,), False for keys that no query sees (padding).
        mask: shape (queries, keys), True where the query sees the key; joins the other rules. It
            is the caller's memory.
        query_offset: key position of the first query; by default the queries are the last keys.
        positions: queries whose rows are returned one by one and whose gaps are counted, by index;
            by default the last 32 and 32 spread over all.
        first: for each m, the share of the first m unmasked tokens.
        spans: named (start, stop) ranges of key positions, such as needles.
        tokens: how many first tokens get a mean share of their own, for `sink_rate`.
        gaps: gaps below the top at which keys are counted, in logits.
        block: queries and keys of a block of logits.

    Returns:
        Statistics per head: means and extremes over queries, and the chosen rows.

    Raises:
        ArgumentError: shapes or values that break these rules, logits that are not finite, no
            query that sees a key, or JAX is not installed.
    """
    sizes = reading.shapes(q, k)
    begin = reading.offset(query_offset, sizes, causal=causal)
    factor = reading.number("scale", scale, sizes.head_dim**-0.5)
    cap = None if soft_cap is None else reading.number("soft_cap", soft_cap, 1.0)
    width = None if window is None else min(reading.whole("window", window), sizes.tokens)
    sink = reading.sink_logits(sinks, sizes)
    key_seen = reading.boolean("key_mask", key_mask, (sizes.keys,))
    table = reading.boolean("mask", mask, (sizes.queries, sizes.keys))
    marked = reading.marks(first, spans, tokens, key_seen, sizes.keys)
    chosen = reading.chosen_queries(positions, sizes.queries)
    levels = reading.gap_sizes(gaps)
    size = reading.whole("block", block)
    try:
        from dispersion.measure import _heads, _sweep
    except ImportError:
        msg = "layer_statistics needs JAX. Install it: pip install 'dispersion[measure]'."
        raise ArgumentError(msg) from None
    rules = _sweep.Rules(
        causal=causal,
        windowed=width is not None,
        capped=cap is not None,
        key_block=size,
        bins=(sizes.tokens - 1).bit_length() + 1,
    )
    layer = _heads.Layer(
        rules, sizes, begin, factor, cap, width, sink, key_seen, table, marked, size
    )
    found = [_heads.measure(layer, q, k, head, chosen, levels) for head in range(sizes.heads)]
    _check(found)
    own = len(marked.names)
    stacked: dict[str, NDArray[np.float64]] = {
        name: np.stack([getattr(head, name) for head in found])
        for name in ("counts", "scales", "errors", "token_means")
    }
    blocks = -(-sizes.keys // size)
    return LayerStatistics(
        rows=np.array([head.rows for head in found], dtype=np.int64),
        mean=_rows([head.mean for head in found], own),
        largest=_rows([head.largest for head in found], own),
        positions=chosen,
        chosen=_rows([head.chosen for head in found], own),
        octaves=_octaves(found, own),
        gaps=levels,
        gap_counts=stacked["counts"],
        accumulation_scale=stacked["scales"],
        marks=marked.names,
        token_means=stacked["token_means"],
        logit_error=stacked["errors"],
        sum_error=(min(size, sizes.keys) + 8 * blocks + 128) * UNIT,
    )


def _rows(heads: list[dict[str, NDArray[np.float64]]], own: int) -> RowStatistics:
    stacked = {name: np.stack([head[name] for head in heads]) for name in heads[0]}
    stacked["mass"] = stacked["mass"][..., :own]
    return RowStatistics(**stacked)


def _octaves(found: list[Any], own: int) -> Octaves:
    """All heads of a layer see the same keys, so their octaves are the same."""
    same = found[0].octaves
    means = [[octave.mean() for octave in head.octaves] for head in found]
    stacked = [
        {name: np.stack([mean[name] for mean in head]) for name in head[0]} for head in means
    ]
    return Octaves(
        index=np.array([x.index for x in same], dtype=np.int64),
        rows=np.array([x.rows for x in same], dtype=np.int64),
        items=np.exp([x.log_items / x.rows for x in same]),
        mean=_rows(stacked, own),
    )


def _check(found: list[Any]) -> None:
    if not found[0].rows:
        msg = "mask, key_mask and window must leave at least one query a key. Every row is empty."
        raise ArgumentError(msg)
    for index, head in enumerate(found):
        if not np.isfinite(head.mean["spread"]):
            msg = (
                f"q and k must be finite, and their logits within float32. "
                f"Got logits that are not, in head {index}."
            )
            raise ArgumentError(msg)
