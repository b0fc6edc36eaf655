"""GGUF tensor names of families whose Hugging Face names are not Llama's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispersion.checkpoint.gguf_names import DECODER, Names

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
BLOOM = replace(
    FALCON,
    layer={**FALCON.layer, "ffn_norm": "post_attention_layernorm"},
    whole={**FALCON.whole, "token_embd_norm": "transformer.word_embeddings_layernorm"},
)
MPT = Names(
    "transformer.blocks",
    "attn",
    {
        "attn_norm": "norm_1",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "ffn_norm": "norm_2",
        "ffn_up": "ffn.up_proj",
        "ffn_down": "ffn.down_proj",
    },
    {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.norm_f",
        "output": "lm_head",
    },
)
DBRX = Names(
    "transformer.blocks",
    "norm_attn_norm.attn",
    {
        "attn_norm": "norm_attn_norm.norm_1",
        "attn_qkv": "norm_attn_norm.attn.Wqkv",
        "attn_output": "norm_attn_norm.attn.out_proj",
        "attn_output_norm": "norm_attn_norm.norm_2",
    },
    {
        "token_embd": "transformer.wte",
        "output_norm": "transformer.norm_f",
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
NOMIC_BERT = Names(
    "encoder.layers",
    "attn",
    {
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "attn_output_norm": "norm1",
        "ffn_gate": "mlp.fc12",
        "ffn_up": "mlp.fc11",
        "ffn_down": "mlp.fc2",
        "layer_output_norm": "norm2",
    },
    {
        "token_embd": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "emb_ln",
    },
)
JINA_BERT = replace(
    NOMIC_BERT,
    module="mixer",
    layer={**NOMIC_BERT.layer, "attn_qkv": "mixer.Wqkv", "attn_output": "mixer.out_proj"},
)


@dataclass(frozen=True)
class TwoStacks(Names):
    """Names of an encoder and a decoder, which begin with enc. and dec. in files.

    Attributes:
        encoder, decoder: those names, without what they begin with.
    """

    encoder: Names = DECODER
    decoder: Names = DECODER

    def hugging_face(self, name: str) -> str:
        """As of one stack."""
        for begins, names in (("enc.", self.encoder), ("dec.", self.decoder)):
            rest = name.removeprefix(begins)
            if rest != name:
                found = names.hugging_face(rest)
                return name if found == rest else found
        return super().hugging_face(name)


def _t5_layer(feed_forward: int) -> dict[str, str]:
    parts = {"ffn_up": "wi", "ffn_gate": "wi_0", "ffn_down": "wo"}
    sides = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_o": "o"}
    return {
        "attn_norm": "layer.0.layer_norm",
        "attn_rel_b": "layer.0.SelfAttention.relative_attention_bias",
        "ffn_norm": f"layer.{feed_forward}.layer_norm",
        **{stem: f"layer.0.SelfAttention.{side}" for stem, side in sides.items()},
        **{stem: f"layer.{feed_forward}.DenseReluDense.{part}" for stem, part in parts.items()},
    }


CROSS = {
    "cross_attn_norm": "layer.1.layer_norm",
    "cross_attn_rel_b": "layer.1.EncDecAttention.relative_attention_bias",
    "cross_attn_q": "layer.1.EncDecAttention.q",
    "cross_attn_k": "layer.1.EncDecAttention.k",
    "cross_attn_v": "layer.1.EncDecAttention.v",
    "cross_attn_o": "layer.1.EncDecAttention.o",
}
ENDS = {"output_norm": "final_layer_norm"}
T5 = TwoStacks(
    "block",
    "layer.0.SelfAttention",
    {},
    {"token_embd": "shared", "output": "lm_head"},
    encoder=Names(
        "encoder.block",
        "layer.0.SelfAttention",
        _t5_layer(1),
        {stem: f"encoder.{name}" for stem, name in ENDS.items()},
    ),
    decoder=Names(
        "decoder.block",
        "layer.0.SelfAttention",
        _t5_layer(2) | CROSS,
        {stem: f"decoder.{name}" for stem, name in ENDS.items()},
    ),
)
