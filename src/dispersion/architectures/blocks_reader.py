"""A config and a file read through the description of a family's blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection, Through
from dispersion.architectures.ledger import MOST_LAYERS, Naming
from dispersion.architectures.scales import inverse_root, times
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.windows import LayerKind
    from dispersion.checkpoint import Checkpoint
    from dispersion.rotary import Rotary


class BlocksReader:
    """One config read through a family's description."""

    def __init__(self, rules: Blocks, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        self.rules, self.checkpoint, self.config = rules, checkpoint, config
        keys = rules.keys
        self.layers_key, width_key, heads_key = (
            known(config, names) for names in (keys.layers, keys.width, keys.heads)
        )
        self.layers = integer(config, self.layers_key, maximum=MOST_LAYERS)
        self.width, self.heads = integer(config, width_key), integer(config, heads_key)
        self.head_dim = self._head_dim(width_key, heads_key)
        self.key_heads = self._key_heads(heads_key)
        self.kinds = rules.window(config, self.layers)
        self.positions = self._positions()
        self.eps = (
            rules.eps if rules.eps_key is None else positive(config, rules.eps_key, rules.eps)
        )
        self.bias = stated(config, rules.bias, default=rules.bias_absent)
        self.causal = stated(config, rules.causal, default=False)
        self.rotations: dict[str, Rotary | None] = {}
        self.naming = Naming(
            stack=rules.stack,
            module=rules.module,
            near=(*rules.near, *(() if rules.norm is None or rules.post_norm else (rules.norm,))),
            inside=rules.inside,
            outside=rules.outside,
            refused=rules.refused,
        )

    def plan(self, name: str, asked: frozenset[int] | None) -> Plan:
        rules = self.rules
        learned = None if rules.table is None else self.positions
        return assemble(
            self.checkpoint,
            self.naming,
            self._attention,
            family=name,
            layers=self.layers,
            layers_key=self.layers_key,
            asked=asked,
            facts={"max_positions": self.positions},
            learned_positions=learned,
            position_table=rules.table,
            position_rows=None if learned is None else learned + rules.table_before,
            behind=None if rules.behind is None else partial(rules.behind, self),
        )

    def _head_dim(self, width_key: str, heads_key: str) -> int:
        stated = self.config.get("head_dim")
        if self.rules.own_head_dim and stated is not None:
            return integer(self.config, "head_dim")
        size = split(self.width, self.heads, width_key, heads_key)
        if stated is not None and integer(self.config, "head_dim") != size:
            msg = (
                f"head_dim in config.json must be {width_key} / {heads_key} = {size} for this "
                f"model, whose own code ignores it. Got {stated}: not supported."
            )
            raise UnsupportedError(msg)
        return size

    def _key_heads(self, heads_key: str) -> int:
        key = self.rules.key_heads
        if key is None or isinstance(key, int):
            count = self.heads if key is None else key
            key = "the number of key heads"
        else:
            # null means as many as query heads; an absent key the class's own default.
            absent = self.rules.key_heads_absent if key not in self.config else None
            count = integer(self.config, key, absent or self.heads)
        split(self.heads, count, heads_key, key)
        return count

    def _positions(self) -> int | None:
        key = known(self.config, self.rules.keys.positions)
        absent = self.rules.positions_absent
        if self.config.get(key) is None and absent is None:
            return None
        before = self.rules.table_before if self.rules.table_whole else 0
        return integer(self.config, key, absent, minimum=before + 1) - before

    def _rotary(self, kind: LayerKind) -> Rotary | None:
        rotation = self.rules.rotation
        if rotation is None or not kind.rotates:
            return None
        if kind.layer_type not in self.rotations:
            self.rotations[kind.layer_type] = rotation(self.config, kind.layer_type, self.head_dim)
        return self.rotations[kind.layer_type]

    def _attention(self, prefix: str, layer: int) -> Attention:
        rules, kind = self.rules, self.kinds[layer]
        root = f"{prefix}{rules.stack}.{layer}"
        module = f"{root}.{rules.module}" if rules.module else root
        rotary, window = self._rotary(kind), kind.window
        scale = inverse_root(self.head_dim) if rules.scale == "root" else ONE
        if rotary is not None:
            # Where it is not 1 all coordinates turn, so it is part of the scale, squared.
            scale = times(scale, times(rotary.attention_factor, rotary.attention_factor))
        if rules.halved and window is not None:
            # A query at an end of the context sees one side and itself, and no bound may count
            # keys that some query does not see.
            window = window + 1
        query, key = self._projections(module)
        bias = rules.position_bias
        found = Attention(
            module=module,
            layer=layer,
            width=self.width,
            head_dim=self.head_dim,
            query=query,
            key=key,
            input_norm=self._input_norm(prefix, layer),
            scale=scale,
            rotary=rotary,
            eps=self.eps if rules.qk_eps is None else rules.qk_eps,
            window=window,
            causal=self.causal,
            position_bias=None if bias is None else partial(bias, self.heads, scale),
            clip=rules.clip,
            embedding=None if layer else self._embedding(prefix),
            through=None if layer else self._first_map(prefix),
        )
        return found if rules.biased is None else rules.biased(self, prefix, found)

    def _projections(self, module: str) -> tuple[Projection, Projection]:
        rules = self.rules
        fused = rules.layout and rules.layout(self.heads, self.key_heads, self.head_dim)
        sides = rules.sides * 2 if len(rules.sides) == 1 else rules.sides
        biases = self.bias, self.bias and rules.key_bias
        names = rules.query_bias or f"{sides[0]}.bias", f"{sides[1]}.bias"
        starts = (fused.query, fused.key) if fused else (None, None)
        query, key = (
            Projection(
                weight=f"{module}.{side}.weight",
                bias=f"{module}.{name}" if bias else None,
                heads=heads,
                outputs=fused.outputs if fused else None,
                starts=start,
                transposed=rules.transposed,
                norm=_qk_norm(rules.qk_norm, module, letter),
            )
            for side, name, bias, heads, start, letter in zip(
                sides, names, biases, (self.heads, self.key_heads), starts, "qk", strict=True
            )
        )
        return query, key

    def _input_norm(self, prefix: str, layer: int) -> Norm | None:
        rules = self.rules
        if rules.norm is None:
            return None
        name = f"{prefix}{rules.stack}.{layer - rules.post_norm}.{rules.norm}"
        if layer == 0 and rules.first_norm is not None:
            name = prefix + rules.first_norm
        elif layer == 0 and rules.post_norm:
            return None
        # Old files call them gamma and beta.
        old = f"{name}.gamma" in self.checkpoint
        words = {"weight": "gamma", "bias": "beta"} if old else {}
        gain, bias = (
            f"{name}.{words.get(part, part)}" if part in rules.norm_parts else None
            for part in ("weight", "bias")
        )
        return Norm(rules.norm_kind, gain, bias)

    def _first_map(self, prefix: str) -> Through | None:
        if self.rules.first_map is None:
            return None
        name, inner = self.rules.first_map
        return Through(f"{prefix}{name}.weight", f"{prefix}{name}.bias", inner)

    def _embedding(self, prefix: str) -> EmbeddingInput | None:
        rules = self.rules
        if rules.tokens is None:
            return None
        first = self._first_map(prefix)
        return EmbeddingInput(
            source=self.checkpoint,
            tokens=prefix + rules.tokens,
            width=self.width if first is None else first.inner,
            eps=self.eps,
            positions=None if rules.table is None else prefix + rules.table,
            types=None if rules.types is None else prefix + rules.types,
            scale=rules.token_scale,
            before=rules.table_before,
            zeroed=rules.zeroed,
        )


def known(config: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of the names that the config has, else the first.

    Raises:
        CheckpointError: it has two of them, with different values.
    """
    found = [name for name in names if config.get(name) is not None] or names[:1]
    for name in found[1:]:
        if config[name] != config[found[0]]:
            msg = (
                f"{name} in config.json must agree with {found[0]}={shown(repr(config[found[0]]))}."
                f" Got {shown(repr(config[name]))}; remove one of them."
            )
            raise CheckpointError(msg)
    return found[0]


def stated(config: Mapping[str, Any], rule: str | bool, *, default: bool) -> bool:
    """What a rule says: itself, or the value of the key that it names."""
    return rule if isinstance(rule, bool) else flag(config, rule, default=default)


def _qk_norm(norm: Norm | None, module: str, side: str) -> Norm | None:
    if norm is None:
        return None
    word = {"q": "query", "k": "key"}[side]
    gain, bias = (
        n and f"{module}.{n.replace('{side}', side).replace('{word}', word)}"
        for n in (norm.gain, norm.bias)
    )
    return Norm(norm.kind, gain, bias, stacked=norm.stacked, listed=norm.listed)
