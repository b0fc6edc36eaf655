"""Which layers see all keys and which a sliding window, in the old and the new config dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.rotary import LAYER_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Config = Mapping[str, Any]
    WindowRule = Callable[[Config, int], "tuple[LayerKind, ...]"]

FULL, SLIDING = LAYER_TYPES


@dataclass(frozen=True)
class LayerKind:
    """The layer's type, by which nested rope parameters are found, and its window or None."""

    layer_type: str
    window: int | None = None


def full(config: Config, layers: int) -> tuple[LayerKind, ...]:  # noqa: ARG001
    """Every layer sees every key."""
    return (LayerKind(FULL),) * layers


def everywhere(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`sliding_window` on every layer, unless it is null."""
    window = _window(config)
    return (LayerKind(FULL if window is None else SLIDING, window),) * layers


def after_full_layers(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Qwen's rule: with `use_sliding_window`, layers from `max_window_layers` on slide."""
    window = _window(config) if flag(config, "use_sliding_window", default=False) else None
    first = integer(config, "max_window_layers", 28, minimum=0)
    types = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
    return _kinds(config, types, window)


def full_every(period: int, key: str | None = None) -> WindowRule:
    """Every `period`-th layer is full, the others slide; `key` of the config may set the period."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        step = period if key is None else integer(config, key, period)
        types = [SLIDING if (i + 1) % step else FULL for i in range(layers)]
        return _kinds(config, types, _window(config))

    return rule


def _window(config: Config) -> int | None:
    # Their config classes take 4096 where the key is absent; null means no window.
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return integer(config, "sliding_window", 4096)


def _kinds(config: Config, types: list[str], window: int | None) -> tuple[LayerKind, ...]:
    stated = config.get("layer_types")
    if stated is not None:
        if not isinstance(stated, list) or len(stated) != len(types):
            msg = (
                f"layer_types in config.json must list {len(types)} layers, as num_hidden_layers "
                f"says. Got {len(stated) if isinstance(stated, list) else shown(repr(stated))}."
            )
            raise CheckpointError(msg)
        types = stated
    for layer, kind in enumerate(types):
        if kind not in LAYER_TYPES:
            msg = (
                f"layer_types[{layer}]={shown(repr(kind))} is not supported for this model. "
                f"Supported: {', '.join(LAYER_TYPES)}."
            )
            raise UnsupportedError(msg)
        if kind == SLIDING and window is None:
            msg = (
                f"sliding_window in config.json must be set where layer_types[{layer}] is "
                "sliding_attention. Got none."
            )
            raise CheckpointError(msg)
    return tuple(LayerKind(kind, window if kind == SLIDING else None) for kind in types)
