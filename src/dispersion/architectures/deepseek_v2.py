"""DeepSeek V2: latent attention, pairs of neighbouring coordinates turn."""

from dispersion.architectures.latent_reader import Latent

FAMILY = Latent().family(
    "deepseek_v2", ("deepseek_v2",), "DeepseekV2", "latent attention, interleaved RoPE on a part"
)
