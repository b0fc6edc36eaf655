"""Golden checkpoints of models whose code is no part of transformers; see `published.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from families import Family, Size
from published import CONFIGS, MODELS


@dataclass(frozen=True)
class Published(Family):
    """One checkpoint of a reference in `published.py`."""

    def build(self, size: Size) -> Any:
        return MODELS[self.kind](CONFIGS[self.kind](**self.config(size)))


def sizes(size: Size, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "hidden_size": size.heads * size.head_dim,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "rms_norm_eps": 1e-5,
    } | more


def like_llama(size: Size, **more: Any) -> dict[str, Any]:
    keys = {"num_key_value_heads": size.heads // size.shared, "rope_theta": 5000.0}
    return sizes(size, max_position_embeddings=256, **keys) | more


def few(size: Size) -> dict[str, Any]:
    """Few heads, where each has a key head of its own."""
    return {"hidden_size": size.few * size.head_dim, "num_attention_heads": size.few}


def chatglm(size: Size) -> dict[str, Any]:
    return {
        "padded_vocab_size": size.vocab,
        "hidden_size": size.hidden,
        "num_layers": size.layers,
        "num_attention_heads": size.heads,
        "multi_query_attention": True,
        "multi_query_group_num": size.heads // size.shared,
        "kv_channels": size.head_dim,
        "seq_length": 128,
        "layernorm_epsilon": 1e-6,
        "add_qkv_bias": True,
        "add_bias_linear": False,
        "rope_ratio": 3,
        "original_rope": True,
        "rmsnorm": True,
    }


def qwen(size: Size, **more: Any) -> dict[str, Any]:
    own = {
        "layer_norm_epsilon": 1e-5,
        "seq_length": 20,
        "kv_channels": size.head_dim,
        "rotary_emb_base": 5000.0,
        "use_logn_attn": True,
        "use_dynamic_ntk": False,
    }
    return sizes(size, **few(size)) | own | more


def bailing(size: Size, **more: Any) -> dict[str, Any]:
    own = {"use_bias": False, "use_qkv_bias": True, "use_qk_norm": False}
    own |= {"head_dim": size.head_dim, "partial_rotary_factor": 1.0}
    return like_llama(size, hidden_size=size.hidden) | own | more


def llada(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "d_model": size.heads * size.head_dim,
        "n_layers": size.layers,
        "n_heads": size.heads,
        "n_kv_heads": size.heads // size.shared,
        "max_sequence_length": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000.0,
        "block_type": "llama",
        "layer_norm_type": "rms",
        "rope": True,
        "alibi": False,
        "include_bias": False,
        "include_qkv_bias": True,
    }


PUBLISHED = (
    Published("baichuan", "Baichuan", lambda s: sizes(s, max_position_embeddings=128, **few(s))),
    Published("baichuan__alibi", "Baichuan", lambda s: sizes(s, model_max_length=128, **few(s))),
    Published("bailing_moe", "BailingMoe", bailing),
    Published(
        "bailing_moe__qk_norm",
        "BailingMoe",
        lambda s: bailing(s, use_qk_norm=True, use_qkv_bias=False, partial_rotary_factor=0.5),
        qk_norm="headwise",
    ),
    Published("chatglm", "ChatGLM", chatglm),
    Published("deepseek", "Deepseek", lambda s: like_llama(s, attention_bias=False)),
    Published("dream", "Dream", like_llama),
    Published("internlm2", "InternLM2", lambda s: like_llama(s, bias=True)),
    Published("llada", "LLaDA", llada),
    Published("minicpm", "MiniCPM", lambda s: like_llama(s, attention_bias=False, scale_emb=12)),
    Published("orion", "Orion", like_llama),
    Published("qwen", "QWen", qwen),
    Published("qwen__no_logn", "QWen", lambda s: qwen(s, use_logn_attn=False)),
    Published("xverse", "Xverse", lambda s: like_llama(s, **few(s), num_key_value_heads=s.few)),
)
