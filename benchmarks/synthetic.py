"""A synthetic sharded bfloat16 checkpoint with the attention shape of an 8B model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


def write_checkpoint(
    folder: Path,
    *,
    layers: int = 32,
    width: int = 4096,
    query_heads: int = 32,
    key_heads: int = 8,
    head_dim: int = 128,
    rank: int = 16,
    seed: int = 0,
) -> None:
    """Write a llama-shaped checkpoint, four layers a shard; odd heads are low-rank plus noise."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": query_heads,
        "num_key_value_heads": key_heads,
        "head_dim": head_dim,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "vocab_size": 32,
    }
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(seed)
    names: dict[str, str] = {}
    shards = -(-layers // 4)
    for shard in range(shards):
        tensors: dict[str, np.ndarray] = {}
        for layer in range(4 * shard, min(4 * shard + 4, layers)):
            prefix = f"model.layers.{layer}."
            for name, heads in (("q", query_heads), ("k", key_heads)):
                rows = [_head(rng, h, head_dim, width, rank) for h in range(heads)]
                tensors[f"{prefix}self_attn.{name}_proj.weight"] = np.concatenate(rows)
            gain = np.exp(0.3 * rng.standard_normal(width))
            tensors[prefix + "input_layernorm.weight"] = gain.astype(ml_dtypes.bfloat16)
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / file, tensors)
        names |= dict.fromkeys(tensors, file)
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _head(rng: np.random.Generator, head: int, rows: int, width: int, rank: int) -> np.ndarray:
    noise = rng.standard_normal((rows, width), dtype=np.float32)
    if head % 2 == 0:
        return (0.02 * noise).astype(ml_dtypes.bfloat16)
    left = rng.standard_normal((rows, rank), dtype=np.float32)
    right = rng.standard_normal((rank, width), dtype=np.float32)
    return (0.02 * (left @ right / np.sqrt(rank)) + 0.004 * noise).astype(ml_dtypes.bfloat16)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write bfloat16 arrays in the safetensors layout."""
    header, offset = {}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in tensors.values():
            file.write(array.tobytes())
