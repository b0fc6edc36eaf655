"""Llama 4, text only: chunks where layers turn, a temperature that grows where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import chunked_where_rotated
from dispersion.config import positive
from dispersion.growth import LogGrowth
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind


def growth(config: Mapping[str, Any], kind: LayerKind) -> LogGrowth | None:
    """1 + attn_scale·log(1 + ⌊(t + 1)/floor_scale⌋) on layers that do not turn."""
    if kind.rotates or not config.get("attn_temperature_tuning", True):
        return None
    rate, period = positive(config, "attn_scale", 0.1), positive(config, "floor_scale", 8192.0)
    return LogGrowth(rate, period, first=1)


FAMILY = Decoder(
    rope=RopeRule(theta=500000.0, interleaved=True),
    eps=1e-5,
    head_dim=128,
    key_heads=8,
    window=chunked_where_rotated,
    qk_norm="headwise",
    qk_gain=False,
    qk_after=True,
    qk_turned=True,
    qk_key="use_qk_norm",
    qk_absent=True,
    growth=growth,
).family(
    "llama4_text",
    "Llama4",
    "QK norm without gain behind RoPE, chunks; elsewhere no RoPE and a growing temperature",
)
