"""SAM's image encoder: ViT within windows, where queries are multiplied by tables of ways.

A key y′ rows and x′ columns from the query has the logit s⟨q, k⟩ + ⟨q, H_y′ + W_x′⟩, q without the
scale. The largest difference that each table can make is found over the ways that one row holds
together (over all of them where a layer sees the whole image, whose table may be stretched, to rows
between its own), exactly as the norm in front allows, and added to that of the content
(added_bias.py). Windows over an edge are filled with states of zeros, which are keys as others are.

Attention in the mask decoder of a whole model is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import with_width
from dispersion.architectures import ledger
from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.blocks_reader import BlocksReader
from dispersion.architectures.head_rows import rows_of_head, stored_vectors
from dispersion.architectures.layouts import stacked
from dispersion.architectures.plans import Family, Plan
from dispersion.balls import total
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.cholesky import gamma
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError
from dispersion.zero_state import with_zero_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import BallImage, Head

    Table = NDArray[np.float64]

_UP = 1 + 2.0**-40
# Inner configs are saved without what is as the class has it.
_ABSENT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}


def widest(query: BallImage, table: Table, near: int) -> float:
    """The largest ⟨q, p − p′⟩ of a query and two rows at most `near` apart. **Upper.**

    Attained but for rounding, ρ‖Aᵀ(p − p′)‖ + ⟨a, p − p′⟩ for the best pair.
    """
    image = table @ query.matrix
    size = query.head_dim
    lengths = np.sqrt(np.vecdot(table, table)) * _UP
    # How far a row of the image may be off: rounding, and the errors of the matrix's rows.
    off = gamma(size + 8) * (np.abs(table) @ query.row_sizes)
    if query.row_error is not None:
        off = off + np.abs(table) @ query.row_error
    line, line_off = np.zeros(len(table)), np.zeros(len(table))
    if query.offset is not None:
        line = table @ query.offset
        line_off = gamma(size + 8) * lengths * float(np.linalg.norm(query.offset)) * _UP
        if query.offset_error is not None:
            line_off = line_off + np.abs(table) @ query.offset_error
    found = 0.0
    for step in range(1, min(near, len(table) - 1) + 1):
        apart = image[step:] - image[:-step]
        long = np.sqrt(np.vecdot(apart, apart)) + (off[step:] + off[:-step]) * _UP
        straight = np.abs(line[step:] - line[:-step]) + line_off[step:] + line_off[:-step]
        found = max(found, float(np.max(query.radius.upper * long * _UP + straight * _UP)))
    return found * _UP


@dataclass(frozen=True, kw_only=True)
class GridAttention(Attention):
    """One layer.

    Attributes:
        tables: those of rows and of columns, tensors of shape [2·side − 1, head_dim]; or none.
        sides: of the grid that each table was made for.
        padded: whether windows are filled with zeros.
    """

    tables: tuple[str, ...]
    sides: tuple[int, ...]
    padded: bool

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        shapes = [(2 * side - 1, self.head_dim) for side in self.sides]
        return super().tensors | dict(zip(self.tables, shapes, strict=True))

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which query is multiplied by what is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        tables = [to_float64(checkpoint.read(name), tensor=name) for name in self.tables]
        gain, bias = stored_vectors(checkpoint, self.input_norm)
        for index, kv_head, head in heads(checkpoint, self):
            assert head.query is not None
            assert head.key is not None
            found = replace(head, reach=None)
            if self.padded:
                weight = rows_of_head(checkpoint, self, self.key, kv_head)
                found = replace(found, key=with_zero_state(head.key, weight, gain, bias))
            parts = [
                widest(head.query, table, side - 1 if self.padded else len(table) - 1)
                for table, side in zip(tables, self.sides, strict=True)
            ]
            yield index, kv_head, with_width(found, total(*parts, 0.0).upper, common=False)


def biased(reader: BlocksReader, prefix: str, found: Attention) -> Attention:  # noqa: ARG001
    """With the tables of a layer, and its windows."""
    config = reader.config
    side = integer(config, "window_size", 14, minimum=0)
    whole = side == 0 or found.layer in _whole(config)
    sides: tuple[int, ...] = (_grid(config) if whole else side,) * 2
    tables: tuple[str, ...] = tuple(f"{found.module}.rel_pos_{way}" for way in "hw")
    if not flag(config, "use_rel_pos", default=True):
        tables, sides = (), ()
    own: dict[str, Any] = {each.name: getattr(found, each.name) for each in fields(found)}
    own |= {"known_inputs": False, "window": None if whole else side**2}
    return GridAttention(**own, tables=tables, sides=sides, padded=not whole)


def _whole(config: Mapping[str, Any]) -> list[int]:
    """Layers that see the whole image."""
    value = config.get("global_attn_indexes", [2, 5, 8, 11])
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        got = shown(repr(value))
        msg = f"global_attn_indexes in config.json must be a list of layers. Got {got}."
        raise CheckpointError(msg)
    return value


def _grid(config: Mapping[str, Any]) -> int:
    """Patches of an image, as many down as across."""
    found = integer(config, "image_size", 1024) // integer(config, "patch_size", 16)
    if not found:
        msg = "image_size in config.json must be at least patch_size. Got a smaller one."
        raise CheckpointError(msg)
    return found


BLOCKS = Blocks(
    stack="layers",
    module="attn",
    norm="layer_norm1",
    sides=("qkv",),
    layout=stacked,
    bias="qkv_bias",
    eps=1e-6,
    eps_key="layer_norm_eps",
    causal=False,
    biased=biased,
    inside={
        r"attn\.proj\.(weight|bias)": ledger.VALUE,
        r"attn\.rel_pos_[hw]": "use_rel_pos says that it is not used",
        r"layer_norm2\.(weight|bias)": ledger.AFTER,
        r"mlp\..+": ledger.FEED_FORWARD,
    },
    outside={
        r"patch_embed\..+|pos_embed": ledger.EMBEDDING,
        r"neck\..+": ledger.HEAD,
        r"(prompt_encoder|shared_image_embedding)\..+": "embeds prompts",
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the image encoder, alone or within a whole model.

    Raises:
        CheckpointError: the inner config is no object.
    """
    config = checkpoint.config
    inner = config.get("vision_config")
    if inner is not None or config.get("model_type") == "sam":
        if not isinstance(inner, dict):
            msg = f"vision_config in config.json must be an object. Got {shown(repr(inner))}."
            raise CheckpointError(msg)
        around = {k: config[k] for k in ("model_type", "quantization_config") if k in config}
        checkpoint = replace(checkpoint, config=_ABSENT | inner | around)
    return BlocksReader(BLOCKS, checkpoint).plan("sam", asked)


FAMILY = Family(
    "sam",
    ("sam", "sam_vision_model"),
    ("Sam", "SamVision"),
    "LayerNorm before attention, in windows or not, products of queries with tables of ways",
    read,
)
