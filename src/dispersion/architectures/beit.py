"""BEiT and data2vec-vision: ViT, whose layers add relative biases; keys have no bias.

A table has an entry for each way between two patches, and three for the class token. Images of
another size than the trained one get means of its entries, which lie between them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger, vit
from dispersion.architectures.biased_attention import with_tables
from dispersion.config import flag, integer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader

_TABLE = "relative_position_bias.relative_position_bias_table"


def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:
    """With a layer's own table, that of all layers, both or none."""
    config = reader.config
    rows = _rows(config)
    found = []
    if flag(config, "use_relative_position_bias", default=False):
        found.append((f"{attention.module}.{_TABLE}", rows))
    if flag(config, "use_shared_relative_position_bias", default=False):
        found.append((f"{prefix}encoder.{_TABLE}", rows))
    return with_tables(attention, *found)


def _rows(config: Mapping[str, Any]) -> int:
    """One for each way between two patches of an image, and three more."""
    patch = integer(config, "patch_size", 16)
    size = config.get("image_size")
    sides = size if isinstance(size, list) and len(size) == 2 else [size, size]
    across = [integer({"image_size": side}, "image_size", 224) // patch for side in sides]
    return (2 * across[0] - 1) * (2 * across[1] - 1) + 3


BLOCKS = replace(
    vit.BLOCKS,
    bias=True,
    key_bias=False,
    biased=biased,
    inside={
        **vit.BLOCKS.inside,
        r"lambda_[12]": "scales what attention and feed-forward put out",
        r"(.+\.)?relative_position_index": "index buffer",
    },
    outside={
        **vit.BLOCKS.outside,
        r"encoder\.relative_position_bias\.relative_position_index": "index buffer",
        rf"encoder\.{_TABLE}": ledger.UNASKED,
        r"(lm_head|auxiliary_head|decode_head|fpn\d)\..+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family(
    "beit",
    ("Beit", "Data2VecVision"),
    "as vit, with relative biases by place; keys have no bias",
    types=("beit", "data2vec-vision"),
)
