"""Llama's descendants: one description of what they share, with their differences as fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dispersion.architectures import windows
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.plans import Family, Plan
from dispersion.rotary import PLAIN, RopeRule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.sizes import Sizes
    from dispersion.architectures.windows import LayerKind, WindowRule
    from dispersion.checkpoint import Checkpoint
    from dispersion.growth import Growth

    GrowthRule = Callable[[Mapping[str, Any], LayerKind], Growth | None]
    PickRule = Callable[[Mapping[str, Any], LayerKind], int | None]
    ShareRule = Callable[[Mapping[str, Any], tuple[LayerKind, ...]], Mapping[int, int]]
    SizeRule = Callable[[Mapping[str, Any], Sizes, int, LayerKind], Sizes]


@dataclass(frozen=True)
class Decoder:
    """How a family differs from Llama. Defaults of absent keys are those of its config class.

    Attributes:
        bias: key that switches the biases of q and k on, or always True or False.
        bias_absent: whether there are biases where that key is absent.
        module: name of the attention within a layer.
        names: patterns of further names within a layer → why they are skipped.
        pre_norm: whether a norm stands before attention.
        input_norm: name of that norm.
        norm: kind of that norm.
        norm_parts: which of gain and bias that norm has.
        gain_offset: 1.0 where norms multiply by 1 + weight.
        qk_norm: norm of q and k before the rotation, per head or over all heads together.
        qk_kind: kind of that norm.
        qk_names: names of the QK norms of q and k.
        qk_key: key that switches the QK norm on; or None for always.
        qk_absent: whether it is on where that key is absent.
        qk_gain: whether the QK norms have gains.
        qk_after: whether they stand behind the rotation.
        qk_turned: whether only layers that turn have them.
        stacked_key: key that puts a LayerNorm with a gain for each head behind q and k, or None.
        eps: ε of the norms where `eps_key` is absent from the config.
        eps_key: key of ε, or None where ε stands in the code.
        head_dim: size of a head where `head_dim` is absent; None for hidden_size / heads.
        heads: query heads where `num_attention_heads` is absent; None where it must be there.
        key_heads: key heads where `num_key_value_heads` is absent; None for as many as queries.
        scale_key: key of s in the logit scale 1/√s and its default; None for head_dim.
        unscaled: whether the logit scale is 1; overrules `scale_key`.
        factor_keys: keys of positive factors of the logit scale, their defaults and powers.
        input_factor_key: key of a positive factor, 1 where absent, between the norm and attention;
            no biases may follow it.
        multiplier_key: key of the logit scale itself, 1 where absent; None where `scale_key` rules.
        soft_cap: key of the soft cap of logits and its default, or None.
        window: which layers slide, and which do not rotate.
        rope: what the rotation is where the config is silent.
        backward: whether positions turn the other way round.
        growth: what positions multiply the queries of a layer by, or None.
        rope_absent: `rope_parameters` where the config has none in either dialect, or None.
        rope_nested: whether `rope_parameters` by layer type are all that is known of the rotation.
        partial: share of a head that turns where the config is silent; None where all turns.
        fused: whether one `qkv_proj` holds queries, keys and values, in this order.
        gated: whether each query head's rows are followed by as many of an output gate.
        sizes: heads, key heads and head_dim of a layer, given those of the config; or None.
        sinks: whether each head has a learned sink logit.
        sink_name: its name in the attention.
        sinks_slide: whether only sliding layers have sinks.
        picks: how many keys an indexer leaves a query of a layer at least, or None for all.
        shared: which layers take their keys from another layer, whose name is the value; or None.
        clip_key: key of the size to which queries and keys are clamped before they turn, or None.
        refused: keys that change attention when they are set, and are not supported.
        bidirectional: what `use_bidirectional_attention` does: nothing is known of the key (None),
            it is refused, or windows are halved to both sides. "always" is no key: a query sees
            `sliding_window` keys to each side.
        scaled_embedding: whether token embeddings are multiplied by √hidden_size, or the key of it.
        embedding_key: key of a factor on token embeddings, 1 where absent; or None.
        embedded: whether what the first layer reads is known to be the token embedding.
    """

    bias: str | bool = "attention_bias"
    bias_absent: bool = False
    module: str = "self_attn"
    names: Mapping[str, str] = field(default_factory=dict)
    pre_norm: bool = True
    input_norm: str = "input_layernorm"
    norm: Literal["rms", "layer"] = "rms"
    norm_parts: tuple[Literal["weight", "bias"], ...] = ("weight",)
    gain_offset: float = 0.0
    qk_norm: Literal["none", "headwise", "layerwise"] = "none"
    qk_kind: Literal["rms", "layer"] = "rms"
    qk_names: tuple[str, str] = ("q_norm", "k_norm")
    qk_key: str | None = None
    qk_absent: bool = False
    qk_gain: bool = True
    qk_after: bool = False
    qk_turned: bool = False
    stacked_key: str | None = None
    eps: float = 1e-6
    eps_key: str | None = "rms_norm_eps"
    head_dim: int | None = None
    heads: int | None = None
    key_heads: int | None = None
    scale_key: tuple[str, float] | None = None
    unscaled: bool = False
    factor_keys: tuple[tuple[str, float, int], ...] = ()
    input_factor_key: str | None = None
    multiplier_key: str | None = None
    soft_cap: tuple[str, float] | None = None
    window: WindowRule = windows.full
    rope: RopeRule = PLAIN
    backward: bool = False
    growth: GrowthRule | None = None
    rope_absent: Mapping[str, Any] | None = None
    rope_nested: bool = False
    partial: float | None = None
    fused: bool = False
    gated: bool = False
    sizes: SizeRule | None = None
    sinks: bool = False
    sink_name: str = "sinks"
    sinks_slide: bool = False
    picks: PickRule | None = None
    shared: ShareRule | None = None
    clip_key: str | None = None
    refused: tuple[str, ...] = ()
    bidirectional: Literal["refused", "halved", "always"] | None = None
    scaled_embedding: bool | str = False
    embedding_key: str | None = None
    embedded: bool = True

    def family(self, name: str, class_prefix: str, notes: str, *also: str) -> Family:
        """The family of this description; model_types are its name and `also`."""

        def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
            return Reader(self, checkpoint).plan(name, layers)

        return Family(name, (name, *also), (class_prefix,), notes, read)
