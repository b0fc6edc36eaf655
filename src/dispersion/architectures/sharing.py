"""Which layers take their keys from an earlier layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.decoder import ShareRule
    from dispersion.architectures.windows import LayerKind


def last_layers(default: int) -> ShareRule:
    """The last `num_kv_shared_layers` reuse keys of the last layer before them of their type."""

    def rule(config: Mapping[str, Any], kinds: tuple[LayerKind, ...]) -> dict[int, int]:
        key = "num_kv_shared_layers"
        first = len(kinds) - integer(config, key, default, minimum=0)
        owners = {kind.layer_type: layer for layer, kind in enumerate(kinds[: max(first, 0)])}
        shared = {}
        for layer in range(max(first, 0), len(kinds)):
            if (kind := kinds[layer].layer_type) not in owners:
                msg = (
                    f"{key} in config.json must leave a layer of type {kind} with keys of its own. "
                    f"Got {len(kinds) - first} of {len(kinds)} layers."
                )
                raise CheckpointError(msg)
            shared[layer] = owners[kind]
        return shared

    return rule
