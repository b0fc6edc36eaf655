"""VideoMAE: ViT, with biases on queries and values alone."""

from dataclasses import replace

from dispersion.architectures import ledger, vit

FAMILY = replace(
    vit.BLOCKS,
    bias="qv_bias",
    key_bias=False,
    query_bias="q_bias",
    inside={**vit.BLOCKS.inside, r"attention\.attention\.v_bias": ledger.VALUE},
).family("videomae", "VideoMAE", "as vit, keys have no bias")
