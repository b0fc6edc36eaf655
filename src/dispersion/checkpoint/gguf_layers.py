"""Families whose layers differ: windows, and where the rotation rests, by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
SLIDING = (WINDOW, PATTERN)


def layer_types(meta: Metadata, layers: int, period: int) -> list[str]:
    """Types of layers from the pattern in the file, or with each `period`-th one full."""
    pattern = meta.get(PATTERN, period)
    if isinstance(pattern, list) and len(pattern) >= layers:
        sliding = [bool(flag) for flag in pattern[:layers]]
    else:
        period = meta.integer(PATTERN, period)
        sliding = [(layer + 1) % period != 0 for layer in range(layers)]
    return ["sliding_attention" if s else "full_attention" for s in sliding]


def gemma2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """A soft cap on logits, and a window on every other layer."""
    return {
        "query_pre_attn_scalar": _gemma_scalar(config, 46),
        "attn_logit_softcapping": meta.real("attn_logit_softcapping", 50.0),
        "sliding_window": meta.integer(WINDOW, 4096),
        "layer_types": layer_types(meta, config["num_hidden_layers"], 2),
    }


def gemma3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Five sliding layers to one full layer, which has a rotary base of its own."""
    layers = config["num_hidden_layers"]
    settings: dict[str, Any] = {"query_pre_attn_scalar": _gemma_scalar(config, 62)}
    if meta.get(WINDOW, 0) == 0:  # 0 means none
        return settings | {"layer_types": ["full_attention"] * layers}
    return settings | {
        "sliding_window": meta.integer(WINDOW),
        "layer_types": layer_types(meta, layers, 6),
        "rope_local_base_freq": meta.real("rope.freq_base_swa", 10000.0),
    }


