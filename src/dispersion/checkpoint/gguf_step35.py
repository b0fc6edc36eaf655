"""Step 3.5 Flash in GGUF files: query heads by layer; on full layers half of a head turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_layers import PATTERN, SLIDING, WINDOW, layer_types
from dispersion.checkpoint.gguf_rope import FREQS
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

HEADS, KEY_LENGTH = "attention.head_count", "attention.key_length"
TURNED = "rope.dimension_count"
READS = SLIDING
FULL = "full_attention"


def step35(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Sizes and rotations of both kinds of layers."""
    layers, head_dim = config["num_hidden_layers"], config["head_dim"]
    if meta.has(TURNED):
        meta.refuse(TURNED, "of which programs disagree on whether full layers turn it or its half")
    if not meta.has(KEY_LENGTH):
        meta.refuse(KEY_LENGTH, "but it must be stated: heads of this architecture share no width")
    if head_dim % 4:
        meta.refuse(KEY_LENGTH, "but half of a head must consist of pairs")
    if not isinstance(meta.get(PATTERN), list) or len(meta.get(PATTERN)) < layers:
        meta.refuse(PATTERN, "but it must list which layers slide")
    types = layer_types(meta, layers, 1)
    heads = _heads(meta, types)
    usual = next(iter(heads.values()))
    return {
        "num_attention_heads": heads.get(FULL, usual),
        "num_sliding_attention_heads": heads.get("sliding_attention", usual),
        "num_key_value_heads": meta.integer("attention.head_count_kv"),
        "layer_types": types,
        "sliding_window": meta.integer(WINDOW),
        "query_pre_attn_scalar": head_dim,
        "rope_parameters": {
            FULL: _full(meta, config, found),
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": meta.real("rope.freq_base_swa"),
            },
        },
    }


def _heads(meta: Metadata, types: list[str]) -> dict[str, int]:
    """Query heads by layer type."""
    stated = meta.get(HEADS)
    if not isinstance(stated, list):
        return dict.fromkeys(types, meta.integer(HEADS))
    found: dict[str, int] = {}
    for kind, count in zip(types, stated, strict=False):
        if type(count) is not int or count <= 0 or found.setdefault(kind, count) != count:
            meta.refuse(HEADS, "but it must be one positive integer for all layers of a type")
    if len(stated) < len(types):
        meta.refuse(HEADS, f"but it must list all of {len(types)} layers")
    return found


def _full(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """The rotation of the first half of a head, by whose pairs the file may divide frequencies."""
    head_dim = config["head_dim"]
    turns = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    turns |= {"partial_rotary_factor": 0.5}
    if FREQS not in found.factors:
        return turns
    # There is one for each pair of a whole head, of which only the first ones are read.
    divisors = [float(value) for value in found.factors[FREQS]]
    if len(divisors) != head_dim // 2 or not all(0 < value < math.inf for value in divisors):
        msg = (
            f"{shown(meta.file)}: {FREQS}.weight must hold {head_dim // 2} positive divisors. "
            f"Got {len(divisors)} numbers."
        )
        raise UnsupportedError(msg)
    own = divisors[: head_dim // 4]
    return turns | {
        "rope_type": "longrope",
        "factor": 1.0,
        "short_factor": own,
        "long_factor": own,
        "attention_factor": 1.0,
        "original_max_position_embeddings": config["max_position_embeddings"],
    }
