"""Doge: headwise QK norm, and a bias of each key that its value makes, from a learned mask.

The key of a state x has the bias exp(A·softplus(w·v + β)) in all heads of its group, v its value
for all key heads and A, w, β of its own. It grows or falls with w·v, which is linear in x and so
lies in an interval; the ends of that give the ends of the bias (added_bias.py). Where there are
more keys than `keep_window_size` a query sees those of the largest biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import still, with_width
from dispersion.architectures import ledger
from dispersion.architectures.attention import Attention
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.windows import where_stated
from dispersion.checkpoint import to_float64
from dispersion.cholesky import gamma
from dispersion.config import integer
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

    Vector = NDArray[np.float64]

_UP = 1 + 2.0**-38
# Above 20 code takes x for softplus(x), which is 1e-10 of it below.
_SOFT = 2.0**-30

RULES = Decoder(
    names={
        r"self_attn\.v_proj\.(weight|bias)": ledger.VALUE,
        r"(input|post_attention)_residual": ledger.AFTER,
    },
    qk_norm="headwise",
    window=where_stated,
    embedded=False,
)


@dataclass(frozen=True, kw_only=True)
class DynamicAttention(Attention):
    """One layer; `keep` is how many keys a query sees at least, of more than so many."""

    keep: int

    @property
    def mask(self) -> dict[str, tuple[int, ...]]:
        """The tensors that biases are made of."""
        rows = self.key.heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {
            f"{self.module}.A": (self.key.heads,),
            f"{self.module}.dt_proj.weight": (self.key.heads, rows),
            f"{self.module}.v_proj.weight": (rows, self.width),
        }
        if self.key.bias is not None:
            found[f"{self.module}.dt_proj.bias"] = (self.key.heads,)
            found[f"{self.module}.v_proj.bias"] = (rows,)
        return found

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | self.mask

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head), each with the width of its biases.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        widths = self._widths(checkpoint)
        count = self.keep if self.window is None else min(self.keep, self.window)
        for index, kv_head, head in super().heads(checkpoint):
            yield index, kv_head, picked(with_width(still(head), widths[kv_head]), count)

    def _widths(self, checkpoint: Checkpoint) -> list[float]:
        """By key head, how far apart two biases can lie."""
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        read = {
            name.removeprefix(f"{self.module}."): to_float64(checkpoint.read(name), tensor=name)
            for name in self.mask
        }
        name = self.input_norm.gain
        gain = to_float64(checkpoint.read(name), tensor=name)
        maps, values = read["dt_proj.weight"], read["v_proj.weight"]
        zeros = np.zeros(len(values))
        found = []
        for head, row in enumerate(maps):
            line, error = _product(values.T * gain[:, None], row)
            radius = float(np.linalg.norm(line) + np.linalg.norm(error)) * math.sqrt(self.width)
            centre, off = _product(read.get("v_proj.bias", zeros)[None, :], row)
            middle = float(centre[0] + read.get("dt_proj.bias", zeros)[head])
            reach = (radius + float(off[0]) + 2.0**-50 * abs(middle)) * _UP
            found.append(width(float(read["A"][head]), middle - reach, middle + reach))
        return found


def _product(matrix: Vector, vector: Vector) -> tuple[Vector, Vector]:
    """Matrix @ vector and the largest error of each entry, one rounding of entries included."""
    size = np.abs(matrix) @ np.abs(vector)
    return matrix @ vector, size * (gamma(len(vector) + 8) * _UP)


def width(factor: float, low: float, high: float) -> float:
    """How far apart exp(factor·softplus(t)) can lie for t in [low, high]. **Upper.**"""
    ends = []
    for t, by in ((low, 1 - _SOFT), (high, 1 + _SOFT)):
        ends.append(factor * by * (max(t, 0.0) + math.log1p(math.exp(-abs(t)))))
    lowest, highest = min(ends), max(ends)
    if highest > 700:
        return math.inf
    # A rounding of an exponent of up to 700 is one of 2^-43 in the power.
    return max(0.0, math.exp(highest) * _UP - math.exp(lowest) / _UP)


class _Reader(Reader):
    def _attention(self, prefix: str, layer: int) -> DynamicAttention:
        found: Any = super()._attention(prefix, layer)
        values = {f.name: getattr(found, f.name) for f in fields(found)}
        keep = integer(self.config, "keep_window_size", 2048)
        return DynamicAttention(**values | {"known_inputs": False}, keep=keep)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    return _Reader(RULES, checkpoint).plan("doge", asked)


FAMILY = Family(
    "doge",
    ("doge",),
    ("Doge",),
    "headwise QK norm, biases that values make, the keep_window_size keys of the largest",
    read,
)
