"""LongCat Flash: two latent attentions in each layer, whose latents are enlarged.

Queries are multiplied by √(width / q_lora_rank), which is part of the logit scale; the unrotated
part of keys alone by √(width / kv_lora_rank).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.assemble import (
    check_asked,
    check_tensors,
    is_quantised,
    layer_plan,
    read_facts,
)
from dispersion.architectures.decoder_reader import NAMING
from dispersion.architectures.latent_reader import Latent, layer_of, stated_positions
from dispersion.architectures.ledger import FEED_FORWARD, MOST_LAYERS, VALUE, account
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root, times
from dispersion.balls import quotient
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure

PARTS = (0, 1)
NAMES = replace(
    NAMING,
    near=("input_layernorm",),
    inside={
        r"self_attn\.[01]\.o_proj\.(weight|bias)": VALUE,
        r"mlps?\..+": FEED_FORWARD,
        r"post_attention_layernorm\.[01]\.weight": "norm after attention",
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read both attentions of every layer."""
    config = dict(checkpoint.config)
    layers = integer(config, "num_layers", maximum=MOST_LAYERS)
    check_asked(asked, layers)
    turned = integer(config, "qk_rope_head_dim")
    if integer(config, "head_dim", 64) != turned:
        msg = (
            "head_dim in config.json must be qk_rope_head_dim for longcat_flash, which turns so "
            f"many coordinates. Got {config.get('head_dim', 64)} and {turned}: not supported."
        )
        raise UnsupportedError(msg)
    width = integer(config, "hidden_size")
    ranks = integer(config, "q_lora_rank"), integer(config, "kv_lora_rank")
    query_factor, key_factor = (root_of_quotient(width, rank) for rank in ranks)
    one = layer_of(Latent(theta=1e7), config)
    prefix = replace(NAMES, module="self_attn.0").find_prefix(checkpoint, range(layers))
    NAMES.check_layers(checkpoint, prefix, layers, "num_layers")
    attentions: list[Attention] = []
    for layer in range(layers):
        for part in PARTS if asked is None or layer in asked else ():
            root = f"{prefix}layers.{layer}."
            found = one(f"{root}self_attn.{part}", f"{root}input_layernorm.{part}.weight", layer)
            scale = times(found.scale, query_factor)
            attentions.append(replace(found, scale=scale, key_factor=key_factor))
    packed = check_tensors(checkpoint, attentions)
    every = account(
        checkpoint.names,
        NAMES,
        prefix,
        attentions,
        already=packed,
        quantised=is_quantised(checkpoint),
    )
    left = [a for a in attentions if a.module not in packed]
    return Plan(
        family="longcat_flash",
        # As many layers as there are attention modules.
        model=read_facts(checkpoint, left, len(PARTS) * layers)
        | {"max_positions": stated_positions(config)},
        layers=tuple(layer_plan(checkpoint, a) for a in every.layers),
        skipped=every.skipped,
        refused=every.refused,
    )


def root_of_quotient(width: int, rank: int) -> Enclosure:
    """Enclose √(width / rank) and the float64 number that models multiply with."""
    return quotient(inverse_root(rank), inverse_root(width))


FAMILY = Family(
    "longcat_flash",
    ("longcat_flash",),
    ("LongcatFlash",),
    "two latent attentions a layer, with enlarged latents",
    read,
)
