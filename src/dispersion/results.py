"""What an audit returns: every head's answers, and every tensor that has none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dispersion.verdict import Verdict

if TYPE_CHECKING:
    from dispersion.verdict import HeadResult, Target


@dataclass(frozen=True)
class Skipped:
    """Tensors or a module that attention bounds do not need.

    Attributes:
        name: a tensor or module, or a pattern such as ``model.layers.*.mlp.up_proj.weight``.
        reason: why it is not needed, in words.
        count: how many names the pattern stands for.
    """

    name: str
    reason: str
    count: int = 1


@dataclass(frozen=True)
class Refused:
    """Something asked for that could not be checked: a tensor or module, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Audit:
    """The answers for every head of one checkpoint, or of one pair of weights.

    Attributes:
        source: the checkpoint as the user named it.
        model: facts that JSON can hold (model_type, layers, query_heads, key_heads, head_dim,
            width, dtype, max_positions, qk_norm, rope_type, …).
        targets: the questions, in the order of every head's `results`.
        heads: sorted by layer, then head.
        skipped: what needs no bound, with reasons.
        refused: what was asked for and could not be checked, with reasons.
        left_out: lengths that were not asked, each with its reason.
        provenance: how the numbers were made (version, numpy, BLAS kernel, seconds, offsets …).
    """

    source: str
    model: dict[str, Any]
    targets: tuple[Target, ...]
    heads: tuple[HeadResult, ...]
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Refused, ...] = ()
    left_out: tuple[tuple[int, str], ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def counts(self, target: int) -> Counter[Verdict]:
        """How many heads received each verdict for the target at this index."""
        return Counter(head.results[target].verdict for head in self.heads)

    def verdicts(self) -> frozenset[Verdict]:
        """Every verdict that occurred."""
        return frozenset(result.verdict for head in self.heads for result in head.results)

    @property
    def complete(self) -> bool:
        """Whether everything asked for was checked: a head was found, none refused or unbounded."""
        return bool(self.heads) and not self.refused and Verdict.UNBOUNDED not in self.verdicts()
