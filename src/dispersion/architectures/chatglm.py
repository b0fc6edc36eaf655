"""ChatGLM 2 and 3 and GLM 4: half of each head turns, in neighbouring pairs; fused projections.

Read off the code published with the models. transformers has GLM 4 as `glm`, with other names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.granted import check_granted
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.config import flag, integer, positive
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

_GRANTED: dict[str, Any] = {
    "multi_query_attention": True,
    "rmsnorm": True,
    "original_rope": True,
    "position_encoding_2d": False,
    "qk_layernorm": False,
    "rotary_percent": 0.5,
    "quantization_bit": 0,
    "pre_seq_len": None,
    "vision_config": None,
    "rope_scaling": None,
}
_VOCABULARY = 65024  # of ChatGLM 2 and 3

_FAMILY = Blocks(
    stack="encoder.layers",
    module="self_attention",
    norm="input_layernorm",
    norm_kind="rms",
    norm_parts=("weight",),
    keys=Keys(("num_layers",), positions=("seq_length",)),
    sides=("query_key_value",),
    layout=stacked,
    key_heads="multi_query_group_num",
    key_heads_absent=1,
    own_head_dim=True,
    bias="qkv_bias",
    eps=1e-5,
    eps_key="layernorm_epsilon",
    rotation=rope(RopeRule(interleaved=True), partial=0.5),
    tokens="embedding.word_embeddings.weight",
    inside={
        r"self_attention\.dense\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"embedding\.word_embeddings\.weight": ledger.EMBEDDING,
        r"rotary_pos_emb\.inv_freq": ledger.FREQUENCIES,
        r"encoder\.final_layernorm\.weight": ledger.FINAL_NORM,
        r"(output_layer|classifier_head)\..+": ledger.HEAD,
    },
).family("chatglm", "ChatGLM", "fused projections, interleaved RoPE on half of each head")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config in the dialect of its own code, which has other keys and constants."""
    config = checkpoint.config
    granted = {"multi_query_attention": config.get("multi_query_attention", False)}
    check_granted({**config, **granted}, _GRANTED, "chatglm")
    ratio = positive(config, "rope_ratio", 1.0)
    if ratio != 1 and config.get("padded_vocab_size", _VOCABULARY) == _VOCABULARY:
        msg = (
            "rope_ratio in config.json must be 1 for ChatGLM 2 and 3: it divides the positions of "
            f"the one and multiplies the base of the other. Got {ratio:g}: not supported."
        )
        raise UnsupportedError(msg)
    biases = (flag(config, key, default=False) for key in ("add_bias_linear", "add_qkv_bias"))
    own = {
        "head_dim": integer(config, "kv_channels", 128),
        "qkv_bias": any(biases),
        "rope_theta": 10000.0 * ratio,
    }
    return _FAMILY.read(replace(checkpoint, config={**config, **own}), layers)


FAMILY = replace(_FAMILY, read=read)
