"""Llama's descendants: one description of what they share, with their differences as fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dispersion.architectures import ledger, windows
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import embedding_factor, inverse_root, times
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.errors import UnsupportedError
from dispersion.head import ONE
from dispersion.rotary import PLAIN, RopeRule, rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind, WindowRule
    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure
    from dispersion.rotary import Rotary

    Config = Mapping[str, Any]

NAMING = ledger.Naming(
    stack="layers",
    module="self_attn",
    near=("input_layernorm",),
    inside={
        r"self_attn\.[vo]_proj\.(weight|bias)": ledger.VALUE,
        r"self_attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"(post_attention|pre_feedforward|post_feedforward)_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
        r"rotary_emb\.inv_freq|rope_freqs\.weight": ledger.FREQUENCIES,
    },
)


@dataclass(frozen=True)
class Decoder:
    """How a family differs from Llama. Defaults of absent keys are those of its config class.

    Attributes:
        bias: key that switches the biases of q and k on, or always True or False.
        pre_norm: whether `input_layernorm` stands before attention.
        gain_offset: 1.0 where norms multiply by 1 + weight.
        qk_norm: RMS norm of q and k before the rotation, per head or over all heads together.
        eps: ε of the norms where `rms_norm_eps` is absent.
        head_dim: size of a head where `head_dim` is absent; None for hidden_size / heads.
        key_heads: key heads where `num_key_value_heads` is absent; None for as many as queries.
        scale_key: key of s in the logit scale 1/√s and its default; None for head_dim.
        soft_cap: key of the soft cap of logits and its default, or None.
        window: which layers slide.
        rope: what the rotation is where the config is silent.
        bidirectional: what `use_bidirectional_attention` does: nothing is known of the key (None),
            it is refused, or windows are halved to both sides.
        scaled_embedding: whether token embeddings are multiplied by √hidden_size.
    """

    bias: str | bool = "attention_bias"
    pre_norm: bool = True
    gain_offset: float = 0.0
    qk_norm: Literal["none", "headwise", "layerwise"] = "none"
    eps: float = 1e-6
    head_dim: int | None = None
    key_heads: int | None = None
    scale_key: tuple[str, float] | None = None
    soft_cap: tuple[str, float] | None = None
    window: WindowRule = windows.full
    rope: RopeRule = PLAIN
    bidirectional: Literal["refused", "halved"] | None = None
    scaled_embedding: bool = False

    def family(self, name: str, class_prefix: str, notes: str) -> Family:
        """The family of this description, whose model_type is its name."""

        def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
            return _Reader(self, checkpoint).plan(name, layers)

        return Family(name, (name,), (class_prefix,), notes, read)


class _Reader:
    """One config read through a family's description."""

    def __init__(self, rules: Decoder, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        self.rules, self.checkpoint, self.config = rules, checkpoint, config
        self.layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
        self.width = integer(config, "hidden_size")
        self.heads = integer(config, "num_attention_heads")
        # null means as many as query heads; an absent key means the class's own default.
        absent = rules.key_heads if "num_key_value_heads" not in config else None
        self.key_heads = integer(config, "num_key_value_heads", absent or self.heads)
        split(self.heads, self.key_heads, "num_attention_heads", "num_key_value_heads")
        self.head_dim = self._head_dim()
        self.bidirectional = self._bidirectional()
        self.kinds = rules.window(config, self.layers)
        self.scale, self.soft_cap = self._scale(), self._soft_cap()
        key = "max_position_embeddings"
        stated = config.get(key) is not None
        self.max_positions = integer(config, key) if stated else None
        self.eps = positive(config, "rms_norm_eps", rules.eps)
        self.bias = (
            rules.bias if isinstance(rules.bias, bool) else flag(config, rules.bias, default=False)
        )
        # GGUF files store the factor itself where Hugging Face files store factor - 1.
        self.gain_offset = 0.0 if checkpoint.gain_is_multiplier else rules.gain_offset
        self.rotations: dict[str, Rotary | None] = {}

    def plan(self, name: str, asked: frozenset[int] | None) -> Plan:
        return assemble(
            self.checkpoint,
            NAMING,
            self._attention,
            family=name,
            layers=self.layers,
            layers_key="num_hidden_layers",
            asked=asked,
            facts={"max_positions": self.max_positions},
        )

    def _head_dim(self) -> int:
        absent = self.rules.head_dim if "head_dim" not in self.config else None
        if absent is None and self.config.get("head_dim") is None:
            return split(self.width, self.heads, "hidden_size", "num_attention_heads")
        return integer(self.config, "head_dim", absent)

    def _bidirectional(self) -> bool:
        key = "use_bidirectional_attention"
        if self.rules.bidirectional is None or not flag(self.config, key, default=False):
            return False
        if self.rules.bidirectional == "refused":
            msg = f"{key} in config.json must be false for this model. Got true: not supported."
            raise UnsupportedError(msg)
        return True

    def _scale(self) -> Enclosure:
        if self.rules.scale_key is None:
            return inverse_root(self.head_dim)
        return inverse_root(positive(self.config, *self.rules.scale_key))

    def _soft_cap(self) -> float | None:
        if self.rules.soft_cap is None:
            return None
        key, default = self.rules.soft_cap
        if key in self.config and self.config[key] is None:
            return None
        return positive(self.config, key, default)

    def _rotary(self, kind: LayerKind) -> Rotary | None:
        if kind.layer_type not in self.rotations:
            partial = positive(self.config, "partial_rotary_factor", 1.0)
            rotary = rotary_from_config(
                self.config, kind.layer_type, self.head_dim, self.rules.rope
            )
            if partial != 1 or (rotary is not None and rotary.unrotated.size):
                msg = (
                    "partial_rotary_factor in config.json must be 1 for this model, whose own code "
                    f"ignores it. Got {partial}."
                )
                raise UnsupportedError(msg)
            self.rotations[kind.layer_type] = rotary
        return self.rotations[kind.layer_type]

    def _attention(self, prefix: str, layer: int) -> Attention:
        rules, kind = self.rules, self.kinds[layer]
        root = f"{prefix}layers.{layer}."
        rotary, scale, window = self._rotary(kind), self.scale, kind.window
        if rotary is not None:
            # All coordinates turn, so the factor of cos and sin is part of the scale, squared.
            scale = times(scale, times(rotary.attention_factor, rotary.attention_factor))
        if self.bidirectional and window is not None:
            # Half the window to each side. A query at an end of the context sees one half and
            # itself, and no bound may count keys that some query does not see.
            window = window // 2 + 1
        query, key = (
            Projection(
                weight=f"{root}self_attn.{side}_proj.weight",
                bias=f"{root}self_attn.{side}_proj.bias" if self.bias else None,
                heads=heads,
                norm=None
                if rules.qk_norm == "none"
                else self._norm(f"{root}self_attn.{side}_norm.weight"),
            )
            for side, heads in (("q", self.heads), ("k", self.key_heads))
        )
        return Attention(
            module=f"{root}self_attn",
            layer=layer,
            width=self.width,
            head_dim=self.head_dim,
            query=query,
            key=key,
            input_norm=self._norm(f"{root}input_layernorm.weight") if rules.pre_norm else None,
            scale=scale,
            rotary=rotary,
            layerwise=rules.qk_norm == "layerwise",
            eps=self.eps,
            soft_cap=self.soft_cap,
            window=window,
            causal=not self.bidirectional,
            embedding=None if layer else self._embedding(prefix),
        )

    def _embedding(self, prefix: str) -> EmbeddingInput:
        return EmbeddingInput(
            source=self.checkpoint,
            tokens=f"{prefix}embed_tokens.weight",
            width=self.width,
            eps=self.eps,
            scale=embedding_factor(self.width) if self.rules.scaled_embedding else ONE,
        )

    def _norm(self, name: str) -> Norm:
        return Norm("rms", name, gain_offset=self.gain_offset)
