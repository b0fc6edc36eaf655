"""Which layers see all keys and which a sliding window, in the old and the new config dialect.

Rules for models that mix softmax attention with other layers are in `hybrids`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
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
    """

    layer_type: str
    window: int | None = None
    rotates: bool = True
    attends: bool = True
    theta: float | None = None


def full(config: Config, layers: int) -> tuple[LayerKind, ...]:  # noqa: ARG001
    """Every layer sees every key."""
    return (LayerKind(FULL),) * layers


def everywhere(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`sliding_window` on every layer, unless it is null."""
    window = _window(config)
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
    window = _window(config) if flag(config, "use_sliding_window", default=False) else None
    end = integer(config, "max_window_layers", 28, minimum=0)
    types = [
        SLIDING if window is not None and i < end and i % 2 == 0 else FULL for i in range(layers)
    ]
    return _kinds(config, types, window)


def unrotated_every(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """SmolLM 3: `no_rope_layers` marks by 0 what does not rotate; only such layers may slide."""
    step = integer(config, "no_rope_layer_interval", 4)
    rotates = config.get("no_rope_layers")
    if rotates is None:
        rotates = [int((i + 1) % step != 0) for i in range(layers)]
    if not isinstance(rotates, list) or len(rotates) != layers:
        msg = (
            f"no_rope_layers in config.json must list {layers} layers. Got {shown(repr(rotates))}."
        )
        raise CheckpointError(msg)
    if any(isinstance(r, bool) or r not in (0, 1) for r in rotates):
        msg = f"no_rope_layers in config.json must hold 0 and 1. Got {shown(repr(rotates))}."
        raise CheckpointError(msg)
    used = flag(config, "use_sliding_window", default=False)
    stated = used and config.get("sliding_window") is not None
    window = integer(config, "sliding_window") if stated else None
    types = [SLIDING if window is not None and not r else FULL for r in rotates]
    kinds = _kinds(config, types, window)
    return tuple(replace(k, rotates=bool(r)) for k, r in zip(kinds, rotates, strict=True))


def after_full_layers(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Qwen's rule: with `use_sliding_window`, layers from `max_window_layers` on slide."""
    window = _window(config) if flag(config, "use_sliding_window", default=False) else None
    first = integer(config, "max_window_layers", 28, minimum=0)
    types = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
    return _kinds(config, types, window)


def full_every(period: int, key: str | None = None, *, absent: int = 4096) -> WindowRule:
    """Every `period`-th layer is full, the others slide; `key` of the config may set the period.

    `absent` is the window where the config has no `sliding_window`.
    """

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get("layer_types") is not None
        step = period if key is None or stated else integer(config, key, period)
        types = [SLIDING if (i + 1) % step else FULL for i in range(layers)]
        return _kinds(config, types, _window(config, absent))

    return rule


def full_where(is_full: Callable[[int, int], bool], *, absent: int = 4096) -> WindowRule:
    """Full layers where `is_full(index, layers)` and no `layer_types` say otherwise."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        types = [FULL if is_full(i, layers) else SLIDING for i in range(layers)]
        return _kinds(config, types, _window(config, absent))

    return rule


def from_layer(key: str, default: int) -> WindowRule:
    """Layers from the one that `key` names on slide, where `sliding_window` is not null."""

    def rule(config: Config, layers: int) -> tuple[LayerKind, ...]:
        window = _window(config)
        first = integer(config, key, default, minimum=0)
        types = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
        return _kinds(config, types, window)

    return rule


def still_where_full(rule: WindowRule) -> WindowRule:
    """The layers of another rule; those that see every key do not rotate."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        return tuple(replace(k, rotates=k.layer_type == SLIDING) for k in rule(config, layers))

    return still


def still_beside_sliding(rule: WindowRule) -> WindowRule:
    """As `still_where_full`, but with a null `sliding_window` every layer is full and rotates."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        if _window(config) is None:
            return _kinds(config, [FULL] * layers, None)
        return still_where_full(rule)(config, layers)

    return still


def still_unless(rule: WindowRule, key: str, value: str) -> WindowRule:
    """The layers of another rule, which rotate only where `key` of the config has this value."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get(key)
        if stated is not None and not isinstance(stated, str):
            msg = f"{key} in config.json must be a name or null. Got {shown(repr(stated))}."
            raise CheckpointError(msg)
        return tuple(replace(k, rotates=stated == value) for k in rule(config, layers))

    return still


def still_unless_turned(rule: WindowRule) -> WindowRule:
    """The layers of another rule; a null `rope_theta` in `rope_parameters` turns none of them."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        rope = config.get("rope_scaling") or config.get("rope_parameters")
        null = isinstance(rope, dict) and "rope_theta" in rope and rope["rope_theta"] is None
        return tuple(replace(k, rotates=not null) for k in rule(config, layers))

    return still


def slide_where_stated(rule: WindowRule) -> WindowRule:
    """The layers of another rule, all within `sliding_window` where the config sets it."""

    def slide(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get("sliding_window") is not None
        window = integer(config, "sliding_window") if stated else None
        return tuple(replace(k, window=window) for k in rule(config, layers))

    return slide


def still_where_zero(rule: WindowRule, key: str, silent: Callable[[int, int], bool]) -> WindowRule:
    """The layers of another rule; those for which `key` lists 0 do not rotate.

    `silent(index, layers)` says which rest where the key is absent.
    """

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        kinds = theta_by_layer(rule, key)(config, layers)
        stated = config.get(key) is not None
        return tuple(
            replace(k, theta=None, rotates=k.rotates if stated else not silent(i, layers))
            for i, k in enumerate(kinds)
        )

    return still


def theta_by_layer(rule: WindowRule, key: str) -> WindowRule:
    """The layers of another rule; `key` lists a base of the rotation for each, 0 for none."""

    def based(config: Config, layers: int) -> tuple[LayerKind, ...]:
        kinds = rule(config, layers)
        stated = config.get(key)
        if stated is None:
            return kinds
        if not isinstance(stated, list) or len(stated) != layers:
            msg = f"{key} in config.json must list {layers} layers. Got {shown(repr(stated))}."
            raise CheckpointError(msg)
        thetas = [None if t == 0 else positive({key: t}, key) for t in stated]
        return tuple(
            replace(k, rotates=t is not None, theta=t) for k, t in zip(kinds, thetas, strict=True)
        )

    return based


def _window(config: Config, absent: int = 4096) -> int | None:
    # Most config classes take 4096 where the key is absent; null means no window.
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return integer(config, "sliding_window", absent)


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
