"""Ministral 8B (2410): Mistral's attention; `layer_types` says which layers slide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import FULL, SLIDING, LayerKind, kinds_of, sliding_window

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config


def _kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """All layers slide where `sliding_window` is not null, unless `layer_types` says otherwise."""
    window = sliding_window(config)
    return kinds_of(config, [FULL if window is None else SLIDING] * layers, window)


FAMILY = Decoder(bias=False, key_heads=8, window=_kinds).family(
    "ministral", "Ministral", "Mistral's attention, sliding on the layers that the config lists"
)
