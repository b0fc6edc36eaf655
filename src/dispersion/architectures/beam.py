"""Beam: headwise QK norm; layers that do not turn have queries that grow with their position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_where_null
from dispersion.architectures.windows import FULL, SLIDING, full_where
from dispersion.growth import PowerGrowth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind

ROPE = {SLIDING: {"rope_type": "default", "rope_theta": 10000.0}, FULL: None}


def growth(config: Mapping[str, Any], kind: LayerKind) -> PowerGrowth | None:  # noqa: ARG001
    """(1 + (t + 1)/2048)^0.1 at position t, where nothing turns."""
    return None if kind.rotates else PowerGrowth(0.1, 2048.0)


FAMILY = Decoder(
    names={r"self_attn\.gate_(proj\.weight|bias)": ledger.GATE},
    qk_norm="headwise",
    head_dim=128,
    key_heads=8,
    rope_nested=True,
    rope_absent=ROPE,
    window=still_where_null(
        full_where(lambda i, n: (i + 1) % 6 == 0 or i == n - 1, absent=512), ROPE
    ),
    growth=growth,
).family("beam", "Beam", "headwise QK norm; full layers rest and grow with the position")
