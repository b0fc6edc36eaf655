"""Which layers of a mixed model have softmax attention; others are recurrent or convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.architectures.windows import FULL, SLIDING, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.architectures.windows import Config, WindowRule

LINEAR, CONVOLUTION = "linear_attention", "conv"
# What configs wrote before the names above.
OLD_NAMES = {"attention": FULL, "mamba": LINEAR}


@dataclass(frozen=True)
class Mixed:
    """How a config says which layers attend.

    Attributes:
        silent: the layer types where the config lists none, from the config and the layer count.
        keys: names of the list in the config; the first one present counts.
        other: types of layers without softmax attention.
        window: sliding window where `sliding_window` is absent; None where no layer slides.
    """

    silent: Callable[[Config, int], list[str]]
    keys: tuple[str, ...] = ("layer_types",)
    other: tuple[str, ...] = (LINEAR,)
    window: int | None = None

    def rule(self) -> WindowRule:
        """The rule that `Decoder.window` takes."""

        def kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
            key = next((k for k in self.keys if config.get(k) is not None), None)
            types = self.silent(config, layers) if key is None else config[key]
            return self._checked(config, types, layers, key or self.keys[0])

        return kinds

    def _checked(self, config: Config, types: Any, layers: int, key: str) -> tuple[LayerKind, ...]:
        if not isinstance(types, list) or len(types) != layers:
            msg = (
                f"{key} in config.json must list {layers} layers, as num_hidden_layers says. "
                f"Got {len(types) if isinstance(types, list) else shown(repr(types))}."
            )
            raise CheckpointError(msg)
        found = []
        allowed = (FULL, *((SLIDING,) if self.window else ()), *self.other)
        for layer, stated in enumerate(types):
            kind = OLD_NAMES.get(stated, stated) if isinstance(stated, str) else stated
            if kind not in allowed:
                msg = (
                    f"{key}[{layer}]={shown(repr(stated))} is not supported for this model. "
                    f"Supported: {', '.join(allowed)}."
                )
                raise UnsupportedError(msg)
            slides = kind == SLIDING
            window = integer(config, "sliding_window", self.window) if slides else None
            found.append(LayerKind(kind, window, attends=kind not in self.other))
        return tuple(found)


def attending_every(period: int, key: str | None = None) -> WindowRule:
    """Every `period`-th layer attends, the others are linear; `key` may set the period."""

    def silent(config: Config, layers: int) -> list[str]:
        step = period if key is None else integer(config, key, period)
        return [LINEAR if (i + 1) % step else FULL for i in range(layers)]

    return Mixed(silent).rule()
