"""Attention of models whose code is no part of transformers, step by step as it was published.

Queries, keys and rotation are computed as that code does, under its names and with its fused
layouts. Nothing is shared with the package. `published.py` puts models around them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Coordinate j turns with j + size/2."""
    first, second = x.chunk(2, dim=-1)
    return x * torch.cat((cos, cos), -1) + torch.cat((-second, first), -1) * torch.cat(
        (sin, sin), -1
    )


def neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Coordinate 2j turns with 2j + 1; what lies past the angles stays."""
    size = 2 * cos.shape[-1]
    pairs = x[..., :size].unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    return torch.cat((turned, x[..., size:]), -1)


class Rotary(nn.Module):
    """cos and sin at positions, one for each pair."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        size = self.config.turned
        steps = torch.arange(0, size, 2, dtype=torch.float64) / size
        angles = position_ids[..., None].double() * self.config.base**-steps
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def eager(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, Tensor]:
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    logits = query @ key.transpose(2, 3) * scaling
    weights = torch.softmax(logits if mask is None else logits + mask, dim=-1)
    return (weights @ value).transpose(1, 2), weights


class Attention(nn.Module):
    """Queries and keys from `split`; `turn` is the rotation."""

    turn = staticmethod(halves)

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.heads, self.key_heads, self.head_dim = config.sizes
        self.sizes = [n * self.head_dim for n in (self.heads, self.key_heads, self.key_heads)]
        self.build(config.hidden_size)

    def build(self, width: int) -> None:
        raise NotImplementedError

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, tokens, heads, head_dim)."""
        raise NotImplementedError

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        position_ids: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, Any]:
        query, key, value = (x.transpose(1, 2) for x in self.split(hidden_states))
        if position_embeddings is not None:
            cos, sin = (x.unsqueeze(1) for x in position_embeddings)
            query, key = self.turn(query, cos, sin), self.turn(key, cos, sin)
        query = self.grown(query, position_ids)
        kind = self.config._attn_implementation
        call = ALL_ATTENTION_FUNCTIONS.get_interface(kind, eager)
        output, weights = call(self, query, key, value, attention_mask, scaling=self.head_dim**-0.5)
        return self.out(output.flatten(2)), weights

    def grown(self, query: Tensor, position_ids: Tensor | None) -> Tensor:
        return query

    @property
    def out(self) -> nn.Module:
        return self.o_proj


class Separate(Attention):
    """Llama's: DeepSeek 1, MiniCPM, XVERSE, Dream."""

    def build(self, width: int) -> None:
        for name, size in zip("qkv", self.sizes, strict=True):
            setattr(self, f"{name}_proj", nn.Linear(width, size, bias=self.config.biased))
        self.o_proj = nn.Linear(self.sizes[0], width, bias=False)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        projections = self.q_proj, self.k_proj, self.v_proj
        return tuple(p(x).unflatten(-1, (-1, self.head_dim)) for p in projections)


class Bare(Separate):
    """LLaDA's, whose projections stand in the layer itself, and its last one under a name."""

    def build(self, width: int) -> None:
        super().build(width)
        self.attn_out = self.o_proj
        del self.o_proj

    @property
    def out(self) -> nn.Module:
        return self.attn_out


class Grouped(Attention):
    """InternLM 2's wqkv: for each key head its queries, its key, its value."""

    def build(self, width: int) -> None:
        self.wqkv = nn.Linear(width, sum(self.sizes), bias=self.config.bias)
        self.wo = nn.Linear(self.sizes[0], width, bias=self.config.bias)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        shared = self.heads // self.key_heads
        groups = self.wqkv(x).unflatten(-1, (self.key_heads, shared + 2, self.head_dim))
        return groups[..., :shared, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]

    @property
    def out(self) -> nn.Module:
        return self.wo


class Stacked(Attention):
    """All queries, all keys, all values, in one projection called `query_key_value`."""

    name, last = "query_key_value", "dense"

    def build(self, width: int) -> None:
        self.add_module(self.name, nn.Linear(width, sum(self.sizes), bias=self.config.biased))
        self.add_module(self.last, nn.Linear(self.sizes[0], width, bias=False))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = getattr(self, self.name)(x).split(self.sizes, dim=-1)
        return tuple(part.unflatten(-1, (-1, self.head_dim)) for part in parts)

    @property
    def out(self) -> nn.Module:
        return getattr(self, self.last)


class Chat(Stacked):
    turn = staticmethod(neighbours)


class Packed(Stacked):
    name, last = "W_pack", "o_proj"


class Growing(Stacked):
    """Qwen 1: the query of token i is multiplied by log i to the base of the trained length."""

    name, last = "c_attn", "c_proj"

    def grown(self, query: Tensor, position_ids: Tensor | None) -> Tensor:
        if not self.config.use_logn_attn or position_ids is None:
            return query
        trained = self.config.seq_length
        logs = [
            math.log(int(p) + 1, trained) if int(p) + 1 > trained else 1.0 for p in position_ids[0]
        ]
        return query * torch.tensor(logs, dtype=query.dtype)[:, None]


class Normed(Stacked):
    """Ling: a norm of each query and key head, and a part of each head that turns."""

    def build(self, width: int) -> None:
        super().build(width)
        if self.config.use_qk_norm:
            for side in ("query", "key"):
                norm = RMSNorm(self.head_dim, self.config.rms_norm_eps)
                self.add_module(f"{side}_layernorm", norm)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        query, key, value = super().split(x)
        if self.config.use_qk_norm:
            query, key = self.query_layernorm(query), self.key_layernorm(key)
        return query, key, value

    @staticmethod
    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = 2 * cos.shape[-1]
        return torch.cat((halves(x[..., :size], cos, sin), x[..., size:]), -1)


def slopes(heads: int) -> list[float]:
    """ALiBi's for Baichuan 13B, as its code nests them."""
    if math.log2(heads).is_integer():
        start = 2.0 ** -(2.0 ** -(math.log2(heads) - 3))
        return [start * start**i for i in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return slopes(power) + slopes(2 * power)[0::2][: heads - power]
