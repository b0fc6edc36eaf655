"""A config and a file read through the description of one of Llama's descendants."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger, windows
from dispersion.architectures.assemble import assemble, check_mask, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.nested_rope import check_nested, with_own_base, without_flat
from dispersion.architectures.picked_attention import with_picks
from dispersion.architectures.scales import (
    clip_of,
    embedding_factor,
    float32_factor,
    inverse_root,
    times,
    with_factor,
)
from dispersion.architectures.sizes import Sizes
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import ONE
from dispersion.rotary import rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.decoder import Decoder
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.windows import LayerKind
    from dispersion.checkpoint import Checkpoint
    from dispersion.rotary import Rotary

    Config = Mapping[str, Any]

NAMING = ledger.Naming(
    stack="layers",
    module="self_attn",
    near=("input_layernorm",),
    inside={
        r"self_attn\.[vo]_proj\.(weight|bias)": ledger.VALUE,
        r"self_attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"(mlp|block_sparse_moe)\..+": ledger.FEED_FORWARD,
        r"(post_attention|pre_feedforward|post_feedforward)_layernorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
        r"rotary_emb\.inv_freq|rope_freqs\.weight": ledger.FREQUENCIES,
        r"(.+\.)?mtp(\..+|_.+)": ledger.DRAFT,
    },
)


class Reader:
    """One config read through a family's description."""

    def __init__(self, rules: Decoder, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        if rules.rope_nested:
            config = without_flat(config)
        self.rules, self.checkpoint, self.config = rules, checkpoint, config
        for key in rules.refused:
            if (got := config.get(key)) not in (None, False):
                msg = f"{key}={shown(repr(got))} in config.json is not supported for this model."
                raise UnsupportedError(msg)
        check_mask(config, causal=rules.bidirectional != "always")
        self.layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
        self.width = integer(config, "hidden_size")
        if rules.heads is None:
            self.heads = integer(config, "num_attention_heads")
        else:
            self.heads = integer(config, "num_attention_heads", rules.heads)
        # null means as many as query heads; an absent key means the class's own default.
        absent = rules.key_heads if "num_key_value_heads" not in config else None
        self.key_heads = integer(config, "num_key_value_heads", absent or self.heads)
        split(self.heads, self.key_heads, "num_attention_heads", "num_key_value_heads")
        self.head_dim = self._head_dim()
        self.bidirectional = self._bidirectional()
        self.kinds = rules.window(config, self.layers)
        self.sizes = self._sizes()
        self.soft_cap = self._soft_cap()
        self.clip = None if rules.clip_key is None else clip_of(config, rules.clip_key)
        key = "max_position_embeddings"
        stated = config.get(key) is not None
        self.max_positions = integer(config, key) if stated else None
        self.eps = (
            rules.eps if rules.eps_key is None else positive(config, rules.eps_key, rules.eps)
        )
        self.bias = (
            rules.bias
            if isinstance(rules.bias, bool)
            else flag(config, rules.bias, default=rules.bias_absent)
        )
        # GGUF files store the factor itself where Hugging Face files store factor - 1.
        self.gain_offset = 0.0 if checkpoint.gain_is_multiplier else rules.gain_offset
        self.rotations: dict[tuple[LayerKind, int], Rotary | None] = {}

    def plan(self, name: str, asked: frozenset[int] | None) -> Plan:
        rules = self.rules
        naming = replace(
            NAMING,
            module=rules.module,
            near=(rules.input_norm,) if rules.pre_norm else (),
            inside={**NAMING.inside, **rules.names},
        )
        return assemble(
            self.checkpoint,
            naming,
            self._attention,
            family=name,
            layers=self.layers,
            layers_key="num_hidden_layers",
            asked=asked,
            facts={"max_positions": self.max_positions},
            without=frozenset(i for i, kind in enumerate(self.kinds) if not kind.attends),
            sharing=self.owners,
        )

    @cached_property
    def owners(self) -> dict[int, int]:
        """Layers that read the keys of another layer, and which."""
        shared = {} if self.rules.shared is None else self.rules.shared(self.config, self.kinds)
        for layer, owner in shared.items():
            mine, other = self.sizes[layer], self.sizes[owner]
            if (mine.key_heads, mine.head_dim) != (other.key_heads, other.head_dim):
                msg = (
                    f"layer {layer} reads the keys of layer {owner} and must have as many key "
                    f"heads of the same size. Got {mine.key_heads} of {mine.head_dim} and "
                    f"{other.key_heads} of {other.head_dim} from config.json."
                )
                raise CheckpointError(msg)
        return dict(shared)

    def _head_dim(self) -> int:
        absent = self.rules.head_dim if "head_dim" not in self.config else None
        if absent is None and self.config.get("head_dim") is None:
            return split(self.width, self.heads, "hidden_size", "num_attention_heads")
        return integer(self.config, "head_dim", absent)

    def _sizes(self) -> list[Sizes]:
        """Of each layer; the config's own where a family knows no others."""
        alike = Sizes(self.heads, self.key_heads, self.head_dim)
        if self.rules.sizes is None:
            return [alike] * self.layers
        rule = self.rules.sizes
        return [rule(self.config, alike, i, kind) for i, kind in enumerate(self.kinds)]

    def _bidirectional(self) -> bool:
        key = "use_bidirectional_attention"
        if self.rules.bidirectional == "always":
            return True
        if self.rules.bidirectional is None or not flag(self.config, key, default=False):
            return False
        if self.rules.bidirectional == "refused":
            msg = f"{key} in config.json must be false for this model. Got true: not supported."
            raise UnsupportedError(msg)
        return True

    def _scale(self, head_dim: int) -> Enclosure:
        scale = self._plain_scale(head_dim)
        factors = self.rules.factor_keys
        if self.rules.input_factor_key is not None:
            factors = (*factors, (self.rules.input_factor_key, 1.0, 2))
        for key, default, power in factors:
            for _ in range(power):
                scale = times(scale, Enclosure.exact(positive(self.config, key, default)))
        return scale

    def _input_factor(self) -> float:
        """What multiplies both queries and keys, and so is squared in the scale."""
        key = self.rules.input_factor_key
        factor = 1.0 if key is None else positive(self.config, key, 1.0)
        if factor != 1 and self.bias:
            msg = f"{key}={factor:g} in config.json is not supported where q and k have biases."
            raise UnsupportedError(msg)
        return factor

    def _plain_scale(self, head_dim: int) -> Enclosure:
        if self.rules.unscaled:
            return ONE
        if self.rules.multiplier_key is not None:
            return Enclosure.exact(positive(self.config, self.rules.multiplier_key, 1.0))
        if self.rules.scale_key is None:
            return inverse_root(head_dim)
        return inverse_root(positive(self.config, *self.rules.scale_key))

    def _soft_cap(self) -> float | None:
        if self.rules.soft_cap is None:
            return None
        key, default = self.rules.soft_cap
        if key in self.config and self.config[key] is None:
            return None
        return positive(self.config, key, default)

    def _rotary(self, kind: LayerKind, head_dim: int) -> Rotary | None:
        if not kind.rotates:
            return None
        key = kind, head_dim
        if key not in self.rotations:
            self.rotations[key] = self._turned(kind, head_dim)
        return self.rotations[key]

    def _turned(self, kind: LayerKind, head_dim: int) -> Rotary | None:
        stated: Config = self.config
        default = self.rules.partial
        if default is not None and self.config.get("partial_rotary_factor") is None:
            stated = {**self.config, "partial_rotary_factor": default}
        silent = self.config.get("rope_parameters") is None and not self.config.get("rope_scaling")
        if self.rules.rope_absent is not None and silent:
            key = "rope_parameters" if self.rules.rope_nested else "rope_scaling"
            stated = {**stated, key: self.rules.rope_absent}
        stated = with_own_base(stated, kind)
        if self.rules.rope_nested:
            check_nested(stated, kind)
        rotary = rotary_from_config(stated, kind.layer_type, head_dim, self.rules.rope)
        if rotary is not None and self.rules.backward:
            rotary = rotary.reversed()
        still = rotary is not None and bool(rotary.unrotated.size)
        # These kinds say themselves which pairs of a whole head turn, and every code takes it so.
        if default is None and (rotary is None or rotary.kind not in ("proportional", "sections")):
            partial = positive(self.config, "partial_rotary_factor", 1.0)
            if partial != 1 or still:
                if rotary is not None and still:
                    partial = 2 * len(rotary.pairs) / head_dim
                msg = (
                    "partial_rotary_factor in config.json must be 1 for this model, whose own code "
                    f"ignores it. Got {partial}."
                )
                raise UnsupportedError(msg)
        return rotary

    def _attention(self, prefix: str, layer: int) -> Attention:
        rules, kind, sizes = self.rules, self.kinds[layer], self.sizes[layer]
        root = f"{prefix}layers.{layer}."
        module = f"{root}{rules.module}"
        rotary, window = self._rotary(kind, sizes.head_dim), kind.window
        query, key = self._projections(f"{module}.", sizes, kind)
        owner = self.owners.get(layer)
        if owner is not None:
            _, key = self._projections(f"{prefix}layers.{owner}.{rules.module}.", sizes, kind)
        plain = self._scale(sizes.head_dim)
        scale, rotated_factor = with_factor(plain, rotary)
        after = rules.qk_after and query.norm is not None
        eps = self.eps
        if after:
            # A norm behind the rotation undoes any factor of cos and sin, all but the share of ε.
            scale, rotated_factor = plain, ONE
            if rotary is not None:
                eps /= rotary.attention_factor.lower**2
        sinks = rules.sinks and (not rules.sinks_slide or kind.layer_type == windows.SLIDING)
        if self.bidirectional and window is not None:
            # Half the window to each side. A query at an end of the context sees one half and
            # itself, and no bound may count keys that some query does not see.
            window = window + 1 if rules.bidirectional == "always" else window // 2 + 1
        found = Attention(
            module=module,
            layer=layer,
            width=self.width,
            head_dim=sizes.head_dim,
            query=query,
            key=key,
            input_norm=self._input_norm(f"{root}{rules.input_norm}.") if rules.pre_norm else None,
            scale=scale,
            # Behind a rotation every direction is reached alike, and a gain there does not turn
            # with it: for such a head no bound may turn anything. Without a gain, norm and
            # rotation commute.
            rotary=None if after and rules.qk_gain else rotary,
            key_input=None
            if owner is None
            else self._input_norm(f"{prefix}layers.{owner}.{rules.input_norm}."),
            shares_keys=owner is not None,
            known_inputs=not (after and rules.qk_gain and rotary is not None),
            growth=None if rules.growth is None else rules.growth(self.config, kind),
            chunked=kind.chunked,
            rotated_factor=rotated_factor,
            layerwise=rules.qk_norm == "layerwise",
            eps=eps,
            input_factor=self._input_factor(),
            soft_cap=self.soft_cap,
            window=window,
            clip=self.clip,
            causal=not self.bidirectional,
            sinks=f"{module}.{rules.sink_name}" if sinks else None,
            # Contexts of token ids are built without a sink, and without clamping.
            embedding=None
            if layer or sinks or self.clip is not None or not self._embeds(kind)
            else self._embedding(prefix),
        )
        return with_picks(found, None if rules.picks is None else rules.picks(self.config, kind))

    def _embeds(self, kind: LayerKind) -> bool:
        """Whether bounds over token ids are known for the first layer."""
        plain = not self.rules.qk_after and not kind.chunked
        return self.rules.embedded and plain and self.rules.growth is None

    def _projections(
        self, root: str, sizes: Sizes, kind: LayerKind
    ) -> tuple[Projection, Projection]:
        size = sizes.head_dim
        fused = (sizes.heads + 2 * sizes.key_heads) * size if self.rules.fused else None
        gated = 2 * sizes.heads * size if self.rules.gated else None
        sides = {"q": (sizes.heads, 0, gated), "k": (sizes.key_heads, sizes.heads * size, None)}
        query, key = (
            Projection(
                weight=f"{root}{'qkv' if fused else side}_proj.weight",
                bias=f"{root}{'qkv' if fused else side}_proj.bias" if self.bias else None,
                heads=heads,
                first=first if fused else 0,
                outputs=fused or outputs,
                stride=2 * size if outputs else None,
                norm=self._qk_norm(f"{root}{name}.weight", kind),
            )
            for (side, (heads, first, outputs)), name in zip(
                sides.items(), self.rules.qk_names, strict=True
            )
        )
        return query, key

    def _qk_norm(self, gain: str, kind: LayerKind) -> Norm | None:
        rules = self.rules
        if rules.stacked_key is not None and flag(self.config, rules.stacked_key, default=False):
            return Norm("layer", gain, stacked=True)
        key, absent = rules.qk_key, rules.qk_absent
        switched = key is None or flag(self.config, key, default=absent)
        if rules.qk_norm == "none" or not switched or (rules.qk_turned and not kind.rotates):
            return None
        kept = gain if rules.qk_gain else None
        return Norm(rules.qk_kind, kept, gain_offset=self.gain_offset)

    def _embedding(self, prefix: str) -> EmbeddingInput:
        scale = ONE
        scaled = self.rules.scaled_embedding
        if isinstance(scaled, str):
            scaled = flag(self.config, scaled, default=False)
        if scaled:
            scale = embedding_factor(self.width)
        elif self.rules.embedding_key is not None:
            scale = float32_factor(positive(self.config, self.rules.embedding_key, 1.0))
        return EmbeddingInput(
            source=self.checkpoint,
            tokens=f"{prefix}embed_tokens.weight",
            width=self.width,
            eps=self.eps,
            scale=scale,
        )

    def _input_norm(self, root: str) -> Norm:
        gain, bias = (
            root + part if part in self.rules.norm_parts else None for part in ("weight", "bias")
        )
        return Norm(self.rules.norm, gain, bias, gain_offset=self.gain_offset)
