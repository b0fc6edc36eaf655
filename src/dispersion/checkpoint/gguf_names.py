"""GGUF tensor names in the Hugging Face spelling.

The spellings on the left are those of the `gguf` package (`gguf.constants.TENSOR_NAMES`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.([a-z0-9_]+)(\..+|)", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Names:
    """The names of one family of architectures.

    Attributes:
        stack: what stands in front of a layer's index.
        module: the attention within a layer.
        layer: stem within a layer → name, where the suffix (.weight, .bias) stays.
        whole: stem outside the layers → name, in the same way.
        bare: stems within a layer whose Hugging Face name has no suffix.
        drafts: whether draft layers may follow, by whose tensors they are known.
    """

    stack: str
    module: str
    layer: Mapping[str, str]
    whole: Mapping[str, str]
    bare: Mapping[str, str] = field(default_factory=dict)
    drafts: bool = False

    def hugging_face(self, name: str) -> str:
        """The Hugging Face name of a tensor.

        Names without one stay as they are, feed-forward ones for instance, but what is unknown
        within a layer goes below its attention: whoever reads that module then sees that something
        may act on queries, keys or their input.
        """
        found = BLOCK.fullmatch(name)
        if not found:
            stem, dot, suffix = name.rpartition(".")
            return f"{self.whole[stem]}.{suffix}" if dot and stem in self.whole else name
        index, stem, suffix = found.groups()
        if stem in self.bare and suffix == ".weight":
            return f"{self.stack}.{index}.{self.bare[stem]}"
        if stem in self.layer:
            return f"{self.stack}.{index}.{self.layer[stem]}{suffix}"
        if stem == "nextn" and self.drafts:
            return f"{self.stack}.{index}{suffix}"
        if stem.startswith(("ffn_", "exp_probs_b")):  # the second corrects the choice of experts
            return name
        return f"{self.stack}.{index}.{self.module}.{stem}{suffix}"


DECODER = Names(
    "model.layers",
    "self_attn",
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
)
FUSED = replace(DECODER, layer={**DECODER.layer, "attn_qkv": "self_attn.qkv_proj"})
# The norm before the feed-forward block is named after what comes before it.
NORM_BEHIND = replace(
    DECODER, layer={**DECODER.layer, "post_attention_norm": "post_attention_layernorm"}
)
SINKS = replace(NORM_BEHIND, bare={"attn_sinks": "self_attn.sinks"})
# A norm behind attention and one behind the feed-forward block.
NORMS_BEHIND = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
)
MIMO2 = replace(DECODER, bare={"attn_sinks": "self_attn.attention_sink_bias"})
STEP35 = replace(DECODER, layer={**DECODER.layer, "attn_gate": "self_attn.g_proj"})
AFMOE = replace(
    NORMS_BEHIND,
    layer={
        **NORMS_BEHIND.layer,
        "attn_gate": "self_attn.gate_proj",
        "ffn_norm": "pre_mlp_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
)
GLM4 = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
)
APERTUS = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_norm": "attention_layernorm",
        "ffn_norm": "feedforward_layernorm",
    },
)
HUNYUAN = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_q_norm": "self_attn.query_layernorm",
        "attn_k_norm": "self_attn.key_layernorm",
    },
)
BITNET = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_sub_norm": "self_attn.attn_sub_norm",
        "ffn_sub_norm": "mlp.ffn_sub_norm",
    },
)
GEMMA3N = replace(
    NORMS_BEHIND,
    layer={
        **NORMS_BEHIND.layer,
        "altup_correct_coef": "altup.correction_coefs",
        "altup_correct_scale": "altup.correct_output_scale",
        "altup_predict_coef": "altup.prediction_coefs",
        "altup_router": "altup.modality_router",
        "altup_router_norm": "altup.router_norm",
        "inp_gate": "per_layer_input_gate",
        "laurel_l": "laurel.linear_left",
        "laurel_post_norm": "laurel.post_laurel_norm",
        "laurel_r": "laurel.linear_right",
        "post_norm": "post_per_layer_input_norm",
        "proj": "per_layer_projection",
    },
    whole={
        **DECODER.whole,
        "altup_proj": "model.altup_projections",
        "altup_unembd_proj": "model.altup_unembed_projections",
        "per_layer_model_proj": "model.per_layer_model_projection",
        "per_layer_proj_norm": "model.per_layer_projection_norm",
        "per_layer_token_embd": "model.embed_tokens_per_layer",
    },
)
GEMMA4 = replace(
    GEMMA3N,
    layer={
        **GEMMA3N.layer,
        "post_ffw_norm_1": "post_feedforward_layernorm_1",
        "post_ffw_norm_2": "post_feedforward_layernorm_2",
        "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    },
    bare={"layer_output_scale": "layer_scalar"},
)
LATENT = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_kv_b": "self_attn.kv_b_proj",
        "attn_k_b": "self_attn.k_b_proj",
        "attn_v_b": "self_attn.v_b_proj",
    },
)
INDEXED = replace(LATENT, layer={**LATENT.layer, "indexer": "self_attn.indexer"})
KIMI_LINEAR = replace(
    LATENT,
    layer={
        **LATENT.layer,
        **{f"ssm_conv1d_{side}": f"self_attn.{side}_conv1d" for side in "qkv"},
        **{f"ssm_{gate}": f"self_attn.{gate}_proj" for gate in ("f_a", "f_b", "g_a", "g_b")},
        "ssm_a": "self_attn.A_log",
        "ssm_beta": "self_attn.b_proj",
        "ssm_dt": "self_attn.dt_proj",
        "ssm_norm": "self_attn.o_norm",
    },
)
MAMBA = {
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
    "ssm_conv1d": "mamba.conv1d",
    "ssm_dt": "mamba.dt_proj",
    "ssm_in": "mamba.in_proj",
    "ssm_norm": "mamba.norm",
    "ssm_out": "mamba.out_proj",
}
GRANITE_HYBRID = replace(DECODER, layer={**DECODER.layer, **MAMBA})
JAMBA = replace(
    DECODER,
    layer={
        **DECODER.layer,
        **MAMBA,
        "ffn_norm": "pre_ff_layernorm",
        "ssm_b_norm": "mamba.b_layernorm",
        "ssm_c_norm": "mamba.c_layernorm",
        "ssm_dt_norm": "mamba.dt_layernorm",
        "ssm_x": "mamba.x_proj",
    },
    whole={**DECODER.whole, "output_norm": "model.final_layernorm"},
)
NEMOTRON_H = replace(
    DECODER,
    module="mixer",
    layer={
        "attn_norm": "norm",
        **{f"attn_{side}": f"mixer.{side}_proj" for side in "qkv"},
        "attn_output": "mixer.o_proj",
        **{stem: name.replace("mamba.", "mixer.") for stem, name in MAMBA.items()},
    },
)
BAILING = Names(
    "model.layers",
    "attention",
    {
        "attn_norm": "input_layernorm",
        "attn_qkv": "attention.query_key_value",
        "attn_q_norm": "attention.query_layernorm",
        "attn_k_norm": "attention.key_layernorm",
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "layer_out_norm": "final_layernorm",
    },
    {"token_embd": "model.word_embeddings", "output_norm": "model.norm", "output": "lm_head"},
)
FALCON_H1 = replace(
    DECODER,
    # This norm has no suffix in files.
    layer={**DECODER.layer, **MAMBA, "ffn_norm": "pre_ff_layernorm.weight"},
    whole={**DECODER.whole, "output_norm": "model.final_layernorm"},
)
LFM2 = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_norm": "operator_norm",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "attn_output": "self_attn.out_proj",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "feed_forward.w1",
        "ffn_down": "feed_forward.w2",
        "ffn_up": "feed_forward.w3",
        "shortconv": "conv",
    },
    # The norm behind the last layer, whatever its name.
    whole={**DECODER.whole, "token_embd_norm": "model.embedding_norm"},
)
QWEN3_NEXT = replace(
    NORM_BEHIND,
    layer={
        **NORM_BEHIND.layer,
        "attn_qkv": "linear_attn.in_proj_qkv",
        "attn_gate": "linear_attn.in_proj_z",
        "ssm_a": "linear_attn.A_log",
        "ssm_alpha": "linear_attn.in_proj_a",
        "ssm_ba": "linear_attn.in_proj_ba",
        "ssm_beta": "linear_attn.in_proj_b",
        "ssm_conv1d": "linear_attn.conv1d",
        "ssm_dt": "linear_attn.dt_proj",
        "ssm_in": "linear_attn.in_proj_qkvz",
        "ssm_norm": "linear_attn.norm",
        "ssm_out": "linear_attn.out_proj",
    },
)
