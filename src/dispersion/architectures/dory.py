"""Dory (nGPT): queries and keys of norm 1, and a squared vector on queries behind the rotation.

A file holds attention and feed-forward part of a layer side by side, or (as first published) as two
layers in turn, of which the even ones attend. The config counts them apart either way.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.still_attention import StillAttention
from dispersion.architectures.windows import FULL, SLIDING, LayerKind, kinds_of
from dispersion.balls import product, quotient, sqrt_enclosure
from dispersion.checkpoint import to_float64
from dispersion.cholesky import UNIT_ROUNDOFF
from dispersion.config import flag, integer, positive
from dispersion.head import BallImage
from dispersion.norms import unit_ball

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure

    Config = Mapping[str, Any]

CAP = "headwise L2 norm"
PAIRS = re.compile(r"(.*\.)?layers\.\d+\.mixer\.")


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read either layout of layers."""
    config = checkpoint.config
    paired = any(PAIRS.match(name) for name in checkpoint.names)
    module = "mixer" if paired else "self_attn"
    kinds, step = _kinds(config), 2 if paired else 1
    layers = len(kinds) * step
    positions = config.get("max_position_embeddings")

    def describe(prefix: str, layer: int) -> StillAttention:
        return _attention(config, f"{prefix}layers.{layer}.{module}", layer, kinds[layer // step])

    return assemble(
        checkpoint,
        _naming(module),
        describe,
        family="dory",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={
            "max_positions": None
            if positions is None
            else integer(config, "max_position_embeddings")
        },
        without=frozenset(i for i in range(layers) if i % step),
    )


def _kinds(config: Config) -> tuple[LayerKind, ...]:
    """The attention layers alone; where "mlp" stands between them, the config counts those too."""
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    stated = config.get("layer_types")
    if isinstance(stated, list) and "mlp" in stated:
        config, layers = {**config, "layer_types": stated[::2]}, layers // 2
    types = [SLIDING if (i + 1) % 4 else FULL for i in range(layers)]
    return kinds_of(config, types, integer(config, "sliding_window", 1024))


def _naming(module: str) -> ledger.Naming:
    return ledger.Naming(
        stack="layers",
        module=module,
        inside={
            rf"{module}\.[vo]_proj\.(weight|bias)": ledger.VALUE,
            rf"{module}\.(g_proj\.weight|gate_proj\.weight|s_gate)": ledger.GATE,
            r"mlp\..+": ledger.FEED_FORWARD,
            r"lambda_[12]|(attn|mlp)_alpha": "rate of the residual stream",
        },
        outside={
            r"(embeddings|embed_tokens)\.weight": ledger.EMBEDDING,
            r"(.+\.)?lm_head\..+": ledger.HEAD,
        },
        softmax=r"([qk]_proj\.(weight|bias)|sqk)",
    )


def _attention(config: Config, module: str, layer: int, kind: LayerKind) -> StillAttention:
    heads = integer(config, "num_attention_heads", 16)
    key_heads = integer(config, "num_key_value_heads", 4)
    split(heads, key_heads, "num_attention_heads", "num_key_value_heads")
    size = integer(config, "head_dim", 256)
    bias = flag(config, "attention_bias", default=False)
    query, key = (
        Projection(f"{module}.{s}_proj.weight", f"{module}.{s}_proj.bias" if bias else None, n)
        for s, n in (("q", heads), ("k", key_heads))
    )
    name = f"{module}.sqk"
    return StillAttention(
        module=module,
        layer=layer,
        width=integer(config, "hidden_size"),
        head_dim=size,
        query=query,
        key=key,
        input_norm=None,  # whatever stands there: norms of queries and keys follow
        scale=_scale(config, size),
        window=kind.window,
        known_inputs=False,
        query_ball=partial(_query_ball, name, size),
        key_ball=lambda *_: unit_ball(size, cap=CAP),
        more={name: (heads * size,)},
    )


def _scale(config: Config, size: int) -> Enclosure:
    """Enclose √head_dim / initializer_range²: what multiplies logits beside the square of sqk."""
    spread = positive(config, "initializer_range", 0.0177)
    return quotient(sqrt_enclosure(size), product(spread, spread))


def _query_ball(name: str, size: int, checkpoint: Checkpoint, head: int) -> BallImage:
    part = slice(head * size, (head + 1) * size)
    factor = to_float64(checkpoint.read(name, part), tensor=name, first_row=part.start)
    square = factor * factor
    return BallImage(np.diag(square), row_error=2 * UNIT_ROUNDOFF * square, cap=CAP)


FAMILY = Family(
    "dory",
    ("dory",),
    ("Dory",),
    "queries and keys of norm 1 behind RoPE, queries times a squared vector",
    read,
)
