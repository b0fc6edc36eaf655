"""Queries, keys and values of a layer in one tensor, where the family has three."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.tensors import TensorInfo
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.checkpoint.gguf_file import Stored
    from dispersion.checkpoint.gguf_latent import Values

FUSED = re.compile(r"(model\.layers\.\d+\.self_attn\.)qkv_proj(\.(?:weight|bias))", re.ASCII)


@dataclass(frozen=True)
class Share:
    """Consecutive rows of a tensor."""

    whole: Stored
    start: int
    stop: int

    def info(self, name: str) -> TensorInfo:
        rows, all_rows = self.stop - self.start, self.whole.shape[0]
        nbytes = self.whole.nbytes // all_rows * rows
        shape = (rows, *self.whole.shape[1:])
        return TensorInfo(name, self.whole.type, shape, self.whole.file, nbytes)

    def read(self, values: Values, rows: slice | None) -> NDArray[Any]:
        rows = rows or slice(0, self.stop - self.start)
        return values(self.whole, slice(self.start + rows.start, self.start + rows.stop))


def shares(renamed: dict[str, Stored], heads: int, keys: int, head_dim: int) -> dict[str, Share]:
    """Projections of queries, keys and values, in this order in tensors that leave `renamed`.

    Raises:
        CheckpointError: other sizes, or one of the three beside them.
    """
    found: dict[str, Share] = {}
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
            found[name] = Share(stored, start, stop)
            start = stop
    return found
