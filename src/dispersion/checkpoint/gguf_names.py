"""GGUF tensor names in the Hugging Face spelling.

The spellings on the left are those of the `gguf` package (`gguf.constants.TENSOR_NAMES`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.([a-z0-9_]+)(\..+)", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Names:
    """The names of one family of architectures.

    Attributes:
        stack: what stands in front of a layer's index.
        module: the attention within a layer.
        layer: stem within a layer → name, where the suffix (.weight, .bias) stays.
        whole: stem outside the layers → name, in the same way.
        bare: stems within a layer whose Hugging Face name has no suffix.
    """

    stack: str
    module: str
    layer: Mapping[str, str]
    whole: Mapping[str, str]
    bare: Mapping[str, str] = field(default_factory=dict)

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
        if stem.startswith("ffn_"):
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
SINKS = replace(
    DECODER,
    layer={**DECODER.layer, "post_attention_norm": "post_attention_layernorm"},
    bare={"attn_sinks": "self_attn.sinks"},
)
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
GPT2 = Names(
    "transformer.h",
    "attn",
    {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
)
PHI = replace(
    DECODER,
    layer={
        **DECODER.layer,
        "attn_output": "self_attn.dense",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
    whole={**DECODER.whole, "output_norm": "model.final_layernorm"},
)
FALCON = Names(
    "transformer.h",
    "self_attention",
    {
        "attn_norm": "input_layernorm",
        "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    {
        "token_embd": "transformer.word_embeddings",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
)
# Where attention has a norm of its own, the other one stands before the feed-forward part.
FALCON_TWO_NORMS = replace(
    FALCON, layer={**FALCON.layer, "attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}
)
GPT_NEOX = Names(
    "gpt_neox.layers",
    "attention",
    {
        "attn_norm": "input_layernorm",
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    {
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
    },
)
MODERN_BERT = Names(
    "layers",
    "attn",
    {
        "attn_norm": "attn_norm",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.Wo",
        "ffn_norm": "mlp_norm",
        "ffn_up": "mlp.Wi",
        "ffn_down": "mlp.Wo",
    },
    {
        "token_embd": "embeddings.tok_embeddings",
        "token_embd_norm": "embeddings.norm",
        "output_norm": "final_norm",
    },
)
BERT = Names(
    "encoder.layer",
    "attention.self",
    {
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
    {
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
)
