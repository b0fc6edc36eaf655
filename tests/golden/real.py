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
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import published  # noqa: F401  models of its own, registered with AutoModel
import torch
import transformers
from biases import (
    DISTANCES,
    SHAW,
    WAVES,
    answer,
    arguments,
    biases,
    owner_of_waves,
    shaw,
    unshifted,
    unshifted_whole,
    waves,
)
from places import RAW, SEQ2SEQ, STAGED, TWO_TOWERS, Places, places, walk
from torch import Tensor
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModel,
    ClapAudioModel,
    Emu3TextModel,
    SiglipTextModel,
    Step3p7TextModel,
    TrOCRForCausalLM,
)
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from windowed import (
    band,
    last_of_blocks,
    of_channels,
    of_grid,
    of_marked,
    without_biases,
)
from windowed import width as width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

ROPES = ("rotary_emb", "rotary_embeddings")
# attention asks for a mask to pick from
INDEXED = (
    "axk2",
    "deepseek_v32",
    "dots3_note_text",
    "glm_moe_dsa",
    "hy_v4",
    "mistral_large4_text",
    "qwen4_exp_text",
)
OWN = ("gpt_neox_japanese", "openai-gpt", "trocr", "xglm")  # ask for no attention function
BEHIND = ("dory", "hunyuan_v1_dense", "hunyuan_vl_text", "timesfm2_5")  # gains behind the rotation
TURNED = ("moonshine", "t5gemma")  # both of their stacks
SOFTMAX = ("blip", *DISTANCES, "megatron-bert", "rembert", "wavlm")  # call softmax themselves
SOFTMAX = (
    *SOFTMAX,
    "big_bird",
    "clap_audio_model",
    "lilt",
    "longt5",
    "sam_vision_model",
    "squeezebert",
    "swinv2",
)
BIASED = ("bloom", *DISTANCES, "mpnet", "mpt", *SHAW, "t5", "umt5", *WAVES)  # by positions
BEHIND_PADDING = (
    "altclip",
    "esm",
    "lilt",
    "longformer",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
)  # first positions
PLACED = ("ministral3", "mistral4", "mistral_large4_text", "qwen")  # attention asks for positions
GROWING = ("beam", "llama4_text", *PLACED)  # queries, with the position
MIXING = ("inkling_text", "inkling2_text", "deepseek_v4", "zaya")  # tokens, before attention
TELLING = ("doge", *MIXING[:2])  # biases by what tokens say
WINDOWED = {
    "longformer": of_marked,
    "longt5": last_of_blocks,
    "sam_vision_model": of_grid,
    "squeezebert": of_channels,
}
UNKNOWN = {
    "clap_audio_model": ClapAudioModel,
    "emu3_text_model": Emu3TextModel,
    "siglip_text_model": SiglipTextModel,
    "step3p5": Step3p7TextModel,
    "trocr": TrOCRForCausalLM,
}  # to AutoModel
LAST = slice(None, -1), slice(-1, None)  # keys, and a query that is none of them
RAW_SCALE = 1000.0  # raw states are this many times larger than needed, so that ε does not matter
_calls: list[dict[str, Any]] = []  # in the order in which attention was reached


