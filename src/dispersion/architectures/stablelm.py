"""StableLM 2: a LayerNorm with bias; a quarter of each head turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.attention import Norm
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.decoder_reader import NAMING
from dispersion.architectures.rotations import rope
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

QK_NORM = Norm("layer", "{side}_layernorm.norms.{head}.weight", listed=True)


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`qk_layernorm`: a LayerNorm of its own behind the query and the key of each head."""
    normed = flag(config, "qk_layernorm", default=False)
    return replace(blocks, qk_norm=QK_NORM) if normed else blocks


FAMILY = Blocks(
    stack=NAMING.stack,
    module=NAMING.module,
    norm="input_layernorm",
    key_heads="num_key_value_heads",
    key_heads_absent=32,
    bias="use_qkv_bias",
    bias_absent=False,
    eps_key="layer_norm_eps",
    rotation=rope(partial=0.25),
    tokens="embed_tokens.weight",
    vary=vary,
    inside=NAMING.inside,
    outside=NAMING.outside,
).family(
    "stablelm", "StableLm", "LayerNorm, partial RoPE, with qk_layernorm a LayerNorm for each head"
)
