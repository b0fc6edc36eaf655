"""Which layers see all keys and which a sliding window, in the old and the new config dialect.

Which layers do not rotate is in `resting`, which have no softmax attention in `hybrids`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """One layer's attention.

    Attributes:
        layer_type: the type by which nested rope parameters are found.
        window: number of keys a query sees, or None for all.
        rotates: whether positions turn queries and keys.
        attends: whether the layer has softmax attention at all.
        theta: base of the rotation in this layer alone, or None for the config's.
        chunked: whether windows do not slide.
    """

    layer_type: str
    window: int | None = None
    rotates: bool = True
    attends: bool = True
    theta: float | None = None
    chunked: bool = False


def full(config: Config, layers: int) -> tuple[LayerKind, ...]:  # noqa: ARG001
    """Every layer sees every key."""
    return (LayerKind(FULL),) * layers


def everywhere(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`sliding_window` on every layer, unless it is null."""
    window = sliding_window(config)
    return (LayerKind(FULL if window is None else SLIDING, window),) * layers


def where_stated(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`sliding_window` on every layer where the config sets it."""
    return (
        full(config, layers) if config.get("sliding_window") is None else everywhere(config, layers)
    )


def where_absent(window: int) -> WindowRule:
    """`sliding_window` on every layer, with a default of its own."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        return (LayerKind(SLIDING, integer(config, "sliding_window", window)),) * layers

    return rule


def where_used(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`sliding_window` on every layer with `use_sliding_window`."""
    used = flag(config, "use_sliding_window", default=False)
    return everywhere(config, layers) if used else full(config, layers)


def alternate_first_layers(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """With `use_sliding_window`, every other layer up to `max_window_layers` slides."""
    window = sliding_window(config) if flag(config, "use_sliding_window", default=False) else None
    end = integer(config, "max_window_layers", 28, minimum=0)
    types = [
        SLIDING if window is not None and i < end and i % 2 == 0 else FULL for i in range(layers)
    ]
    return kinds_of(config, types, window)


def unrotated_every(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """SmolLM 3: `no_rope_layers` marks by 0 what does not rotate; only such layers may slide."""
    rotates = _turning(config, layers)
    used = flag(config, "use_sliding_window", default=False)
    stated = used and config.get("sliding_window") is not None
    window = integer(config, "sliding_window") if stated else None
    types = [SLIDING if window is not None and not r else FULL for r in rotates]
    kinds = kinds_of(config, types, window)
    return tuple(replace(k, rotates=bool(r)) for k, r in zip(kinds, rotates, strict=True))


def chunked_where_rotated(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Llama 4: layers of `no_rope_layers` that turn see chunks of `attention_chunk_size` tokens."""
    rotates = _turning(config, layers, empty_is_absent=True)
    chunk = None
    if "attention_chunk_size" not in config or config["attention_chunk_size"] is not None:
        chunk = integer(config, "attention_chunk_size", 8192)
    types = ["chunked_attention" if r and chunk is not None else FULL for r in rotates]
    stated = config.get("layer_types")
    if stated is not None and stated != types:
        msg = (
            "layer_types in config.json must be chunked_attention just where no_rope_layers is 1 "
            f"for this model. Got {shown(repr(stated))}."
        )
        raise UnsupportedError(msg)
    return tuple(
        LayerKind(FULL, None if kind == FULL else chunk, rotates=bool(r), chunked=kind != FULL)
        for kind, r in zip(types, rotates, strict=True)
    )


def _turning(config: Config, layers: int, *, empty_is_absent: bool = False) -> list[int]:
    """`no_rope_layers`, where 1 stands for a layer that turns, or what stands for it."""
    step = integer(config, "no_rope_layer_interval", 4)
    rotates = config.get("no_rope_layers")
    if rotates is None or (empty_is_absent and rotates == []):
        rotates = [int((i + 1) % step != 0) for i in range(layers)]
    if not isinstance(rotates, list) or len(rotates) != layers:
        msg = (
            f"no_rope_layers in config.json must list {layers} layers. Got {shown(repr(rotates))}."
        )
        raise CheckpointError(msg)
    if any(isinstance(r, bool) or r not in (0, 1) for r in rotates):
        msg = f"no_rope_layers in config.json must hold 0 and 1. Got {shown(repr(rotates))}."
        raise CheckpointError(msg)
    return rotates


def after_first(first: int, absent: int = 4096) -> WindowRule:
    """With `use_sliding_window`, layers from `max_window_layers` on slide; defaults of keys."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        used = flag(config, "use_sliding_window", default=False)
        window = sliding_window(config, absent) if used else None
        start = integer(config, "max_window_layers", first, minimum=0)
        types = [SLIDING if window is not None and i >= start else FULL for i in range(layers)]
        return kinds_of(config, types, window)

    return rule


def after_full_layers(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Qwen's rule."""
    return after_first(28)(config, layers)


def full_every(period: int, key: str | None = None, *, absent: int = 4096) -> WindowRule:
    """Every `period`-th layer is full, the others slide; `key` of the config may set the period.

    `absent` is the window where the config has no `sliding_window`.
    """

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get("layer_types") is not None
        step = period if key is None or stated else integer(config, key, period)
        types = [SLIDING if (i + 1) % step else FULL for i in range(layers)]
        return kinds_of(config, types, sliding_window(config, absent))

    return rule


def full_where(is_full: Callable[[int, int], bool], *, absent: int = 4096) -> WindowRule:
    """Full layers where `is_full(index, layers)` and no `layer_types` say otherwise."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        types = [FULL if is_full(i, layers) else SLIDING for i in range(layers)]
        return kinds_of(config, types, sliding_window(config, absent))

    return rule


def from_layer(key: str, default: int) -> WindowRule:
    """Layers from the one that `key` names on slide, where `sliding_window` is not null."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        window = sliding_window(config)
        first = integer(config, key, default, minimum=0)
        types = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
        return kinds_of(config, types, window)

    return rule


def slide_where_stated(rule: WindowRule) -> WindowRule:
    """The layers of another rule, all within `sliding_window` where the config sets it."""

    def slide(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get("sliding_window") is not None
        window = integer(config, "sliding_window") if stated else None
        return tuple(replace(k, window=window) for k in rule(config, layers))

    return slide


def sliding_window(config: Config, absent: int = 4096) -> int | None:
    """The window, `absent` where there is no such key; null means none."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return integer(config, "sliding_window", absent)


def kinds_of(config: Config, types: list[str], window: int | None) -> tuple[LayerKind, ...]:
    """Layers of these types, or of those that `layer_types` of the config lists."""
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


def checked_kinds(config: Mapping[str, Any], layers: int, known: tuple[str, str]) -> list[str]:
    """`layer_types`, which the config states and which knows two kinds of layers.

    Raises:
        CheckpointError: the list has another length.
        UnsupportedError: a type is not known.
    """
    types = config["layer_types"]
    if not isinstance(types, list) or len(types) != layers:
        msg = f"layer_types in config.json must list {layers} layers. Got {shown(repr(types))}."
        raise CheckpointError(msg)
    for kind in types:
        if kind not in known:
            msg = (
                f"layer_types in config.json must be {known[0]} or {known[1]} for this model. "
                f"Got {shown(repr(kind))}."
            )
            raise UnsupportedError(msg)
    return types