def _record(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    _calls.append({"query": query, "key": key, "mask": attention_mask, **kwargs})
    # values may be narrower than queries
    return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None


def _record_falcon(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Tensor:
    """In the place of torch's attention, which Falcon calls by itself."""
    scale = query.shape[-1] ** -0.5
    mask = kwargs["attn_mask"]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    _calls.append({"query": query, "key": key, "mask": mask, "scaling": scale})
    return torch.zeros_like(query)


def _record_softmax(logits: Tensor, *_: Any, **__: Any) -> Tensor:
    """In the place of torch's softmax, which some modules call by themselves."""
    _calls.append({"logits": logits[:, :, -1], "mask": None})
    return torch.softmax(logits, dim=-1)


def _span(_query: Tensor, _key: Tensor, most: int) -> Tensor:
    """All distances that DeBERTa tells apart, whatever the number of states."""
    return torch.tensor(most)


def _record_whole(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """In the place of torch's whole attention, with weights for each head."""
    output, weights = _WHOLE(*args, **kwargs, average_attn_weights=False)
    _calls.append({"logits": weights[:, :, -1].log(), "weights": weights})
    return output, weights.mean(1)


_WHOLE = torch.nn.functional.multi_head_attention_forward


def _record_gpt_neo(module: Any) -> Callable[..., tuple[Tensor, None]]:
    """In the place of the module's own `_attn`, which knows no scale and brings a mask."""

    def record(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Any:
        n = query.shape[2]
        seen = module.bias[:, :, :n, :n]
        own = torch.zeros(seen.shape, dtype=query.dtype).masked_fill(~seen, -torch.inf)
        both = own if mask is None else own + mask
        _calls.append({"query": query, "key": key, "mask": both, "scaling": 1.0})
        return torch.zeros_like(query), None

    return record


def _record_own(module: Any, kind: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """In the place of the `_attn` of modules that ask for no attention function."""

    def record(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *_: Any) -> Any:
        if kind == "openai-gpt":  # its keys come turned, its mask is its own
            key, n = key.transpose(2, 3), query.shape[2]
            seen = module.bias[:, :, :n, :n]
            mask = torch.zeros(seen.shape, dtype=query.dtype).masked_fill(seen == 0, -torch.inf)
        scale = query.shape[-1] ** -0.5
        _calls.append({"query": query, "key": key, "mask": mask, "scaling": scale})
        return [torch.zeros_like(query), torch.zeros_like(query)]

    return record


def _record_xglm(module: Any, config: Any) -> Callable[..., Any]:
    """Around a forward pass that multiplies queries by keys itself, as its first `bmm`."""
    own, product = module.forward, torch.bmm

    def record(hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Any:
        seen: list[tuple[Tensor, Tensor]] = []

        def keep(first: Tensor, second: Tensor) -> Tensor:
            seen.append((first, second))
            return product(first, second)

        with mock.patch.object(torch, "bmm", keep):
            found = own(hidden_states, attention_mask=attention_mask, **kwargs)
        if config._attn_implementation == "recorded":
            batch = hidden_states.shape[0]
            query, key = (x.unflatten(0, (batch, -1)) for x in seen[0])
            call = {"query": query, "key": key.transpose(2, 3), "scaling": 1.0}
            _calls.append(call | {"mask": attention_mask})
        return found

    return record


def _record_fsmt(module: Any) -> Callable[..., Any]:
    """Around a forward pass with time in front, which multiplies queries by keys itself."""
    own, product = module.forward, torch.bmm

    def record(states: Tensor | None = None, attention_mask: Any = None, **kwargs: Any) -> Any:
        if states is not None:
            keys = kwargs.pop("key_value_states", states)
            kwargs = {"query": states.transpose(0, 1), "key": keys.transpose(0, 1)}
            kwargs |= {"attn_mask": attention_mask}
        seen: list[tuple[Tensor, Tensor]] = []

        def keep(first: Tensor, second: Tensor) -> Tensor:
            seen.append((first, second))
            return product(first, second)

        with mock.patch.object(torch, "bmm", keep):
            found = own(**kwargs | {"output_attentions": True})
        query, key = (x.unflatten(0, (-1, module.num_heads)) for x in seen[0])
        call = {"query": query, "key": key.transpose(2, 3), "scaling": 1.0}
        mask = kwargs.get("attn_mask")
        _calls.append(
            call | {"mask": None if mask is None else mask.expand(1, 1, *mask.shape[-2:])}
        )
        return found

    return record


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
        if config.model_type == "dbrx" and config.attn_config.clip_qkv is None:
            config.attn_config.clip_qkv = math.inf  # its code cannot run without a limit
        if config.model_type == "dots3_note_text":  # sizes beside those of single layers
            config.allow_global_per_layer_attribute_access = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = UNKNOWN.get(config.model_type, AutoModel)
            model = kind.from_pretrained(folder, config=config, dtype=dtype)
        model = held(model)
        if any(hasattr(model.config, key) for key in ("num_experts_per_tok", "moe_topk")):
            model.set_experts_implementation("eager")  # others know no float64
        model = model.to(dtype).eval().requires_grad_(requires_grad=False)
        self = cls(model, exact)
        if config.model_type == "gpt_neo":
            for layer in range(self.layers):
                module = self.attention(layer)
                module.own = module._attn
                module._attn = _record_gpt_neo(module)
        for layer in self.attending if config.model_type == "qwen4_exp_text" else ():
            module = self.attention(layer)  # it looks at one query after the other
            del module._modules["indexer"]
            module.indexer = lambda *args: torch.ones_like(args[2], dtype=torch.bool)
        for layer in self.attending if config.model_type == "jetmoe" else ():
            self.attention(layer).experts.router.layer = InOrder(config.num_local_experts)
        for layer in self.attending if config.model_type in STAGED else ():
            without_biases(self.attention(layer))
        for layer in range(self.layers) if config.model_type == "fsmt" else ():
            self.attention(layer).forward = _record_fsmt(self.attention(layer))
        for layer in range(self.layers) if config.model_type in OWN else ():
            module = self.attention(layer)
            if config.model_type in ("trocr", "xglm"):
                module.forward = _record_xglm(module, model.config)
                continue
            module.own, module._attn = module._attn, _record_own(module, config.model_type)
        with self._precision():  # frequencies too in float64
            stacks = (model.encoder, model.decoder) if config.model_type in TURNED else ()
            if config.model_type == "t5gemma2":
                stacks = (model.encoder.text_model, model.decoder)
            modules = (self.attention(layer) for layer in self.attending)
            for owner in (model, *stacks, *modules):
                for name in ROPES:
                    if (rope := getattr(owner, name, None)) is not None:
                        new = type(rope)(rope.config if stacks else model.config)
                        if hasattr(rope, "alpha"):  # learned
                            new.alpha = rope.alpha
                        setattr(owner, name, new)
            if config.model_type in WAVES and exact:
                owner, name = owner_of_waves(model)
                setattr(owner, name, type(getattr(owner, name))(model.config))
            for i, each in enumerate(getattr(model, "rotary_embs", ())):
                model.rotary_embs[i] = type(each)(each.config)
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
        if self.places.listed:
            return len(self.places.listed)
        return self.config.num_hidden_layers

    @property
    def attending(self) -> list[int]:
        """Layers with softmax attention."""
        return [i for i in range(self.layers) if self.attention(i) is not None]

    @property
    def sizes(self) -> Any:
        """The config that has the sizes; two towers are made equally wide here."""
        if self.kind in ("t5gemma", "t5gemma2"):
            return self.config.decoder
        return self.config.text_config if self.two_towers or self.kind == "blip" else self.config

    @property
    def two_towers(self) -> bool:
        return self.config.model_type in TWO_TOWERS

    @property
    def heads(self) -> int:
        if self.kind in STAGED:
            return max(self.heads_in(layer) for layer in range(self.layers))
        return self.sizes.num_attention_heads

    def heads_in(self, layer: int) -> int:
        """Query heads of one layer."""
        if self.kind in ("dots3_note_text", "step3p5"):
            return int(self.config.per_layer_config[layer].num_attention_heads)
        if self.kind in MIXING[:2]:
            return int(self.attention(layer).num_heads)
        if self.kind in STAGED:
            return int(self.attention(layer).num_attention_heads)
        if self.kind == "longformer":  # those of marked tokens, too
            return 2 * self.heads
        listed = getattr(self.config, "num_attention_heads_per_layer", None)
        return listed[layer] if listed else self.heads

    @property
    def width(self) -> int:
        # two of the hybrids put the token embedding beside the hidden state
        return getattr(self.sizes, "attention_hidden_size", None) or self.sizes.hidden_size

    def rope_of(self, layer: int) -> Any | None:
        """The rotary module of a layer's stack."""
        listed = self.places.listed
        if self.kind in (*TURNED, "t5gemma2") and listed[layer].module.startswith("decoder."):
            return self.model.decoder.rotary_emb
        return self.rope

    @property
    def rope(self) -> Any | None:
        """The model's own rotary module, of the first stack where there are two."""
        if self.config.model_type == "esm":
            kind = self.config.position_embedding_type
            return self.model.rotary_embeddings if kind == "rotary" else None
        if self.kind == "dinov3_vit":
            return self.model.rope_embeddings
        if self.kind in TURNED or self.kind == "t5gemma2":
            encoder = self.model.encoder
            return getattr(encoder, "text_model", encoder).rotary_emb
        return getattr(self.model, "rotary_emb", None)

    @property
    def kind(self) -> str:
        return self.config.model_type

    @property
    def biased(self) -> bool:
        """Whether positions add to the logits."""
        return self.kind in BIASED or bool(getattr(self.config, "alibi", False))

    @property
    def rotary(self) -> bool:
        return not self.biased and (self.inside or self.rope is not None)

    @property
    def positional(self) -> bool:
        """Whether a logit depends on where its two tokens stand."""
        return self.rotary or self.biased

    @property
    def phases(self) -> bool:
        """Whether free angles bound what real positions give.

        Not where queries grow with the position, nor where a gain stands behind the rotation.
        """
        grows = self.kind in GROWING and getattr(self.config, "use_logn_attn", True)
        telling = self.kind in (*BEHIND, *TELLING)
        return self.rotary and not grows and not telling and not self.sums

    @property
    def mixes(self) -> bool:
        """Whether keys, or queries too, are made of several tokens."""
        return self.kind in MIXING

    @property
    def sums(self) -> bool:
        """Whether there are more keys than tokens, made of several of them."""
        return self.kind == "deepseek_v4"

    @property
    def inside(self) -> bool:
        """Whether attention modules turn positions themselves."""
        return hasattr(self.attention(self.attending[0]), "rotary_emb")

    @property
    def learned(self) -> int | None:
        """The longest context the position table allows."""
        if self.kind == "whisper":
            assert self.config.max_source_positions == self.config.max_target_positions
            return int(self.config.max_source_positions)
        positions = getattr(self.sizes, "max_position_embeddings", None)
        both = self.kind == "mpnet"  # a table and biases
        if positions is None or (self.positional and not both):
            return None
        behind = self.kind in BEHIND_PADDING
        return int(positions) - (self.sizes.pad_token_id + 1 if behind else 0)

    def pairs(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Which coordinates of a head turn together: first ones, second ones, those left alone."""
        if hasattr(self.config, "qk_nope_head_dim"):
            return self._latent_pairs(layer)
        size = getattr(self.attention(layer), "head_dim", None) or self.width // self.heads
        rope = getattr(self.sizes, "rope_parameters", None) or {}
        kinds = getattr(self.config, "layer_types", None)
        rope = (rope.get(kinds[layer], rope) if kinds else rope) or {}
        absent = 0.334 if self.config.model_type == "mimo_v2_flash" else 1.0
        turned = int(size * rope.get("partial_rotary_factor", absent))
        if not rope:
            turned = getattr(self.config, "rotary_dim", turned)
        if not self.turns(layer):
            turned = 0
        half = torch.arange(turned // 2)
        if rope.get("rope_type") == "proportional":  # its pairs span the whole head
            rest = torch.arange(turned // 2, size // 2)
            return half, half + size // 2, torch.cat((rest, rest + size // 2))
        if self.places.interleaved:
            return 2 * half, 2 * half + 1, torch.arange(turned, size)
        return half, half + turned // 2, torch.arange(turned, size)

    def _latent_pairs(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        if self.kind == "dots3_note_text":
            config = config.per_layer_config[layer]
        still, turned = config.qk_nope_head_dim, config.qk_rope_head_dim
        j = torch.arange(turned // 2)
        # deepseek_v2 hands over neighbours, the others halves, whatever the file holds
        if self.kind == "deepseek_v2":
            return still + 2 * j, still + 2 * j + 1, torch.arange(still)
        return still + j, still + j + turned // 2, torch.arange(still)

    def turns(self, layer: int) -> bool:
        """Whether positions turn queries and keys: at another position they differ."""
        if not self.rotary:
            return False
        count = 1 + (self.crosses(layer) or self.merges(layer))
        states = self.states(layer, torch.eye(self.raw_width(layer))[:count]).unsqueeze(0)
        with torch.no_grad():
            at = [
                self.call(layer, states, self.rotation(layer, torch.full((1, count), p)))
                for p in (0, 1)
            ]
        return not torch.equal(at[0]["query"], at[1]["query"])

    @cached_property
    def places(self) -> Places:
        return places(self.config)

    def attention(self, layer: int) -> Any | None:
        """The attention module; None in layers without softmax attention of their own."""
        if self.kind == "zamba" and layer != self.config.layers_block_type.index("hybrid"):
            return None  # the same block once more
        return self.places.module(self.model, layer)

    def norm(self, layer: int) -> Any | None:
        """The norm whose output the attention module reads; None where there is none."""
        found = self.places.norm_of(self.model, layer)
        if self.kind == "squeezebert":  # some of its norms take channels in front of tokens
            return partial(torch.nn.LayerNorm.forward, found)
        return found

    def owner(self, layer: int) -> int | None:
        """The earlier layer whose keys a layer reads, or None for its own."""
        if (sources := getattr(self.config, "kv_source_layers", None)) is not None:
            return None if sources[layer] == layer else int(sources[layer])
        shared = getattr(self.config, "num_kv_shared_layers", 0)
        first = self.config.num_hidden_layers - shared if shared else layer + 1
        if layer < first:
            return None
        types = self.config.layer_types
        return max(i for i in range(first) if types[i] == types[layer])

    def key_norm(self, layer: int) -> Any | None:
        """The norm of another stack or layer whose output keys are made of, or None."""
        if (owner := self.owner(layer)) is not None:
            return self.norm(owner)
        place = self.places.listed[layer].keys if self.places.listed else None
        if place == RAW:
            return unit
        return None if place is None else walk(self.model, place)

    def through(self, layer: int) -> Any | None:
        """The linear map between the norm and the attention module, or None."""
        return self.places.map_of(self.model, layer)

    def raw_width(self, layer: int) -> int:
        """The size of what the norm in front of a layer reads."""
        if self.kind in STAGED:
            return width_of(self.attention(layer))
        if self.kind == "lilt":  # both streams
            return self.width + self.width // self.config.channel_shrink_ratio
        through = self.through(layer)
        return self.width if through is None else int(through.in_features)

    def pools(self, layer: int) -> bool:
        """Whether the query is a learned probe's, whatever the states."""
        return isinstance(self.attention(layer), torch.nn.MultiheadAttention)

    def crosses(self, layer: int) -> bool:
        """Whether the last of a sequence of states is the query's and none of the keys'."""
        return self.key_norm(layer) is not None

    def merges(self, layer: int) -> bool:
        """Whether all keys but the query token's own are an encoder's, which nothing turns."""
        return "Merged" in type(self.attention(layer)).__name__

    def where_in(self, layer: int, states: int) -> Tensor:
        """Positions of so many states; the query's is the last key's where layers share keys."""
        found = torch.arange(states)
        if self.owner(layer) is not None:
            found[-1] -= 1
        return found

    def everywhere(self, n: int) -> list[Tensor | None]:
        """Per layer, which keys the query at each of n positions sees, (n, n).

        None where one sees earlier keys alone, as the last of a shorter context does, and where
        positions do not matter.
        """
        unknown = ("dinov3_vit", "timesfm2_5")  # places on a grid; `masks` does not ask it
        matters = [self.positional and not self.crosses(i) for i in range(self.layers)]
        if not any(matters) or self.kind in unknown:
            return [None] * self.layers
        whole = torch.ones(n, n, dtype=torch.bool)
        if self.biased:
            both = [
                self.kind in ("mpnet", *DISTANCES, *SHAW, *WAVES)
                or (self.kind in ("t5", "umt5") and not self.attention(i).is_decoder)
                for i in range(self.layers)
            ]
            return [whole if a and b else None for a, b in zip(matters, both, strict=True)]
        seen = [whole if m is None else (m[0, 0] == 0).expand(n, n) for m in self.masks(n)]
        later = [bool(m.triu(1).any()) for m in seen]
        return [m if a and b else None for m, a, b in zip(seen, matters, later, strict=True)]

    def keys(self, layer: int, states: Any) -> int:
        """How many keys there are in so many states."""
        return len(states) - self.crosses(layer)

    def bounded(self, layer: int) -> bool:
        """Whether anything caps what the queries and keys of a layer can be."""
        place = self.places.query_norm
        return self.norm(layer) is not None or hasattr(self.attention(layer), place)

    def states(self, layer: int, directions: Tensor) -> Tensor:
        """Inputs of the attention module, from directions of raw hidden states (any length)."""
        raw = directions / directions.norm(dim=-1, keepdim=True)
        raw = raw * (RAW_SCALE * raw.shape[-1] ** 0.5)
        norm, through = self.norm(layer), self.through(layer)
        if norm is None:
            return raw
        if self.kind == "lilt":
            before = f"encoder.layer.{layer - 1}.layout_output" if layer else "layout_embeddings"
            places = walk(self.model, f"{before}.LayerNorm")
            with self._precision():
                parts = norm(raw[..., : self.width]), places(raw[..., self.width :])
            return torch.cat(parts, dim=-1)
        with self._precision():
            other = self.key_norm(layer)
            if self.merges(layer):
                other = self.model.encoder.text_model.norm
            if other is not None:
                return torch.cat((other(raw[..., :-1, :]), norm(raw[..., -1:, :])), dim=-2)
            if through is not None:
                return through(norm(raw))
            return norm(raw) * getattr(self.config, "attention_in_multiplier", 1.0)

    def rotation(self, layer: int, positions: Tensor) -> tuple[Tensor, Tensor] | Tensor | None:
        """cos and sin at (batch, n) positions, from the model's own rotary module.

        The positions themselves where attention modules turn them. Biases of positions where there
        are such, (batch, heads, 1, n), from the model's builder.
        """
        self.where = positions
        if self.biased:
            with self._precision():
                return biases(self, positions, layer)
        if not self.rotary:
            return None
        if self.kind == "dinov3_vit":
            return self._places(positions)
        if self.inside:
            return positions
        dummy = torch.zeros(1, dtype=self.dtype)
        thetas = getattr(self.config, "layer_rope_theta", None)
        if (thetas and not thetas[layer]) or self.rests(layer):
            return None
        if thetas and hasattr(self.model, "rotary_embs"):
            return self._based(thetas[layer], positions)
        rope = self.rope_of(layer)
        kinds = getattr(rope, "layer_types", None)
        if self.sums:
            with self._precision():
                return {kind: rope(dummy, positions, kind) for kind in kinds}
        args = ()
        if kinds:
            listed = getattr(self.config, "layer_types", None)
            args = (listed[layer] if listed else self.attention(layer).layer_type,)
        with self._precision():
            return rope(dummy, positions, *args)

    def _places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of patches as far down as to the right, by a 2π-th for each position."""
        powers = self.rope.base ** -torch.arange(0, 1, 4 / self.rope.head_dim, dtype=self.dtype)
        angles = (positions[:, None, :, None] * powers).tile(4)
        return angles.cos(), angles.sin()

    def rests(self, layer: int) -> bool:
        """Whether the model gives a layer no rotation, by its type."""
        if self.kind == "lara_mini":
            return bool(self.config.layer_types[layer] != "sliding_attention")
        if self.kind == "beam":
            return self.config.rope_parameters[self.config.layer_types[layer]] is None
        return False

    def _based(self, theta: float, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of the one module among several that has this base."""
        for module in self.model.rotary_embs:
            if module.config.rope_parameters["rope_theta"] == theta:
                with self._precision():
                    return module(torch.zeros(1, dtype=self.dtype), positions)
        raise AssertionError(theta)

    def call(
        self,
        layer: int,
        states: Tensor,
        rotation: tuple[Tensor, Tensor] | Tensor | None,
        mask: Tensor | None = None,
        implementation: str = "recorded",
    ) -> Any:
        """Run one attention module; returns what it hands to its attention function.

        With `implementation="eager"` it returns the module's own attention weights instead.
        """
        if self.pools(layer):
            keys = states[:, :-1]
            asked = self.model.head.probe.expand(len(keys), 1, -1)
            weights = self.attention(layer)(asked, keys, keys, average_attn_weights=False)[1]
            return weights if implementation == "eager" else {"logits": weights[:, :, -1].log()}
        if self.kind in WINDOWED:
            eager = implementation == "eager"
            found = WINDOWED[self.kind]
            with self._precision():
                row = found(self.attention(layer), states, weights=eager)
            return row[:, :, None] if eager else {"logits": row}
        if self.biased:
            return self._biased_call(layer, states, rotation, eager=implementation == "eager")
        kwargs: dict[str, Any] = {"attention_mask": mask}
        if hasattr(self.config, "num_kv_shared_layers") or hasattr(self.config, "kv_source_layers"):
            kwargs["shared_kv_states"] = {}
        if self.inside:
            kwargs["position_ids"] = rotation
        elif rotation is not None or hasattr(self.model, "rotary_emb"):  # None is an answer too
            kwargs["position_embeddings"] = rotation
        if self.kind in PLACED or self.sums:
            kwargs["position_ids"] = self.where
        if self.kind == "beam" and rotation is None and self.where is not None:
            module = sys.modules[type(self.model).__module__]
            with self._precision():
                kwargs["attention_scaling"] = module.compute_attention_scaling(self.where)
        if self.kind == "llama4_text" and self.where is not None:
            kwargs["cache"] = Before(max(0, int(self.where[0, -1]) + 1 - states.shape[1]))
        if self.kind == "inkling2_text":
            kwargs |= self._reading(layer, states)
        if self.kind == "zaya":
            kwargs["attention_mask"] = {"causal": mask}
        if self.kind.startswith("zamba"):
            kwargs["layer_idx"] = layer
        if self.kind == "gpt_neox_japanese":
            kwargs["position_ids"] = None
        if self.kind in ("openai-gpt", "trocr"):
            kwargs["output_attentions"] = True
        if self.kind == "glm5_next_text":  # it masks by itself, and asks which tokens are padding
            kwargs["attention_mask"] = torch.ones(states.shape[:2], dtype=torch.bool)
        if self.kind in INDEXED:
            n = states.shape[1]
            kwargs |= self._picking(len(states), n, n)
            if mask is not None:
                kwargs["attention_mask"] = mask
        if self.kind in ("dpt", "videomae", "yolos"):
            del kwargs["attention_mask"]  # they know none
        if self.kind in STAGED and implementation == "eager":
            kwargs |= {} if self.kind == "swin" else {"output_attentions": True}
        if self.kind == "dinov3_vit" and rotation is not None:  # one for all heads and images
            kwargs["position_embeddings"] = rotation
        if self.kind == "wavlm":  # without its biases, which depend on states in their own way
            n = states.shape[1]
            kwargs["position_bias"] = states.new_zeros(len(states) * self.heads, n, n)
        if self.kind == "falcon":
            kwargs["alibi"] = None
            if mask is None:  # its eager code adds one, and the last row hides nothing
                kwargs["attention_mask"] = torch.zeros(1, 1, 1, states.shape[1], dtype=self.dtype)
        if (owner := self.owner(layer)) is not None:
            assert isinstance(rotation, tuple)
            keys, query = (tuple(x[:, part] for x in rotation) for part in LAST)
            with self._precision(), self._recording(recorded=True):
                own = {**kwargs, "position_embeddings": keys, "attention_mask": None}
                if self.kind in PLACED:
                    assert self.where is not None
                    own["position_ids"], kwargs["position_ids"] = (self.where[:, p] for p in LAST)
                if self.kind in INDEXED:
                    count = states.shape[1] - 1
                    own |= self._picking(len(states), count, count)
                self.attention(owner)(states[:, :-1], **own)
            _calls.clear()
            kwargs["position_embeddings"], states = query, states[:, -1:]
            kwargs["attention_mask"] = None if mask is None else mask[:, :, -1:]
            if self.kind in INDEXED:
                kwargs |= self._picking(len(states), 1, own["attention_mask"].shape[-1])
        elif self.merges(layer):
            assert isinstance(rotation, tuple)
            kwargs["encoder_hidden_states"], states = states[:, :-1], states[:, -1:]
            kwargs["position_embeddings"] = tuple(x[:, -1:] for x in rotation)
            kwargs["merged_attention_mask"] = kwargs.pop("attention_mask")
        elif self.crosses(layer):
            name = "key_value_states"
            if self.kind in ("blip", "t5gemma"):
                name = "encoder_hidden_states"
            if self.kind == "mllama_text_model":
                name = "cross_attention_states"
            kwargs[name], states = states[:, :-1], states[:, -1:]
        with self._precision(), self._recording(implementation == "recorded"):
            own = (states,) * (3 if self.kind == "ctrl" else 1)  # of values, keys and queries
            if self.kind == "lilt":
                own = states[..., : self.width], states[..., self.width :]
                kwargs["output_attentions"] = True
            output = self.attention(layer)(*own, **kwargs)
        found = _calls[-1] if _calls else {}
        if self.kind == "doge" and found:
            found["bias"] = found["mask"]
        if self.merges(layer):  # its own key comes first
            if implementation == "eager":
                return torch.cat((output[2], output[1]), dim=-1)
            found["key"] = found["key"].roll(-1, dims=2)
        if self.kind == "jetmoe":  # those of one key head together
            each = torch.arange(self.heads).view(-1, self.config.num_key_value_heads).T.flatten()
            found |= {name: found[name][:, each] for name in ("query", "key") if name in found}
            output = (output[0], None if output[1] is None else output[1][:, each])
        if implementation == "eager":
            _calls.clear()
            if self.kind == "inkling2_text":  # tokens make its sinks
                return output[1] / output[1].sum(-1, keepdim=True)
            return found.get("weights", output[2 if self.kind == "lilt" else 1])
        _calls.clear()
        return found

    def _reading(self, layer: int, states: Tensor) -> dict[str, Any]:
        """Positions, and states behind the norm of keys, of which those of queries are given."""
        where = torch.arange(states.shape[1])
        found = {"position_ids": where[None], "relative_distance": where[:, None] - where[None]}
        if self.config.layer_types[layer] == "hybrid":
            block = self.model.layers[layer]
            raw = states / block.q_input_layernorm.weight
            found["key_hidden_states"] = raw * block.k_input_layernorm.weight
            found["value_hidden_states"] = states
        return found

    def _picking(self, batch: int, queries: int, keys: int) -> dict[str, Tensor]:
        """A mask to pick from that hides nothing, and all keys as those picked before."""
        found = {"attention_mask": torch.zeros(1, 1, queries, keys, dtype=self.dtype)}
        if hasattr(self.config, "indexer_types"):  # all keys are picked in these contexts
            found["prev_topk_indices"] = torch.arange(keys).expand(batch, queries, keys)
        return found

    def _biased_call(self, layer: int, states: Tensor, bias: Any, *, eager: bool) -> Any:
        attention = self.attention(layer)
        with self._precision(), self._recording(not eager):
            if self.kind in ("t5", "umt5"):  # its encoder has a config of its own
                attention.config._attn_implementation = self.config._attn_implementation
            own = states[:, -1:] if self.crosses(layer) else states
            output = attention(own, **arguments(self, bias, states, layer, eager=eager))
        found = answer(self, bias, output, _calls, eager=eager)
        _calls.clear()
        return found

    @contextlib.contextmanager
    def _recording(self, recorded: bool) -> Iterator[None]:
        """Attention that records what it is handed, or the module's own eager one."""
        self.config._attn_implementation = "recorded" if recorded else "eager"
        kind = self.config.model_type
        if kind == "t5gemma":
            for part in (self.config.encoder, self.config.decoder):
                part._attn_implementation = self.config._attn_implementation
        if kind == "t5gemma2":
            for part in (self.config.encoder.text_config, self.config.decoder):
                part._attn_implementation = self.config._attn_implementation
        with contextlib.ExitStack() as stack:
            if kind == "falcon" and recorded:
                self.config._attn_implementation = "sdpa"
                name = "scaled_dot_product_attention"
                stack.enter_context(mock.patch.object(torch.nn.functional, name, _record_falcon))
            if kind == "wavlm":
                name = "multi_head_attention_forward"
                stack.enter_context(mock.patch.object(torch.nn.functional, name, _record_whole))
            elif kind in SOFTMAX and recorded:
                stack.enter_context(
                    mock.patch.object(torch.nn.functional, "softmax", _record_softmax)
                )
            if kind == "deberta" and recorded:  # three states of a longer context see all rows
                module = sys.modules[type(self.model).__module__]
                stack.enter_context(mock.patch.object(module, "compute_attention_span", _span))
            if kind in SHAW and recorded and self.where is not None:
                module = sys.modules[type(self.model).__module__]
                name = "_apply_relative_key_position_encoding"
                stack.enter_context(mock.patch.object(module, name, shaw(self.where)))
            if kind in WAVES and recorded and self.where is not None:
                where = waves(self, self.where)[1]
                owner = sys.modules[type(self.model).__module__]
                if kind == "parakeet_encoder":
                    owner, name = owner.ParakeetEncoderAttention, "_rel_shift"
                    stack.enter_context(mock.patch.object(owner, name, unshifted(where)))
                else:
                    name = "_apply_relative_position_encoding"
                    stack.enter_context(mock.patch.object(owner, name, unshifted_whole(where)))
            if kind in ("gpt_neo", *OWN[:2]) and not recorded:
                for layer in range(self.layers):
                    module = self.attention(layer)
                    stack.enter_context(mock.patch.object(module, "_attn", module.own))
            yield

    def masks(self, n: int) -> list[Tensor | None]:
        """The additive mask each layer gets from the model for a context of n tokens."""
        if self.config.model_type == "whisper":
            return self._masks_of_both(n)
        if self.kind in SEQ2SEQ:
            return self._masks_of_stacks(n)
        if self.kind == "t5gemma2":  # one token of the decoder sees all
            states = torch.ones(1, n, self.width, dtype=self.dtype)
            with torch.no_grad(), self._recording(recorded=True):
                self.model.encoder.text_model(inputs_embeds=states)
            found = [call["mask"] for call in _calls]
            _calls.clear()
            return found + [None] * (self.layers - len(found))
        if self.two_towers:
            with torch.no_grad(), self._recording(recorded=True):
                self.model.text_model(input_ids=torch.zeros(1, n, dtype=torch.long))
            found = [call["mask"] for call in _calls]
            _calls.clear()
            return found + [None] * (self.layers - len(found))
        config = self.config
        if self.kind == "longt5":
            return [band(n, config.local_radius, self.dtype)] * self.layers
        if self.kind in ("blip", "layoutlmv3", "longformer", "squeezebert"):
            return [None] * self.layers  # no class that AutoModel opens hides anything
        if not hasattr(config, "vocab_size") or hasattr(config, "conv_dim") or self.kind == "beit":
            return [None] * self.layers  # images and sound
        if self.biased:
            return [None] * self.layers  # the last query sees all
        if self.kind == "doge" and self.config.sliding_window is None:
            return [None] * self.layers  # what it hands over has biases in it
        with torch.no_grad(), self._recording(recorded=True):
            # some models take no embeddings, or not these alone
            by_ids = self.kind in ("clip_text_model", "esmc", "siglip_text_model", "trocr")
            if by_ids or hasattr(self.config, "vocab_size_per_layer_input"):
                self.model(input_ids=torch.ones(1, n, dtype=torch.long))
            else:
                size = self.model.get_input_embeddings().embedding_dim
                delayed = self.kind == "voxtral_realtime_text"
                delay = {"t_cond": torch.zeros(1, 1, size, dtype=self.dtype)} if delayed else {}
                with self._precision():  # some models route in float32
                    self.model(inputs_embeds=torch.ones(1, n, size, dtype=self.dtype), **delay)
        called = self.attending
        if self.kind == "inkling2_text":  # it looks at earlier layers, too
            _calls[:] = [call for call in _calls if "position_bias" in call]
        if self.kind == "mllama_text_model":  # text passes over layers that look at images
            called = [layer for layer in called if not self.crosses(layer)]
        each = len(_calls) // len(called)  # DiffLlama's layers call it twice
        found = dict(zip(called, (c["mask"] for c in _calls[::each]), strict=True))
        if self.kind == "doge":  # its biases are not negative
            found = {at: m.masked_fill(m >= 0, 0.0)[:, :1] for at, m in found.items()}
        _calls.clear()
        return [found.get(layer) for layer in range(self.layers)]

    def _masks_of_both(self, n: int) -> list[Tensor | None]:
        """The encoder's, which runs at one length only and hides nothing, then the decoder's."""
        states = torch.ones(1, n, self.width, dtype=self.dtype)
        audio = torch.ones(1, self.config.num_mel_bins, 2 * self.learned, dtype=self.dtype)
        with torch.no_grad(), self._recording(recorded=True):
            self.model.encoder(audio)
            assert all(call["mask"] is None for call in _calls)
            self.model.decoder(inputs_embeds=states, encoder_hidden_states=states)
        found = [call["mask"] for call in _calls]
        _calls.clear()
        return found

    def _masks_of_stacks(self, n: int) -> list[Tensor | None]:
        """The encoder's, then the decoder's and those of what reads the encoder."""
        states = torch.ones(1, n, self.width, dtype=self.dtype)
        with torch.no_grad(), self._recording(recorded=True):
            if self.kind == "fsmt":  # it hides nothing where it keeps keys
                ids = torch.full((1, n), 3)
                with self._precision():
                    self.model(input_ids=ids, decoder_input_ids=ids, use_cache=False)
                found = [call["mask"] for call in _calls]
                _calls.clear()
                return found
            if self.kind == "speech_to_text":  # it takes no embeddings, and every fourth frame
                sound = states.new_ones(1, 4 * n, self.config.input_feat_per_channel)
                self.model.encoder(sound)
                given = {"input_ids": torch.ones(1, n, dtype=torch.long)}
            elif self.kind == "moonshine":  # its encoder hides nothing from sound of one length
                _calls.extend([{"mask": None}] * self.config.encoder_num_hidden_layers)
                given = {"inputs_embeds": states}
            else:
                given = {"inputs_embeds": states}
                self.model.encoder(**given)
            self.model.decoder(**given, encoder_hidden_states=states)
        found = [call["mask"] for call in _calls]
        _calls.clear()
        return found

    def visible(self, n: int) -> list[Tensor]:
        """Per layer, which of the n keys the last query sees; none without softmax attention."""
        attending = self.attending
        masks = [
            torch.ones(n, dtype=torch.bool) if m is None else m[0, 0, -1] == 0
            for m in self.masks(n)
        ]
        return [m if i in attending else torch.zeros_like(m) for i, m in enumerate(masks)]


class InOrder(torch.nn.Module):
    """In the place of a router: every token gets all experts, one after the other."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, states: Tensor) -> Tensor:
        return -torch.arange(self.experts, dtype=states.dtype).expand(len(states), -1)


def unit(states: Tensor) -> Tensor:
    """States of one size, where what reads them divides it out."""
    return states / states.square().mean(dim=-1, keepdim=True).sqrt()


def held(model: Any) -> Any:
    """The language model beside a tower for images, or the model itself."""
    name = (
        "text_model"
        if model.config.model_type in ("granite_docling", "idefics3")
        else "language_model"
    )
    return getattr(model, "model" if model.config.model_type == "trocr" else name, model)


@dataclass
class Before:
    """A cache that says how many tokens came before, so that the last one has its real position."""

    tokens: int

    def get_seq_length(self, _: int) -> int:
        return self.tokens

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value


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
