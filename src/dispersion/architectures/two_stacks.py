"""The plan of a model whose encoder and decoder share one config and one file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.assemble import (
    check_mask,
    check_tensors,
    is_quantised,
    layer_plan,
    read_facts,
)
from dispersion.architectures.ledger import Naming, account
from dispersion.architectures.plans import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint


@dataclass(frozen=True)
class Share:
    """The tensors that one stack accounts for.

    Attributes:
        naming, prefix: how the stack names its tensors.
        begins: how names of its tensors begin; "" for all that no other stack has.
        first: the number of the stack's first layer, which the file numbers from 0.
    """

    naming: Naming
    prefix: str
    begins: str = ""
    first: int = 0


def plan_of_stacks(
    checkpoint: Checkpoint,
    family: str,
    attentions: list[Attention],
    shares: Sequence[Share],
    *,
    modules: int,
    facts: Mapping[str, Any],
    positions: int | None = None,
) -> Plan:
    """The plan of these attention modules, every tensor of the file accounted for.

    Args:
        checkpoint: the file.
        family: name of the family.
        attentions: of both stacks and between them, those that were asked for.
        shares: each stack's tensors, in the order in which stacks take theirs.
        modules: how many attention modules the whole model has.
        facts: what the report says of the model beside what all models have.
        positions: learned positions, or None.

    Raises:
        CheckpointError: a tensor is missing or has another shape.
        UnsupportedError: a tensor is stored in a form that is not read, or queries see later
            tokens.
    """
    check_mask(checkpoint.config, causal=any(a.causal for a in attentions))
    packed = check_tensors(checkpoint, attentions)
    quantised = is_quantised(checkpoint)
    names, found = set(checkpoint.names), []
    for share in shares:
        own = {name for name in names if name.startswith(share.begins)}
        names -= own
        within = [replace(a, layer=a.layer - share.first) for a in attentions]
        found.append(
            account(own, share.naming, share.prefix, within, already=packed, quantised=quantised)
        )
    refused = {r.name: r for each in found for r in each.refused}
    known = read_facts(checkpoint, [a for a in attentions if a.module not in packed], modules)
    return Plan(
        family=family,
        model={**known, **facts},
        layers=tuple(layer_plan(checkpoint, a) for a in attentions if a.module not in refused),
        skipped=tuple(skipped for each in found for skipped in each.skipped),
        refused=tuple(refused.values()),
        learned_positions=positions,
    )
