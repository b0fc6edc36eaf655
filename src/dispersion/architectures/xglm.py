"""XGLM: a LayerNorm in front of attention, biases, sinusoidal positions."""

from __future__ import annotations

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys

FAMILY = Blocks(
    stack="layers",
    module="self_attn",
    norm="self_attn_layer_norm",
    keys=Keys(
        ("num_layers", "num_hidden_layers"),
        ("d_model", "hidden_size"),
        ("attention_heads", "num_attention_heads"),
    ),
    eps_key=None,  # norms take no ε from the config
    # Positions are computed, and the table made longer where a context needs it.
    inside={
        r"self_attn\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"fc[12]\.(weight|bias)": ledger.FEED_FORWARD,
        r"final_layer_norm\.(weight|bias)": ledger.AFTER,
        r"encoder_attn_layer_norm\.(weight|bias)": ledger.UNASKED,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"embed_positions\.weights?": "position embedding",
        r"layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
    refused={r"encoder_attn\..+": "cross-attention: its keys come from another model"},
).family("xglm", "XGLM", "LayerNorm before attention, biases, sinusoidal positions")
