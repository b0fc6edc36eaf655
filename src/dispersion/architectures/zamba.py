"""Zamba: one transformer block, shared by some of the Mamba layers, on twice the hidden size.

What the block's norm reads is the hidden state beside the token embedding; no more is used of that
than its width. Files hold a block once, with the first layer that runs it, and it is read there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import split
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.hybrids import LINEAR
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

HYBRID = "hybrid"
KEYS = ("layers_block_type", "layer_types")
SIZE = "attention_head_dim"


def described(block: str) -> Decoder:
    """The description of a model whose shared block has this name within a layer."""
    return Decoder(
        bias=False,
        module=f"{block}.self_attn",
        input_norm=f"{block}.input_layernorm",
        names={
            rf"{block}\.self_attn\.[vo]_proj\.weight": ledger.VALUE,
            rf"{block}\.pre_ff_layernorm\.weight": ledger.AFTER,
            rf"{block}\.feed_forward\..+": ledger.FEED_FORWARD,
            r"mamba_decoder\..+": "Mamba beside the shared block",
            r"linear\.weight": "map behind the shared block",
        },
        eps=1e-5,
        scale_key=("half_head_dim", 1.0),
        embedded=False,
    )


def block_types(config: Mapping[str, Any], silent: list[str]) -> list[str]:
    """Which layers run the block, from the config or as where it is silent.

    Raises:
        CheckpointError: the list does not fit, or names something else.
    """
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    key = next((k for k in KEYS if config.get(k) is not None), None)
    types: Any = silent if key is None else config[key]
    known = {HYBRID: HYBRID, LINEAR: LINEAR, "mamba": LINEAR}
    fits = isinstance(types, list) and len(types) == layers
    if not fits or not all(isinstance(t, str) and t in known for t in types):
        msg = (
            f"{key or KEYS[0]} in config.json must list {layers} layers, hybrid or "
            f"linear_attention. Got {shown(repr(types))}."
        )
        raise CheckpointError(msg)
    return [known[t] for t in types]


def read_shared(
    rules: Decoder,
    checkpoint: Checkpoint,
    types: list[str],
    asked: frozenset[int] | None,
    name: str,
    *,
    blocks: int,
    turns: bool,
) -> Plan:
    """The plan of a model in which the first `blocks` hybrid layers hold the blocks of all.

    Raises:
        UnsupportedError: the config sets sizes that the class derives.
    """
    config = dict(checkpoint.config)
    width = 2 * integer(config, "hidden_size")
    size = split(width, integer(config, "num_attention_heads"), "2·hidden_size", "heads")
    for key, derived in {"attention_hidden_size": width, SIZE: size, "head_dim": size}.items():
        if config.get(key) is not None and integer(config, key) != derived:
            got = shown(repr(config[key]))
            msg = f"{key} in config.json must be {derived} for {name}. Got {got}: not supported."
            raise UnsupportedError(msg)
    hybrids = [i for i, kind in enumerate(types) if kind == HYBRID]
    first = rf"layers\.(\d+)\.{rules.module}\.q_proj\.weight"
    held = {int(m[1]) for n in checkpoint.names if (m := re.search(first, n))}
    attends = {*hybrids[:blocks], *(held & set(hybrids))}
    kinds = tuple(
        LayerKind(FULL if i in attends else LINEAR, rotates=turns, attends=i in attends)
        for i in range(len(types))
    )
    config |= {"hidden_size": width, "head_dim": size, "half_head_dim": size / 2}
    changed = replace(checkpoint, config=config)
    return Reader(replace(rules, window=lambda *_: kinds), changed).plan(name, asked)


RULES = replace(described("shared_transf"), key_heads=16)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that lists its hybrid layers, or says how often one comes."""
    config = checkpoint.config
    period = integer(config, "attn_layer_period", 6)
    offset = integer(config, "attn_layer_offset", 4, minimum=0)
    rest = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS) - 3
    silent = [LINEAR, LINEAR, HYBRID]
    silent += [HYBRID if i % period == offset else LINEAR for i in range(rest)]
    types = block_types(config, silent)
    return read_shared(RULES, checkpoint, types, layers, "zamba", blocks=1, turns=False)


FAMILY = replace(
    RULES.family("zamba", "Zamba", "one shared block without rotation; Mamba layers are skipped"),
    read=read,
)
