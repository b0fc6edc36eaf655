"""GPT-J: a LayerNorm, projections without biases, and the first coordinates of a head turn."""

from __future__ import annotations

from dispersion.architectures import ledger
from dispersion.architectures.blocks import GPT, Blocks
from dispersion.architectures.rotations import neighbours

BLOCKS = Blocks(
    stack="h",
    module="attn",
    norm="ln_1",
    keys=GPT,
    bias=False,
    rotation=neighbours,
    positions_absent=2048,
    tokens="wte.weight",
    inside={
        r"attn\.(v_proj|out_proj)\.weight": ledger.VALUE,
        r"attn\.(bias|masked_bias|causal_mask)": ledger.MASK,
        r"attn\.embed_positions": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"lm_head\..+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family("gptj", "GPTJ", "LayerNorm, interleaved RoPE on the first rotary_dim")
