"""Slopes of ALiBi by head, as enclosures of what models compute in float32 (arXiv 2108.12409)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dispersion.enclosure import Enclosure

_ROUNDING = 2.0**-20  # powers in float32


def bloom_slope(heads: int, head: int) -> Enclosure:
    """2^(−8k/p) for k = 1..p, p the largest power of two; further heads take odd k of 2p."""
    power = 1 << (heads.bit_length() - 1)
    extra = head - power
    return _enclosed(8 * (head + 1) / power if extra < 0 else 4 * (2 * extra + 1) / power)


def mpt_slope(heads: int, largest: float, head: int) -> Enclosure:
    """2^(−largest·k/p), p the next power of two; unless p = heads even k first, then odd ones."""
    power = 1 << (heads - 1).bit_length()
    half = power // 2
    k = head + 1
    if power != heads:
        k = 2 * (head + 1) if head < half else 2 * (head - half) + 1
    return _enclosed(largest * k / power)


def in_bfloat16(slope: Enclosure) -> Enclosure:
    """The slope rounded to bfloat16; rounding keeps the order, so both ends are rounded."""
    ends = np.array([slope.lower, slope.upper], dtype=np.float32).astype(ml_dtypes.bfloat16)
    return Enclosure(float(ends[0]), float(ends[1]))


def _enclosed(exponent: float) -> Enclosure:
    value = 2.0**-exponent
    return Enclosure(value * (1 - _ROUNDING), value * (1 + _ROUNDING))
