"""DistilBERT: BERT's blocks under names of its own."""

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys

FAMILY = Blocks(
    stack="transformer.layer",
    module="attention",
    norm="output_layer_norm",
    post_norm=True,
    first_norm="embeddings.LayerNorm",
    keys=Keys(
        ("n_layers", "num_hidden_layers"),
        ("dim", "hidden_size"),
        ("n_heads", "num_attention_heads"),
    ),
    sides=("q_lin", "k_lin"),
    eps=1e-12,
    eps_key=None,
    causal=False,
    table="embeddings.position_embeddings.weight",
    positions_absent=512,
    tokens="embeddings.word_embeddings.weight",
    inside={
        r"attention\.(v_lin|out_lin)\.(weight|bias)": ledger.VALUE,
        r"sa_layer_norm\.(weight|bias)": ledger.AFTER,
        r"ffn\..+": ledger.FEED_FORWARD,
        r"output_layer_norm\.(weight|bias)": ledger.UNASKED,
    },
    outside={
        r"embeddings\.(word|position)_embeddings\.weight": ledger.EMBEDDING,
        r"embeddings\.position_ids": "index buffer",
        r"embeddings\.LayerNorm\.(weight|bias|gamma|beta)": ledger.UNASKED,
        r"(vocab_.+|pre_classifier|classifier|qa_outputs)\..+": ledger.HEAD,
    },
).family("distilbert", "DistilBert", "as bert, LayerNorm of the previous block")
