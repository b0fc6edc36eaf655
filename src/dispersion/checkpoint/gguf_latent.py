"""Latent attention in GGUF files: sizes under other keys, and kv_b_proj in two tensors.

Converters store the key rows of kv_b_proj head by head and transposed, [heads, rank, still], and
its value rows as [heads, values, rank], since llama.cpp multiplies queries with the former. Older
files hold it whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.tensors import TensorInfo
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_file import Stored
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

    # Values of a tensor, or of some of its first axis.
    Values = Callable[[Stored, slice | None], NDArray[Any]]

KEYS, VALUES, WHOLE = "k_b_proj.weight", "v_b_proj.weight", "kv_b_proj.weight"
MULTIPLIER = "rope.scaling.yarn_log_multiplier"
KEY_HEADS = "attention.head_count_kv"
PICKS = "attention.indexer.top_k"
INDEXER = (
    PICKS, "attention.indexer.head_count", "attention.indexer.key_length",
    "attention.indexer.types",
)  # fmt: skip
TEMPERATURE, LENGTH = "attention.temperature_scale", "attention.temperature_length"
RANKS = ("attention.q_lora_rank", "attention.kv_lora_rank")
SIZES = (*RANKS, "attention.key_length_mla", "attention.value_length_mla")
READS = (*SIZES, MULTIPLIER, TEMPERATURE, LENGTH)


def _sizes(meta: Metadata, config: Config, *, plain: bool) -> dict[str, Any]:
    """Sizes of the latents and of the parts of a head, and what their norms are computed with.

    `plain` is whether queries have no latent.
    """
    if config["qk_rope_head_dim"] >= config["head_dim"]:
        size = config["head_dim"]
        meta.refuse("rope.dimension_count", f"which must be less than the head's {size}")
    return {
        "q_lora_rank": None if plain else meta.integer("attention.q_lora_rank"),
        "kv_lora_rank": meta.integer("attention.kv_lora_rank"),
        "qk_nope_head_dim": config["head_dim"] - config["qk_rope_head_dim"],
        # llama.cpp takes the ε of the input's norm, where the models' code has one of its own.
        "latent_norm_eps": config["rms_norm_eps"],
    }


def deepseek(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """DeepSeek V3, or Mistral 4 where a temperature grows with the position."""
    tempered = {"model_type": "mistral4"} if meta.nonzero(TEMPERATURE) else {}
    return {
        **_sizes(meta, config, plain=found.any("attn_q.weight")),
        **tempered,
        "v_head_dim": meta.integer(
            "attention.value_length_mla", meta.get("attention.value_length")
        ),
        "rope_interleave": True,
    }


def indexed(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """DeepSeek V3's attention on keys that an indexer picks.

    Versions of llama.cpp without an indexer see all keys, which are no fewer than those picked.
    """
    return deepseek(meta, config, found) | {"index_topk": meta.integer(PICKS)}


def minicpm3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Values of as many coordinates as a head's share of the width, where nothing is said."""
    share = max(config["hidden_size"] // config["num_attention_heads"], 1)
    return {
        **_sizes(meta, config, plain=not found.any("attn_q_b.weight")),
        "v_head_dim": meta.integer("attention.value_length", share),
    }


def kimi_linear(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Layers without key heads are linear; in the others nothing turns."""
    if found.any("attn_kv_b.weight"):
        msg = (
            f"{shown(meta.file)} holds the tensor attn_kv_b.weight, with which llama.cpp puts the "
            "parts of keys in another order than those of queries. Convert the model again."
        )
        raise UnsupportedError(msg)
    layers = range(1, config["num_hidden_layers"] + 1)
    counts = meta.counts(KEY_HEADS, len(layers))
    return {
        **_sizes(meta, config, plain=not found.any("attn_q_a_norm.weight")),
        "v_head_dim": meta.integer("attention.value_length_mla"),
        "linear_attn_config": {
            "full_attn_layers": [i for i, count in zip(layers, counts, strict=True) if count],
            "kda_layers": [i for i, count in zip(layers, counts, strict=True) if not count],
        },
    }


def stretched(meta: Metadata, config: Config) -> dict[str, Any]:
    """A yarn scaling with DeepSeek's factors, of which the file holds one; a temperature."""
    scaling = config.get("rope_scaling")
    if scaling is not None:
        if not meta.nonzero(MULTIPLIER):
            meta.refuse(MULTIPLIER, "without which programs disagree on the factor of the logits")
        # The converter multiplied by 0.1, the program divides by it, both in float32.
        value = float(np.float32(meta.real(MULTIPLIER)) / np.float32(0.1))
        scaling = scaling | {"mscale": value, "mscale_all_dim": value}
    if not meta.nonzero(TEMPERATURE):
        return {} if scaling is None else {"rope_scaling": scaling}
    if scaling is None:
        meta.refuse(TEMPERATURE, "without the yarn scaling whose original length it refers to")
    original = scaling["original_max_position_embeddings"]
    if meta.get(LENGTH) != original:
        rule = f"but the temperature must grow by the original length of yarn, {original}"
        meta.refuse(LENGTH, rule)
    growth = {"llama_4_scaling_beta": meta.real(TEMPERATURE), "rope_theta": config["rope_theta"]}
    return {"rope_scaling": None, "rope_parameters": scaling | growth}


@dataclass(frozen=True)
class Joined:
    """A kv_b_proj that the file holds in two parts.

    Attributes:
        keys: stored as [heads, rank, still].
        values: stored as [heads, values, rank].
    """

    keys: Stored
    values: Stored

    def info(self, name: str) -> TensorInfo:
        heads, rank, still = self.keys.shape
        kinds = dict.fromkeys((self.keys.type, self.values.type))
        shape = (heads * (still + self.values.shape[1]), rank)
        nbytes = self.keys.nbytes + self.values.nbytes
        return TensorInfo(name, "+".join(kinds), shape, self.keys.file, nbytes)

    def read(self, values: Values, rows: slice | None) -> NDArray[Any]:
        """Rows as Hugging Face has them: each head's keys, then its values."""
        heads, rank, still = self.keys.shape
        each = still + self.values.shape[1]
        rows = rows or slice(0, heads * each)
        first, last = rows.start // each, -(-rows.stop // each)
        if rows.stop <= rows.start:
            return np.empty((0, rank), np.float32)
        part = slice(first, last)
        keys, others = values(self.keys, part), values(self.values, part)
        both = np.concatenate([keys.swapaxes(1, 2), others], axis=1).reshape(-1, rank)
        return both[rows.start - first * each : rows.stop - first * each]


def joined(renamed: dict[str, Stored], heads: int) -> dict[str, Joined]:
    """The kv_b_proj that are held in two parts, which leave `renamed`.

    Raises:
        CheckpointError: a part alone, beside the whole, or of other sizes.
    """
    found: dict[str, Joined] = {}
    for name in [n for n in renamed if n.endswith((f".{KEYS}", f".{VALUES}"))]:
        stem = name[: -len(KEYS)]
        whole = stem + WHOLE
        if whole in found:
            continue
        parts = [renamed.pop(stem + part, None) for part in (KEYS, VALUES)]
        keys, values = parts
        if keys is None or values is None or whole in renamed:
            msg = (
                f"tensor {shown(whole)} must be in the file whole or in two parts, attn_k_b and "
                "attn_v_b. Got one part or both; convert the model again."
            )
            raise CheckpointError(msg)
        fits = len(keys.shape) == len(values.shape) == 3 and keys.shape[1] == values.shape[2]
        if not fits or not keys.shape[0] == values.shape[0] == heads:
            msg = (
                f"tensors {shown(keys.name)} and {shown(values.name)} must be heads x rank x keys "
                f"and heads x values x rank with {heads} heads. Got {shown(keys.shape)} and "
                f"{shown(values.shape)}."
            )
            raise CheckpointError(msg)
        found[whole] = Joined(keys, values)
    return found
