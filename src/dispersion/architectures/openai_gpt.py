"""GPT (the first): fused, transposed projections, a LayerNorm behind each block.

What the first layer reads, token plus position, no norm caps. A hidden key gets the logit -10000
and not minus infinity, which can only take from what a ceiling allows to others.
"""

from dataclasses import replace

from dispersion.architectures import ledger
from dispersion.architectures.blocks import GPT, Blocks
from dispersion.architectures.layouts import stacked

FAMILY = replace(
    Blocks(
        stack="h",
        module="attn",
        norm="ln_2",
        post_norm=True,
        keys=GPT,
        sides=("c_attn",),
        layout=stacked,
        transposed=True,
        table="positions_embed.weight",
        positions_absent=512,
        inside={
            r"attn\.c_proj\.(weight|bias)": ledger.VALUE,
            r"attn\.bias": ledger.MASK,
            r"mlp\..+": ledger.FEED_FORWARD,
            r"ln_1\.(weight|bias)": ledger.AFTER,
            r"ln_2\.(weight|bias)": ledger.UNASKED,
        },
        outside={
            r"tokens_embed\.weight": ledger.EMBEDDING,
            r"positions_embed\.weight": "position embedding",
            r"(.+\.)?(lm_head|multiple_choice_head|score)\..+": ledger.HEAD,
        },
    ).family(
        "openai_gpt", "OpenAIGPT", "LayerNorm behind each block, no cap on layer 0, no rotation"
    ),
    model_types=("openai-gpt",),
)
