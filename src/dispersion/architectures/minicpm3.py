"""MiniCPM 3: DeepSeek's latent attention with half-split rotation."""

from dispersion.architectures.latent_reader import Latent

FAMILY = Latent(interleaved=False, value_dim_absent=True).family(
    "minicpm3", ("minicpm3",), "MiniCPM3", "latent attention, half-split RoPE on a part"
)
