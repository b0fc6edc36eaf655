"""Nemotron H: one mixer a layer, which is attention without rotation, Mamba 2 or feed-forward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.windows import Config
    from dispersion.checkpoint import Checkpoint

PATTERN = {"M": "linear_attention", "E": "moe", "*": FULL, "-": "mlp"}
# What configs wrote before: each class's own names.
OLD = {"attention": FULL, "mamba": "linear_attention"}
KEYS = ("layers_block_type", "layer_types")


def _types(config: Config) -> list[Any]:
    """The list of mixers; `hybrid_override_pattern` writes it with a letter for each layer."""
    for key in KEYS:
        if (stated := config.get(key)) is not None:
            if not isinstance(stated, list):
                msg = f"{key} in config.json must be a list. Got {shown(repr(stated))}."
                raise CheckpointError(msg)
            return [OLD.get(kind, kind) if isinstance(kind, str) else kind for kind in stated]
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not set(pattern) <= set(PATTERN):
        msg = (
            "config.json must have layers_block_type, or hybrid_override_pattern of M, E, * and -. "
            f"Got {shown(repr(pattern))}."
        )
        raise CheckpointError(msg)
    return [PATTERN[letter] for letter in pattern]


def _kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
    types = _types(config)
    for layer, kind in enumerate(types):
        if kind not in PATTERN.values():
            msg = (
                f"layers_block_type[{layer}]={shown(repr(kind))} is not supported for this model. "
                f"Supported: {', '.join(PATTERN.values())}."
            )
            raise UnsupportedError(msg)
    assert len(types) == layers
    return tuple(LayerKind(k, rotates=False, attends=k == FULL) for k in types)


RULES = Decoder(
    bias=False,
    module="mixer",
    input_norm="norm",
    names={r"mixer\.[vo]_proj\.weight": ledger.VALUE},
    eps=1e-5,
    eps_key="layer_norm_epsilon",
    head_dim=128,
    key_heads=8,
    window=_kinds,
    embedded=False,
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config in which the list of mixers says how many layers there are."""
    config = dict(checkpoint.config)
    config["num_hidden_layers"] = len(_types(config))
    own = integer(config, "head_dim", 128)
    if config.get("attention_head_dim") is not None and config["attention_head_dim"] != own:
        got = shown(repr(config["attention_head_dim"]))
        msg = f"attention_head_dim in config.json must be head_dim={own}. Got {got}: not supported."
        raise UnsupportedError(msg)
    return Reader(RULES, replace(checkpoint, config=config)).plan("nemotron_h", layers)


FAMILY = replace(
    RULES.family("nemotron_h", "NemotronH", "attention without rotation; other mixers are skipped"),
    read=read,
)
