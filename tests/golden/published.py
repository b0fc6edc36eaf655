"""Models whose modelling code is no part of transformers, registered with its Auto classes.

Around the attention of `published_attention.py` stands as much of a model as `Real` asks for, so
that it opens, attacks and records them like any other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from published_attention import (
    Bare,
    Chat,
    Grouped,
    Growing,
    Normed,
    Packed,
    RMSNorm,
    Rotary,
    Separate,
    slopes,
)
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast

Names = Mapping[str, Any]
LLAMA: Names = {
    "layers": "layers",
    "attention": "self_attn",
    "norm": "input_layernorm",
    "after": "post_attention_layernorm",
    "tokens": "embed_tokens",
    "final": "norm",
    "mlp": "mlp",
    "linear": ("gate_proj", "up_proj", "down_proj"),
}


class Config(PretrainedConfig):
    """Keys as published; `names` are those of modules, `sizes` of heads."""

    names: ClassVar[Names] = LLAMA
    attention = Separate
    normal: ClassVar[Any] = RMSNorm
    eps_key = "rms_norm_eps"
    prefix = "model"
    both_sides = False
    biased = False
    pad_token_id = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        heads = self.num_attention_heads
        return heads, getattr(self, "num_key_value_heads", heads), self.hidden_size // heads

    @property
    def turned(self) -> int:
        return self.sizes[2]

    @property
    def base(self) -> float:
        return self.rope_theta


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        names, width = config.names, config.hidden_size
        eps = getattr(config, config.eps_key)
        self.names = names
        self.add_module(names["norm"], config.normal(width, eps))
        self.add_module(names["attention"], config.attention(config))
        self.add_module(names["after"], config.normal(width, eps))
        inner = nn.Module()
        for name in names["linear"]:
            inner.add_module(name, nn.Linear(width, 2, bias=False))
        self.add_module(names["mlp"], inner)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        norm, attention = (getattr(self, self.names[k]) for k in ("norm", "attention"))
        return x + attention(norm(x), **kwargs)[0]


class Stack(nn.Module):
    """The layers, in a module of their own where the names say so."""


class Model(PreTrainedModel):
    """Embedding, layers and final norm; the feed-forward parts are there and do not run."""

    base_model_prefix = "model"
    config_class = Config
    _supports_attention_backend = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        final = config.normal(config.hidden_size, getattr(config, config.eps_key))
        for path, module in (
            (config.names["tokens"], nn.Embedding(config.vocab_size, config.hidden_size)),
            (config.names["layers"], nn.ModuleList()),
            (config.names["final"], final),
        ):
            owner: nn.Module = self
            *within, last = path.split(".")
            for name in within:
                if not hasattr(owner, name):
                    owner.add_module(name, Stack())
                owner = getattr(owner, name)
            owner.add_module(last, module)
        self.stack.extend(Block(config) for _ in range(config.num_hidden_layers))
        if config.base is not None:
            self.rotary_emb = Rotary(config)
        self.post_init()

    @property
    def stack(self) -> nn.ModuleList:
        return self.get_submodule(self.config.names["layers"])

    def get_input_embeddings(self) -> nn.Module:
        return self.get_submodule(self.config.names["tokens"])

    def set_input_embeddings(self, value: nn.Module) -> None:
        raise NotImplementedError

    def forward(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None, **_: Any
    ) -> BaseModelOutputWithPast:
        config: Any = self.config
        if inputs_embeds is None:
            scale = getattr(config, "scale_emb", 1)
            inputs_embeds = self.get_input_embeddings()(input_ids) * scale
        x = inputs_embeds
        positions = torch.arange(x.shape[1])[None]
        turned = None if config.base is None else self.rotary_emb(x, positions)
        mask = None
        if not config.both_sides:
            mask = create_causal_mask(config, x, attention_mask=None, cache=None)
        if config.base is None:
            n = x.shape[1]
            lags = (positions[0][None] - positions[0][:, None]).to(x.dtype)
            hidden = torch.full((n, n), -torch.inf, dtype=x.dtype).triu(1)
            table = torch.tensor(slopes(config.num_attention_heads), dtype=x.dtype)
            mask = (table[:, None, None] * lags + hidden)[None]
        for layer in self.stack:
            x = layer(x, attention_mask=mask, position_embeddings=turned, position_ids=positions)
        return BaseModelOutputWithPast(last_hidden_state=x)


class InternLM2Config(Config):
    model_type = "internlm2"
    attention = Grouped
    names: ClassVar[Names] = {
        "layers": "layers",
        "attention": "attention",
        "norm": "attention_norm",
        "after": "ffn_norm",
        "tokens": "tok_embeddings",
        "final": "norm",
        "mlp": "feed_forward",
        "linear": ("w1", "w3", "w2"),
    }


class ChatGLMConfig(Config):
    model_type = "chatglm"
    attention = Chat
    eps_key = "layernorm_epsilon"
    names: ClassVar[Names] = {
        **LLAMA,
        "layers": "encoder.layers",
        "attention": "self_attention",
        "tokens": "embedding.word_embeddings",
        "final": "encoder.final_layernorm",
        "linear": ("dense_h_to_4h", "dense_4h_to_h"),
    }

    @property
    def num_hidden_layers(self) -> int:
        return self.num_layers

    @property
    def vocab_size(self) -> int:
        return self.padded_vocab_size

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.num_attention_heads, self.multi_query_group_num, self.kv_channels

    @property
    def biased(self) -> bool:
        return self.add_bias_linear or self.add_qkv_bias

    @property
    def turned(self) -> int:
        return self.kv_channels // 2

    @property
    def rotary_dim(self) -> int:
        return self.turned

    @property
    def base(self) -> float:
        return 10000 * self.rope_ratio


class QWenConfig(Config):
    model_type = "qwen"
    attention = Growing
    eps_key = "layer_norm_epsilon"
    biased = True
    names: ClassVar[Names] = {
        "layers": "h",
        "attention": "attn",
        "norm": "ln_1",
        "after": "ln_2",
        "tokens": "wte",
        "final": "ln_f",
        "mlp": "mlp",
        "linear": ("w1", "w2", "c_proj"),
    }

    @property
    def base(self) -> float:
        return self.rotary_emb_base


class BaichuanConfig(Config):
    model_type = "baichuan"
    attention = Packed

    @property
    def alibi(self) -> bool:
        return getattr(self, "max_position_embeddings", None) is None

    @property
    def base(self) -> float | None:
        return None if self.alibi else 10000.0


class DeepseekConfig(Config):
    model_type = "deepseek"

    @property
    def biased(self) -> bool:
        return self.attention_bias


class MiniCPMConfig(DeepseekConfig):
    model_type = "minicpm"


class XverseConfig(Config):
    model_type = "xverse"


class OrionConfig(Config):
    model_type = "orion"
    normal: ClassVar[Any] = nn.LayerNorm


class DreamConfig(Config):
    model_type = "Dream"
    both_sides = True
    biased = True


class LLaDAConfig(Config):
    model_type = "llada"
    attention = Bare
    both_sides = True
    names: ClassVar[Names] = {
        "layers": "blocks",
        "attention": "self_attn",
        "norm": "attn_norm",
        "after": "ff_norm",
        "tokens": "wte",
        "final": "ln_f",
        "mlp": "mlp",
        "linear": ("ff_proj", "up_proj", "ff_out"),
    }

    @property
    def num_hidden_layers(self) -> int:
        return self.n_layers

    @property
    def hidden_size(self) -> int:
        return self.d_model

    @property
    def num_attention_heads(self) -> int:
        return self.n_heads

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.n_heads, self.n_kv_heads, self.d_model // self.n_heads

    @property
    def biased(self) -> bool:
        return self.include_bias or self.include_qkv_bias


class BailingMoeConfig(Config):
    model_type = "bailing_moe"
    attention = Normed
    names: ClassVar[Names] = {
        **LLAMA,
        "attention": "attention",
        "tokens": "word_embeddings",
    }

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.num_attention_heads, self.num_key_value_heads, self.head_dim

    @property
    def biased(self) -> bool:
        return self.use_bias or self.use_qkv_bias

    @property
    def turned(self) -> int:
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def rotary_dim(self) -> int:
        return self.turned


CONFIGS = {
    kind.__name__.removesuffix("Config"): kind
    for kind in (
        BailingMoeConfig,
        BaichuanConfig,
        ChatGLMConfig,
        DeepseekConfig,
        DreamConfig,
        InternLM2Config,
        LLaDAConfig,
        MiniCPMConfig,
        OrionConfig,
        QWenConfig,
        XverseConfig,
    )
}
# In files of LLaDA neither attention nor the feed-forward part is a module of its own.
register_checkpoint_conversion_mapping(
    "llada",
    [
        WeightRenaming(rf"blocks\.(\d+)\.{part}\.", rf"blocks.\1.{module}.{part}.")
        for module, parts in (
            ("self_attn", ("q_proj", "k_proj", "v_proj", "attn_out")),
            ("mlp", ("ff_proj", "up_proj", "ff_out")),
        )
        for part in parts
    ],
)
MODELS: dict[str, type[Model]] = {}
for _name, _config in CONFIGS.items():
    MODELS[_name] = type(f"{_name}Model", (Model,), {"config_class": _config})
    AutoConfig.register(_config.model_type, _config)
    AutoModel.register(_config, MODELS[_name])
