"""Real attention modules of transformers, opened so that their own logits can be read.

Nothing here recomputes what a model does: queries, keys, scale, soft cap and mask are those the
module hands to its attention function, and the logits are formed as its eager function forms them.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AutoConfig, AutoModel
from transformers.masking_utils import AttentionMaskInterface, eager_mask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

RAW_SCALE = 1000.0  # raw states are this many times larger than needed, so that ε does not matter
_calls: dict[int, dict[str, Any]] = {}


def _record(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    _calls[module.layer_idx] = {"query": query, "key": key, "mask": mask, **kwargs}
    batch, heads, n, _ = query.shape
    return query.new_zeros(batch, n, heads, value.shape[-1]), None


AttentionInterface.register("recorded", _record)
AttentionMaskInterface.register("recorded", eager_mask)


@contextlib.contextmanager
def all_float64() -> Iterator[None]:
    """Turn transformers' internal casts to float32 (norms, angles, softmax) into float64 ones."""
    saved = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved


@dataclass
class Real:
    """A checkpoint loaded by transformers, with `exact` for float64 throughout."""

    model: Any
    exact: bool

    @classmethod
    def open(cls, folder: Path, *, exact: bool = True, dtype: torch.dtype = torch.float64) -> Real:
        config = AutoConfig.from_pretrained(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AutoModel.from_pretrained(folder, config=config, dtype=dtype)
        if hasattr(model.config, "num_experts_per_tok"):
            model.set_experts_implementation("eager")  # others know no float64
        model = model.to(dtype).eval().requires_grad_(requires_grad=False)
        self = cls(model, exact)
        if hasattr(model, "rotary_emb"):
            with self._precision():  # frequencies too in float64
                model.rotary_emb = type(model.rotary_emb)(model.config)
        return self

    def _precision(self) -> Any:
        return all_float64() if self.exact else contextlib.nullcontext()

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def layers(self) -> int:
        return self.config.num_hidden_layers

    @property
    def heads(self) -> int:
        return self.config.num_attention_heads

    @property
    def width(self) -> int:
        return self.config.hidden_size

    @property
    def rotary(self) -> bool:
        return hasattr(self.model, "rotary_emb")

    @property
    def learned(self) -> int | None:
        """The longest context the position table allows."""
        if self.rotary:
            return None
        # roberta counts positions from the one behind its padding's
        first = self.config.pad_token_id + 1 if self.config.model_type == "roberta" else 0
        return int(self.config.max_position_embeddings) - first

    def pairs(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Which coordinates of a head turn together: first ones, second ones, those left alone."""
        if hasattr(self.config, "qk_nope_head_dim"):
            still, turned = self.config.qk_nope_head_dim, self.config.qk_rope_head_dim
            j = torch.arange(turned // 2)
            # deepseek_v2 hands over neighbours, the others halves, whatever the file holds
            if self.config.model_type == "deepseek_v2":
                return still + 2 * j, still + 2 * j + 1, torch.arange(still)
            return still + j, still + j + turned // 2, torch.arange(still)
        size = getattr(self.config, "head_dim", None) or self.width // self.heads
        rope = getattr(self.config, "rope_parameters", None) or {}
        turned = int(size * rope.get("partial_rotary_factor", 1.0))
        if not getattr(self.attention(layer), "use_rope", True):
            turned = 0
        half = torch.arange(turned // 2)
        if self.config.model_type == "cohere":
            return 2 * half, 2 * half + 1, torch.arange(turned, size)
        return half, half + turned // 2, torch.arange(turned, size)

    def attention(self, layer: int) -> Any:
        if self.config.model_type == "gpt2":
            return self.model.h[layer].attn
        if self.config.model_type in ("bert", "roberta"):
            return self.model.encoder.layer[layer].attention.self
        if self.config.model_type == "gpt_neox":
            return self.model.layers[layer].attention
        return self.model.layers[layer].self_attn

    def norm(self, layer: int) -> Any | None:
        """The norm whose output the attention module reads; None where there is none."""
        if self.config.model_type == "gpt2":
            return self.model.h[layer].ln_1
        if self.config.model_type in ("bert", "roberta"):
            if layer == 0:
                return self.model.embeddings.LayerNorm
            return self.model.encoder.layer[layer - 1].output.LayerNorm
        return getattr(self.model.layers[layer], "input_layernorm", None)

    def states(self, layer: int, directions: Tensor) -> Tensor:
        """Inputs of the attention module, from directions of raw hidden states (any length)."""
        raw = directions / directions.norm(dim=-1, keepdim=True)
        raw = raw * (RAW_SCALE * self.width**0.5)
        norm = self.norm(layer)
        if norm is None:
            return raw
        with self._precision():
            return norm(raw)

    def rotation(self, layer: int, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """cos and sin at (batch, n) positions, from the model's own rotary module."""
        if not self.rotary:
            return None
        dummy = torch.zeros(1, dtype=self.dtype)
        kinds = getattr(self.model.rotary_emb, "layer_types", None)
        args = (self.config.layer_types[layer],) if kinds else ()
        with self._precision():
            return self.model.rotary_emb(dummy, positions, *args)

    def call(
        self,
        layer: int,
        states: Tensor,
        rotation: tuple[Tensor, Tensor] | None,
        mask: Tensor | None = None,
        implementation: str = "recorded",
    ) -> Any:
        """Run one attention module; returns what it hands to its attention function.

        With `implementation="eager"` it returns the module's own attention weights instead.
        """
        self.config._attn_implementation = implementation
        kwargs: dict[str, Any] = {"attention_mask": mask}
        if rotation is not None:
            kwargs["position_embeddings"] = rotation
        with self._precision():
            output = self.attention(layer)(states, **kwargs)
        if implementation == "eager":
            return output[1]
        return _calls.pop(layer)

    def masks(self, n: int) -> list[Tensor | None]:
        """The additive mask each layer gets from the model for a context of n tokens."""
        self.config._attn_implementation = "recorded"
        with torch.no_grad():
            self.model(inputs_embeds=torch.ones(1, n, self.width, dtype=self.dtype))
        return [_calls.pop(layer)["mask"] for layer in range(self.layers)]

    def visible(self, n: int) -> list[Tensor]:
        """Per layer, which of the n keys the last query sees."""
        return [
            torch.ones(n, dtype=torch.bool) if m is None else m[0, 0, -1] == 0
            for m in self.masks(n)
        ]


def grouped(call: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Queries and keys with the key heads repeated, (batch, heads, n, head_dim)."""
    query, key = call["query"], call["key"]
    return query, key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)


def soft_capped(logits: Tensor, call: dict[str, Any]) -> Tensor:
    cap = call.get("softcap")
    return logits if cap is None else torch.tanh(logits / cap) * cap


def probabilities(logits: Tensor, call: dict[str, Any], head: int) -> Tensor:
    """Softmax over the last dimension, a learned sink logit in the denominator if there is one."""
    sinks = call.get("s_aux")
    if sinks is None:
        return torch.softmax(logits, dim=-1)
    sink = sinks[head].to(logits.dtype).expand(*logits.shape[:-1], 1)
    return torch.softmax(torch.cat((logits, sink), dim=-1), dim=-1)[..., :-1]


def last_row(call: dict[str, Any]) -> Tensor:
    """Logits of the last query against every key, before masking: (batch, heads, n)."""
    query, key = grouped(call)
    logits = torch.matmul(query[:, :, -1:], key.transpose(2, 3))[:, :, 0] * call["scaling"]
    return soft_capped(logits, call)
