"""ModernBERT's decoder: its blocks with separate projections; queries see what came before."""

from dataclasses import replace

from dispersion.architectures import ledger
from dispersion.architectures.modernbert import BLOCKS

FAMILY = replace(
    replace(
        BLOCKS,
        sides=("q_proj", "k_proj"),
        layout=None,
        halved=False,
        causal=True,
        inside={r"attn\.v_proj\.(weight|bias)": ledger.VALUE, **BLOCKS.inside},
        outside={
            **BLOCKS.outside,
            r"(.+\.)?(head|lm_head|decoder|classifier)\..+": ledger.HEAD,
        },
    ).family("modernbert_decoder", "ModernBertDecoder", "LayerNorm, RoPE, sliding on most layers"),
    model_types=("modernbert-decoder",),
)
