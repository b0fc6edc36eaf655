"""Which layers do not rotate, or by a base of their own: rules on top of those of `windows`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.windows import FULL, SLIDING, LayerKind, kinds_of, sliding_window
from dispersion.checkpoint.text import shown
from dispersion.config import positive
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.windows import Config, WindowRule


def still_where_full(rule: WindowRule) -> WindowRule:
    """The layers of another rule; those that see every key do not rotate."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        return tuple(replace(k, rotates=k.layer_type == SLIDING) for k in rule(config, layers))

    return still


def still_beside_sliding(rule: WindowRule) -> WindowRule:
    """As `still_where_full`, but with a null `sliding_window` every layer is full and rotates."""

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        if sliding_window(config) is None:
            return kinds_of(config, [FULL] * layers, None)
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


def still_where_null(rule: WindowRule, absent: Mapping[str, Any]) -> WindowRule:
    """The layers of another rule; types with null in `rope_parameters` do not rotate.

    `absent` is what stands for `rope_parameters` where the config has none.
    """

    def still(config: Config, layers: int) -> tuple[LayerKind, ...]:
        stated = config.get("rope_parameters")
        rope = stated if isinstance(stated, dict) else absent
        return tuple(
            # A type that is not listed is a mistake, which the rotation's reader names.
            replace(k, rotates=k.layer_type not in rope or rope[k.layer_type] is not None)
            for k in rule(config, layers)
        )

    return still


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
