"""Sizes of one layer's attention, for models whose layers differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Query heads, key heads and the size of a head."""

    heads: int
    key_heads: int
    head_dim: int
