"""Slopes of ALiBi by head, as enclosures of what models compute in float32 (arXiv 2108.12409)."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from dispersion.enclosure import Enclosure

_ROUNDING = 2.0**-20  # powers in float32


def bloom_slopes(heads: int) -> list[Enclosure]:
    """2^(−8k/p) for k = 1..p, p the largest power of two; further heads take odd k of 2p."""
    power = 2 ** math.floor(math.log2(heads))
    exponents = [8 * k / power for k in range(1, power + 1)]
    exponents += [4 * k / power for k in range(1, 2 * (heads - power) + 1, 2)]
    return [_enclosed(x) for x in exponents]


def mpt_slopes(heads: int, largest: float) -> list[Enclosure]:
    """2^(−largest·k/p), p the next power of two; unless p = heads even k first, then odd ones."""
    power = 2 ** math.ceil(math.log2(heads))
    exponents = [largest * k / power for k in range(1, power + 1)]
    if power != heads:
        exponents = [*exponents[1::2], *exponents[::2]][:heads]
    return [_enclosed(x) for x in exponents]


def in_bfloat16(slope: Enclosure) -> Enclosure:
    """The slope rounded to bfloat16; rounding keeps the order, so both ends are rounded."""
    ends = np.array([slope.lower, slope.upper], dtype=np.float32).astype(ml_dtypes.bfloat16)
    return Enclosure(float(ends[0]), float(ends[1]))


def _enclosed(exponent: float) -> Enclosure:
    value = 2.0**-exponent
    return Enclosure(value * (1 - _ROUNDING), value * (1 + _ROUNDING))
