"""Target, Verdict and the results of one head."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from dispersion.enclosure import Enclosure, Estimate

Retrieval = Literal["one", "any"]


class Verdict(enum.Enum):
    """What is proved about a head and a target.

    RULED_OUT: the certified ceiling lies below the target; a proof that no input reaches it.
    WITNESSED: a concrete input reaches the target, evaluated rigorously.
    UNRESOLVED: neither. Not ruled out does not mean reachable.
    UNBOUNDED: no norm cap is known, so there is no finite bound.
    """

    RULED_OUT = "ruled_out"
    WITNESSED = "witnessed"
    UNRESOLVED = "unresolved"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True)
class Target:
    """A question: can a head put `coefficient` on one of `length` tokens?

    With `retrieval` "any" the question is whether every token of one context can get it, each by a
    query of its own. With `sink_tokens` = m > 0 it is whether m tokens together can hold it.
    """

    length: int
    coefficient: float = 0.5
    retrieval: Retrieval = "one"
    sink_tokens: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or int(self.length) != self.length or self.length < 1:
            msg = f"length must be a whole number of at least 1 token. Got {self.length}."
            raise ArgumentError(msg)
        if not 0 < self.coefficient < 1:
            msg = (
                f"coefficient (--target) must lie strictly between 0 and 1. Got {self.coefficient}."
            )
            raise ArgumentError(msg)
        if self.sink_tokens < 0 or int(self.sink_tokens) != self.sink_tokens:
            msg = f"sink_tokens must be a whole number, 0 or more. Got {self.sink_tokens}."
            raise ArgumentError(msg)
        if self.retrieval not in ("one", "any"):
            msg = f"retrieval must be 'one' or 'any'. Got {self.retrieval!r}."
            raise ArgumentError(msg)
        if self.retrieval == "any" and self.sink_tokens:
            msg = (
                "sink_tokens goes with retrieval 'one': sinks are the same for every query. "
                f"Got sink_tokens={self.sink_tokens} with retrieval 'any'."
            )
            raise ArgumentError(msg)


@dataclass(frozen=True)
class Result:
    """The answer to one target: the enclosed ceiling and its verdict.

    `ceiling.upper` is a theorem (T1, T2, T7, T12, T13) at the certified spread or spectrum;
    `ceiling.lower` is the rigorously evaluated coefficient of a witness, or 0 where none was built.
    """

    target: Target
    ceiling: Enclosure
    verdict: Verdict


@dataclass(frozen=True)
class Token:
    """A real input: a token id, with the learned rows added to it where the model has them.

    Attributes:
        id: row of the token embedding.
        position, type: rows of the position and token-type embeddings, or None.
        text: what the id stands for, where a tokenizer file says so.

    """

    id: int
    position: int | None = None
    type: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class VocabularyBound:
    """Certified spreads of one head over real token ids (T15), in logits. **Upper.**

    Attributes:
        tokens: size of the vocabulary.
        largest: over all query tokens.
        median: of the query tokens' own bounds (the upper one of two in the middle).
        ruled_out: per target, how many query tokens cannot reach it: their own bound is below the
            spread that it takes.
        ball: the bound for arbitrary inputs within the head's norms, for comparison.
        method: "products" where all pairs count, "norms" where token and position combinations
            are too many for that.
        query: the query token with the largest bound.
        top: the key token with its largest logit.
        bottom: the one with its smallest, or None where that is the top key at another angle, or
            where norms alone were used.

    """

    tokens: int
    largest: float
    median: float
    ruled_out: tuple[int, ...]
    ball: float
    method: str
    query: Token
    top: Token | None
    bottom: Token | None


@dataclass(frozen=True)
class Capacity:
    """How many tokens a head can retrieve at all, as logarithms in nats.

    Attributes:
        log_upper: certified upper bound on log N (T13, T13′): in no context can more than N/p
            tokens each get a coefficient of p.
        log_estimate: what T13′ would give were it proved for this spectrum, or None where it is.
    """

    log_upper: float
    log_estimate: Estimate | None = None


@dataclass(frozen=True)
class HeadResult:
    """All that was found for one head.

    Attributes:
        module: the attention's tensor-name prefix in the file.
        layer, head, kv_head: indices, head counted within the layer.
        spread: encloses the largest reachable spread of a row, in logits.
        paper_spread: the looser product bound of Veličković et al., Prop. 3.1 (upper).
        window: how many keys a query sees at most (sliding window), or None.
        cap: words naming what bounds the head.
        largest_length: per (coefficient, sink_tokens), the largest length not ruled out
            (inf: none is).
        results: one per target, in the order asked.
        spread_kind: "free" (any rotation angles) or "exact" (the real offsets).
        notes: remarks, such as a budget that ran out.
        capacity: the head's capacity where any-token retrieval was asked for, else None.
        inputs: "ball" (any input that the norms let through) or "vocabulary" (real token ids).
        vocabulary: what was found for token ids, or None.

    """

    module: str
    layer: int
    head: int
    kv_head: int
    spread: Enclosure
    paper_spread: float
    window: int | None
    cap: str
    largest_length: float
    results: tuple[Result, ...]
    spread_kind: str = "free"
    notes: tuple[str, ...] = field(default=())
    capacity: Capacity | None = None
    inputs: str = "ball"
    vocabulary: VocabularyBound | None = None
