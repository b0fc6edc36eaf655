"""From the attention layers a family describes to a checked plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dispersion.architectures.attention import check_shapes
from dispersion.architectures.ledger import account
from dispersion.architectures.plans import LayerPlan, Plan
from dispersion.architectures.quantised import packed_modules
from dispersion.checkpoint.text import shown
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from dispersion.architectures.attention import Attention
    from dispersion.architectures.ledger import Naming
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head


def assemble(
    checkpoint: Checkpoint,
    naming: Naming,
    describe: Callable[[str, int], Attention],
    *,
    family: str,
    layers: int,
    layers_key: str,
    asked: frozenset[int] | None,
    facts: Mapping[str, Any],
    learned_positions: int | None = None,
    position_table: str | None = None,
    position_rows: int | None = None,
    without: frozenset[int] = frozenset(),
    sharing: Collection[int] = (),
    behind: Callable[[str], Attention | None] | None = None,
) -> Plan:
    """Describe every layer asked for, check shapes, account for all tensors.

    Args:
        checkpoint: the file.
        naming: the family's names.
        describe: from the stack's prefix and a layer's index to its attention.
        family: the family's name.
        layers: number of layers in the config; `layers_key` is its key there.
        layers_key: see `layers`.
        asked: layers to read, or None for all.
        facts: what the plan says of the model, besides what all families share.
        learned_positions: the longest context the position table allows, or None.
        position_table: that table's name behind the prefix.
        position_rows: its rows, where not all of them are positions of tokens.
        without: layers that have no softmax attention.
        sharing: layers whose keys are those of another layer, so that none of their own is read.
        behind: from the prefix to attention behind the last layer, read with it; or None.

    Raises:
        ArgumentError: a layer asked for does not exist, or none of them has softmax attention.
        CheckpointError: file and config disagree, or a tensor is missing.
        UnsupportedError: all attention asked for is quantised, or queries see later tokens.
    """
    check_asked(asked, layers)
    attending = [i for i in range(layers) if i not in without]
    if not attending:
        msg = f"{shown(checkpoint.source)} must have a layer with softmax attention. Got none."
        raise CheckpointError(msg)
    prefix = naming.find_prefix(checkpoint, attending)
    naming.check_layers(checkpoint, prefix, layers, layers_key)
    wanted = [i for i in attending if asked is None or i in asked]
    if not wanted:
        msg = (
            "layers must name a layer with softmax attention. Got none; this model's are "
            f"{', '.join(map(str, attending))}."
        )
        raise ArgumentError(msg)
    attentions = [describe(prefix, i) for i in wanted]
    if behind is not None and layers - 1 in wanted and (last := behind(prefix)) is not None:
        attentions.append(last)
    check_mask(checkpoint.config, causal=any(a.causal for a in attentions))
    packed = check_tensors(checkpoint, attentions)
    if position_table is not None:
        rows = learned_positions if position_rows is None else position_rows
        check_rows(checkpoint, prefix + position_table, rows)
    sorted_out = account(
        checkpoint.names,
        naming,
        prefix,
        attentions,
        already=packed,
        quantised=is_quantised(checkpoint),
        without=without,
        sharing=sharing,
        past=layers,
    )
    return Plan(
        family=family,
        model=read_facts(checkpoint, [a for a in attentions if a.module not in packed], layers)
        | dict(facts),
        layers=tuple(layer_plan(checkpoint, a) for a in sorted_out.layers),
        skipped=sorted_out.skipped,
        refused=sorted_out.refused,
        learned_positions=learned_positions,
    )


def check_asked(asked: frozenset[int] | None, layers: int) -> None:
    """Compare the layers asked for with their number in the config.

    Raises:
        ArgumentError: none is asked for, or one that does not exist.
    """
    if asked is not None and not asked:
        msg = "layers must name at least one layer. Got none."
        raise ArgumentError(msg)
    for index in sorted(asked or ()):
        if not 0 <= index < layers:
            msg = f"layers must lie in 0..{layers - 1} for this model. Got {index}."
            raise ArgumentError(msg)


def check_mask(config: Mapping[str, Any], *, causal: bool) -> None:
    """Compare `is_causal` with a family's mask: without it any code lets queries see later tokens.

    Raises:
        UnsupportedError: the family is causal, and the config says otherwise.
    """
    if causal and config.get("is_causal", True) is not True:
        got = shown(repr(config["is_causal"]))
        msg = f"is_causal in config.json must be true for this model. Got {got}: not supported."
        raise UnsupportedError(msg)


def check_tensors(checkpoint: Checkpoint, attentions: list[Attention]) -> dict[str, str]:
    """Check the shapes of what is used; the modules that are packed → why they are refused.

    Raises:
        CheckpointError: file and config disagree, or a tensor is missing.
        UnsupportedError: all attention asked for is quantised.
    """
    packed = packed_modules(checkpoint, attentions)
    for attention in attentions:
        if attention.module not in packed:
            check_shapes(checkpoint, attention)
    return packed


def check_rows(checkpoint: Checkpoint, name: str, rows: int | None) -> None:
    """Compare the rows of a position table, where the file has it, with the config.

    Raises:
        CheckpointError: they disagree.
    """
    if name not in checkpoint:
        return
    shape = checkpoint.info(name).shape
    if shape[:1] != (rows,):
        msg = f"tensor {shown(name)} must have {rows} rows to fit config.json. Got shape {shape}."
        raise CheckpointError(msg)


def is_quantised(checkpoint: Checkpoint) -> bool:
    """Whether the config says so."""
    return bool(checkpoint.config.get("quantization_config"))


def split(total: int, parts: int, total_key: str, parts_key: str) -> int:
    """The quotient total / parts where it is whole.

    Raises:
        CheckpointError: it is not; the message names both keys.
    """
    if total % parts:
        msg = f"{parts_key} must divide {total_key}. Got {total_key}={total}, {parts_key}={parts}."
        raise CheckpointError(msg)
    return total // parts


def layer_plan(checkpoint: Checkpoint, attention: Attention) -> LayerPlan:
    """The way from an attention to its heads."""
    return LayerPlan(
        module=attention.module,
        layer=attention.layer,
        query_heads=attention.query.heads,
        key_heads=attention.key.heads,
        head_dim=attention.head_dim,
        heads=partial(_heads, checkpoint, attention),
        embedding=attention.embedding,
        tensors=tuple(attention.tensors),
        window=attention.window,
    )


def _heads(checkpoint: Checkpoint, attention: Attention) -> Iterator[tuple[int, int, Head]]:
    return attention.heads(checkpoint)


def read_facts(checkpoint: Checkpoint, attentions: list[Attention], layers: int) -> dict[str, Any]:
    """What a plan says of every model."""
    first = attentions[0]
    norm = "none" if first.query.norm is None else "headwise"
    dtypes = {checkpoint.info(s.weight).dtype for a in attentions for s in (a.query, a.key)}
    kinds = dict.fromkeys("none" if a.rotary is None else a.rotary.kind for a in attentions)
    return {
        "model_type": checkpoint.config.get("model_type"),
        "layers": layers,
        "query_heads": first.query.heads,
        "key_heads": first.key.heads,
        "head_dim": first.head_dim,
        "width": first.width,
        "dtype": ", ".join(sorted(dtypes)),
        "qk_norm": "layerwise" if first.layerwise else norm,
        "rope_type": ", ".join(kinds),
    }
