"""Writes small safetensors and GGUF files byte by byte, well-formed ones and others."""

import json
import struct

import numpy as np
import pytest

WORDS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint8": "U8",
    "int32": "I32", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def header_of(arrays):
    """The safetensors header of arrays laid end to end, as a dictionary to tamper with."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": WORDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    return header


def safetensors_bytes(header, data=b"", *, pad=b"", length=None):
    """A file from a header (dictionary or raw bytes), data bytes and a lie about the length."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += pad
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def data_of(arrays):
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())


def write_safetensors(path, arrays, *, pad=b""):
    """A well-formed file."""
    path.write_bytes(safetensors_bytes(header_of(arrays), data_of(arrays), pad=pad))
    return path


def write_checkpoint(folder, arrays, config=None, *, shards=1):
    """A folder with config.json and either model.safetensors or shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", arrays)
        return folder
    weight_map, names = {}, list(arrays)
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: arrays[name] for name in names[number::shards]}
        write_safetensors(folder / shard, part)
        weight_map |= dict.fromkeys(part, shard)
    write_index(folder, weight_map)
    return folder


def write_index(folder, weight_map):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def gguf_text(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value):
    """Type number and bytes: text, bool, int (u32), float (f32), or a list of one of these."""
    match value:
        case bytes():  # already encoded
            return value
        case str():
            return struct.pack("<I", 8) + gguf_text(value)
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case list():
            items = [gguf_value(item) for item in value]
            body = items[0][:4] + struct.pack("<Q", len(items)) + b"".join(i[4:] for i in items)
            return struct.pack("<I", 9) + body
    raise TypeError(value)


def gguf_bytes(metadata, tensors, *, version=3, counts=None, alignment=32):
    """A GGUF file.

    `metadata` is a dictionary or a list of pairs; `tensors` maps names to float32 arrays or to
    (type number, row-major shape, bytes).
    """
    pairs = list(metadata.items()) if isinstance(metadata, dict) else list(metadata)
    entries = tensors.items() if isinstance(tensors, dict) else tensors
    tensor_count, value_count = counts or (len(tensors), len(pairs))
    out = b"GGUF" + struct.pack("<IQQ", version, tensor_count, value_count)
    for key, value in pairs:
        out += gguf_text(key) + gguf_value(value)
    data = b""
    for name, tensor in entries:
        if isinstance(tensor, np.ndarray):
            tensor = (0, tensor.shape, tensor.astype(np.float32).tobytes())
        kind, shape, raw = tensor
        out += gguf_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        out += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % alignment)
    return out + bytes(-len(out) % alignment) + data


def gguf_metadata(architecture="llama", **changes):
    """Metadata of a model with 2 layers, 4 query heads, 2 key heads, head_dim 8, width 16."""
    values = {
        "block_count": 2,
        "embedding_length": 16,
        "context_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 8,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
    } | changes
    prefixed = {f"{architecture}.{k}": v for k, v in values.items() if v is not None}
    return {"general.architecture": architecture} | prefixed


def gguf_shapes(width, heads, key_heads, head_dim, layers, *, words=20):
    """Names and shapes of a small Qwen 3 as llama.cpp has them."""
    shapes = {"token_embd.weight": (words, width), "output_norm.weight": (width,)}
    for i in range(layers):
        at = f"blk.{i}."
        shapes |= {
            f"{at}attn_norm.weight": (width,),
            f"{at}attn_q.weight": (heads * head_dim, width),
            f"{at}attn_k.weight": (key_heads * head_dim, width),
            f"{at}attn_v.weight": (key_heads * head_dim, width),
            f"{at}attn_q_norm.weight": (head_dim,),
            f"{at}attn_k_norm.weight": (head_dim,),
        }
    return shapes


def refused(error, match, call, *args):
    """The message of the error a call raises, after checking that it is one line of text."""
    with pytest.raises(error) as caught:
        call(*args)
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.isprintable()
    assert match in message, message
    return message
