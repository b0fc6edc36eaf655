"""Real attention modules of transformers, opened so that their own logits can be read.

Nothing here recomputes what a model does: queries, keys, scale, soft cap and mask are those the
module hands to its attention function, and the logits are formed as its eager function forms them.
"""

from __future__ import annotations

import contextlib
import math
import sys
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


BLOCKS = {"gpt2": "h", "bloom": "h", "falcon": "h", "mpt": "blocks", "dbrx": "blocks"}
ATTENTION = {
    "gpt2": "attn",
    "bloom": "self_attention",
    "falcon": "self_attention",
    "mpt": "attn",
    "dbrx": "norm_attn_norm.attn",
    "gpt_neox": "attention",
}
NORM = {
    "gpt2": "ln_1",
    "bloom": "input_layernorm",
    "mpt": "norm_1",
    "dbrx": "norm_attn_norm.norm_1",
}

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
    where: Tensor | None = None  # positions of the last rotation, for modules that ask again

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
    def kind(self) -> str:
        return self.config.model_type

    @property
    def alibi(self) -> bool:
        """Whether positions add to the logits."""
        return self.kind in ("bloom", "mpt", "t5") or bool(getattr(self.config, "alibi", False))

    @property
    def phases(self) -> bool:
        """Whether free angles bound what real positions give.

        Not where queries grow with the position, nor where a gain stands behind the rotation.
        """
        return self.rotary and self.kind not in ("llama4_text", "ministral3", "hunyuan_v1_dense")

    @property
    def rotary(self) -> bool:
        return hasattr(self.model, "rotary_emb") and not self.alibi

    @property
    def positional(self) -> bool:
        """Whether a logit depends on where its two tokens stand."""
        return self.rotary or self.alibi

    @property
    def learned(self) -> int | None:
        """The longest context the position table allows."""
        if self.positional:
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
        if self.kind in ("cohere", "llama4_text"):
            return 2 * half, 2 * half + 1, torch.arange(turned, size)
        return half, half + turned // 2, torch.arange(turned, size)

    def attention(self, layer: int) -> Any:
        if self.kind in ("bert", "roberta"):
            return self.model.encoder.layer[layer].attention.self
        if self.kind == "t5":
            return self.model.encoder.block[layer].layer[0].SelfAttention
        return self.block(layer).get_submodule(ATTENTION.get(self.kind, "self_attn"))

    def block(self, layer: int) -> Any:
        return getattr(self.model, BLOCKS.get(self.kind, "layers"))[layer]

    def norm(self, layer: int) -> Any | None:
        """The norm whose output the attention module reads; None where there is none."""
        if self.kind in ("bert", "roberta"):
            if layer == 0:
                return self.model.embeddings.LayerNorm
            return self.model.encoder.layer[layer - 1].output.LayerNorm
        if self.kind == "t5":
            return self.model.encoder.block[layer].layer[0].layer_norm
        block = self.block(layer)
        if self.kind in NORM:
            return block.get_submodule(NORM[self.kind])
        return getattr(block, "ln_attn", None) or getattr(block, "input_layernorm", None)

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
        """cos and sin at (batch, n) positions, from the model's own rotary module.

        Biases of positions where there are such: (batch, heads, 1, n), from the model's builder.
        """
        self.where = positions
        if self.alibi:
            with self._precision():
                return biases(self, positions)
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
        if self.kind in ("bloom", "mpt", "falcon"):
            with self._precision():
                return own_attention(self, layer, states, rotation, implementation)
        if self.kind == "t5":
            attention = self.attention(layer)
            attention.config._attn_implementation = implementation
            whole = implementation == "eager" and layer == 0  # then it makes its own bias
            with self._precision():
                output = attention(states, position_bias=None if whole else rotation)
            return output[2] if implementation == "eager" else _calls.pop(layer)
        kwargs: dict[str, Any] = {"attention_mask": mask}
        if rotation is not None:
            kwargs["position_embeddings"] = rotation
        if self.kind == "ministral3":
            kwargs["position_ids"] = self.where
        if self.kind == "llama4_text" and self.where is not None:
            kwargs["cache"] = Before(max(0, int(self.where[0, -1]) + 1 - states.shape[1]))
        with self._precision():
            output = self.attention(layer)(states, **kwargs)
        if implementation == "eager":
            return output[1]
        return _calls.pop(layer)

    def masks(self, n: int) -> list[Tensor | None]:
        """The additive mask each layer gets from the model for a context of n tokens."""
        if self.kind in ("bloom", "mpt", "falcon", "t5"):
            return [None] * self.layers  # causal: the last query sees all
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


