"""MiniMax M3: headwise QK norm, gains 1 + weight; on sparse layers an indexer picks blocks of keys.

A query sees `index_topk_blocks` blocks, its own among them, of which it may be the first token. Its
code turns the whole head, whatever `rotary_dim` says, unless `partial_rotary_factor` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config

SPARSE, OLD = "minimax_m3_sparse", "sparse_attention_config"


def _stated(config: Config) -> dict[str, Any]:
    """The older object of keys, or nothing."""
    old = config.get(OLD) or {}
    if not isinstance(old, dict):
        msg = f"{OLD} in config.json must be an object. Got {shown(repr(old))}."
        raise CheckpointError(msg)
    return old


def _kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`layer_types`, or the older list of 0 and 1; every layer sees all keys without them."""
    types = config.get("layer_types")
    older = _stated(config).get("sparse_attention_freq")
    if types is None and older is not None:
        if not isinstance(older, list):
            msg = (
                f"sparse_attention_freq of {OLD} in config.json must list the layers. "
                f"Got {shown(repr(older))}."
            )
            raise CheckpointError(msg)
        types = [SPARSE if sparse else FULL for sparse in older]
    types = [FULL] * layers if types is None else types
    known = isinstance(types, list) and all(kind in (FULL, SPARSE) for kind in types)
    if not known or len(types) != layers:
        msg = (
            f"layer_types in config.json must list {layers} layers, {FULL} or {SPARSE}. "
            f"Got {shown(repr(types))}."
        )
        raise CheckpointError(msg)
    return tuple(LayerKind(kind) for kind in types)


def _picks(config: Config, kind: LayerKind) -> int | None:
    """All but one of the blocks, and the one token that the query's own block has at least."""
    if kind.layer_type != SPARSE:
        return None
    old = _stated(config)
    size, blocks = (
        integer(old, older) if older in old else integer(config, key, absent)
        for older, key, absent in (
            ("sparse_block_size", "index_block_size", 128),
            ("sparse_topk_blocks", "index_topk_blocks", 16),
        )
    )
    return (blocks - 1) * size + 1


FAMILY = Decoder(
    bias=False,
    names={
        r"self_attn\.(indexer\..+|index_[qk]_(proj|norm)\.weight)": ledger.INDEXER,
    },
    gain_offset=1.0,
    qk_norm="headwise",
    heads=64,
    head_dim=128,
    key_heads=4,
    partial=1.0,
    rope=RopeRule(theta=5000000.0),
    window=_kinds,
    picks=_picks,
).family(
    "minimax_m3_vl_text",
    "MiniMaxM3VLText",
    "headwise QK norm, gains 1 + weight; an indexer picks blocks of keys on sparse layers",
)
