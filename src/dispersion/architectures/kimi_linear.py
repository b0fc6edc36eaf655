"""Kimi Linear: latent attention in which nothing turns, between layers of linear attention.

The part of a key that other models turn still comes of the hidden state itself, and is shared by
all heads; the two parts are covered by one ellipsoid as there (`latent.py`). Nothing is witnessed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.latent_reader import Latent
from dispersion.architectures.windows import FULL
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

KEY = "linear_attn_config"


def _types(config: Mapping[str, Any], layers: int) -> list[str]:
    """Every fourth layer attends, or those that `linear_attn_config` lists, counted from 1."""
    stated = config.get(KEY) or {}
    lists = {}
    if isinstance(stated, dict):
        lists = {k: stated.get(k) for k in ("full_attn_layers", "kda_layers")}
    if not isinstance(stated, dict) or None in lists.values():
        if stated and isinstance(stated, dict) and any(v is not None for v in lists.values()):
            msg = f"{KEY} in config.json must list both full_attn_layers and kda_layers. Got one."
            raise CheckpointError(msg)
        return [FULL if i and i % 4 == 0 else LINEAR for i in range(layers)]
    full: Any = lists["full_attn_layers"]
    linear: Any = lists["kda_layers"]
    both = [*full, *linear] if isinstance(full, list) and isinstance(linear, list) else []
    if sorted(map(str, both)) != sorted(map(str, range(1, layers + 1))):
        msg = (
            f"full_attn_layers and kda_layers of {KEY} in config.json must list layers 1 to "
            f"{layers} once. Got {shown(repr(full))} and {shown(repr(linear))}."
        )
        raise CheckpointError(msg)
    attending = set(both[: len(full)])
    return [FULL if i + 1 in attending else LINEAR for i in range(layers)]


RULES = Latent(
    rotates=False,
    window=Mixed(_types).rule(),
    softmax=r"kv_[ab]_proj(_with_mqa)?\.weight",
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that turns nothing."""
    config = {"q_lora_rank": None, **checkpoint.config}
    if config.get("mla_use_nope") is False:
        msg = "mla_use_nope in config.json must be true for kimi_linear. Got false: not supported."
        raise UnsupportedError(msg)
    if config.get("max_position_embeddings") is None:
        config["max_position_embeddings"] = config.get("model_max_length")
    return RULES.read("kimi_linear", replace(checkpoint, config=config), layers)


FAMILY = replace(
    RULES.family(
        "kimi_linear",
        ("kimi_linear",),
        "KimiLinear",
        "latent attention without rotation; linear layers are skipped",
    ),
    read=read,
)
