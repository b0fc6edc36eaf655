"""ModernBERT's decoder: its blocks with separate projections; queries see what came before."""

from dataclasses import replace

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.modernbert import kinds, rotation, vary

FAMILY = replace(
    Blocks(
        stack="layers",
        module="attn",
        norm="attn_norm",
        first_norm="embeddings.norm",
        bias="attention_bias",
        bias_absent=False,
        norm_parts=("weight",),
        eps_key="norm_eps",
        rotation=rotation,
        window=kinds,
        tokens="embeddings.tok_embeddings.weight",
        vary=vary,
        inside={
            r"attn\.(v_proj|Wo)\.(weight|bias)": ledger.VALUE,
            r"attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
            r"mlp\..+": ledger.FEED_FORWARD,
            r"mlp_norm\.(weight|bias)": ledger.AFTER,
        },
        outside={
            r"embeddings\.tok_embeddings\.weight": ledger.EMBEDDING,
            r"embeddings\.norm\.(weight|bias)": ledger.UNASKED,
            r"final_norm\.(weight|bias)": ledger.FINAL_NORM,
            r"(.+\.)?(head|lm_head|decoder|classifier)\..+": ledger.HEAD,
        },
    ).family("modernbert_decoder", "ModernBertDecoder", "LayerNorm, RoPE, sliding on most layers"),
    model_types=("modernbert-decoder",),
)
