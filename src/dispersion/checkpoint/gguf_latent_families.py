"""The lines of `ARCHITECTURES` (`gguf_families.py`) whose attention is latent."""

from __future__ import annotations

from dispersion.checkpoint import gguf_latent as latent
from dispersion.checkpoint import gguf_names as names
from dispersion.checkpoint.gguf_architecture import Architecture

LATENT: dict[str, Architecture] = {
    "deepseek2": Architecture(
        "deepseek_v3", latent.deepseek, names.LATENT, reads=latent.READS,
        scaled=latent.stretched, scalings=("none", "yarn"), latent=True, drafts=True,
    ),
    "deepseek32": Architecture(
        "deepseek_v32", latent.indexed, names.INDEXED,
        reads=(*latent.SIZES, latent.MULTIPLIER, *latent.INDEXER),
        scaled=latent.stretched, scalings=("none", "yarn"), latent=True, drafts=True,
    ),
    "glm-dsa": Architecture(
        "glm_moe_dsa", latent.indexed, names.INDEXED, reads=latent.SIZES + latent.INDEXER,
        scalings=("none",), latent=True, drafts=True,
    ),
    "kimi-linear": Architecture(
        "kimi_linear", latent.kimi_linear, names.KIMI_LINEAR, reads=latent.SIZES,
        scalings=("none",), latent=True, mixed=True,
    ),
    "minicpm3": Architecture(
        "minicpm3", latent.minicpm3, names.LATENT, reads=latent.RANKS,
        scalings=("none", "longrope"), factors=("rope_factors_long", "rope_factors_short"),
        latent=True,
    ),
    "mistral4": Architecture(
        "deepseek_v3", latent.deepseek, names.LATENT, reads=latent.READS,
        scaled=latent.stretched, scalings=("none", "yarn"), latent=True,
    ),
}  # fmt: skip
