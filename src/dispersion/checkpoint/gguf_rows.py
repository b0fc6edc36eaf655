"""Rows of fused or rotated projections in the order of Hugging Face.

llama.cpp's converters reorder rows for some architectures. Which row of the file is wanted is
arithmetic, so that a head's rows are read without the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.checkpoint.gguf_architecture import Rows

    Indices = NDArray[np.int64]

ROTATED = re.compile(
    r"model\.layers\.\d+\.(?:self_attn|mixer)\.(q|k)_proj\.(weight|bias)", re.ASCII
)
NORMS = re.compile(r"model\.layers\.\d+\.self_attn\.(q|k)_norm\.(?:weight|bias)", re.ASCII)
SIDES = re.compile(
    r"(gpt_neox\.layers\.\d+\.attention|transformer\.h\.\d+\.self_attention)"
    r"\.query_key_value\.(weight|bias)",
    re.ASCII,
)
TRANSPOSED = re.compile(
    r"transformer\.h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight", re.ASCII
)


@dataclass(frozen=True)
class Order:
    """How a file orders rows; `heads` by the letter of the projection (q, k).

    Positions turn the first `turned` coordinates of a head.
    """

    rows: Rows
    heads: dict[str, int]
    head_dim: int
    turned: int

    def transposed(self, name: str) -> bool:
        """Whether the file holds the transpose of what Hugging Face has under this name."""
        return self.rows == "transposed" and TRANSPOSED.fullmatch(name) is not None

    def of_file(self, name: str, count: int, rows: slice) -> Indices | None:
        """Which rows of the file are the rows of this name; None for the same ones.

        Raises:
            CheckpointError: the tensor has not the rows that the metadata asks for.
        """
        at = np.arange(rows.start, rows.stop, dtype=np.int64)
        if self.rows.startswith("pairs") and (found := ROTATED.fullmatch(name)):
            heads = self.heads[found[1]]
            self._check(name, count, heads, self.head_dim, even=True)
            head, place = np.divmod(at, self.head_dim)
            return np.asarray(head * self.head_dim + self._apart(place))
        if self.rows == "halves" and (found := ROTATED.fullmatch(name)):
            self._check(name, count, self.heads[found[1]], self.head_dim)
            head, place = np.divmod(at, self.head_dim)
            pair, side = np.divmod(place, 2)
            own = np.where(place < self.turned, side * (self.turned // 2) + pair, place)
            return np.asarray(head * self.head_dim + own)
        if self.rows == "by side" and SIDES.fullmatch(name):
            # Hugging Face: for each key head the queries that read it, then its key and its value.
            heads, keys = self.heads["q"], self.heads["k"]
            shared = heads // keys
            self._check(name, count, heads + 2 * keys, self.head_dim)
            group, rest = np.divmod(at, (shared + 2) * self.head_dim)
            slot, place = np.divmod(rest, self.head_dim)
            query = group * shared + slot
            other = heads + (slot - shared) * keys + group
            return np.asarray(np.where(slot < shared, query, other) * self.head_dim + place)
        return None

    def columns(self, name: str, shape: tuple[int, ...]) -> Indices | None:
        """Which columns of the file are those of this name; None for the same ones.

        Raises:
            CheckpointError: the tensor has not one row for each head.
        """
        found = NORMS.fullmatch(name) if self.rows == "pairs, norms too" else None
        if found is None:
            return None
        wanted = (self.heads[found[1]], self.head_dim)
        if shape != wanted or self.head_dim % 2:
            msg = (
                f"tensor {shown(name)} must have shape {wanted}, head_dim even. Got {shown(shape)}."
            )
            raise CheckpointError(msg)
        return self._apart(np.arange(self.head_dim, dtype=np.int64))

    def _apart(self, place: Indices) -> Indices:
        """Where a coordinate of a head lies in the file, if rotated pairs are neighbours there."""
        half, pair = np.divmod(place, self.head_dim // 2)
        return np.asarray(2 * pair + half)

    def _check(
        self, name: str, count: int, heads: int, head_dim: int, *, even: bool = False
    ) -> None:
        if count != heads * head_dim or (even and head_dim % 2):
            msg = (
                f"tensor {shown(name)} must have heads x head_dim = {heads} x {head_dim} rows"
                f"{', head_dim even' if even else ''}. Got {count} rows."
            )
            raise CheckpointError(msg)


def runs(at: Indices) -> tuple[list[slice], Indices]:
    """Consecutive runs that together hold the rows `at`, and where each row lies in their union."""
    wanted = np.unique(at)
    breaks = np.flatnonzero(np.diff(wanted) > 1) + 1
    parts = [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(wanted, breaks) if run.size]
    return parts, np.searchsorted(wanted, at)
