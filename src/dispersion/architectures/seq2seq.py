"""Encoders and decoders built like BART's: one reader, told where the norms stand.

Three kinds of attention share one index: the encoder's, the decoder's own, and the decoder's on the
encoder (cross-attention). Where norms stand behind each branch, cross-attention's queries come from
the norm behind the decoder's own attention and its keys from the encoder's last block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger, whisper
from dispersion.architectures.assemble import check_asked, check_rows, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.architectures.whisper import CROSS, EPS
from dispersion.config import flag, integer
from dispersion.embedding import EmbeddingInput
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dispersion.architectures.ledger import Naming
    from dispersion.checkpoint import Checkpoint

_SIDES = ("encoder", "decoder")
_NORM = r"\.(weight|bias)"
_OUTSIDE = {
    r"embed_(tokens|positions)\.weight": ledger.EMBEDDING,
    rf"layernorm_embedding{_NORM}": ledger.UNASKED,
    rf"layer_norm{_NORM}": ledger.FINAL_NORM,
    r"conv\..+": ledger.EMBEDDING,
}
_REST = {
    r"shared\.weight": ledger.EMBEDDING,
    r"(.*\.)?(lm_head|output_projection|classification_head|qa_outputs)\..+": ledger.HEAD,
    r"final_logits_bias": ledger.HEAD,
}


@dataclass(frozen=True)
class Rules:
    """Where the norms of both stacks stand, and where their positions come from.

    Attributes:
        before: whether norms stand in front of each branch, and one more at the end of each stack;
            else behind each branch.
        embedding_norm: the stacks in which a norm stands behind the sum of embeddings.
        table_before: rows in front of the first position's in tables of learned positions; None
            where sines say positions.
        positions: the most positions where the config does not say; None where there is no most.
        cross: what cross-attention is called.
        inside: patterns of further names within a layer → why they are skipped.
    """

    before: bool
    embedding_norm: tuple[str, ...] = ()
    table_before: int | None = None
    positions: int | None = None
    cross: str = CROSS
    inside: Mapping[str, str] = field(default_factory=dict)

    def naming(self, side: str, *, alone: bool) -> Naming:
        """The names in one stack; a decoder that is `alone` has no encoder in its file."""
        naming = whisper.ENCODER if side == "encoder" else whisper.DECODER
        inside = {k.replace(CROSS, self.cross): why for k, why in naming.inside.items()}
        inside |= self.inside
        if not self.before:
            inside |= {
                rf"self_attn_layer_norm{_NORM}": ledger.UNASKED,
                rf"{self.cross}_layer_norm{_NORM}": ledger.AFTER,
                rf"final_layer_norm{_NORM}": ledger.UNASKED,
            }
        outside = {rf"{side}\.{pattern}": why for pattern, why in _OUTSIDE.items()}
        if side == "decoder":
            outside |= _REST
        near = tuple(name.replace(CROSS, self.cross) for name in naming.near)
        naming = replace(naming, near=near, inside=inside, outside=outside)
        if not alone:
            return naming
        unread = {rf"{self.cross}_layer_norm{_NORM}": ledger.UNASKED}
        why = "cross-attention: its keys come from another model"
        return replace(naming, inside=inside | unread, refused={rf"{self.cross}\..+": why})

    def family(
        self, name: str, classes: tuple[str, ...], notes: str, *, types: tuple[str, ...] = ()
    ) -> Family:
        """The family of this description, whose model_type is its name or one of these `types`."""

        def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
            return _read(self, name, checkpoint, asked)

        return Family(name, types or (name,), classes, notes, read)


@dataclass(frozen=True)
class Stack:
    """One of the two stacks of a file, and its sizes."""

    side: str
    naming: Naming
    prefix: str
    layers: int
    heads: int

    def name(self, rest: str) -> str:
        return f"{self.prefix}{self.side}.{rest}"


def _read(rules: Rules, family: str, checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    config = checkpoint.config
    _check(rules, family, config)
    positions = None
    if rules.positions is not None:
        positions = integer(config, "max_position_embeddings", rules.positions)
    stacks = _stacks(rules, checkpoint, family)
    for stack in stacks:
        if positions is not None:
            rows = positions + (rules.table_before or 0)
            check_rows(checkpoint, stack.name("embed_positions.weight"), rows)
    check_asked(asked, max(stack.layers for stack in stacks))
    encoder = stacks[0] if stacks[0].side == "encoder" else None
    attentions = []
    for stack in stacks:
        for layer in range(stack.layers):
            if asked is None or layer in asked:
                attentions.append(_self_attention(rules, checkpoint, stack, layer))
                if encoder is not None and stack is not encoder:
                    attentions.append(_cross_attention(rules, checkpoint, stack, layer, encoder))
    shares = [Share(s.naming, s.prefix, s.name("")) for s in stacks[:-1]]
    return plan_of_stacks(
        checkpoint,
        family,
        attentions,
        [*shares, Share(stacks[-1].naming, stacks[-1].prefix)],
        modules=sum(s.layers for s in stacks) + (stacks[-1].layers if len(stacks) > 1 else 0),
        facts={f"{s.side}_layers": s.layers for s in stacks} | {"max_positions": positions},
        positions=positions,
    )


def _check(rules: Rules, family: str, config: Mapping[str, Any]) -> None:
    """Keys of the oldest files, which no class reads any more, must say what the class does.

    Raises:
        UnsupportedError: one says something else.
    """
    said = {"normalize_before": rules.before, "normalize_embedding": bool(rules.embedding_norm)}
    for key, does in said.items():
        if flag(config, key, default=does) != does:
            msg = (
                f"{key} in config.json must be {str(does).lower()} for {family}, whose own code "
                f"ignores it. Got {str(not does).lower()}: not supported."
            )
            raise UnsupportedError(msg)


def _stacks(rules: Rules, checkpoint: Checkpoint, family: str) -> list[Stack]:
    """The encoder and the decoder, or the one that the file holds."""
    config = checkpoint.config
    held = [s for s in _SIDES if any(f"{s}.layers." in name for name in checkpoint.names)]
    if not held:
        msg = (
            f"a {family} checkpoint must hold tensors named encoder.layers.N or decoder.layers.N. "
            "Got none."
        )
        raise CheckpointError(msg)
    stacks = []
    for side in held:
        key, heads_key = f"{side}_layers", f"{side}_attention_heads"
        layers = integer(config, key, maximum=ledger.MOST_LAYERS)
        naming = rules.naming(side, alone=held == ["decoder"])
        prefix = naming.find_prefix(checkpoint, range(layers))
        naming.check_layers(checkpoint, prefix, layers, key)
        heads = integer(config, heads_key)
        split(integer(config, "d_model"), heads, "d_model", heads_key)
        stacks.append(Stack(side, naming, prefix, layers, heads))
    return stacks


def _norm(name: str) -> Norm:
    return Norm("layer", f"{name}.weight", f"{name}.bias")


def _sides(checkpoint: Checkpoint, stack: Stack, module: str) -> dict[str, Any]:
    """What both kinds of attention have alike."""
    width = integer(checkpoint.config, "d_model")
    query, key = (
        Projection(f"{module}.{side}_proj.weight", f"{module}.{side}_proj.bias", stack.heads)
        for side in "qk"
    )
    head_dim = width // stack.heads
    return {
        "module": module,
        "width": width,
        "head_dim": head_dim,
        "query": query,
        "key": key,
        "scale": inverse_root(head_dim),
    }


def _self_attention(rules: Rules, checkpoint: Checkpoint, stack: Stack, layer: int) -> Attention:
    if rules.before:
        norm = stack.name(f"layers.{layer}.self_attn_layer_norm")
    elif layer:
        norm = stack.name(f"layers.{layer - 1}.final_layer_norm")
    elif stack.side in rules.embedding_norm:
        norm = stack.name("layernorm_embedding")
    else:
        norm = None
    return Attention(
        **_sides(checkpoint, stack, stack.name(f"layers.{layer}.self_attn")),
        layer=layer,
        input_norm=None if norm is None else _norm(norm),
        causal=stack.side == "decoder",
        embedding=None if layer or norm is None else _embedding(rules, checkpoint, stack),
    )


def _cross_attention(
    rules: Rules, checkpoint: Checkpoint, stack: Stack, layer: int, encoder: Stack
) -> Attention:
    own = rules.cross if rules.before else "self_attn"
    end = "layer_norm" if rules.before else f"layers.{encoder.layers - 1}.final_layer_norm"
    return Attention(
        **_sides(checkpoint, stack, stack.name(f"layers.{layer}.{rules.cross}")),
        layer=layer,
        input_norm=_norm(stack.name(f"layers.{layer}.{own}_layer_norm")),
        key_input=_norm(encoder.name(end)),
        causal=False,
    )


def _embedding(rules: Rules, checkpoint: Checkpoint, stack: Stack) -> EmbeddingInput | None:
    """What a first layer reads, where that is one norm of a token's and a position's row."""
    config = checkpoint.config
    twice = rules.before and stack.side in rules.embedding_norm
    # Where the config is silent, some classes scale tokens and some do not.
    if twice or rules.table_before is None or flag(config, "scale_embedding", default=True):
        return None
    own = stack.name("embed_tokens.weight")
    return EmbeddingInput(
        source=checkpoint,
        tokens=own if own in checkpoint else f"{stack.prefix}shared.weight",
        width=integer(config, "d_model"),
        eps=EPS,
        positions=stack.name("embed_positions.weight"),
        before=rules.table_before,
    )
