"""Models that add biases of positions to their logits, and what their modules are asked for."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from real import Real
    from torch import Tensor


def owner(real: Real, layer: int) -> int:
    """The layer of T5 whose table a layer of the same stack uses; in UMT5 itself."""
    if real.kind == "umt5":
        return layer
    decodes = real.attention(layer).is_decoder
    return next(i for i in range(real.layers) if real.attention(i).is_decoder == decodes)


def biases(real: Real, positions: Tensor, layer: int) -> Tensor | None:
    """What the model's own builder adds for keys at (batch, n) positions: (batch, heads, 1, n)."""
    n = int(positions.max()) + 1
    if real.crosses(layer):
        return None
    if real.kind in ("t5", "umt5"):
        first = real.attention(owner(real, layer))
        more = {
            "bidirectional": not first.is_decoder,
            "num_buckets": first.relative_attention_num_buckets,
            "max_distance": first.relative_attention_max_distance,
        }
        buckets = first._relative_position_bucket(
            positions[:, None, :] - positions[:, :, None], **(more if real.kind == "t5" else {})
        )
        return first.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    if real.kind == "mpnet":
        encoder = real.model.encoder
        buckets = encoder.relative_position_bucket(positions[:, None, :] - positions[:, -1:, None])
        return encoder.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    if real.kind == "mpt":
        largest = real.config.attn_config.alibi_bias_max
        table = real.model.build_mpt_alibi_tensor(real.heads, n, largest).to(real.dtype)
    else:
        module = sys.modules[type(real.model).__module__]
        ones = torch.ones(1, n, dtype=torch.long)
        table = module.build_alibi_tensor(ones, real.heads, real.dtype)
    return table[:, 0][:, positions].transpose(0, 1).unsqueeze(2)


def arguments(real: Real, bias: Any, states: Tensor, layer: int, *, eager: bool) -> Any:
    """What a module takes besides its states."""
    batch, n, _ = states.shape
    if real.kind == "bloom":
        flat = bias.reshape(batch * real.heads, 1, n)
        return {"residual": torch.zeros_like(states), "alibi": flat, "attention_mask": None}
    if real.kind == "mpnet":
        return {"position_bias": bias, "output_attentions": True}
    if real.kind == "mpt":
        return {"position_bias": bias[0] if eager else None}
    if real.kind == "umt5":
        return {"encoder_hidden_states": states[:, :-1] if real.crosses(layer) else None}
    if real.kind == "t5":  # the first layer makes its own bias of a whole context
        if real.crosses(layer):
            return {"key_value_states": states[:, :-1]}
        usual = real.where is not None and real.where[0].equal(torch.arange(n))
        return {"position_bias": None if eager and usual and layer == owner(real, layer) else bias}
    if eager:
        zeros = torch.zeros(1, 1, 1, n, dtype=states.dtype)
        return {"alibi": bias, "attention_mask": zeros, "output_attentions": True}
    return {"alibi": bias, "attention_mask": bias / math.sqrt(real.width // real.heads)}


def answer(
    real: Real, bias: Tensor, output: Any, calls: list[dict[str, Any]], *, eager: bool
) -> Any:
    """The module's weights, or what gives its logits, from its output or its recorded call."""
    weights = output[2 if real.kind == "t5" else 1]
    if eager:
        return weights
    if real.kind in ("bloom", "mpnet"):
        return {"logits": weights[:, :, -1].log()}
    if real.kind == "mpt":
        return {"logits": weights[:, :, -1].log() + bias[:, :, 0]}
    if real.kind == "umt5":
        return calls[-1] | ({} if bias is None else {"position_bias": bias})
    return calls[-1] | ({"bias": calls[-1]["mask"]} if real.kind == "falcon" else {})
