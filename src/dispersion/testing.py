"""For other people's tests: rows and heads to attack with, and a check of an attention function.

`assert_within_bounds` feeds rows of logits to a softmax and `assert_attention_within_bounds` feeds
queries and keys to an attention function; both hold the coefficients to T1, T2, T3 and T7 with a
stated allowance for rounding. They need only NumPy. The strategies need Hypothesis:
``pip install 'dispersion[testing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion import row as bounds
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, UnsupportedError
from dispersion.head import BallImage, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hypothesis.strategies import SearchStrategy
    from numpy.typing import NDArray

__all__ = [
    "adversarial_rows",
    "assert_attention_within_bounds",
    "assert_within_bounds",
    "heads",
    "lengths",
    "rows",
    "spreads",
]

LENGTHS = (1, 2, 3, 17, 256)
SPREADS = (0.0, 0.5, 4.0, 30.0)


def adversarial_rows(n: int, spread: float, *, top: float = 0.0) -> dict[str, NDArray[np.float64]]:
    """The rows of n logits in [top-spread, top] that bounds must survive, by name.

    Each has shape (n,). "one at the top" attains the ceiling of T1, "one at the bottom" its floor,
    "k at the top" the entropy floor of T3; "near ties" and "huge" are for naive softmax code.
    """
    low = np.full(n, top - spread)
    high = np.full(n, top)
    turn = [_with_top(low, k, top) for k in range(1, min(n, 512))] or [high]
    entropy = [float(bounds.row_entropy(x)) for x in turn]
    near = high.copy()
    near[1::2] = np.nextafter(top, -np.inf) if spread > 0 else top
    alternate = high.copy()
    alternate[1::2] = top - spread
    return {
        "one at the top": _with_top(low, 1, top),
        "k at the top": turn[int(np.argmin(entropy))],
        "half at the top": _with_top(low, max(1, n // 2), top),
        "one at the bottom": np.concatenate([high[:-1], low[:1]]) if n > 1 else high,
        "alternate": alternate,
        "ramp": np.linspace(top - spread, top, n),
        "near ties": near,
        "all equal": high,
        "huge": _with_top(low, 1, top) + 2.0**14,
    }


def _with_top(low: NDArray[np.float64], k: int, top: float) -> NDArray[np.float64]:
    row = low.copy()
    row[:k] = top
    return row


def assert_within_bounds(
    softmax: Callable[[NDArray[Any]], Any],
    *,
    lengths: Sequence[int] = LENGTHS,
    spreads: Sequence[float] = SPREADS,
    rows: Iterable[NDArray[Any]] = (),
    dtype: Any = np.float32,
    temperature: float = 1.0,
    sink: float | None = None,
    seed: int = 0,
) -> None:
    """Assert that a softmax keeps the dispersion bounds on adversarial and random rows.

    Args:
        softmax: maps logits of shape (n,), a NumPy array of `dtype`, to n coefficients.
        lengths: numbers of items of the rows to build.
        spreads: their spreads.
        rows: more rows, your own, each of shape (n,).
        dtype: precision of the softmax, from which the allowance follows.
        temperature: what your function divides the logits by.
        sink: its sink logit, not divided (0 for softmax-off-by-one); None for none.
        seed: of the random rows.

    The allowance is relative, (2·spread + 8)·eps(dtype) + n·eps of the accumulator, which is taken
    to be float32 for half precision. Results below the smallest normal number may vanish.

    Raises:
        AssertionError: names the bound that broke, by how much, and the row.
        ArgumentError: temperature not positive.
    """
    rng = np.random.default_rng(seed)
    for n in lengths:
        for spread in spreads:
            named = adversarial_rows(n, spread)
            named["random"] = rng.uniform(-spread, 0.0, n)
            named["random levels"] = rng.choice([-spread, 0.0], n)
            for name, logits in named.items():
                cast = logits.astype(dtype)
                _check(softmax(cast), cast, name, dtype, temperature, sink)
    for logits in rows:
        cast = np.asarray(logits).astype(dtype)
        _check(softmax(cast), cast, "given", dtype, temperature, sink)


def assert_attention_within_bounds(
    attention: Callable[[NDArray[Any], NDArray[Any]], Any],
    *,
    head_dim: int = 16,
    scale: float | None = None,
    lengths: Sequence[int] = LENGTHS,
    spreads: Sequence[float] = SPREADS,
    dtype: Any = np.float32,
    seed: int = 0,
) -> None:
    """Assert that attention weights keep the dispersion bounds of their exact logits.

    Args:
        attention: maps a query of shape (head_dim,) and keys of shape (n, head_dim), NumPy arrays
            of `dtype`, to n coefficients; no mask, no rotation.
        head_dim: size of the head.
        scale: the logit scale your function uses; 1/√head_dim by default.
        lengths: numbers of keys to try.
        spreads: spreads of the logits to build.
        dtype: precision of the attention function.
        seed: of the random keys.

    Keys are built so that the logits are adversarial rows. To the allowance of
    `assert_within_bounds` it adds the rounding of the dot products, twice
    (head_dim + 2)·eps·scale·Σ|q·k| for the largest key.

    Raises:
        AssertionError: names the bound that broke, by how much, and the row.
    """
    scale = head_dim**-0.5 if scale is None else scale
    rng = np.random.default_rng(seed)
    eps, _, _ = _precision(dtype)
    for n in lengths:
        for spread in spreads:
            for name, logits in adversarial_rows(n, spread, top=spread / 2).items():
                if name == "huge":
                    continue
                query = rng.choice([-1.0, 1.0], head_dim)
                keys = np.outer(logits / (scale * head_dim), query)
                keys += 1e-2 * spread * rng.standard_normal(keys.shape)
                q, k = query.astype(dtype), keys.astype(dtype)
                wide = k.astype(np.float64) * q.astype(np.float64)
                exact = scale * wide.sum(axis=1)
                slack = 2 * (head_dim + 2) * eps * scale * float(np.abs(wide).sum(axis=1).max())
                _check(attention(q, k), exact, name, dtype, 1.0, None, slack=slack)


def _precision(dtype: Any) -> tuple[float, float, float]:
    """Machine epsilon, that of the accumulator, and the smallest normal number."""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    eps = float(info.eps)
    return eps, min(eps, 2.0**-23), float(info.smallest_normal)


def _check(
    answer: Any,
    logits: NDArray[Any],
    name: str,
    dtype: Any,
    temperature: float,
    sink: float | None,
    *,
    slack: float = 0.0,
) -> None:
    """Hold one row's coefficients to every bound that applies."""
    shares = np.asarray(answer).astype(np.float64)
    levels = np.asarray(logits).astype(np.float64)
    n = levels.size
    eps, eps_sum, tiny = _precision(dtype)

    def fail(what: str, got: float, bound: float, allowed: float) -> None:
        row = np.array2string(levels, threshold=16, precision=17)
        msg = (
            f"{what}: got {got!r}, bound {bound!r}, allowance {allowed:.3g} "
            f"(n={n}, spread={spread!r}, row {name!r}, logits {row})."
        )
        raise AssertionError(msg)

    spread = float(levels.max() - levels.min())
    if shares.shape != levels.shape:
        msg = f"softmax must return one coefficient per logit, shape ({n},). Got {shares.shape}."
        raise AssertionError(msg)
    if not np.isfinite(shares).all() or (shares < 0).any():
        fail("coefficients must be finite and not negative", float(shares.min()), 0.0, 0.0)
    tolerance = (2 * spread / temperature + 8) * eps + n * eps_sum + 2 * slack

    def at_most(what: str, got: float, bound: float, allowed: float) -> None:
        if got > bound + allowed:
            fail(what, got, bound, allowed)

    scaled = {"temperature": temperature}
    order = np.sort(shares)[::-1]
    held = np.cumsum(order)
    middle = max(1, n // 2)
    whole = float(held[-1])
    if sink is None:
        for m in {1, middle, n}:
            ceiling = float(bounds.set_mass(m, n, spread, **scaled))
            most = float(held[m - 1])
            law = "T1" if m == 1 else "T2"
            at_most(f"mass of {m} items above {law}", most, ceiling, tolerance * ceiling)
            floor = float(bounds.min_set_mass(m, n, spread, **scaled))
            least = float(order[n - m :].sum())
            allowed = tolerance * floor + m * tiny
            at_most(f"mass of {m} items below {law}", -least, -floor, allowed)
        floor = float(bounds.min_entropy(n, spread, **scaled))
        kept = shares[shares > 0]
        entropy = float(-(kept * np.log(kept)).sum())
        allowed = 2 * tolerance * (1 + float(np.log(n))) + n * tiny * 800
        at_most("entropy below T3", -entropy, -floor, allowed)
    else:
        top, low = float(levels.max()) / temperature, float(levels.min()) / temperature
        tolerance += 2 * eps * (abs(top) + abs(low) + abs(sink))
        ceiling = float(bounds.max_coefficient_with_sink(n, spread / temperature, top, sink=sink))
        at_most(
            "largest coefficient above T7", float(order[0]), ceiling, tolerance * ceiling + tiny
        )
        for what, level, sign in (("above", low, 1.0), ("below", top, -1.0)):
            share = float(bounds.sink_share(n, level, sink=sink))
            at_most(f"sink's share {what} T7", sign * (1 - whole), sign * share, tolerance)


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        msg = (
            "Strategies need Hypothesis, which is not installed. "
            "Run: pip install 'dispersion[testing]'"
        )
        raise UnsupportedError(msg) from None
    return strategies


def lengths(*, min_value: int = 1, max_value: int = 10**12) -> SearchStrategy[int]:
    """Numbers of items, small ones and powers of two included."""
    st = _strategies()
    marks = [n for n in (1, 2, 3, 2**12, 2**15, 2**20) if min_value <= n <= max_value]
    anything = st.integers(min_value, max_value)
    strategy: SearchStrategy[int] = st.sampled_from(marks) | anything if marks else anything
    return strategy


def spreads(*, max_value: float = 1e4, allow_infinity: bool = False) -> SearchStrategy[float]:
    """Spreads from 0 to max_value, in logits; tiny and overflowing ones included."""
    st = _strategies()
    marks = [x for x in (0.0, 1e-300, 1e-9, 1.0, 10.0, 88.0, 710.0, 746.0) if x <= max_value]
    if allow_infinity:
        marks.append(float("inf"))
    strategy: SearchStrategy[float] = st.sampled_from(marks) | st.floats(0.0, max_value)
    return strategy


def rows(
    *, min_size: int = 1, max_size: int = 24, max_spread: float = 60.0, max_level: float = 100.0
) -> SearchStrategy[NDArray[np.float64]]:
    """Rows of logits of shape (n,): adversarial ones, two-level ones and arbitrary ones."""
    st = _strategies()

    def build(draw: Callable[[Any], Any]) -> NDArray[np.float64]:
        n = draw(st.integers(min_size, max_size))
        spread = draw(st.floats(0.0, max_spread))
        top = draw(st.floats(-max_level, max_level))
        if draw(st.booleans()):
            named: Mapping[str, NDArray[np.float64]] = adversarial_rows(n, spread, top=top)
            return named[draw(st.sampled_from(sorted(named)))]
        share = st.floats(0.0, 1.0) | st.sampled_from([0.0, 1.0])
        below = np.array(draw(st.lists(share, min_size=n, max_size=n)))
        return np.asarray(top - spread * below)

    strategy: SearchStrategy[NDArray[np.float64]] = st.composite(build)()
    return strategy


def heads(
    *, max_head_dim: int = 8, max_rank: int = 6, max_entry: float = 4.0
) -> SearchStrategy[Head]:
    """Heads of every kind: offsets, rotation, soft cap, sink and window each present or absent."""
    st = _strategies()
    entry = st.floats(-max_entry, max_entry, width=32)

    def vector(draw: Callable[[Any], Any], *shape: int) -> NDArray[np.float64]:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(entry, min_size=size, max_size=size))).reshape(shape)

    def build(draw: Callable[[Any], Any]) -> Head:
        dim = 2 * draw(st.integers(1, max_head_dim // 2))

        def side() -> BallImage:
            rank = draw(st.integers(1, max_rank))
            offset = vector(draw, dim) if draw(st.booleans()) else None
            return BallImage(vector(draw, dim, rank), offset=offset)

        return Head(
            query=side(),
            key=side(),
            scale=Enclosure.exact(2.0 ** -draw(st.integers(0, 3))),
            rotary=_rotary(draw, st, dim) if draw(st.booleans()) else None,
            soft_cap=draw(st.none() | st.floats(0.5, 50.0)),
            sink=draw(st.none() | st.floats(-5.0, 5.0)),
            window=draw(st.none() | st.integers(1, 4096)),
            causal=draw(st.booleans()),
            self_attention=draw(st.booleans()),
        )

    if max_head_dim < 2:
        msg = f"max_head_dim must be at least 2. Got {max_head_dim}."
        raise ArgumentError(msg)
    strategy: SearchStrategy[Head] = st.composite(build)()
    return strategy


def _rotary(draw: Callable[[Any], Any], st: Any, dim: int) -> Any:
    """A rotation of some or all pairs, half-split or interleaved, at drawn frequencies."""
    from dispersion.rotary import Rotary

    count = draw(st.integers(1, dim // 2))
    pairs = np.arange(2 * count).reshape(count, 2)
    if draw(st.booleans()):
        pairs = np.stack([np.arange(count), np.arange(count) + count], axis=1)
    turn = st.floats(0.0, np.pi) | st.just(np.pi / 2)
    frequencies = np.array(draw(st.lists(turn, min_size=count, max_size=count)))
    return Rotary(head_dim=dim, frequencies=frequencies, pairs=pairs)
