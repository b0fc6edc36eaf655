"""Gemma 4, text only: plain gains, logit scale 1; full layers have heads of another size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.sharing import last_layers
from dispersion.architectures.windows import FULL, SLIDING, full_where
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.architectures.sizes import Sizes
    from dispersion.architectures.windows import LayerKind
    from dispersion.checkpoint import Checkpoint

ROPE = {
    FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}
SIZES = {"head_dim", "num_key_value_heads"}


def _sizes(config: Mapping[str, Any], sizes: Sizes, layer: int, kind: LayerKind) -> Sizes:
    """From `per_layer_config`, or of full layers from `global_head_dim` and its companion."""
    by_layer = config.get("per_layer_config")
    if by_layer is not None:
        own = by_layer.get(str(layer), {}) if isinstance(by_layer, dict) else None
        if not isinstance(own, dict) or not set(own) <= SIZES:
            msg = (
                f"per_layer_config in config.json must map layers to {' and '.join(sorted(SIZES))}."
                f" Got {shown(repr(by_layer))}."
            )
            raise UnsupportedError(msg)
        head_dim = integer(own, "head_dim", sizes.head_dim)
        key_heads = integer(own, "num_key_value_heads", sizes.key_heads)
    elif kind.layer_type == FULL:
        head_dim = integer(config, "global_head_dim", 512)
        alike = flag(config, "attention_k_eq_v", default=False)
        key_heads = sizes.key_heads
        if alike:
            key_heads = integer(config, "num_global_key_value_heads", key_heads)
    else:
        return sizes
    if sizes.heads % key_heads:
        msg = (
            "num_key_value_heads of every layer must divide num_attention_heads. "
            f"Got {key_heads} in layer {layer}, num_attention_heads={sizes.heads}."
        )
        raise CheckpointError(msg)
    return replace(sizes, head_dim=head_dim, key_heads=key_heads)


RULES = Decoder(
    names={
        r"per_layer_(input_gate|projection)\.weight": ledger.AFTER,
        r"post_per_layer_input_norm\.weight": ledger.AFTER,
        r"(pre|post)_feedforward_layernorm_[12]\.weight": ledger.AFTER,
        r"(router|experts)\..+": ledger.FEED_FORWARD,
        r"layer_scalar": ledger.AFTER,
    },
    qk_norm="headwise",
    heads=8,
    head_dim=256,
    key_heads=4,
    unscaled=True,
    window=full_where(lambda i, n: (i + 1) % 6 == 0 or i == n - 1, absent=512),
    shared=last_layers(0),
    sizes=_sizes,
    rope_nested=True,
    rope_absent=ROPE,
    scaled_embedding=True,
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a causal model; images, which see each other both ways, only lengthen no context."""
    config = checkpoint.config
    key = "use_bidirectional_attention"
    if config.get(key) not in (None, False, "vision"):
        msg = f"{key}={shown(repr(config[key]))} in config.json is not supported for this model."
        raise UnsupportedError(msg)
    types = config.get("layer_types")
    if isinstance(types, list) and types and types[-1] == SLIDING:
        # Its code sees to it that the last layer is full.
        checkpoint = replace(checkpoint, config={**config, "layer_types": [*types[:-1], FULL]})
    return Reader(RULES, checkpoint).plan("gemma4_text", layers)


FAMILY = replace(
    RULES.family(
        "gemma4_text",
        "Gemma4",
        "headwise QK norm, no logit scale, larger heads on full layers, keys of earlier layers",
    ),
    read=read,
)
