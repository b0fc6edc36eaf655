"""SqueezeBERT: BERT, whose projections are convolutions of width 1 in groups of channels.

Outputs of a group read the inputs of the same group alone, so a projection is a matrix of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import bert, ledger
from dispersion.architectures.assemble import split
from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.blocks import Blocks
from dispersion.checkpoint import from_arrays
from dispersion.config import integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.architectures.blocks_reader import BlocksReader
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

_PARTS = r"\.(weight|bias)"


@dataclass(frozen=True, kw_only=True)
class GroupedAttention(Attention):
    """One layer; `groups` are those of queries and of keys."""

    groups: tuple[int, int]

    @property
    def stored(self) -> dict[str, tuple[int, int, int]]:
        """The projections as they lie in the file: outputs, inputs of a group, width."""
        sides = zip((self.query, self.key), self.groups, strict=True)
        return {side.weight: (self.width, self.width // count, 1) for side, count in sides}

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | self.stored

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head).

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        arrays = {name: checkpoint.read(name) for name in self.tensors}
        arrays |= {name: in_blocks(arrays[name]) for name in self.stored}
        yield from heads(from_arrays(arrays, checkpoint.config), self)


def in_blocks(weight: NDArray[Any]) -> NDArray[Any]:
    """The matrix of a convolution of width 1, shape (outputs, inputs)."""
    width, inner, _ = weight.shape
    found = np.zeros((width, width), dtype=weight.dtype)
    for start in range(0, width, inner):
        part = slice(start, start + inner)
        found[part, part] = weight[part, :, 0]
    return found


def biased(reader: BlocksReader, prefix: str, found: Attention) -> Attention:  # noqa: ARG001
    """With the groups of the config."""
    counts = [integer(reader.config, f"{side}_groups", 4) for side in "qk"]
    for side, count in zip("qk", counts, strict=True):
        split(found.width, count, "hidden_size", f"{side}_groups")
    own: dict[str, Any] = {each.name: getattr(found, each.name) for each in fields(found)}
    return GroupedAttention(**own, groups=(counts[0], counts[1]))


FAMILY = Blocks(
    stack="encoder.layers",
    module="attention",
    norm="output.layernorm",
    post_norm=True,
    first_norm="embeddings.LayerNorm",
    sides=("query", "key"),
    eps=1e-12,
    eps_key="layer_norm_eps",
    causal=False,
    table="embeddings.position_embeddings.weight",
    positions_absent=512,
    biased=biased,
    inside={
        rf"attention\.value{_PARTS}": ledger.VALUE,
        rf"post_attention\.conv1d{_PARTS}": ledger.VALUE,
        rf"post_attention\.layernorm{_PARTS}": ledger.AFTER,
        rf"(intermediate|output)\.conv1d{_PARTS}": ledger.FEED_FORWARD,
        rf"output\.layernorm{_PARTS}": ledger.UNASKED,
    },
    outside={
        **bert.NAMING.outside,
        rf"embeddings\.LayerNorm{_PARTS}": ledger.UNASKED,
    },
).family("squeezebert", "SqueezeBert", "as bert, projections in groups of channels")
