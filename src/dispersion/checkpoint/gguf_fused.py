"""Queries, keys and values of a layer in one tensor, where the family has three."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_file import Stored

FUSED = re.compile(r"(model\.layers\.\d+\.self_attn\.)qkv_proj(\.(?:weight|bias))", re.ASCII)


def split(renamed: dict[str, Stored], heads: int, keys: int, head_dim: int) -> None:
    """Put projections of queries, keys and values, in this order in a tensor, in its place.

    Raises:
        CheckpointError: other sizes, or one of the three beside them.
        UnsupportedError: a quantised bias.
    """
    for fused, match in [(n, m) for n in renamed if (m := FUSED.fullmatch(n))]:
        stored = renamed.pop(fused)
        count, wanted = stored.shape[0] if stored.shape else 0, (heads + 2 * keys) * head_dim
        if count != wanted:
            msg = (
                f"tensor {shown(stored.name)} must have (heads + 2 x key heads) x head_dim = "
                f"({heads} + 2 x {keys}) x {head_dim} rows. Got {count} rows."
            )
            raise CheckpointError(msg)
        start = 0
        for letter, size in (("q", heads), ("k", keys), ("v", keys)):
            name = f"{match[1]}{letter}_proj{match[2]}"
            if name in renamed:
                msg = (
                    f"{shown(stored.file)}: {shown(stored.name)} and {shown(renamed[name].name)} "
                    "hold one projection twice. Convert the model again."
                )
                raise CheckpointError(msg)
            stop = start + size * head_dim
            renamed[name] = _rows(stored, start, stop)
            start = stop


def _rows(stored: Stored, start: int, stop: int) -> Stored:
    """Consecutive rows as a tensor of their own."""
    each, rest = divmod(stored.nbytes, stored.shape[0])
    if rest:
        msg = f"tensor {shown(stored.name)} is quantised as {stored.type} across projections."
        raise UnsupportedError(msg)
    shape = (stop - start, *stored.shape[1:])
    row_bytes = each * (stop - start) if len(shape) == 1 else stored.row_bytes
    offset = stored.offset + start * each
    return replace(stored, shape=shape, offset=offset, row_bytes=row_bytes)