@dataclass
class Before:
    """A cache that says how many tokens came before, so that the last one has its real position."""

    tokens: int

    def get_seq_length(self, _: int) -> int:
        return self.tokens

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value


def biases(real: Real, positions: Tensor) -> Tensor:
    """What the model's own builder adds for keys at (batch, n) positions: (batch, heads, 1, n)."""
    n = int(positions.max()) + 1
    if real.kind == "t5":
        first = real.attention(0)
        buckets = first._relative_position_bucket(
            positions[:, None, :] - positions[:, :, None],
            bidirectional=True,
            num_buckets=first.relative_attention_num_buckets,
            max_distance=first.relative_attention_max_distance,
        )
        return first.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    if real.kind == "mpt":
        largest = real.config.attn_config.alibi_bias_max
        table = real.model.build_mpt_alibi_tensor(real.heads, n, largest).to(real.dtype)
    else:
        module = sys.modules[type(real.model).__module__]
        ones = torch.ones(1, n, dtype=torch.long)
        table = module.build_alibi_tensor(ones, real.heads, real.dtype)
    return table[:, 0][:, positions].transpose(0, 1).unsqueeze(2)


def own_attention(
    real: Real, layer: int, states: Tensor, rotation: Any, implementation: str
) -> Any:
    """Modules that do not hand over their queries: their weights, or their call of torch's own."""
    attention, (batch, n, _) = real.attention(layer), states.shape
    eager = implementation == "eager"
    if real.kind == "bloom":
        bias = rotation.reshape(batch * real.heads, 1, n)
        _, weights = attention(states, torch.zeros_like(states), bias, None)
        return weights if eager else {"logits": weights[:, :, -1].log()}
    if real.kind == "mpt":
        _, weights = attention(states, rotation[0] if eager else None)
        return weights if eager else {"logits": weights[:, :, -1].log() + rotation[:, :, 0]}
    if eager:
        zeros = torch.zeros(1, 1, 1, n, dtype=states.dtype)
        if real.alibi:
            return attention(states, rotation, zeros, output_attentions=True)[1]
        positions = {"position_embeddings": rotation, "output_attentions": True}
        return attention(states, None, zeros, **positions)[1]
    real.config._attn_implementation = "sdpa"
    scale = (real.width // real.heads) ** -0.5
    found: dict[str, Any] = {"scaling": scale}

    def sdpa(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Tensor:
        found.update(query=query, key=key, bias=kwargs["attn_mask"])
        return torch.zeros_like(query)

    saved = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = sdpa
    try:
        if real.alibi:
            attention(states, rotation, rotation / math.sqrt(real.width // real.heads))
        else:
            attention(states, None, None, position_embeddings=rotation)
    finally:
        torch.nn.functional.scaled_dot_product_attention = saved
    return found


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
    if "logits" in call:
        return call["logits"]
    query, key = grouped(call)
    logits = torch.matmul(query[:, :, -1:], key.transpose(2, 3))[:, :, 0] * call["scaling"]
    bias = call.get("bias", call.get("position_bias"))
    if bias is not None:
        logits = logits + bias[:, :, -1]
    return soft_capped(logits, call)
