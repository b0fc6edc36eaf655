"""GLM 5: latent attention on the keys that an indexer picks, in this layer or an earlier one."""

from dispersion.architectures.indexed_attention import SPARSE

FAMILY = SPARSE.family(
    "glm_moe_dsa",
    ("glm_moe_dsa",),
    "GlmMoeDsa",
    "latent attention on index_topk keys that an indexer picks, interleaved RoPE on a part",
)
