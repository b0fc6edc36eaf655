"""Llama's descendants: one description of what they share, with their differences as fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dispersion.architectures import windows
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.plans import Family, Plan
from dispersion.rotary import PLAIN, RopeRule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.windows import LayerKind, WindowRule
    from dispersion.checkpoint import Checkpoint
    from dispersion.growth import Growth

    GrowthRule = Callable[[Mapping[str, Any], LayerKind], Growth | None]


@dataclass(frozen=True)
class Decoder:
    """How a family differs from Llama. Defaults of absent keys are those of its config class.

    Attributes:
        bias: key that switches the biases of q and k on, or always True or False.
        bias_absent: whether there are biases where that key is absent.
        pre_norm: whether `input_layernorm` stands before attention.
        norm: kind of that norm.
        norm_parts: which of gain and bias that norm has.
        gain_offset: 1.0 where norms multiply by 1 + weight.
        qk_norm: RMS norm of q and k before the rotation, per head or over all heads together.
        qk_names: names of the norms of q and k.
        qk_gain: whether they have a gain.
        qk_after: whether they stand behind the rotation.
        qk_key: key that switches them on where layers turn, and off elsewhere; None for always.
        stacked_key: key that puts a LayerNorm with a gain for each head behind q and k, or None.
        eps: ε of the norms where `eps_key` is absent from the config.
        eps_key: key of ε, or None where ε stands in the code.
        head_dim: size of a head where `head_dim` is absent; None for hidden_size / heads.
        key_heads: key heads where `num_key_value_heads` is absent; None for as many as queries.
        scale_key: key of s in the logit scale 1/√s and its default; None for head_dim.
        multiplier_key: key of the logit scale itself, 1 where absent; None where `scale_key` rules.
        soft_cap: key of the soft cap of logits and its default, or None.
        window: which layers slide, and which do not rotate.
        rope: what the rotation is where the config is silent.
        backward: whether positions turn the other way round.
        growth: what positions multiply the queries of a layer by, or None.
        rope_absent: `rope_parameters` where the config has none in either dialect, or None.
        partial: share of a head that turns where the config is silent; None where all turns.
        fused: whether one `qkv_proj` holds queries, keys and values, in this order.
        sinks: whether each head has a learned sink logit, `self_attn.sinks`.
        clip_key: key of the size to which queries and keys are clamped before they turn, or None.
        refused: keys that change attention when they are set, and are not supported.
        bidirectional: what `use_bidirectional_attention` does: nothing is known of the key (None),
            it is refused, or windows are halved to both sides.
        scaled_embedding: whether token embeddings are multiplied by √hidden_size.
        embedded: whether the first layer's norm reads the token embedding itself.
        embedding_key: key of a factor on token embeddings, 1 where absent; or None.
    """

    bias: str | bool = "attention_bias"
    bias_absent: bool = False
    pre_norm: bool = True
    norm: Literal["rms", "layer"] = "rms"
    norm_parts: tuple[Literal["weight", "bias"], ...] = ("weight",)
    gain_offset: float = 0.0
    qk_norm: Literal["none", "headwise", "layerwise"] = "none"
    qk_names: tuple[str, str] = ("q_norm", "k_norm")
    qk_gain: bool = True
    qk_after: bool = False
    qk_key: str | None = None
    stacked_key: str | None = None
    eps: float = 1e-6
    eps_key: str | None = "rms_norm_eps"
    head_dim: int | None = None
    key_heads: int | None = None
    scale_key: tuple[str, float] | None = None
    multiplier_key: str | None = None
    soft_cap: tuple[str, float] | None = None
    window: WindowRule = windows.full
    rope: RopeRule = PLAIN
    backward: bool = False
    growth: GrowthRule | None = None
    rope_absent: Mapping[str, Any] | None = None
    partial: float | None = None
    fused: bool = False
    sinks: bool = False
    clip_key: str | None = None
    refused: tuple[str, ...] = ()
    bidirectional: Literal["refused", "halved"] | None = None
    scaled_embedding: bool = False
    embedded: bool = True
    embedding_key: str | None = None

    def family(
        self,
        name: str,
        class_prefix: str,
        notes: str,
        *,
        model_types: tuple[str, ...] | None = None,
    ) -> Family:
        """The family of this description, whose model_type is its name unless others are given."""

        def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
            return Reader(self, checkpoint).plan(name, layers)

        return Family(name, model_types or (name,), (class_prefix,), notes, read)
