"""XLM-RoBERTa-XL: a LayerNorm in front of attention, and none behind the embeddings."""

from dataclasses import replace

from dispersion.architectures import roberta_prelayernorm as before

FAMILY = replace(before.BLOCKS, norm="attention.self_attn_layer_norm").family(
    "xlm_roberta_xl", "XLMRobertaXL", "as roberta-prelayernorm", types=("xlm-roberta-xl",)
)
