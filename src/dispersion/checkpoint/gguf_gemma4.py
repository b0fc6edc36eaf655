"""Gemma 4 in GGUF files: sizes by layer, and full layers that turn a part of each head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_layers import PATTERN, WINDOW, layer_types
from dispersion.checkpoint.gguf_metadata import WIDEST_HEAD
from dispersion.checkpoint.gguf_rope import FREQS
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

SHARED, KEY_HEADS = "attention.shared_kv_layers", "attention.head_count_kv"
READS = (
    WINDOW, PATTERN, SHARED, "attention.key_length_swa", "attention.value_length_swa",
    "rope.dimension_count_swa",
)  # fmt: skip
FULL, SLIDING = "full_attention", "sliding_attention"
STILL = 1e30  # what divides the frequency of pairs that do not turn


def gemma4(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Its own sizes on sliding layers, and the rotations of both kinds."""
    layers = config["num_hidden_layers"]
    if meta.nonzero("attention.scale"):
        meta.refuse("attention.scale", "but logits of this architecture have none")
    if not isinstance(meta.get(PATTERN), list):
        meta.refuse(PATTERN, "but it must list which layers slide")
    types = layer_types(meta, layers, 1)
    if types[-1] != FULL:
        meta.refuse(PATTERN, "but the last layer must be a full one")
    head_dim = meta.integer("attention.key_length_swa", largest=WIDEST_HEAD)
    turned = meta.integer("rope.dimension_count_swa", head_dim)
    if turned != head_dim:
        meta.refuse("rope.dimension_count_swa", f"but sliding layers turn all of {head_dim}")
    key_heads = _key_heads(meta, config, layers)
    own = {
        str(layer): {
            "head_dim": config["head_dim"] if kind == FULL else head_dim,
            "num_key_value_heads": key_heads[layer],
        }
        for layer, kind in enumerate(types)
    }
    return {
        "head_dim": head_dim,
        "num_key_value_heads": key_heads[0],
        "per_layer_config": own,
        "layer_types": types,
        "sliding_window": meta.integer(WINDOW),
        "num_kv_shared_layers": _shared(meta, types),
        "rope_parameters": {
            FULL: {
                "rope_type": "proportional",
                "rope_theta": config["rope_theta"],
                "partial_rotary_factor": _share(meta, config["head_dim"], found),
            },
            SLIDING: {"rope_type": "default", "rope_theta": meta.real("rope.freq_base_swa")},
        },
    }


def _key_heads(meta: Metadata, config: Config, layers: int) -> list[int]:
    stated = meta.get(KEY_HEADS, config["num_attention_heads"])
    if not isinstance(stated, list):
        return [meta.integer(KEY_HEADS, stated)] * layers
    heads = [value for value in stated if type(value) is int and value > 0]
    if len(heads) != len(stated) or len(heads) < layers:
        meta.refuse(KEY_HEADS, f"but it must be positive for each of {layers} layers")
    return heads[:layers]


def _shared(meta: Metadata, types: list[str]) -> int:
    """How many of the last layers read keys of the two before them, one of each kind."""
    shared = meta.get(SHARED, 0)
    first = len(types) - shared if type(shared) is int else -1
    if shared != 0 and (first < 2 or types[first - 2 : first] != [SLIDING, FULL]):
        rule = "but a sliding and a full layer must come before those that read their keys"
        meta.refuse(SHARED, rule)
    return int(shared)


def _share(meta: Metadata, head_dim: int, found: Contents) -> float:
    """The share of a full layer's head that turns: pairs of frequencies that nothing divides."""
    divisors = list(found.factors.get(FREQS, ()))
    turned = divisors.count(1.0)
    still = len(divisors) - turned
    whole = len(divisors) == head_dim // 2 and turned > 0
    if not whole or any(d < STILL * 0.999 for d in divisors[turned:]) or 1.0 in divisors[turned:]:
        msg = (
            f"{shown(meta.file)}: {FREQS}.weight must hold {head_dim // 2} numbers, ones for the "
            f"pairs that turn and then {STILL:g} for those that do not. Got {turned} ones and "
            f"{still} others."
        )
        raise UnsupportedError(msg)
    return 2 * turned / head_dim
