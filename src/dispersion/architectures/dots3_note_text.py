"""Dots 3 Note: latent attention with enlarged latents and a norm on the part of keys that turns.

Most layers slide and have sizes and a base of their own; an indexer picks the keys of the others.
Queries are multiplied by √(width / q_lora_rank), which is part of the logit scale; the unrotated
part of keys alone by √(width / kv_lora_rank).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.decoder_reader import NAMING
from dispersion.architectures.indexed_attention import NAMES, indexed
from dispersion.architectures.latent_reader import Latent, layer_of, stated_positions
from dispersion.architectures.longcat_flash import root_of_quotient
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import times
from dispersion.architectures.windows import FULL, SLIDING
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.latent_attention import LatentAttention
    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

INDEXED, BY_LAYER, WINDOW = "indexed_attention", "per_layer_config", 512
THETA, SLIDING_THETA = 80_000_000.0, 50_000.0
# What its config class takes of sliding layers where a config is silent.
SIZES = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
TURNED = "qk_rope_head_dim"
NAMING_HERE = replace(
    NAMING,
    inside={**NAMING.inside, **NAMES, r"self_attn\.g_proj\.weight": ledger.GATE},
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config of either dialect."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    if config.get("rope_scaling"):
        msg = (
            "rope_scaling in config.json must not be set for this model. "
            f"Got {shown(repr(config['rope_scaling']))}: not supported."
        )
        raise UnsupportedError(msg)
    types = _types(config, layers)
    own = _sizes(config, types)
    one = {kind: _describe(config, kind, own[kind]) for kind in own}

    def describe(prefix: str, layer: int) -> LatentAttention:
        root = f"{prefix}layers.{layer}."
        return one[types[layer]](f"{root}self_attn", f"{root}input_layernorm.weight", layer)

    return assemble(
        checkpoint,
        replace(
            NAMING_HERE, further_layers=integer(config, "num_nextn_predict_layers", 0, minimum=0)
        ),
        describe,
        family="dots3_note_text",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": stated_positions(config)},
    )


def _types(config: Config, layers: int) -> list[str]:
    """Layer types, as its config class sets them; older configs call indexed layers full."""
    picks = None
    if "use_dsa" in config or BY_LAYER not in config:
        picks = flag(config, "use_dsa", default=True)
    full = FULL if picks is False else INDEXED
    slide = flag(config, "use_sliding_window", default=True)
    types = config.get("layer_types")
    if types is None:
        types = [full if not slide or i < 2 or i % 4 == 1 else SLIDING for i in range(layers)]
    known = (FULL, SLIDING, INDEXED)
    if not isinstance(types, list) or len(types) != layers or any(t not in known for t in types):
        msg = (
            f"layer_types in config.json must list {layers} of {', '.join(known)}. "
            f"Got {shown(repr(types))}."
        )
        raise CheckpointError(msg)
    return types if picks is None else [t if t == SLIDING else full for t in types]


def _sizes(config: Config, types: list[str]) -> dict[str, Config]:
    """By layer type, what its layers have for themselves."""
    by_layer = config.get(BY_LAYER)
    if BY_LAYER not in config:
        sliding = {key: integer(config, f"swa_{key}", value) for key, value in SIZES.items()}
        rest = max(sliding["head_dim"] - sliding["qk_nope_head_dim"], 1)
        sliding[TURNED] = integer(config, f"swa_{TURNED}", rest)
        return {kind: sliding if kind == SLIDING else {} for kind in types}
    found: dict[str, Config] = {}
    for layer, kind in enumerate(types):
        own = by_layer.get(str(layer), {}) if isinstance(by_layer, dict) else None
        if not isinstance(own, dict) or not set(own) <= {*SIZES, TURNED}:
            msg = (
                f"{BY_LAYER} in config.json must map layers to sizes of their attention. "
                f"Got {shown(repr(by_layer))}."
            )
            raise UnsupportedError(msg)
        if found.setdefault(kind, own) != own:
            msg = (
                f"{BY_LAYER} in config.json must agree for all layers of one type. "
                f"Got others in layer {layer}: not supported."
            )
            raise UnsupportedError(msg)
    return found


def _describe(config: Config, kind: str, own: Config) -> Callable[[str, str, int], LatentAttention]:
    """From names of an attention module and of the norm before it, and a layer's index."""
    mine = {**config, **own, "rope_parameters": {"rope_theta": _theta(config, kind)}}
    turned, size = integer(mine, TURNED), integer(mine, "head_dim", 256)
    if int(size * (turned / size)) != turned:
        msg = (
            f"{TURNED} in config.json must be what its code makes of that share of head_dim={size}."
            f" Got {turned}: not supported."
        )
        raise UnsupportedError(msg)
    heads = integer(mine, "num_attention_heads")
    if integer(mine, "num_key_value_heads", heads) != heads:
        msg = (
            "num_key_value_heads in config.json must be num_attention_heads for latent attention. "
            f"Got {mine['num_key_value_heads']} and {heads}."
        )
        raise CheckpointError(msg)
    width = integer(mine, "hidden_size")
    query_factor, key_factor = (
        root_of_quotient(width, integer(mine, key)) for key in ("q_lora_rank", "kv_lora_rank")
    )
    window = integer(config, "sliding_window", integer(config, "sliding_window_size", WINDOW))
    one = layer_of(Latent(), mine)

    def describe(module: str, norm: str, layer: int) -> LatentAttention:
        found = one(module, norm, layer)
        found = replace(
            found,
            scale=times(found.scale, query_factor),
            key_factor=key_factor,
            turned_gain=f"{module}.k_rope_only_layernorm.weight",
            window=window if kind == SLIDING else None,
        )
        return indexed(config, found) if kind == INDEXED else found

    return describe


def _theta(config: Config, kind: str) -> Any:
    """The base of a layer type, whose rotation must be a plain one."""
    stated = config.get("rope_parameters")
    if stated is None:
        key, absent = (
            ("swa_rope_theta", SLIDING_THETA) if kind == SLIDING else ("rope_theta", THETA)
        )
        return config.get(key, absent)
    entry = stated.get(kind) if isinstance(stated, dict) else None
    if isinstance(entry, dict) and entry.get("rope_type", "default") == "default":
        theta = entry.get("rope_theta")
        if theta is not None:
            return theta
    msg = (
        f"rope_parameters in config.json must state rope_theta and the rope_type default under "
        f"{kind} for this model. Got {shown(repr(stated))}."
    )
    raise UnsupportedError(msg)


FAMILY = Family(
    "dots3_note_text",
    ("dots3_note_text",),
    ("Dots3NoteForCausalLM",),
    "latent attention with enlarged latents, a norm on the rotated part; sliding or picked keys",
    read,
)
