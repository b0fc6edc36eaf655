"""GGUF metadata in the words of a Hugging Face config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_families import ARCHITECTURES
from dispersion.checkpoint.gguf_metadata import MOST_LAYERS, WIDEST_HEAD, Contents, Metadata
from dispersion.checkpoint.gguf_rope import rope_scaling
from dispersion.checkpoint.gguf_settings import partial_factor
from dispersion.checkpoint.gguf_unread import STRANGE, UNREAD
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint.gguf_architecture import Architecture

# Settings of attention that are read for every architecture. Any other one is refused by its key.
READ = frozenset({
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
    "attention.causal", "attention.scale", "rope.dimension_count", "rope.freq_base",
    "rope.freq_base_swa", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
})  # fmt: skip
DRAFTS = "nextn_predict_layers"
# Settings outside `attention.` and `rope.` that change it or the count of its layers.
ELSEWHERE = (
    "attn_logit_softcapping", DRAFTS, "full_attention_interval",
    "no_rope_layer_step", "n_deepstack_layers", "decoder_block_count", "swin_norm",
)  # fmt: skip
# What files of these say of attention.causal, their own settings read.
ENCODERS = (
    "bert.", "dream.", "eurobert.", "gemma-embedding.", "jina-bert-v3.", "llada.", "modern-bert.",
    "nomic-bert.", "nomic-bert-moe.",
)  # fmt: skip


def find_architecture(values: Mapping[str, Any], file: str) -> tuple[str, Architecture]:
    """The architecture that a file names.

    Raises:
        UnsupportedError: it is not translated; the message lists those that are.
        CheckpointError: the file names none.
    """
    name = values.get("general.architecture")
    if not isinstance(name, str):
        msg = f"{shown(file)}: general.architecture must be text. Got {shown(name)}."
        raise CheckpointError(msg)
    if name in UNREAD:
        msg = (
            f"{shown(file)} holds the architecture {shown(name)}, which is not read from GGUF "
            f"files: {UNREAD[name]}. Give the model's safetensors files."
        )
        raise UnsupportedError(msg)
    if name in STRANGE:
        msg = (
            f"{shown(file)} holds the architecture {shown(name)}, which is not read: "
            f"{STRANGE[name]}. `dispersion families` lists the families that are."
        )
        raise UnsupportedError(msg)
    if name not in ARCHITECTURES:
        msg = (
            f"{shown(file)} holds the architecture {shown(name)}; GGUF files are read for "
            f"{', '.join(ARCHITECTURES)}. Give the model's safetensors files."
        )
        raise UnsupportedError(msg)
    return name, ARCHITECTURES[name]


def translate(values: Mapping[str, Any], file: str, found: Contents) -> dict[str, Any]:
    """The configuration of a GGUF file.

    Args:
        values: metadata by full key.
        file: named in messages.
        found: what the tensor directory says.

    Raises:
        UnsupportedError: another architecture, or a setting that the family does not have.
        CheckpointError: a value is missing or malformed.
    """
    name, architecture = find_architecture(values, file)
    meta = Metadata(values, name, file)
    _refuse(meta, architecture)
    heads, width = _heads(meta, architecture), meta.integer("embedding_length")
    head_dim = _head_dim(meta, heads, width, latent=architecture.latent)
    layers = _layers(meta, architecture)
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": (
            # New files of latent attention store one key head, whose keys are the latents.
            heads
            if architecture.latent or architecture.by_layer
            else max(meta.counts("attention.head_count_kv", layers))
            if architecture.mixed
            else meta.integer("attention.head_count_kv", heads)
        ),
        "head_dim": head_dim,
        "rope_theta": meta.real("rope.freq_base", 10000.0),
        "max_position_embeddings": meta.integer("context_length"),
        "attention_bias": found.any("attn_q.bias") or found.any("attn_qkv.bias"),
    }
    if architecture.eps is not None:
        config[architecture.eps[1]] = meta.real(architecture.eps[0])
    if architecture.head_is_share and heads * head_dim != width:
        meta.refuse(
            "attention.key_length",
            f"but heads of this architecture share embedding_length={width} among {heads}",
        )
    _rotated(meta, architecture, config)
    if architecture.settings is not None:
        config |= architecture.settings(meta, config, found)
    _check_scale(meta, config)
    if architecture.scalings:
        plain = Contents(found.shapes) if architecture.by_layer else found
        scaling = rope_scaling(meta, config, plain, architecture)
        if scaling:
            config |= {"rope_scaling": scaling}
        if architecture.scaled is not None:
            config |= architecture.scaled(meta, config)
    return config


def _layers(meta: Metadata, architecture: Architecture) -> int:
    """Blocks without the draft layers at their end."""
    layers = meta.integer("block_count", largest=MOST_LAYERS)
    if not architecture.drafts or not meta.nonzero(DRAFTS):
        return layers
    drafts = meta.integer(DRAFTS)
    if drafts >= layers:
        msg = (
            f"{shown(meta.file)}: {meta.prefix}{DRAFTS} must be less than block_count={layers}. "
            f"Got {drafts}."
        )
        raise CheckpointError(msg)
    return layers - drafts


def _heads(meta: Metadata, architecture: Architecture) -> int:
    """Query heads, of the first layer where they are left to `settings`."""
    key = "attention.head_count"
    return meta.first(key) if architecture.heads_by_layer else meta.integer(key)


def _head_dim(meta: Metadata, heads: int, width: int, *, latent: bool) -> int:
    key = "attention.key_length"
    if latent and meta.has(f"{key}_mla"):
        return meta.integer(f"{key}_mla", largest=WIDEST_HEAD)
    if not meta.has(key) and width % heads:
        msg = (
            f"{shown(meta.file)}: {meta.prefix}attention.head_count must divide embedding_length="
            f"{width} where no {key} is stated. Got {heads}."
        )
        raise CheckpointError(msg)
    return meta.integer(key, max(width // heads, 1), largest=WIDEST_HEAD)


def _rotated(meta: Metadata, architecture: Architecture, config: dict[str, Any]) -> None:
    head_dim, key = config["head_dim"], "rope.dimension_count"
    if not architecture.scalings:  # nothing is rotated
        return
    rotated = meta.integer(key, head_dim, largest=WIDEST_HEAD)
    if architecture.latent:
        config["qk_rope_head_dim"] = rotated
    elif architecture.partial and rotated <= head_dim:
        config["partial_rotary_factor"] = partial_factor(rotated, head_dim)
    elif rotated != head_dim:
        msg = (
            f"{shown(meta.file)} rotates only a part of its {head_dim} head dimensions "
            f"({meta.prefix}{key} is {rotated}), which this architecture does not do."
        )
        raise UnsupportedError(msg)


def _refuse(meta: Metadata, architecture: Architecture) -> None:
    own = (meta.prefix + "attention.", meta.prefix + "rope.")
    read = READ | set(architecture.reads) | ({DRAFTS} if architecture.drafts else set())
    for full in meta.values:
        key = full.removeprefix(meta.prefix)
        listed = full.startswith(own) or (full.startswith(meta.prefix) and key in ELSEWHERE)
        if listed and key not in read and meta.nonzero(key) and meta.get(key) is not False:
            meta.refuse(key, "which is not read for this architecture")
    if meta.prefix not in ENCODERS and not meta.flag("attention.causal", default=True):
        meta.refuse("attention.causal", "but only true is read")
    swa = "rope.freq_base_swa"
    if not architecture.local_base and meta.nonzero(swa):
        base = meta.real("rope.freq_base", 10000.0)
        if meta.real(swa) != base:
            meta.refuse(swa, f"but this architecture has one base ({base})")


def _check_scale(meta: Metadata, config: Mapping[str, Any]) -> None:
    """The stated logit scale must be the family's, but for float32 rounding."""
    if not meta.nonzero("attention.scale") or "attention_multiplier" in config:
        return
    usual = config.get("query_pre_attn_scalar", config["head_dim"]) ** -0.5
    scale = meta.real("attention.scale")
    if abs(scale - usual) > 1e-6 * usual:  # the file's number is a float32
        msg = f"{shown(meta.file)} has the logit scale {scale}, not the family's {usual}."
        raise UnsupportedError(msg)
