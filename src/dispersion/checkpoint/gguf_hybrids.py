"""Families in which only some layers have softmax attention, or something beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_sections import check_sections
from dispersion.checkpoint.gguf_settings import granite_factors

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

KEY_HEADS = "attention.head_count_kv"
INTERVAL = "full_attention_interval"
FULL = "full_attention"


def granite_hybrid(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Layers without key heads are Mamba; others turn only where the file says so, or nothing."""
    turns = meta.flag("rope.scaling.finetuned", default=True)
    return granite_factors(meta, config, found) | {
        "layer_types": _by_key_heads(meta, config, "linear_attention"),
        "position_embedding_type": "rope" if turns else None,
    }


def lfm2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Layers without key heads are short convolutions."""
    return {"layer_types": _by_key_heads(meta, config, "conv")}


def nemotron_h(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Layers without key heads are Mamba 2 or feed-forward."""
    return {"layers_block_type": _by_key_heads(meta, config, "linear_attention")}


def jamba(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Layers with key heads come in one period."""
    layers = config["num_hidden_layers"]
    attending = [i for i, kind in enumerate(_by_key_heads(meta, config, "")) if kind]
    period = attending[1] - attending[0] if len(attending) > 1 else layers
    if attending != list(range(attending[0], layers, period)) or attending[0] >= period:
        meta.refuse(KEY_HEADS, "but layers that attend must come in one period")
    return {"attn_layer_period": period, "attn_layer_offset": attending[0]}


def _by_key_heads(meta: Metadata, config: Config, other: str) -> list[str]:
    counts = meta.counts(KEY_HEADS, config["num_hidden_layers"])
    return [FULL if count else other for count in counts]


def qwen3_next(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every fourth layer attends."""
    period = meta.integer(INTERVAL, 4)
    layers = range(config["num_hidden_layers"])
    return {
        "layer_types": [
            FULL if (layer + 1) % period == 0 else "linear_attention" for layer in layers
        ]
    }


def qwen3_5(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """As Qwen 3 Next, with sections that follow one another pair by pair."""
    check_sections(meta, config, interleaved=True)
    return qwen3_next(meta, config, found)


def falcon_h1(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Factors on inputs, keys and embeddings are multiplied into the file's weights."""
    factors = ("attention_in_multiplier", "key_multiplier", "embedding_multiplier")
    return dict.fromkeys(factors, 1.0)
