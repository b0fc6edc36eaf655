"""TimesFM 2.5: norms of queries and keys behind the rotation, then softplus of a vector on queries.

Tokens are patches of a time series.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.still_attention import StillAttention
from dispersion.balls import product, sqrt_enclosure
from dispersion.checkpoint import to_float64
from dispersion.config import flag, integer
from dispersion.head import BallImage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint

FACTOR = 1.442695041  # of queries, as the code writes 1/ln 2
CAP = "headwise QK norm"
# Above 20 code takes x for softplus(x), which is 1e-10 of it below; else a few roundings.
LINEAR, ROUNDING = 2.0**-32, 2.0**-46
NAMING = ledger.Naming(
    stack="layers",
    module="self_attn",
    near=("input_layernorm",),
    inside={
        r"self_attn\.[vo]_proj\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"(post_attention|pre_feedforward|post_feedforward)_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"input_ff_layer\..+": ledger.EMBEDDING,
        r"(.+\.)?output_projection_.+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    config = checkpoint.config
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads", 16)
    key_heads, size = integer(config, "num_key_value_heads", 16), integer(config, "head_dim", 80)
    split(heads, key_heads, "num_attention_heads", "num_key_value_heads")
    bias = flag(config, "attention_bias", default=False)

    def describe(prefix: str, layer: int) -> StillAttention:
        root = f"{prefix}layers.{layer}."
        module = f"{root}self_attn"
        query, key = (
            Projection(
                f"{module}.{s}_proj.weight",
                f"{module}.{s}_proj.bias" if bias else None,
                count,
                norm=Norm("rms", f"{module}.{s}_norm.weight"),
            )
            for s, count in (("q", heads), ("k", key_heads))
        )
        gains = [f"{module}.{s}_norm.weight" for s in "qk"]
        scaling = f"{module}.scaling"
        return StillAttention(
            module=module,
            layer=layer,
            width=width,
            head_dim=size,
            query=query,
            key=key,
            input_norm=Norm("rms", f"{root}input_layernorm.weight"),
            scale=product(FACTOR, inverse_root(size)),
            known_inputs=False,
            query_ball=partial(_ball, gains[0], scaling),
            key_ball=partial(_ball, gains[1], None),
            more={scaling: (size,)},
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="timesfm2_5",
        layers=integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS),
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_position_embeddings", 16384)},
    )


def _ball(gain: str, scaling: str | None, checkpoint: Checkpoint, _: int) -> BallImage:
    """√head_dim · diag(gain · softplus(scaling)); every head has the same."""
    factors = to_float64(checkpoint.read(gain), tensor=gain)
    error = None
    if scaling is not None:
        soft, relative = _softplus(to_float64(checkpoint.read(scaling), tensor=scaling))
        factors = factors * soft
        error = np.abs(factors) * relative
    return BallImage(
        np.diag(factors), radius=sqrt_enclosure(len(factors)), row_error=error, cap=CAP
    )


def _softplus(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """ln(1 + eˣ), and how far it may be from that of models, relative to itself."""
    value = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return value, np.where(x > 19.9, LINEAR, ROUNDING)


FAMILY = Family(
    "timesfm2_5",
    ("timesfm2_5",),
    ("TimesFm2_5",),
    "headwise QK norm behind RoPE, softplus of a vector on queries",
    read,
)
