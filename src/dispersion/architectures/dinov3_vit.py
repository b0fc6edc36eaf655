"""DINOv3: patches turn with their places in the image; class and register tokens do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import dinov2, ledger
from dispersion.config import flag, positive
from dispersion.errors import UnsupportedError
from dispersion.rotary import rotary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks
    from dispersion.rotary import Rotary


def rotation(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary:  # noqa: ARG001
    """A quarter of the coordinates' pairs for the height, as many for the width.

    Raises:
        UnsupportedError: a head cannot be divided so.
    """
    if head_dim % 4:
        msg = f"hidden_size / num_attention_heads must be a multiple of 4. Got {head_dim}."
        raise UnsupportedError(msg)
    theta = positive(config, "rope_theta", 100.0)
    powers = theta ** -np.arange(0, 1, 4 / head_dim)
    turned = rotary(np.concatenate([powers, powers]), head_dim, kind="places in an image")
    return replace(turned, placed=True)


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`query_bias` and `key_bias` of the config."""
    query = flag(config, "query_bias", default=True)
    key = flag(config, "key_bias", default=False)
    if key and not query:
        msg = "key_bias in config.json without query_bias is not supported."
        raise UnsupportedError(msg)
    return replace(blocks, bias=query, key_bias=key)


FAMILY = replace(
    dinov2.BLOCKS,
    stack="layer",
    module="attention",
    sides=("q_proj", "k_proj"),
    eps=1e-5,
    rotation=rotation,
    vary=vary,
    inside={
        **dinov2.BLOCKS.inside,
        r"attention\.(v_proj|o_proj)\.(weight|bias)": ledger.VALUE,
    },
    outside={
        **dinov2.BLOCKS.outside,
        r"rope_embeddings\.inv_freq": ledger.FREQUENCIES,
        r"norm\.(weight|bias)": ledger.FINAL_NORM,
    },
).family("dinov3_vit", "DINOv3ViT", "as dinov2, patches turn with their places in the image")
