"""Which attention module of the real model a layer of a plan is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dispersion.architectures import LayerPlan


def numbers(layers: Iterable[LayerPlan]) -> dict[tuple[str, int], int]:
    """(Module, layer) → its number in `places.py`: its layer, or, where several stacks have layers
    of one index, its place in the plan."""
    found = [(layer.module, layer.layer) for layer in layers]
    if len({index for _, index in found}) == len(found):
        return {each: each[1] for each in found}
    return {each: place for place, each in enumerate(found)}
