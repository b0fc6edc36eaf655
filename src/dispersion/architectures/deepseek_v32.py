"""DeepSeek V3.2: DeepSeek V3's attention on the keys that an indexer picks for each query."""

from dispersion.architectures.indexed_attention import SPARSE

FAMILY = SPARSE.family(
    "deepseek_v32",
    ("deepseek_v32",),
    "DeepseekV32",
    "latent attention on index_topk keys that an indexer picks, interleaved RoPE on a part",
)
