"""Mistral Large 4: latent attention on picked keys, each head's queries grown by learned numbers.

Files hold names of their own. Every fourth layer does not turn: all of its keys then come of the
normalised latent. A layer may read the latents of an earlier one, which it finds where the last
such layer of its kind (turning or not) left them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.attention import Norm
from dispersion.architectures.indexed_attention import IndexedAttention, indexed
from dispersion.architectures.latent_reader import Latent, layer_of, stated_positions
from dispersion.architectures.ledger import MOST_LAYERS, Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.growth import LearnedGrowth
from dispersion.head import ONE, Head
from dispersion.norms import projection_ball
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dispersion.architectures.latent_attention import LatentAttention
    from dispersion.checkpoint import Checkpoint
    from dispersion.rotary import Rotary

    Config = Mapping[str, Any]

ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 2048.0,
    "original_max_position_embeddings": 512,
    "attention_factor": 1.0,
}
LARGEST = 80.0  # of float32 exponentials
RULES = Latent(module="attention")
FREQUENCIES = ("rotary_emb.alpha", "lerope.alpha")  # of the text model alone, of the whole one
NAMING = Naming(
    stack="layers",
    module="attention",
    near=("attention_norm",),
    inside={
        r"attention\.o_proj\.weight|attention\.o_proj\.bias|attention\.wo\..+": ledger.VALUE,
        r"attention\.indexer\..+": ledger.INDEXER,
        r"(feed_forward|experts|shared_experts|gate)\..+": ledger.FEED_FORWARD,
        r"ffn_norm\.weight": ledger.AFTER,
    },
    outside={
        r"(embed_tokens|tok_embeddings)\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(lm_head|output)\..+": ledger.HEAD,
        r"(rotary_emb|lerope)\.alpha": "no layer asked for turns",
        r"mtp_dspark\..+": ledger.DRAFT,
    },
)


@dataclass(frozen=True, kw_only=True)
class Learned(IndexedAttention):
    """One layer; `growths` names the slopes and starts of its heads' factors of queries.

    Attributes:
        growths: see above.
        alpha: tensor of logarithms of factors of the frequencies, or None where nothing turns.
    """

    growths: tuple[str, str]
    alpha: str | None

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        found = super().tensors | dict.fromkeys(self.growths, (self.query.heads,))
        if self.alpha is not None:
            found[self.alpha] = (self.rotated // 2,)
        return found

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head), each with its own growth.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        slopes, starts = (to_float64(checkpoint.read(x), tensor=x) for x in self.growths)
        found = self._still(checkpoint)
        if self.alpha is not None:
            assert self.rotary is not None
            moved = replace(self, rotary=_moved(self.rotary, _factors(checkpoint, self.alpha)))
            found = super(Learned, moved).heads(checkpoint)
        for index, kv_head, head in found:
            growth = LearnedGrowth(float(slopes[index]), float(starts[index]))
            yield index, kv_head, replace(head, growth=growth)

    def _still(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Heads that nothing turns: keys are linear in the normalised latent."""
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        for name in (self.latent, self.latent_bias):  # a norm stands behind them
            if name is not None:
                to_float64(checkpoint.read(name), tensor=name)

        def ball(weight: str, head: int, stride: int, gain: str) -> Any:
            part = slice(head * stride, head * stride + self.head_dim)
            rows = to_float64(checkpoint.read(weight, part), tensor=weight, first_row=part.start)
            factors = to_float64(checkpoint.read(gain), tensor=gain)
            return projection_ball(rows, norm="rms", gain=factors)

        for head in range(self.query.heads):
            query = ball(self.query.weight, head, self.head_dim, self.input_norm.gain)
            stride = self.head_dim + self.value_dim
            key = replace(
                ball(self.key.weight, head, stride, self.latent_gain), cap="latent RMSNorm"
            )
            yield head, head, picked(Head(query, key, self.scale), self.picks)


def _factors(checkpoint: Checkpoint, name: str) -> NDArray[np.float64]:
    """The factors of the frequencies.

    Raises:
        CheckpointError: one of them is too large for float64.
    """
    logarithms = to_float64(checkpoint.read(name), tensor=name)
    if logarithms.max() > LARGEST:
        msg = (
            f"tensor {shown(name)} must hold logarithms of at most {LARGEST:g}. "
            f"Got {logarithms.max():g}."
        )
        raise CheckpointError(msg)
    return np.asarray(np.exp(logarithms))


