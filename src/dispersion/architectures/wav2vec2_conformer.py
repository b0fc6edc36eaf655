"""Wav2Vec2-Conformer: Wav2Vec2-BERT's blocks, whose queries are multiplied by sinusoids."""

from dataclasses import replace

from dispersion.architectures import ledger, wav2vec2_bert

FAMILY = replace(
    wav2vec2_bert.BLOCKS,
    biased=wav2vec2_bert.by_kind("relative", "wav2vec2-conformer"),
    outside={
        **wav2vec2_bert.BLOCKS.outside,
        r"encoder\.layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"encoder\.pos_conv_embed\..+": "convolution for positions that no model runs",
        r"(project_q|project_hid|quantizer)\..+": ledger.HEAD,
    },
).family(
    "wav2vec2_conformer",
    "Wav2Vec2Conformer",
    "as wav2vec2_bert, sinusoids of the distance instead of a table",
    types=("wav2vec2-conformer",),
)
