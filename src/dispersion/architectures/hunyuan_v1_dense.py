"""HunYuan V1, dense and with experts: QK norm with a gain behind the rotation.

A query is g ⊙ √d·R q̂, ‖q̂‖ ≤ 1, and R q̂ is any such vector again: at whatever positions, queries
and keys range over the same two axis-parallel ellipsoids, and nothing turns any more.
"""

from dispersion.architectures.decoder import Decoder

RULES = Decoder(
    qk_norm="headwise",
    qk_names=("query_layernorm", "key_layernorm"),
    qk_after=True,
    eps=1e-5,
)

FAMILY = RULES.family(
    "hunyuan_v1_dense",
    "HunYuanDenseV1",
    "headwise QK norm with a gain behind RoPE, so that no rotation is left",
    "hunyuan_v1_moe",
)