def _moved(rotary: Rotary, factors: NDArray[np.float64]) -> Rotary:
    """The rotation with every frequency multiplied by a factor."""
    rescale = rotary.rescale
    return replace(
        rotary,
        frequencies=rotary.frequencies * factors,
        rescale=None if rescale is None else lambda length: rescale(length) * factors,
    )


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the text model, alone or beside its tower."""
    config = dict(checkpoint.config)
    if not config.get("rope_parameters") and not config.get("rope_scaling"):
        config["rope_parameters"] = ROPE
    config["q_lora_rank"] = None
    layers = integer(config, "num_hidden_layers", maximum=MOST_LAYERS)
    turning = _turning(config, layers)
    sources = _sources(config, turning)
    one = layer_of(RULES, config)
    eps = positive(config, "rms_norm_eps", 1e-5)

    def describe(prefix: str, layer: int) -> Learned:
        found = replace(one(f"{prefix}layers.{layer}.attention", "", layer), eps=eps)
        found = _named(found, f"{prefix}layers.", layer, sources[layer])
        alpha = None
        if turning[layer]:
            alpha = next(
                (prefix + x for x in FREQUENCIES if prefix + x in checkpoint),
                prefix + FREQUENCIES[0],
            )
        else:
            # The rotation's factor of cos and sin is not met, the scale's own is.
            found = replace(
                found, still=found.head_dim, rotary=None, rotated_factor=ONE, key_input=None
            )
        picking = indexed(config, found)
        values = {f.name: getattr(picking, f.name) for f in fields(picking)}
        growths = f"{found.module}.ssmax_scaling.s", f"{found.module}.ssmax_scaling.b"
        return Learned(**values, growths=growths, alpha=alpha)

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="mistral_large4_text",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": stated_positions(config)},
    )


def _named(found: LatentAttention, stack: str, layer: int, source: int) -> LatentAttention:
    """The attention with the names of its file, its latents those of the source layer."""
    own, other = f"{stack}{layer}.", f"{stack}{source}."
    module, latents = f"{own}attention.", f"{other}attention."
    bias = None if found.latent_bias is None else f"{latents}wkv_a_with_mqa.bias"
    return replace(
        found,
        query=replace(found.query, weight=f"{module}wq.weight"),
        key=replace(found.key, weight=f"{module}wkv_b.weight"),
        input_norm=Norm("rms", f"{own}attention_norm.weight"),
        key_input=None if source == layer else Norm("rms", f"{other}attention_norm.weight"),
        shares_keys=source != layer,
        latent=f"{latents}wkv_a_with_mqa.weight",
        latent_bias=bias,
        latent_gain=f"{latents}kv_a_norm.weight",
    )


def _turning(config: Config, layers: int) -> list[bool]:
    """Which layers turn.

    Raises:
        CheckpointError: the list is too short.
    """
    key = "no_rope_layers"
    stated = config.get(key)
    if stated is None:
        every = integer(config, "no_rope_layer_interval", 4)
        return [(i + 1) % every != 0 for i in range(layers)]
    if not isinstance(stated, list) or len(stated) < layers or any(x not in (0, 1) for x in stated):
        msg = (
            f"{key} in config.json must list 0 or 1 for {layers} layers. Got {shown(repr(stated))}."
        )
        raise CheckpointError(msg)
    return [bool(x) for x in stated[:layers]]


def _sources(config: Config, turning: list[bool]) -> list[int]:
    """From a layer to the layer whose latents it reads, itself or an earlier one.

    Raises:
        CheckpointError: the list has another length, or names a layer without latents.
        UnsupportedError: the code would read the latents of another layer than the list says.
    """
    key, layers = "kv_source_layers", len(turning)
    stated = config.get(key)
    if stated is None:
        return list(range(layers))
    whole = isinstance(stated, list) and len(stated) == layers
    if not whole or any(
        not isinstance(x, int) or not 0 <= x <= i or stated[x] != x for i, x in enumerate(stated)
    ):
        msg = (
            f"{key} in config.json must list for each of {layers} layers itself or an earlier "
            f"layer that lists itself. Got {shown(repr(stated))}."
        )
        raise CheckpointError(msg)
    for layer, source in enumerate(stated):
        # The code keeps the latents of the last layer of each kind that another one reads.
        shared = [i for i in range(layer) if stated[i] == i and i in stated[i + 1 :]]
        last = [i for i in shared if turning[i] == turning[layer]]
        if source != layer and last[-1:] != [source]:
            msg = (
                f"{key} in config.json must name for layer {layer} the last shared layer that "
                f"turns as it does, which the code reads. Got {source}: not supported."
            )
            raise UnsupportedError(msg)
    return list(stated)


FAMILY = Family(
    "mistral_large4_text",
    ("mistral_large4_text",),
    ("MistralLarge4Text",),
    "latent attention on picked keys, learned frequencies, heads that grow by learned numbers",
    read,
)
