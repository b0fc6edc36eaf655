"""Rotary frequencies of every rope type, and the factor some put on cos and sin.

Su et al. (arXiv 2104.09864) turn pair j by θ^(−2j/d) radians per position; the scalings here are
linear, dynamic (NTK), llama3, yarn (arXiv 2309.00071), longrope (arXiv 2402.13753) and
proportional.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive, positives
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

ONE = Enclosure(1.0, 1.0)


def power_frequencies(theta: float, size: int) -> NDArray[np.float64]:
    """θ^(−2j/size) for j < size/2, shape (size/2,)."""
    return np.asarray(theta ** (-np.arange(0, size, 2, dtype=np.float64) / size))


@dataclass(frozen=True)
class Scaling:
    """What the formula of a rope type may look at.

    Attributes:
        config: the whole config.
        parameters: the rope parameters of one layer type.
        theta: the base.
        size: number of rotated coordinates.
        where: words naming the source of `parameters` in an error.
    """

    config: Mapping[str, Any]
    parameters: Mapping[str, Any]
    theta: float
    size: int
    where: str = "the rope parameters of config.json"

    def number(self, key: str, *default: float) -> float:
        return positive(self.parameters, key, *default, where=self.where)

    @property
    def plain(self) -> NDArray[np.float64]:
        """Unscaled frequencies, shape (size/2,)."""
        return power_frequencies(self.theta, self.size)

    @property
    def trained_length(self) -> int:
        """The context length before stretching."""
        key = "original_max_position_embeddings"
        if self.parameters.get(key) is not None:
            return integer(self.parameters, key, where=self.where)
        return integer(self.config, "max_position_embeddings")

    def stretch(self) -> float:
        """`factor`, or where it is null the ratio of the stretched and the trained length."""
        if self.parameters.get("factor") is not None:
            return self.number("factor")
        return integer(self.config, "max_position_embeddings") / self.trained_length


@dataclass(frozen=True, eq=False)
class Scaled:
    """Frequencies, the factor of cos and sin, and the frequencies at a context length.

    No position turns the pairs `still`.
    """

    frequencies: NDArray[np.float64]
    attention_factor: Enclosure = ONE
    rescale: Callable[[int], NDArray[np.float64]] | None = None
    still: tuple[int, ...] = ()


def _outward(value: float, ulps: int) -> Enclosure:
    step = ulps * math.ulp(value)
    return Enclosure(math.nextafter(value - step, 0.0), math.nextafter(value + step, math.inf))


def _default(s: Scaling) -> Scaled:
    return Scaled(s.plain)


def _linear(s: Scaling) -> Scaled:
    return Scaled(s.plain / s.number("factor"))


def _proportional(s: Scaling) -> Scaled:
    # The remaining pairs have frequency 0: they are not rotated at all.
    partial = positive(s.parameters, "partial_rotary_factor", 1.0, where=s.where)
    turning = int(partial * s.size // 2)
    return Scaled(s.plain[:turning] / s.number("factor", 1.0))


def _dynamic(s: Scaling) -> Scaled:
    factor = s.number("factor")
    trained = integer(s.config, "max_position_embeddings")
    if s.size <= 2:
        msg = f"head_dim must exceed 2 for rope_type dynamic. Got {s.size}."
        raise CheckpointError(msg)

    def at(length: int) -> NDArray[np.float64]:
        growth = factor * max(length, trained) / trained - (factor - 1)
        base = s.theta * np.float64(growth) ** (s.size / (s.size - 2))
        return power_frequencies(float(base), s.size)

    return Scaled(at(trained), ONE, at)


def _llama3(s: Scaling) -> Scaled:
    factor, low, high = (s.number(k) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    if not low < high:
        msg = f"low_freq_factor must lie below high_freq_factor. Got {low} and {high}."
        raise CheckpointError(msg)
    turns = s.trained_length * s.plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return Scaled((1 - smooth) * s.plain / factor + smooth * s.plain)


def _yarn(s: Scaling) -> Scaled:
    if "factor" not in s.parameters:
        msg = f"{s.where} must have factor for rope_type yarn. Got no such key."
        raise CheckpointError(msg)
    factor, trained = s.stretch(), s.trained_length
    fast = s.number("beta_fast") if s.parameters.get("beta_fast") else 32.0
    slow = s.number("beta_slow") if s.parameters.get("beta_slow") else 1.0
    if s.theta == 1:
        msg = "rope_theta must not be 1 for rope_type yarn. Got 1."
        raise CheckpointError(msg)

    def pair_turning(turns: float) -> float:
        wavelengths = trained / (turns * 2 * math.pi)
        if not 0 < wavelengths < math.inf:
            msg = f"beta_fast and beta_slow in {s.where} must be plain counts. Got {turns}."
            raise CheckpointError(msg)
        return s.size * math.log(wavelengths) / (2 * math.log(s.theta))

    low, high = pair_turning(fast), pair_turning(slow)
    if s.parameters.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, s.size - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(s.size // 2) - low) / (high - low), 0.0, 1.0)
    return Scaled(s.plain / factor * ramp + s.plain * (1 - ramp), _yarn_factor(s, factor))


def _yarn_factor(s: Scaling, factor: float) -> Enclosure:
    """a: stated, or m(factor, mscale)/m(factor, mscale_all_dim), or m(factor, 1)."""
    if s.parameters.get("attention_factor") is not None:
        return Enclosure.exact(s.number("attention_factor"))

    def m(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    top, bottom = s.parameters.get("mscale"), s.parameters.get("mscale_all_dim")
    value = m(s.number("mscale")) / m(s.number("mscale_all_dim")) if top and bottom else m(1.0)
    # Two positive sums of a product of three: at most 5 roundings each and one for the quotient.
    return ONE if value == 1.0 else _outward(value, 16)


def _longrope(s: Scaling) -> Scaled:
    short = positives(s.parameters, "short_factor", s.size // 2, where=s.where)
    long = positives(s.parameters, "long_factor", s.size // 2, where=s.where)
    trained, factor = s.trained_length, s.stretch()
    if trained < 2:
        msg = f"original_max_position_embeddings in {s.where} must exceed 1. Got {trained}."
        raise CheckpointError(msg)
    if s.parameters.get("attention_factor") is not None:
        a = Enclosure.exact(s.number("attention_factor"))
    elif factor <= 1:
        a = ONE
    else:
        a = _outward(math.sqrt(1 + math.log(factor) / math.log(trained)), 8)

    def at(length: int) -> NDArray[np.float64]:
        return np.asarray(s.plain / np.asarray(long if length > trained else short))

    return Scaled(at(trained), a, None if short == long else at)


def _sections(s: Scaling) -> Scaled:
    # No config.json has this kind: it is what llama.cpp makes of sections of pairs.
    still: Any = s.parameters.get("still_pairs")
    pairs = range(s.size // 2)
    listed = isinstance(still, list) and all(type(p) is int and p in pairs for p in still)
    if not listed or len(set(still)) == len(pairs):
        msg = (
            f"still_pairs in {s.where} must list pairs from 0 to {len(pairs) - 1}, not all. "
            f"Got {shown(repr(still))}."
        )
        raise CheckpointError(msg)
    return Scaled(s.plain, still=tuple(still))


KINDS: dict[str, Callable[[Scaling], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "proportional": _proportional,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "sections": _sections,
}
