"""GTE: norms behind each branch, RoPE and biases in a fused projection."""

from dataclasses import replace

from dispersion.architectures import jina_embeddings_v3, ledger
from dispersion.architectures.rotations import rope
from dispersion.rotary import RopeRule

FAMILY = replace(
    jina_embeddings_v3.BLOCKS,
    stack="encoder.layer",
    module="attention",
    norm="mlp_ln",
    first_norm="embeddings.LayerNorm",
    sides=("qkv_proj",),
    eps=1e-12,
    rotation=rope(RopeRule(theta=160000.0)),
    inside={
        r"attention\.o_proj\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"attn_ln\.(weight|bias)": ledger.AFTER,
        r"mlp_ln\.(weight|bias)": ledger.UNASKED,
    },
).family("gte", "Gte", "as jina_embeddings_v3")
