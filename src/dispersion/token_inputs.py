"""The heads of a first attention layer against their targets, inputs being real token ids (T15)."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor
from dispersion.checking import Place, check_head
from dispersion.checkpoint.token_text import token_texts
from dispersion.embedding import States
from dispersion.enclosure import Enclosure
from dispersion.errors import UnsupportedError
from dispersion.position_norms import largest_norms
from dispersion.results import Skipped
from dispersion.token_vectors import Projection, collect
from dispersion.token_witness import QueryToken, token_witnesses
from dispersion.verdict import HeadResult, Result, Token, Verdict, VocabularyBound
from dispersion.vocabulary import least_logit, soft_capped, token_spreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dispersion.architectures import LayerPlan, Plan
    from dispersion.embedding import EmbeddingInput
    from dispersion.head import Head
    from dispersion.verdict import Target
    from dispersion.witness import Witness

ITEMS = 2**16  # token and position combinations up to which all pairs are formed
VECTORS = 2**28  # bytes of queries held at once, beside the keys
LATER = "attention that does not read token ids, or whose embedding cannot be read here"
CAP = "token embedding"
NO_WITNESS = "no context of token ids was built: learned positions tie each token to its place"
BY_NORMS = "token and position combinations are too many to pair: bounded by their norms"


def check_tokens(
    layer: LayerPlan,
    targets: Sequence[Target],
    *,
    heads: frozenset[int] | None = None,
    name: Callable[[int], str | None] | None = None,
    items: int = ITEMS,
) -> Iterator[HeadResult]:
    """All targets for a layer that reads the token embedding.

    Args:
        layer: a layer whose `embedding` is known.
        targets: the questions.
        heads: only these; all by default.
        name: the text of a token id, or None where it is not known; by default what a tokenizer
            file beside the weights says.
        items: token and position combinations up to which all pairs are formed; beyond, norms
            bound them (about twice as loose).

    Raises:
        UnsupportedError: the file lacks the embedding, or the layer's QK norm has no bound here.
        CheckpointError: an embedding is malformed or not finite.

    """
    inputs = layer.embedding
    assert inputs is not None
    inputs.check()
    if name is None:
        name = token_texts(inputs.source.info(inputs.tokens)).get
    extras = inputs.extras()
    wanted = (h for h in layer.heads() if heads is None or h[0] in heads)
    for _, group in groupby(wanted, key=lambda h: h[1]):
        found = [(Place(layer.module, layer.layer, i, kv), head) for i, kv, head in group]
        if not all(head.bounded for _, head in found):
            yield from (check_head(head, targets, place=place) for place, head in found)
        elif extras is None or inputs.vocabulary * len(extras.value) <= items:
            yield from _by_products(inputs, found, targets, extras, name)
        else:
            yield from _by_norms(inputs, found, targets, extras, name)


def skipped_for_tokens(found: Plan) -> tuple[Skipped, ...]:
    """What a plan skipped, less the embedding that is now read, and the layers that are not."""
    read = {n for layer in found.layers if layer.embedding for n in layer.embedding.tables}
    others = Counter(
        re.sub(r"(?<=\.)\d+(?=\.)", "*", layer.module)
        for layer in found.layers
        if layer.embedding is None
    )
    return (
        *(each for each in found.skipped if each.name not in read),
        *(Skipped(name, LATER, count) for name, count in others.items()),
    )


def _by_products(
    inputs: EmbeddingInput,
    group: Sequence[tuple[Place, Head]],
    targets: Sequence[Target],
    extras: States | None,
    name: Callable[[int], str | None],
) -> Iterator[HeadResult]:
    sides = [Projection(head, "query") for _, head in group]
    key_side = Projection(group[0][1], "key")
    for side in (*sides, key_side):
        side.check()
    keys = collect(inputs, [key_side], extras)[0]
    per_pass = max(1, VECTORS // max(1, keys.value.nbytes))
    balls = [check_head(head, targets, place=place) for place, head in group]
    bounds: list[VocabularyBound] = []
    asked: list[QueryToken] = []
    for start in range(0, len(sides), per_pass):
        batch = sides[start : start + per_pass]
        for side, queries in zip(batch, collect(inputs, batch, extras), strict=True):
            found = token_spreads(side.head, queries, keys)
            query = int(np.argmax(found.spread))
            bottom = None if found.bottom is None else int(found.bottom[query])
            refs = [
                None if item is None else _token(inputs, item, extras, name)
                for item in (query, int(found.top[query]), bottom)
            ]
            per_token = found.spread.reshape(inputs.vocabulary, -1).max(axis=1)
            bounds.append(_bound(per_token, "products", side.head, balls[len(bounds)], refs))
            if extras is None:
                one = States(queries.value[query : query + 1], queries.error[query : query + 1])
                asked.append(QueryToken(side.head, query, *least_logit(side.head, one, keys)))
    longest = max((t.length for t in targets), default=1)
    rows: list[Witness | None] = [None] * len(group)
    if asked:
        rows = [w.row for w in token_witnesses(inputs, asked, longest)]
    notes = () if extras is None else (NO_WITNESS,)
    for ball, (_, head), bound, row in zip(balls, group, bounds, rows, strict=True):
        yield _answers(ball, head, targets, bound, row, notes)


def _by_norms(
    inputs: EmbeddingInput,
    group: Sequence[tuple[Place, Head]],
    targets: Sequence[Target],
    extras: States,
    name: Callable[[int], str | None],
) -> Iterator[HeadResult]:
    sides = [Projection(head, "query") for _, head in group]
    sides.append(Projection(group[0][1], "key"))
    for side in sides:
        if side.norm is not None or side.head.rotary is not None or not side.reach.centred:
            msg = (
                "learned positions must come with LayerNorm, no rotation and no QK norm for "
                "--inputs vocabulary. Got another combination; use --inputs ball."
            )
            raise UnsupportedError(msg)
    *queries, keys = largest_norms(inputs, sides, extras)
    top = int(np.argmax(keys.norm))
    count = len(extras.value)
    key = _token(inputs, top * count + int(keys.extra[top]), extras, name)
    for (place, head), found in zip(group, queries, strict=True):
        factor = rigor.product(2, head.scale, float(keys.norm[top])).upper
        per_token = soft_capped(head, found.norm * factor * (1 + 2.0**-50))
        query = int(np.argmax(per_token))
        item = query * count + int(found.extra[query])
        refs = [_token(inputs, item, extras, name), key, None]
        ball = check_head(head, targets, place=place)
        bound = _bound(per_token, "norms", head, ball, refs)
        yield _answers(ball, head, targets, bound, None, (BY_NORMS, NO_WITNESS))


def _bound(
    per_token: NDArray[np.float64],
    method: str,
    head: Head,
    ball: HeadResult,
    refs: Sequence[Token | None],
) -> VocabularyBound:
    query, top, bottom = refs
    assert query is not None
    middle = len(per_token) // 2
    own = np.minimum(per_token, ball.spread.upper)
    needed = (_needed(head, answer.target) for answer in ball.results)
    return VocabularyBound(
        tokens=len(per_token),
        largest=float(per_token.max()),
        median=float(np.partition(per_token, middle)[middle]),
        ruled_out=tuple(int(np.count_nonzero(own < spread)) for spread in needed),
        ball=ball.spread.upper,
        method=method,
        query=query,
        top=top,
        bottom=bottom,
    )


def _token(
    inputs: EmbeddingInput,
    item: int,
    extras: States | None,
    name: Callable[[int], str | None],
) -> Token:
    if extras is None:
        return Token(item, text=name(item))
    token, extra = divmod(item, len(extras.value))
    position, kind = divmod(extra, inputs.type_count)
    return Token(token, position, kind if inputs.types is not None else None, name(token))


def _answers(
    ball: HeadResult,
    head: Head,
    targets: Sequence[Target],
    bound: VocabularyBound,
    row: Witness | None,
    notes: tuple[str, ...],
) -> HeadResult:
    """The answers for arbitrary inputs, each ceiling lowered to that of token ids."""
    longest = max((t.length for t in targets), default=1)
    spread = min(bound.largest, ball.spread.upper)
    results = []
    for asked in ball.results:
        target = asked.target
        seen, tokens = _asked(head, target)
        upper = min(asked.ceiling.upper, rigor.set_mass(tokens, seen, spread).upper)
        lower = min(_reached(head, target, row, tokens), upper)
        verdict = Verdict.WITNESSED if lower >= target.coefficient else Verdict.UNRESOLVED
        verdict = Verdict.RULED_OUT if upper < target.coefficient else verdict
        results.append(Result(target, Enclosure(lower, upper), verdict))
    return replace(
        ball,
        spread=Enclosure(0.0 if row is None else min(row.spread(longest), spread), spread),
        cap=CAP if head.soft_cap is None else f"{CAP}, soft cap {head.soft_cap:g}",
        largest_length=min(ball.largest_length, _largest_length(head, targets, spread)),
        results=tuple(results),
        notes=notes,
        inputs="vocabulary",
        vocabulary=bound,
    )


def _asked(head: Head, target: Target) -> tuple[int, int]:
    """How many keys the query sees, and how many of them may share the coefficient."""
    seen = target.length if head.window is None else min(target.length, head.window)
    return seen, min(max(1, target.sink_tokens), seen)


def _needed(head: Head, target: Target) -> float:
    """Rows of less spread than this cannot reach the target (T4)."""
    seen, tokens = _asked(head, target)
    return rigor.required_spread(seen, target.coefficient, items=tokens).lower


def _reached(head: Head, target: Target, row: Witness | None, tokens: int) -> float:
    """The coefficient of the context of token ids, where one was built for this question."""
    varying = head.rotary is not None and head.rotary.length_dependent
    if row is None or target.retrieval != "one" or (varying and target.length != row.length):
        return 0.0
    return row.coefficient(target.length, tokens)


def _largest_length(head: Head, targets: Sequence[Target], spread: float) -> float:
    if not targets:
        return math.inf
    first = targets[0]
    reach = rigor.reachable_length(spread, first.coefficient, items=max(1, first.sink_tokens)).upper
    return math.inf if head.window is not None and reach >= head.window else reach
