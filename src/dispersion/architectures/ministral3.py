"""Ministral 3: Llama's attention with YaRN and a temperature that grows with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import where_stated
from dispersion.config import positive
from dispersion.errors import CheckpointError
from dispersion.growth import LogGrowth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind


def growth(config: Mapping[str, Any], kind: LayerKind) -> LogGrowth:  # noqa: ARG001
    """1 + llama_4_scaling_beta·log(1 + ⌊t/original_max_position_embeddings⌋) on every layer."""
    parameters = config.get("rope_parameters")
    where = "rope_parameters of config.json"
    if not isinstance(parameters, dict):
        msg = f"config.json must have rope_parameters for ministral3. Got {parameters!r}; add them."
        raise CheckpointError(msg)
    return LogGrowth(
        positive(parameters, "llama_4_scaling_beta", where=where),
        positive(parameters, "original_max_position_embeddings", where=where),
    )


FAMILY = Decoder(
    bias=False,
    eps=1e-5,
    head_dim=128,
    key_heads=8,
    window=where_stated,
    growth=growth,
).family("ministral3", "Ministral3", "RoPE, a temperature that grows with the position")
