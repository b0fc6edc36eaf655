"""Inkling 2, text only: queries, keys and what makes biases are shortened to norms the config says.

A query is a learned scale of each coordinate times a projection, and no longer than
`qk_l2_clip_threshold`; a key, made of several tokens by a convolution, is no longer either. Which
of the two caps a query is the smaller one; of a key nothing but its clip is used, which is loose
where keys are always shorter. The biases are those of Inkling, r no longer than
`rel_l2_clip_threshold`. Shortening keeps directions, and so stays in every ball about 0. A query's
sink is made by its token and may take any share of a row: ceilings are those without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import widest_difference, with_width
from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.inkling_text import (
    FULL,
    SLIDING,
    growth,
    layer_kinds,
    max_positions,
    window,
)
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.checkpoint import to_float64
from dispersion.config import integer, positive
from dispersion.enclosure import Enclosure
from dispersion.head import Head
from dispersion.norms import projection_ball, unit_ball

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import BallImage

    Config = Mapping[str, Any]

CAP = "L2 clip"
_UP = 1 + 2.0**-40
NAMING = ledger.Naming(
    stack="layers",
    module="attn",
    near=("attn_norm", "q_input_norm"),
    inside={
        r"attn\.(wv_dv|wo_ud)\.weight|attn\.v_sconv\.\w+|v_input_norm\.weight": ledger.VALUE,
        r"attn\.gate_attn\.weight": ledger.GATE,
        r"attn\.k_sconv\.\w+|k_input_norm\.weight": ledger.BEFORE_NORM,
        r"attn\.attn_sink_proj\.weight": "sinks that tokens make; ceilings are those without",
        r"(attn|mlp)_sconv\.\w+|mlp_norm\.weight": ledger.AFTER,
        r"mlp\..+": ledger.FEED_FORWARD,
    },
    outside={
        r"attn_res\..+": "softmax over earlier layers of one token",
        r"embed\.weight|embed_norm\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?unembed\..+": ledger.HEAD,
    },
    softmax=r"w[qk]_d[uv]\.weight",
)


@dataclass(frozen=True, kw_only=True)
class ClippedAttention(Attention):
    """One layer; `rank` and `extent` are those of the profiles of its biases.

    Attributes:
        limits: the largest norms of queries and keys, and of what makes biases.
        rank, extent: see above.
    """

    limits: tuple[float, float]
    rank: int
    extent: int

    @property
    def names(self) -> dict[str, tuple[int, ...]]:
        """The tensors beside the projections of queries and keys."""
        heads, root = self.query.heads, self.module
        return {
            f"{root}.q_l2_clip.scale": (heads, self.head_dim),
            f"{root}.rel_l2_clip.scale": (heads, self.rank),
            f"{root}.wr_du.weight": (heads * self.rank, self.width),
            f"{root}.rel_logits_proj.proj": (self.rank, self.extent),
        }

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | self.names

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head), each with the width of its biases.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.input_norm is not None
        assert self.input_norm.gain is not None

        def read(name: str, head: int | None = None, size: int = 0) -> NDArray[np.float64]:
            if head is None:
                return to_float64(checkpoint.read(name), tensor=name)
            part = slice(head * size, (head + 1) * size)
            return to_float64(checkpoint.read(name, part), tensor=name, first_row=part.start)

        scale, more, rows, profile = self.names
        gain, profiles = read(self.input_norm.gain), read(profile)
        if self.window is None:  # keys further away get no bias
            profiles = np.column_stack([profiles, np.zeros(self.rank)])
        scales, others = read(scale), read(more)
        key = unit_ball(self.head_dim, radius=Enclosure.exact(self.limits[0]), cap=CAP)
        group = self.query.heads // self.key.heads
        for head in range(self.query.heads):
            read(self.key.weight, head // group, self.head_dim)
            made = _scaled(read(self.query.weight, head, self.head_dim), scales[head], gain)
            reads = _scaled(read(rows, head, self.rank), others[head], gain)
            limit = unit_ball(self.rank, radius=Enclosure.exact(self.limits[1]), cap=CAP)
            width = min(widest_difference(ball, profiles) for ball in (reads, limit))
            limit = unit_ball(self.head_dim, radius=Enclosure.exact(self.limits[0]), cap=CAP)
            query = made if made.norm_upper <= self.limits[0] else limit
            built = Head(query, key, self.scale, window=self.window, growth=self.growth)
            yield head, head // group, with_width(built, width, common=False)


def _scaled(
    rows: NDArray[np.float64], scale: NDArray[np.float64], gain: NDArray[np.float64]
) -> BallImage:
    """The image of a normalised state under a projection with a scale of each output."""
    found = projection_ball(rows * scale[:, None], norm="rms", gain=gain)
    error = found.row_sizes * 2.0**-52
    if found.row_error is not None:
        error = error + found.row_error
    return replace(found, row_error=error * _UP)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    kinds = layer_kinds({**config, "local_layer_ids": None}, layers)
    return assemble(
        checkpoint,
        NAMING,
        lambda prefix, i: _describe(config, f"{prefix}layers.{i}.", i, kinds[i]),
        family="inkling2_text",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": max_positions({"max_position_embeddings": 1048576, **config})},
    )


def _describe(config: Config, root: str, layer: int, kind: str) -> ClippedAttention:
    module, swa = f"{root}attn", "swa_" if kind == SLIDING else ""
    heads = integer(config, f"{swa}num_attention_heads", 48)
    key_heads = integer(config, f"{swa}num_key_value_heads", 8)
    split(heads, key_heads, f"{swa}num_attention_heads", f"{swa}num_key_value_heads")
    size, seen = integer(config, f"{swa}head_dim", 128), window(config, kind, 1024)
    norm = "q_input_norm" if kind == FULL else "attn_norm"
    return ClippedAttention(
        module=module,
        layer=layer,
        width=integer(config, "hidden_size"),
        head_dim=size,
        query=Projection(f"{module}.wq_du.weight", None, heads),
        key=Projection(f"{module}.wk_dv.weight", None, key_heads),
        input_norm=Norm("rms", f"{root}{norm}.weight"),
        scale=inverse_root(size),
        window=seen,
        growth=growth(config, kind, 128000),
        known_inputs=False,
        limits=(
            positive(config, "qk_l2_clip_threshold", 22.627416997969522),
            positive(config, "rel_l2_clip_threshold", 8.0),
        ),
        rank=integer(config, "d_rel", 16),
        extent=integer(config, "rel_extent", 1024) if seen is None else seen,
    )


FAMILY = Family(
    "inkling2_text",
    ("inkling2_text",),
    ("Inkling2",),
    "queries and keys of clipped norms, biases by distance that queries make",
    read,
)
