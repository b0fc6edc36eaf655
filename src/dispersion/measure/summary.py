"""What many documents showed of each head, beside what is proved of it.

Measured values come from the documents that were read and say nothing of others. The certified
spread is a theorem about all inputs; the difference of the two is the head's headroom. A measured
spread above the certified one, beyond rounding, would be an error of this package, and is reported
as one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError
from dispersion.measure.certified import Certified, certificates, contradictions
from dispersion.measure.predictions import by_length, exponent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.measure.lengths import Exponent
    from dispersion.results import Audit

THRESHOLD = 0.1  # a retrieval head's least score, after Wu et al.
SINK = 0.3  # a sink's least mean share, after Gu et al.


@dataclass(frozen=True)
class HeadSummary:
    """One head over all documents. Measured, but for `certified`.

    Attributes:
        layer, head: indices.
        spread, effective_spread, coefficient: largest over documents and queries.
        entropy, mean_coefficient, sink_share: means over documents of their means over queries.
        mass: by marked set, the same.
        exponent: γ over the longest octaves of length, with its interval's ends (estimates;
            infinite ends are None), or None where documents are too short.
        retrieval_score: mean share of the answer's tokens that the head copied, over documents in
            which the model found the answer; None where nothing was retrieved.
        certified: theorems about the same head; None where not asked for, refused or unbounded.
        headroom: certified spread - spread, in logits.
        beyond: measured values that lie beyond the certificate by more than rounding.
    """

    layer: int
    head: int
    spread: float
    effective_spread: float
    coefficient: float
    entropy: float
    mean_coefficient: float
    sink_share: float
    mass: dict[str, float]
    exponent: tuple[float, float | None, float | None] | None
    retrieval_score: float | None = None
    certified: Certified | None = None
    headroom: float | None = None
    beyond: tuple[str, ...] = ()


def summarise(
    lines: Sequence[dict[str, Any]], audit: Audit | None = None, *, dtype: str = "float32"
) -> tuple[HeadSummary, ...]:
    """Join the documents of a file of measurements, and certificates where given.

    Args:
        lines: documents, as `records.Records.found` holds them.
        audit: of the same checkpoint.
        dtype: what the model computed in: it sets how far rounding may go.

    Raises:
        ArgumentError: no documents, or documents with different layers.
    """
    lengths = {(x.layer, x.head): x for x in by_length(lines)}
    shape = [(x["layer"], len(x["rows"])) for x in lines[0]["layers"]]
    proved = certificates(audit, max(line["tokens"] for line in lines))
    scores = retrieval_scores(lines)
    found = []
    for place, (layer, heads) in enumerate(shape):
        layers = [line["layers"][place] for line in lines]
        for head in range(heads):
            one = _head(layers, layer, head)
            certified = proved.get((layer, head))
            if certified is not None:
                one = replace(
                    one,
                    certified=certified,
                    headroom=certified.spread - one.spread,
                    beyond=contradictions(layers, head, certified, dtype),
                )
            score = None if scores is None else float(scores[place][head])
            gamma = _ends(exponent(lengths[layer, head]))
            found.append(replace(one, exponent=gamma, retrieval_score=score))
    return tuple(found)


def retrieval_scores(lines: Sequence[dict[str, Any]]) -> list[Any] | None:
    """Mean scores, by layer and head, over documents whose answer was found (Wu et al.)."""
    kept = [line["retrieval"]["scores"] for line in lines if line.get("retrieval", {}).get("found")]
    return None if not kept else [np.mean(layer, axis=0) for layer in zip(*kept, strict=True)]


def sink_rate_of(lines: Sequence[dict[str, Any]]) -> float | None:
    """Share of heads and documents whose mean share on the first token exceeds `SINK`.

    Sink_1^0.3 of Gu et al. 2024 (https://arxiv.org/abs/2410.10781), who take contexts of 64 tokens;
    None where single tokens were not measured.
    """
    shares = [
        head[0]
        for line in lines
        for layer in line["layers"]
        for head in layer["token_means"]
        if head and head[0] is not None
    ]
    return float(np.mean(np.array(shares) > SINK)) if shares else None


def _finite(value: float | None, layer: int, name: str) -> float:
    if value is None:
        msg = (
            f"measurements must be finite to be summarised. Got null for {name} in layer {layer}: "
            "the model's logits were not finite there."
        )
        raise ArgumentError(msg)
    return float(value)


def _head(layers: list[dict[str, Any]], layer: int, head: int) -> HeadSummary:
    def over(part: str, name: str) -> list[float]:
        return [_finite(x[part][name][head], layer, name) for x in layers]

    marks = [name for name in layers[0]["marks"] if all(name in x["marks"] for x in layers)]
    return HeadSummary(
        layer=layer,
        head=head,
        spread=max(over("largest", "spread")),
        effective_spread=max(over("largest", "effective_spread")),
        coefficient=max(over("largest", "coefficient")),
        entropy=float(np.mean(over("mean", "entropy"))),
        mean_coefficient=float(np.mean(over("mean", "coefficient"))),
        sink_share=float(np.mean(over("mean", "sink_share"))),
        mass={
            name: float(
                np.mean(
                    [
                        _finite(x["mean"]["mass"][head][x["marks"].index(name)], layer, "mass")
                        for x in layers
                    ]
                )
            )
            for name in marks
        },
        exponent=None,
    )


def _ends(found: Exponent | None) -> tuple[float, float | None, float | None] | None:
    if found is None:
        return None
    ends = [x.value if np.isfinite(x.value) else None for x in (found.lower, found.upper)]
    return found.value.value, ends[0], ends[1]


def as_json(heads: Sequence[HeadSummary], documents: int) -> dict[str, Any]:
    """What JSON can hold."""
    return {
        "format": "dispersion.measure-summary/1",
        "documents": documents,
        "heads": [asdict(head) for head in heads],
    }


def table(heads: Sequence[HeadSummary], documents: int) -> str:
    """One line a layer, for people."""
    lines = [
        f"Measured on {documents} document{'s' if documents != 1 else ''}: "
        "no bound on any other input.",
        "",
        "  layer  heads  spread ≈  effective ≈  entropy ≈  first token ≈  exponent ≈  certified ≤"
        "  headroom ≈",
    ]
    for layer in dict.fromkeys(head.layer for head in heads):
        here = [head for head in heads if head.layer == layer]
        slopes = [head.exponent[0] for head in here if head.exponent is not None]
        certified = [x.certified.spread for x in here if x.certified is not None]
        rooms = [x.headroom for x in here if x.headroom is not None]
        first = [x.mass["first 1"] for x in here if "first 1" in x.mass]
        cells = (
            f"{layer:7d}",
            f"{len(here):7d}",
            f"{max(x.spread for x in here):10.2f}",
            f"{max(x.effective_spread for x in here):13.2f}",
            f"{np.mean([x.entropy for x in here]):11.2f}",
            f"{np.mean(first):15.3f}" if first else f"{'-':>15}",
            f"{np.median(slopes):12.2f}" if slopes else f"{'-':>12}",
            f"{_up(max(certified)):13.2f}" if certified else f"{'-':>13}",
            f"{min(rooms):12.2f}" if rooms else f"{'-':>12}",
        )
        lines.append("".join(cells))
    lines += [
        "",
        "Spreads, in logits: largest over heads, queries, documents; headroom: the layer's least.",
        "Entropy (nats) and first token's share: means. Exponent: median over heads.",
    ]
    scored = [x.retrieval_score for x in heads if x.retrieval_score is not None]
    if scored:
        many = sum(score >= THRESHOLD for score in scored)
        lines.append(
            f"Retrieval heads (score ≥ {THRESHOLD:g} where the answer was found): {many} of "
            f"{len(scored)}."
        )
    return "\n".join(lines)


def _up(value: float) -> float:
    """To two digits, never below: the column is an upper bound."""
    return float(np.ceil(value * 100) / 100)
