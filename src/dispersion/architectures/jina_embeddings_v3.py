"""Jina Embeddings 3: norms behind each branch, RoPE and biases in a fused projection."""

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.rotary import RopeRule

BLOCKS = Blocks(
    stack="encoder.layers",
    module="mixer",
    norm="norm2",
    post_norm=True,
    first_norm="emb_ln",
    sides=("Wqkv",),
    layout=stacked,
    eps=1e-5,
    eps_key="layer_norm_eps",
    rotation=rope(RopeRule(theta=20000.0)),
    causal=False,
    inside={
        r"(mixer|attn)\.out_proj\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"norm1\.(weight|bias)": ledger.AFTER,
        r"norm2\.(weight|bias)": ledger.UNASKED,
    },
    outside={
        r"embeddings\..+": ledger.EMBEDDING,
        r"emb_ln\.(weight|bias)": ledger.UNASKED,
        r"pooler\..+": "pooler",
        r"(cls|lm_head|classifier)\..+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family(
    "jina_embeddings_v3", "JinaEmbeddingsV3", "LayerNorm of the previous block, RoPE, bidirectional"
)
