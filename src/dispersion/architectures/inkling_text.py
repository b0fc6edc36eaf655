"""Inkling, text only: headwise QK norm behind a convolution of keys, and biases that queries make.

Nothing turns. The key at distance δ gets the bias r·p_δ, r = W_r x of the query's own normalised
state and p_δ a learned profile, none from `rel_extent` on. Two biases of a row differ by r·(p_δ −
p_δ′), which the norm in front caps. On full layers query and bias both grow with the position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import widest_difference, with_width
from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import divided
from dispersion.architectures.windows import checked_kinds
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError
from dispersion.growth import LateGrowth
from dispersion.norms import projection_ball

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

    Config = Mapping[str, Any]

FULL, SLIDING = "hybrid", "hybrid_sliding"


@dataclass(frozen=True)
class Names:
    """How a file calls an attention, its norm and its projections."""

    module: str
    norm: str
    query: str
    key: str
    reads: str


PLAIN = Names("self_attn", "input_layernorm", "q_proj", "k_proj", "r_proj")
OLD = Names("attn", "attn_norm", "wq_du", "wk_dv", "wr_du")
OUTSIDE = {
    r"(embed_tokens\.)?(weight|embed_norm\.weight)|embed\.weight": ledger.EMBEDDING,
    r"norm\.weight": ledger.FINAL_NORM,
    r"(.+\.)?(lm_head|unembed)\..+": ledger.HEAD,
    r"(.+\.)?mtp\..+": ledger.DRAFT,
}


@dataclass(frozen=True, kw_only=True)
class ReadingAttention(Attention):
    """One layer; `reads` names W_r, `profiles` the columns p_δ.

    Attributes:
        rank: coordinates of r.
        extent: distances with a profile.
        beyond: whether keys may stand further away, where the bias is 0.
    """

    reads: str
    profiles: str
    rank: int
    extent: int
    beyond: bool

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | {
            self.reads: (self.query.heads * self.rank, self.width),
            self.profiles: (self.rank, self.extent),
        }

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head), each with the width of its biases.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        profiles = to_float64(checkpoint.read(self.profiles), tensor=self.profiles)
        if self.beyond:
            profiles = np.column_stack([profiles, np.zeros(self.rank)])
        name = self.input_norm.gain
        gain = to_float64(checkpoint.read(name), tensor=name)
        for index, kv_head, head in super().heads(checkpoint):
            part = slice(index * self.rank, (index + 1) * self.rank)
            rows = to_float64(
                checkpoint.read(self.reads, part), tensor=self.reads, first_row=part.start
            )
            reads = projection_ball(rows, norm="rms", gain=gain)
            yield index, kv_head, with_width(head, widest_difference(reads, profiles), common=False)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a file of either way of naming."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    kinds = layer_kinds(config, layers)
    old = any(f".{OLD.module}.{OLD.query}." in name for name in checkpoint.names)
    names = OLD if old else PLAIN

    def describe(prefix: str, layer: int) -> ReadingAttention:
        return _describe(config, names, f"{prefix}layers.{layer}.", layer, kinds[layer])

    return assemble(
        checkpoint,
        _naming(names),
        describe,
        family="inkling_text",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": max_positions(config)},
    )


def max_positions(config: Config) -> int:
    """The longest context, by either name."""
    key = "model_max_length"
    known = "max_position_embeddings"
    return integer(config, key if config.get(key) is not None else known, 131072)


def _naming(names: Names) -> ledger.Naming:
    module = names.module
    return ledger.Naming(
        stack="layers",
        module=module,
        near=(names.norm,),
        inside={
            rf"{module}\.(v_proj|o_proj|wv_dv|wo_ud|v_sconv(\.conv1d)?)\.weight": ledger.VALUE,
            rf"{module}\.k_sconv(\.conv1d)?\.weight": ledger.BEFORE_NORM,
            r"(attn|mlp)_sconv(\.conv1d)?\.weight": ledger.AFTER,
            r"(post_attention_layernorm|mlp_norm)\.weight": ledger.AFTER,
            r"mlp\..+": ledger.FEED_FORWARD,
        },
        outside=OUTSIDE,
        softmax=rf"({names.query}|{names.key})\.weight",
    )


def layer_kinds(config: Config, layers: int) -> list[str]:
    """Layer types, from a list of them or of the layers that slide.

    Raises:
        CheckpointError: a list has another length or holds something else.
        UnsupportedError: a type is not known.
    """
    types = config.get("layer_types")
    if types is None:
        local = config.get("local_layer_ids")
        if local is None:
            local = [i for i in range(layers) if (i + 1) % 6]
        if not isinstance(local, list):
            msg = f"local_layer_ids in config.json must be a list. Got {shown(repr(local))}."
            raise CheckpointError(msg)
        return [SLIDING if i in local else FULL for i in range(layers)]
    return checked_kinds(config, layers, (FULL, SLIDING))


def sizes(config: Config, kind: str) -> tuple[int, int, int]:
    """Heads, key heads and head_dim of a layer type."""
    swa = "swa_" if kind == SLIDING else ""
    heads = integer(config, f"{swa}num_attention_heads", 64)
    key_heads = integer(config, f"{swa}num_key_value_heads", 16 if swa else 8)
    split(heads, key_heads, f"{swa}num_attention_heads", f"{swa}num_key_value_heads")
    return heads, key_heads, integer(config, f"{swa}head_dim", 128)


def window(config: Config, kind: str, absent: int = 512) -> int | None:
    """How many keys a query sees, or None for all."""
    key = "sliding_window" if config.get("sliding_window") is not None else "sliding_window_size"
    return integer(config, key, absent) if kind == SLIDING else None


def growth(config: Config, kind: str, floor: int | None = None) -> LateGrowth | None:
    """What positions multiply queries and biases of a layer by; `floor` where it is not stated."""
    key = "log_scaling_n_floor"
    stated = config.get(key, floor)
    if kind == SLIDING or stated is None:
        return None
    alpha = config.get("log_scaling_alpha", 0.1)
    if alpha == 0:
        return None
    rate = positive(config, "log_scaling_alpha", 0.1)
    return LateGrowth(rate, positive({key: stated}, key))


def _describe(config: Config, names: Names, root: str, layer: int, kind: str) -> ReadingAttention:
    module = f"{root}{names.module}"
    heads, key_heads, size = sizes(config, kind)
    seen = window(config, kind)
    return ReadingAttention(
        module=module,
        layer=layer,
        width=integer(config, "hidden_size"),
        head_dim=size,
        query=Projection(
            f"{module}.{names.query}.weight",
            None,
            heads,
            norm=Norm("rms", f"{module}.q_norm.weight"),
        ),
        key=Projection(
            f"{module}.{names.key}.weight",
            None,
            key_heads,
            norm=Norm("rms", f"{module}.k_norm.weight"),
        ),
        input_norm=Norm("rms", f"{root}{names.norm}.weight"),
        scale=divided(Enclosure.exact(1.0), size),
        window=seen,
        growth=growth(config, kind),
        known_inputs=False,
        reads=f"{module}.{names.reads}.weight",
        profiles=f"{module}.rel_logits_proj.proj",
        rank=integer(config, "d_rel", 16),
        extent=integer(config, "rel_extent", 1024) if seen is None else seen,
        beyond=seen is None,
    )


FAMILY = Family(
    "inkling_text",
    ("inkling_text",),
    ("Inkling",),
    "headwise QK norm, keys convolved in front of it, biases by distance that queries make",
    read,
)
