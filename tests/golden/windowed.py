"""Swin's attention modules, opened for any number of states and without their biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def without_biases(module: Any) -> None:
    """Let a module add zeros, whose number fits any number of states."""
    if hasattr(module, "relative_position_bias"):
        del module._modules["relative_position_bias"]
        module.relative_position_bias = lambda: torch.zeros(1)
        return
    module.window_size = (1, 1)
    module.relative_position_index = torch.zeros(1, dtype=torch.long)
    heads = module.num_attention_heads
    if hasattr(module, "continuous_position_bias_mlp"):
        del module._modules["continuous_position_bias_mlp"]

        def nothing(table: Tensor) -> Tensor:
            return torch.full((1, heads), -1e9, dtype=table.dtype)  # a sigmoid of 0

        module.continuous_position_bias_mlp = nothing
    else:
        del module.relative_position_bias_table
        module.relative_position_bias_table = module.query.weight.new_zeros(1, heads)


def width(module: Any) -> int:
    """Coordinates of the states that a module reads."""
    return int((module.q_proj if hasattr(module, "q_proj") else module.query).in_features)
