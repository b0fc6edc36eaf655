"""GGUF tensor names in the Hugging Face spelling."""

from __future__ import annotations

import re

WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.([a-z0-9_]+)(\..+)", re.ASCII | re.DOTALL)


def hugging_face_name(name: str, architecture: str) -> str:
    """The Hugging Face name of a tensor; names without one stay as they are.

    Attention tensors without one are put below `self_attn`, so that whoever reads that module sees
    that something acts on its queries or keys.
    """
    found = BLOCK.fullmatch(name)
    if not found:
        stem, dot, suffix = name.rpartition(".")
        return f"{WHOLE[stem]}.{suffix}" if dot and stem in WHOLE else name
    layer, stem, suffix = found.groups()
    known = {**IN_LAYER, **NORMS.get(architecture, {})}
    if stem in known:
        return f"model.layers.{layer}.{known[stem]}{suffix}"
    if stem.startswith("attn_"):
        return f"model.layers.{layer}.self_attn.{stem}{suffix}"
    return name
