"""The arguments of `layer_statistics`, checked: shapes, masks, marked keys, chosen queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

DTYPES = ("float16", "bfloat16", "float32", "float64")
CHOSEN = 32  # by default this many last queries, and as many spread over the context


@dataclass(frozen=True)
class Shapes:
    """Sizes of a layer: queries (heads, queries, head_dim), keys (key_heads, keys, head_dim)."""

    heads: int
    key_heads: int
    queries: int
    keys: int
    head_dim: int

    @property
    def tokens(self) -> int:
        """A bound on every position, past its end."""
        return self.keys + self.queries

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.key_heads


def shapes(q: Any, k: Any) -> Shapes:
    """Sizes, after checks that queries and keys go together."""
    for name, value in (("q", q), ("k", k)):
        if getattr(value, "ndim", None) != 3:
            shape = getattr(value, "shape", type(value).__name__)
            msg = f"{name} must be an array of shape (heads, tokens, head_dim). Got {shape}."
            raise ArgumentError(msg)
        if not all(value.shape):
            msg = f"{name} must not be empty. Got shape {tuple(value.shape)}."
            raise ArgumentError(msg)
        if str(value.dtype) not in DTYPES:
            msg = f"{name} must hold one of {', '.join(DTYPES)}. Got {value.dtype}."
            raise ArgumentError(msg)
    if q.shape[2] != k.shape[2]:
        msg = f"q and k must share their head_dim. Got {q.shape[2]} and {k.shape[2]}."
        raise ArgumentError(msg)
    if q.shape[0] % k.shape[0]:
        msg = (
            f"q must have a multiple of k's heads, which equal groups share. "
            f"Got {q.shape[0]} and {k.shape[0]}."
        )
        raise ArgumentError(msg)
    return Shapes(*(int(x) for x in (q.shape[0], k.shape[0], q.shape[1], k.shape[1], q.shape[2])))


def offset(value: int | None, sizes: Shapes, *, causal: bool) -> int:
    """The key position of the first query: the queries are the last of the keys by default."""
    if value is None:
        if sizes.queries > sizes.keys and causal:
            msg = (
                f"q must not have more tokens than k under a causal mask. "
                f"Got {sizes.queries} and {sizes.keys}."
            )
            raise ArgumentError(msg)
        return max(sizes.keys - sizes.queries, 0)
    if value < 0 or value + sizes.queries > sizes.keys:
        msg = (
            f"query_offset must place all {sizes.queries} queries among the {sizes.keys} keys. "
            f"Got {value}."
        )
        raise ArgumentError(msg)
    return int(value)


def number(name: str, value: float | None, default: float) -> float:
    """A positive finite factor."""
    value = default if value is None else float(value)
    if not (math.isfinite(value) and value > 0):
        msg = f"{name} must be positive and finite. Got {value}."
        raise ArgumentError(msg)
    return value


def whole(name: str, value: int) -> int:
    """A number of tokens."""
    if isinstance(value, bool) or int(value) != value or value < 1:
        msg = f"{name} must be a whole number of at least 1 token. Got {value}."
        raise ArgumentError(msg)
    return int(value)


def sink_logits(sinks: Any, sizes: Shapes) -> NDArray[np.float32]:
    """One learned sink logit a head, -inf where there is none."""
    if sinks is None:
        return np.full(sizes.heads, -np.inf, np.float32)
    values = np.asarray(sinks).astype(np.float32)
    if values.shape != (sizes.heads,) or np.isnan(values).any() or (values == np.inf).any():
        msg = (
            f"sinks must be one number below inf for each of the {sizes.heads} heads "
            f"(-inf for none). Got shape {values.shape}."
        )
        raise ArgumentError(msg)
    return values


def boolean(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """A boolean array of this shape, or None."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype != np.bool_ or array.shape != shape:
        msg = (
            f"{name} must be boolean of shape {shape}, True where a key is seen. "
            f"Got {array.dtype} of shape {array.shape}."
        )
        raise ArgumentError(msg)
    return array


@dataclass(frozen=True)
class Marks:
    """Sets of keys whose mass is asked for.

    Attributes:
        names: of the sets that the caller asked for.
        table: shape (keys, sets + tokens): those sets, then each of the first tokens by itself.
        tokens: key positions of the first tokens.
    """

    names: tuple[str, ...]
    table: NDArray[np.bool_]
    tokens: NDArray[np.int64]


def marks(
    first: Sequence[int],
    spans: Mapping[str, tuple[int, int]] | None,
    tokens: int,
    seen: NDArray[np.bool_] | None,
    keys: int,
) -> Marks:
    """The first m unmasked tokens for each m, the spans, and single first tokens."""
    order = np.arange(keys) if seen is None else np.flatnonzero(seen)
    names, columns = [], []

    def add(name: str, chosen: Any) -> None:
        column = np.zeros(keys, bool)
        column[chosen] = True
        names.append(name)
        columns.append(column)

    for count in first:
        add(f"first {whole('first', count)}", order[: int(count)])
    for name, span in (spans or {}).items():
        start, stop = span
        if not 0 <= start < stop <= keys:
            msg = (
                f"spans[{name!r}] must be (start, stop) with 0 ≤ start < stop ≤ {keys} keys. "
                f"Got ({start}, {stop})."
            )
            raise ArgumentError(msg)
        if name in names:
            msg = f"spans must not reuse the name of another set. Got {name!r}."
            raise ArgumentError(msg)
        add(name, slice(start, stop))
    if tokens < 0:
        msg = f"tokens must be 0 or more. Got {tokens}."
        raise ArgumentError(msg)
    wanted = tuple(names)
    for position in order[:tokens]:
        add("", position)
    table = np.stack(columns, axis=1) if columns else np.zeros((keys, 0), bool)
    return Marks(wanted, table, order[:tokens].astype(np.int64))


def chosen_queries(positions: Sequence[int] | None, queries: int) -> NDArray[np.int64]:
    """Indices of the queries to look at one by one."""
    if positions is None:
        last = np.arange(max(0, queries - CHOSEN), queries)
        spread = np.linspace(0, queries - 1, CHOSEN).round().astype(np.int64)
        return np.unique(np.concatenate([spread, last]))
    found = np.asarray(positions)
    if found.size == 0:
        return np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= queries:
        msg = f"positions must be indices of queries, 0 to {queries - 1}. Got {positions!r:.60}."
        raise ArgumentError(msg)
    return found.astype(np.int64)


def gap_sizes(gaps: Sequence[float]) -> NDArray[np.float64]:
    """Gaps below the top, in logits."""
    values = np.asarray(gaps, dtype=np.float64)
    if values.ndim != 1 or not (values >= 0).all() or np.isinf(values).any():
        msg = f"gaps must be finite numbers of 0 or more, in logits. Got {gaps!r:.60}."
        raise ArgumentError(msg)
    return values
