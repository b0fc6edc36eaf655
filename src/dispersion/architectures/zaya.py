"""ZAYA: convolutions make queries and keys, then an L2 norm gives all of them one size.

Queries have the norm √head_dim at most, keys √head_dim·|temp| with one learned number for each key
head, whatever the convolutions over earlier tokens mix. RoPE on a part comes behind and keeps
norms, so that nothing else of queries and keys enters a bound: it is attained by a key along the
query and one against it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.still_attention import StillAttention
from dispersion.architectures.windows import checked_kinds
from dispersion.balls import sqrt_enclosure
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError
from dispersion.head import BallImage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

FULL, SLIDING = "hybrid", "hybrid_sliding"
KEEPING = (None, "default", "linear", "dynamic", "llama3")  # rotations whose factor is 1
CAP = "headwise L2 norm"
NAMING = ledger.Naming(
    stack="layers",
    module="self_attn",
    near=("input_layernorm",),
    inside={
        r"self_attn\.(o_proj|qkv_proj\.v_proj_\w+)\.(weight|bias)": ledger.VALUE,
        r"self_attn\.qkv_proj\.conv_qk_(depthwise|grouped)\.(weight|bias)": ledger.BEFORE_NORM,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.weight": ledger.AFTER,
        r"post_(attention|mlp)_residual_scale\..+": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight|input_hidden_states_(bias|scale)": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
    softmax=r"qkv_proj\.[qk]_proj\.(weight|bias)",
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    key_heads, size = integer(config, "num_key_value_heads", 2), integer(config, "head_dim", 128)
    split(heads, key_heads, "num_attention_heads", "num_key_value_heads")
    bias = flag(config, "attention_bias", default=False)
    windows = _windows(config, layers)
    _check_rotation(config)

    def describe(prefix: str, layer: int) -> StillAttention:
        root = f"{prefix}layers.{layer}."
        module = f"{root}self_attn"
        query, key = (
            Projection(
                f"{module}.qkv_proj.{s}_proj.weight",
                f"{module}.qkv_proj.{s}_proj.bias" if bias else None,
                count,
                norm=Norm("rms", None),
            )
            for s, count in (("q", heads), ("k", key_heads))
        )
        temperatures = f"{module}.qk_norm.temp"
        return StillAttention(
            module=module,
            layer=layer,
            width=width,
            head_dim=size,
            query=query,
            key=key,
            input_norm=Norm("rms", f"{root}input_layernorm.weight"),
            scale=inverse_root(size),
            window=windows[layer],
            known_inputs=False,
            query_ball=partial(_ball, size, None),
            key_ball=partial(_ball, size, temperatures),
            more={temperatures: (key_heads,)},
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="zaya",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_position_embeddings", 131072)},
    )


def _ball(size: int, temperatures: str | None, checkpoint: Checkpoint, head: int) -> BallImage:
    factor = 1.0
    if temperatures is not None:
        factor = float(to_float64(checkpoint.read(temperatures), tensor=temperatures)[head])
    return BallImage(factor * np.eye(size), radius=sqrt_enclosure(size), cap=CAP)


def _windows(config: Config, layers: int) -> list[int | None]:
    """How many keys a query sees in each layer, or None for all."""
    types = [FULL] * layers
    if config.get("layer_types") is not None:
        types = checked_kinds(config, layers, (FULL, SLIDING))
    return [integer(config, "sliding_window") if kind == SLIDING else None for kind in types]


def _check_rotation(config: Config) -> None:
    """A factor of cos and sin would change norms.

    Raises:
        UnsupportedError: a rotation may have one.
    """
    stated = config.get("rope_parameters") or {}
    own = [stated, *stated.values()] if isinstance(stated, dict) else []
    for entry in own:
        kind = entry.get("rope_type", entry.get("type")) if isinstance(entry, dict) else None
        if kind not in KEEPING or config.get("rope_scaling"):
            got = shown(repr(config.get("rope_scaling") or kind))
            msg = f"rope_type must be one without a factor for this model. Got {got}: unsupported."
            raise UnsupportedError(msg)


FAMILY = Family(
    "zaya",
    ("zaya",),
    ("Zaya",),
    "convolved queries and keys behind an L2 norm, a learned factor for each key head",
    read,
)
