"""Logit scales as enclosures of the exact real number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.config import positive
from dispersion.enclosure import Enclosure
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.rotary import Rotary


def inverse_root(value: float) -> Enclosure:
    """Enclose 1/√value for value > 0; exact where the root is a power of two."""
    root = math.sqrt(value)
    if root * root == value and math.frexp(root)[0] == 0.5:
        return Enclosure.exact(1 / root)
    # √ and / are rounded correctly, so two steps of one ulp contain the quotient.
    return _widened(1 / root, 2)


def embedding_factor(width: int) -> Enclosure:
    """Enclose √width as models round it: to float32, or to the weights' own float16 or bfloat16."""
    root = math.sqrt(width)
    return Enclosure(root * (1 - 2.0**-8 - 2.0**-40), root * (1 + 2.0**-8 + 2.0**-40))


def float32_factor(value: float) -> Enclosure:
    """Enclose a positive factor that models round to float32, or not at all; 1 is exact."""
    if value == 1:
        return Enclosure.exact(1.0)
    return Enclosure(value * (1 - 2.0**-23), value * (1 + 2.0**-23))


def times(first: Enclosure, second: Enclosure) -> Enclosure:
    """Enclose the product of two positive numbers."""
    for one, other in ((first, second), (second, first)):
        if one.lower == one.upper == 1.0:
            return other
    return Enclosure(
        math.nextafter(first.lower * second.lower, 0.0),
        math.nextafter(first.upper * second.upper, math.inf),
    )


def with_factor(scale: Enclosure, rotary: Rotary | None) -> tuple[Enclosure, Enclosure]:
    """The logit scale and what only the rotated coordinates' share gets on top of it.

    The factor of cos and sin, squared, belongs to the scale where all coordinates turn.
    """
    if rotary is None:
        return scale, ONE
    factor = times(rotary.attention_factor, rotary.attention_factor)
    return (scale, factor) if rotary.unrotated.size else (times(scale, factor), ONE)


def clip_of(config: Mapping[str, Any], key: str = "clip_qkv") -> float | None:
    """The size to which a config clamps queries and keys, or None where it does not.

    Raises:
        CheckpointError: it is not a number above 0.
    """
    return None if config.get(key) is None else positive(config, key)


def divided(value: Enclosure, divisor: int) -> Enclosure:
    """Enclose value / divisor for a positive value and divisor; exact by a power of two."""
    if divisor & (divisor - 1) == 0:
        return Enclosure(value.lower / divisor, value.upper / divisor)
    return Enclosure(
        math.nextafter(value.lower / divisor, 0.0), math.nextafter(value.upper / divisor, math.inf)
    )


def _widened(value: float, steps: int) -> Enclosure:
    lower = upper = value
    for _ in range(steps):
        lower, upper = math.nextafter(lower, 0.0), math.nextafter(upper, math.inf)
    return Enclosure(lower, upper)
