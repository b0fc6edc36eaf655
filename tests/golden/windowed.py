"""Attention within windows, without its biases and for any number of states: Swin and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

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


def band(n: int, radius: int, dtype: torch.dtype) -> Tensor:
    """The additive mask of keys at most `radius` away, (1, 1, n, n)."""
    at = torch.arange(n)
    far = (at[:, None] - at).abs() > radius
    return torch.zeros(1, 1, n, n, dtype=dtype).masked_fill(far, -torch.inf)


def last_of_blocks(module: Any, states: Tensor, *, weights: bool) -> Tensor:
    """Logits (or weights) of the last query of LongT5's near attention, (batch, heads, n).

    Keys that no block of its own holds get 0; `band` hides them.
    """
    scores: list[Tensor] = []
    softmax = torch.nn.functional.softmax

    def record(logits: Tensor, **kwargs: Any) -> Tensor:
        found = softmax(logits, **kwargs)
        scores.append(found if weights else logits)
        return found

    n, size = states.shape[1], module.block_len
    block, place = divmod(n - 1, size)
    seen = torch.arange(3 * size) + (block - 1) * size
    far = (torch.arange(3 * size) - size - torch.arange(size)[:, None]).abs() >= size
    hidden = (seen < 0) | (seen >= n) | far
    bias = torch.zeros(1, 1, 1, size, 3 * size, dtype=states.dtype).masked_fill(hidden, -1e10)
    with mock.patch.object(torch.nn.functional, "softmax", record):
        module(states, position_bias=bias)
    row = scores[0][:, block, :, place]
    kept = ~hidden[place]
    found = row.new_zeros(len(states), module.n_heads, n)
    return found.index_copy(2, seen[kept], row[..., kept])


def of_marked(module: Any, states: Tensor, *, weights: bool) -> Tensor:
    """The same of Longformer's last query, without a mark and, in further heads, with one.

    All states lie within the window.
    """
    scores: list[Tensor] = []
    softmax = torch.nn.functional.softmax

    def record(logits: Tensor, **kwargs: Any) -> Tensor:
        found = softmax(logits, **kwargs | {"dtype": logits.dtype})
        scores.append(found if weights else logits)
        return found

    batch, n, width = states.shape
    side = module.one_sided_attn_window_size
    assert n <= side + 1
    size = 2 * side
    padded = torch.cat((states, states.new_zeros(batch, size - n, width)), dim=1)
    own = torch.arange(size) >= n
    rows = []
    for marked in (False, True):
        last = torch.zeros(size, dtype=torch.bool)
        last[n - 1] = marked
        mask = torch.zeros(size, dtype=states.dtype).masked_fill(own, -10000.0)
        scores.clear()
        with mock.patch.object(torch.nn.functional, "softmax", record):
            module(
                padded,
                attention_mask=mask.masked_fill(last, 10000.0).expand(batch, -1),
                is_index_masked=own.expand(batch, -1),
                is_index_global_attn=last.expand(batch, -1),
                is_global_attn=marked,
            )
        if marked:
            rows.append(scores[1].view(batch, module.num_heads, 1, size)[:, :, 0, :n])
        else:
            rows.append(scores[0][:, n - 1, :, side - n + 1 : side + 1])
    return torch.cat(rows, dim=1)


def of_grid(module: Any, states: Tensor, *, weights: bool) -> Tensor:
    """The same of SAM's last query, without its tables, all states in one row of a picture."""
    scores: list[Tensor] = []
    softmax = torch.nn.functional.softmax

    def record(logits: Tensor, **kwargs: Any) -> Tensor:
        found = softmax(logits, **kwargs | {"dtype": logits.dtype})
        scores.append(found if weights else logits)
        return found

    module.use_rel_pos = False
    plain = next(c for c in type(module).__mro__ if c.__name__ == "SamVisionAttention")
    with mock.patch.object(torch.nn.functional, "softmax", record):
        plain.forward(module, states[:, None])
    return scores[0].view(len(states), module.num_attention_heads, *scores[0].shape[1:])[:, :, -1]


def of_channels(module: Any, states: Tensor, *, weights: bool) -> Tensor:
    """The same of SqueezeBERT, whose modules take channels in front of tokens."""
    found = module(states.transpose(1, 2), None, True)["attention_score"]
    return (found.softmax(dim=-1) if weights else found)[:, :, -1]