def gemma_embedding(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Gemma 3 as an encoder: half of its window on each side."""
    if meta.has("attention.causal") and meta.flag("attention.causal"):
        meta.refuse("attention.causal", "but only false is read for this architecture")
    del found
    types = layer_types(meta, config["num_hidden_layers"], 6)
    _every(6, meta, types)
    return {
        "query_pre_attn_scalar": config["head_dim"],
        "use_bidirectional_attention": True,
        "sliding_window": meta.integer(WINDOW),
        "layer_types": types,
        "rope_local_base_freq": meta.real("rope.freq_base_swa", 10000.0),
    }


def _gemma_scalar(config: Config, largest_model: int) -> int:
    """Files do not state s of the logit scale 1/√s: the largest (27B) model alone has another."""
    if config["num_hidden_layers"] == largest_model:
        return int(config["hidden_size"] // config["num_attention_heads"])
    return int(config["head_dim"])


def olmo2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """OLMo 3 is the same architecture with a window."""
    if not meta.nonzero(WINDOW):
        return {}
    return {
        "model_type": "olmo3",
        "sliding_window": meta.integer(WINDOW),
        "layer_types": layer_types(meta, config["num_hidden_layers"], 4),
    }


def mellum(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """A window on three layers of four, or on those that the file lists, or on none."""
    layers = config["num_hidden_layers"]
    if not meta.nonzero(WINDOW):
        return {"sliding_window": None, "layer_types": ["full_attention"] * layers}
    return {"sliding_window": meta.integer(WINDOW), "layer_types": layer_types(meta, layers, 4)}


def scaled_where_full(meta: Metadata, config: Config) -> dict[str, Any]:  # noqa: ARG001
    """One base for all layers, and a scaling of full ones alone."""
    plain = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    full = plain | (config.get("rope_scaling") or {})
    nested = {"full_attention": full, "sliding_attention": plain}
    return {"rope_scaling": None, "rope_parameters": nested}


def gpt_oss(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """A window on every other layer."""
    return {
        "sliding_window": meta.integer(WINDOW),
        "layer_types": layer_types(meta, config["num_hidden_layers"], 2),
    }


def modern_bert(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every third layer sees all tokens, from the first one on; the others half a window a side."""
    if meta.flag("attention.causal"):
        meta.refuse("attention.causal", "but only false is read for this architecture")
    layers = config["num_hidden_layers"]
    settings: dict[str, Any] = {"attention_bias": False, "global_rope_theta": config["rope_theta"]}
    if not meta.nonzero(WINDOW):
        return settings | {"layer_types": ["full_attention"] * layers}
    period = meta.integer(PATTERN, 3)
    return settings | {
        "local_attention": meta.integer(WINDOW),
        "layer_types": [
            "sliding_attention" if layer % period else "full_attention" for layer in range(layers)
        ],
        "local_rope_theta": meta.real("rope.freq_base_swa"),
    }


def cohere2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every fourth layer is full and rests."""
    return {
        "sliding_window": meta.integer(WINDOW),
        "layer_types": layer_types(meta, config["num_hidden_layers"], 4),
    }


def afmoe(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """As Cohere 2, with an embedding that is scaled by the root of its width."""
    types = cohere2(meta, config, found)
    # Which layers turn is every fourth one whatever the pattern of windows says.
    _every(4, meta, types["layer_types"])
    return types | {"mup_enabled": True}


def exaone4(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """The 32B model has windows, as Cohere 2; the others have none and turn on every layer."""
    layers = config["num_hidden_layers"]
    if layers == 64:
        return {"sliding_window": meta.integer(WINDOW, 4096)} | {
            "layer_types": layer_types(meta, layers, 4)
        }
    del found
    if meta.nonzero(WINDOW):
        meta.refuse(WINDOW, f"which is applied to models of 64 layers only, not of {layers}")
    return {"sliding_window": None, "layer_types": ["full_attention"] * layers}


def exaone_moe(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every fourth layer is full and rests."""
    types = layer_types(meta, config["num_hidden_layers"], 4)
    _every(4, meta, types)  # programs differ on whether they read the pattern
    return {"sliding_window": meta.integer(WINDOW, 128), "layer_types": types}


def gemma3n(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every fifth layer is full; those from the 21st on read keys of earlier ones."""
    layers, key = config["num_hidden_layers"], "attention.shared_kv_layers"
    if meta.nonzero("attention.scale"):
        meta.refuse("attention.scale", "but logits of this architecture have none")
    shared = max(layers - 20, 0)
    if meta.get(key, shared) != shared:
        meta.refuse(key, f"but {shared} of {layers} layers read keys of earlier ones")
    types = layer_types(meta, layers, 5)
    _every(5, meta, types)
    return {
        "sliding_window": meta.integer(WINDOW),
        "layer_types": types,
        "num_kv_shared_layers": shared,
        "rope_local_base_freq": meta.real("rope.freq_base_swa"),
    }


def llama4(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Three layers of four turn and see chunks of 8192 tokens; the others have a temperature."""
    if meta.has(WINDOW):
        meta.refuse(WINDOW, "which is not read: chunks of this architecture have 8192 tokens")
    layers = config["num_hidden_layers"]
    _every(4, meta, layer_types(meta, layers, 4))
    turns = [layer % 4 != 3 for layer in range(layers)]
    return {
        "attention_chunk_size": 8192,
        "layer_types": ["chunked_attention" if turn else "full_attention" for turn in turns],
        "no_rope_layers": [int(turn) for turn in turns],
        "attn_temperature_tuning": True,
        "attn_scale": 0.1,
        "floor_scale": 8192,
        "use_qk_norm": meta.get("expert_count") != 128,  # of Maverick
    }


def mimo2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Sliding layers have twice the key heads of full ones, and a base of their own."""
    layers, key = config["num_hidden_layers"], "attention.head_count_kv"
    if not isinstance(meta.get(PATTERN), list):
        meta.refuse(PATTERN, "but it must list which layers slide")
    types = layer_types(meta, layers, 1)
    stated = meta.get(key)
    counts = stated[:layers] if isinstance(stated, list) else []
    slides = [kind == "sliding_attention" for kind in types]
    full = next((count for count, s in zip(counts, slides, strict=False) if not s), None)
    if type(full) is not int or counts != [2 * full if s else full for s in slides]:
        meta.refuse(key, "but there must be twice as many on sliding layers as on full ones")
    share = config.get("partial_rotary_factor", 1.0)
    return {
        "num_key_value_heads": full,
        "layer_types": types,
        "sliding_window": meta.integer(WINDOW),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}
            for kind, base in (
                ("full_attention", config["rope_theta"]),
                ("sliding_attention", meta.real("rope.freq_base_swa")),
            )
        },
    }


def _every(period: int, meta: Metadata, types: list[str]) -> None:
    full = [kind == "full_attention" for kind in types]
    if full != [(layer + 1) % period == 0 for layer in range(len(types))]:
        nth = {4: "fourth", 5: "fifth", 6: "sixth"}[period]
        meta.refuse(PATTERN, f"but every {nth} layer must be the full one")
