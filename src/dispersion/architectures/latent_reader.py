"""A config and a file read as latent attention, for DeepSeek and families of the same shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Norm, Projection
from dispersion.architectures.decoder_reader import NAMING
from dispersion.architectures.latent_attention import LatentAttention
from dispersion.architectures.ledger import MOST_LAYERS
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root, times, with_factor
from dispersion.architectures.windows import full
from dispersion.config import flag, integer, positive
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError
from dispersion.rotary import RopeRule, Rotary, rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.windows import WindowRule
    from dispersion.checkpoint import Checkpoint
    from dispersion.growth import Growth

    Config = Mapping[str, Any]

LATENT_EPS = 1e-6  # the latents' norms do not read the config's ε
# What they are computed with where a GGUF file is run; no config.json has this key.
GGUF_EPS = "latent_norm_eps"


@dataclass(frozen=True)
class Latent:
    """How a family with latent attention differs from DeepSeek V3.

    Attributes:
        interleave_key: key that says whether rotated pairs are (2j, 2j+1), as where it is absent.
        interleaved: whether they are, where there is no such key.
        value_dim_absent: whether values have hidden_size / heads coordinates where `v_head_dim` is
            absent or null.
        growth: what positions multiply queries by, or None.
        rotates: whether positions turn a part of each head.
        theta: base of the rotation where the config states none.
        window: which layers have softmax attention.
        softmax: pattern of a name within the attention that only layers with softmax have.
        module: name of the attention within a layer.
        names: patterns of further names within a layer → why they are skipped.
        finish: from a config and a layer's attention to the attention that the family makes of it.
    """

    interleave_key: str | None = None
    interleaved: bool = True
    value_dim_absent: bool = False
    growth: Callable[[Config], Growth] | None = None
    rotates: bool = True
    theta: float = 10000.0
    window: WindowRule = full
    softmax: str = NAMING.softmax
    module: str = "self_attn"
    names: Mapping[str, str] = field(default_factory=dict)
    finish: Callable[[Config, LatentAttention], LatentAttention] | None = None

    def family(
        self, name: str, model_types: tuple[str, ...], class_prefix: str, notes: str
    ) -> Family:
        """The family of this description."""

        def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
            return self.read(name, checkpoint, layers)

        return Family(name, model_types, (class_prefix,), notes, read)

    def read(self, name: str, checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
        """The plan of a checkpoint of a family with this name."""
        return _read(self, name, checkpoint, asked)


def _read(rules: Latent, name: str, checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=MOST_LAYERS)
    stated = checkpoint.format == "gguf" and GGUF_EPS in config
    one = layer_of(rules, config, positive(config, GGUF_EPS) if stated else LATENT_EPS)
    # Layers behind the last one predict further tokens; the model's own pass does not run them.
    further = integer(config, "num_nextn_predict_layers", 0, minimum=0)

    def describe(prefix: str, layer: int) -> LatentAttention:
        root = f"{prefix}layers.{layer}."
        found = one(f"{root}{rules.module}", f"{root}input_layernorm.weight", layer)
        return found if rules.finish is None else rules.finish(config, found)

    return assemble(
        checkpoint,
        replace(
            NAMING,
            module=rules.module,
            further_layers=further,
            softmax=rules.softmax,
            inside={**NAMING.inside, **rules.names},
        ),
        describe,
        family=name,
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": stated_positions(config)},
        without=frozenset(
            i for i, kind in enumerate(rules.window(config, layers)) if not kind.attends
        ),
    )


def stated_positions(config: Config) -> int | None:
    """`max_position_embeddings` where the config has it."""
    key = "max_position_embeddings"
    return None if config.get(key) is None else integer(config, key)


def layer_of(
    rules: Latent, config: Config, eps: float = LATENT_EPS
) -> Callable[[str, str, int], LatentAttention]:
    """From names of an attention module and of the norm in front of it, and a layer's index.

    `eps` is the ε of the latents' norms.
    """
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    still, turned = integer(config, "qk_nope_head_dim"), integer(config, "qk_rope_head_dim")
    if "q_lora_rank" not in config:
        msg = "config.json must have q_lora_rank (null for plain queries). Got no such key; add it."
        raise CheckpointError(msg)
    query_rank = None if config["q_lora_rank"] is None else integer(config, "q_lora_rank")
    rank = integer(config, "kv_lora_rank")
    values = (
        split(width, heads, "hidden_size", "num_attention_heads")
        if rules.value_dim_absent and config.get("v_head_dim") is None
        else integer(config, "v_head_dim")
    )
    bias = flag(config, "attention_bias", default=False)
    rotary = _rotary(config, rules, still, turned) if rules.rotates else None
    scale, rotated_factor = with_factor(inverse_root(still + turned), rotary)
    if rotary is not None:
        stretched = stretch_factor(config, rotary)
        scale = times(scale, times(stretched, stretched))

    def describe(module: str, norm: str, layer: int) -> LatentAttention:
        root = f"{module}."
        query = f"{root}q_proj.weight" if query_rank is None else f"{root}q_b_proj.weight"
        return LatentAttention(
            module=module,
            layer=layer,
            width=width,
            head_dim=still + turned,
            query=Projection(query, None, heads),
            key=Projection(f"{root}kv_b_proj.weight", None, heads),
            input_norm=Norm("rms", norm),
            scale=scale,
            rotary=rotary,
            rotated_factor=rotated_factor,
            eps=eps,
            growth=None if rules.growth is None else rules.growth(config),
            rank=rank,
            query_rank=query_rank,
            still=still,
            value_dim=values,
            latent=f"{root}kv_a_proj_with_mqa.weight",
            latent_bias=f"{root}kv_a_proj_with_mqa.bias" if bias else None,
            latent_gain=f"{root}kv_a_layernorm.weight",
            query_latent=f"{root}q_a_proj.weight",
            query_latent_bias=f"{root}q_a_proj.bias" if bias else None,
            query_latent_gain=f"{root}q_a_layernorm.weight",
        )

    return describe


def _rotary(config: Config, rules: Latent, still: int, turned: int) -> Rotary:
    """The rotation of the last `turned` coordinates of a head."""
    interleaved = rules.interleaved
    if rules.interleave_key is not None:
        interleaved = flag(config, rules.interleave_key, default=interleaved)
    rule = RopeRule(interleaved=interleaved, theta=rules.theta)
    found = rotary_from_config(config, None, turned, rule)
    if found is None or found.unrotated.size:
        share = 0 if found is None else 2 * len(found.pairs) / turned
        msg = (
            "partial_rotary_factor in config.json must be 1 for latent attention, which turns all "
            f"of qk_rope_head_dim={turned}. Got {share}."
        )
        raise CheckpointError(msg)
    return replace(found, head_dim=still + turned, pairs=found.pairs + still)


def stretch_factor(config: Config, rotary: Rotary) -> Enclosure:
    """Enclose m = 1 + mscale_all_dim·ln(factor)/10, whose square multiplies the logit scale.

    1 without scaled rotation, and where `mscale_all_dim` is absent or 0.
    """
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    parameters = config.get(key) or {}
    if rotary.kind == "default" or not parameters.get("mscale_all_dim"):
        return Enclosure.exact(1.0)
    where = f"{key} of config.json"
    all_dim = positive(parameters, "mscale_all_dim", where=where)
    factor = positive(parameters, "factor", where=where)
    if factor <= 1:
        return Enclosure.exact(1.0)
    value = 0.1 * all_dim * math.log(factor) + 1.0
    return Enclosure(value * (1 - 2.0**-48), value * (1 + 2.0**-48))
