"""DeepSeek V3 and models with the same attention (GLM 4 MoE Lite, A.X K1, Youtu)."""

from dispersion.architectures.latent_reader import Latent

FAMILY = Latent(interleave_key="rope_interleave").family(
    "deepseek_v3",
    ("deepseek_v3", "glm4_moe_lite", "axk1", "youtu"),
    "DeepseekV3",
    "latent attention, interleaved RoPE on a part unless rope_interleave is false",
)
