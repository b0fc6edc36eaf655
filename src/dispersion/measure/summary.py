"""What many documents showed of each head, beside what is proved of it.

Measured values come from the documents that were read and say nothing of others. The certified
spread is a theorem about all inputs; the difference of the two is the head's headroom. A measured
spread above the certified one, beyond rounding, would be an error of this package, and is reported
as one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError
from dispersion.measure.lengths import dispersion_exponent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.results import Audit

# Relative allowance for the model's own forward pass, which is not exact arithmetic on its weights:
# what rounding of norms, projections and rotations may add up to, not a proved bound.
FORWARD = {"float64": 1e-4, "float32": 1e-4, "bfloat16": 2.0**-6, "float16": 2.0**-6}
SHORTEST = 16  # keys of a row that has part in an exponent


@dataclass(frozen=True)
class HeadSummary:
    """One head over all documents. Measured, but for `certified_spread`.

    Attributes:
        layer, head: indices.
        spread, effective_spread, coefficient: largest over documents and queries.
        entropy, mean_coefficient, sink_share: means over documents of their means over queries.
        mass: by marked set, the same.
        exponent: γ with its interval's ends (estimates; infinite ends are None), or None where
            documents are too short or their chosen queries too few.
        certified_spread: certified upper bound on every row's spread; None where not asked for,
            refused or unbounded.
        headroom: certified_spread - spread, in logits.
        beyond: whether the measured spread lies above the certified one by more than rounding.
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
    certified_spread: float | None = None
    headroom: float | None = None
    beyond: bool = False


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
    if not lines:
        msg = "lines must hold at least one measured document. Got none."
        raise ArgumentError(msg)
    shapes = {tuple((x["layer"], len(x["rows"])) for x in line["layers"]) for line in lines}
    if len(shapes) != 1:
        msg = "lines must be of one model. Got documents with different layers or heads."
        raise ArgumentError(msg)
    proved = {} if audit is None else {(x.layer, x.head): x.spread.upper for x in audit.heads}
    found = []
    for place, (layer, heads) in enumerate(next(iter(shapes))):
        layers = [line["layers"][place] for line in lines]
        for head in range(heads):
            certified = proved.get((layer, head))
            if certified is not None and not np.isfinite(certified):
                certified = None
            found.append(_head(layers, layer, head, certified, FORWARD[dtype]))
    return tuple(found)


def _head(
    layers: list[dict[str, Any]], layer: int, head: int, certified: float | None, forward: float
) -> HeadSummary:
    def over(part: str, name: str) -> list[float]:
        return [float(x[part][name][head]) for x in layers]

    spread = max(over("largest", "spread"))
    allowance = 0.0
    if certified is not None:
        allowance = forward * certified + 2 * max(x["logit_error"][head] for x in layers)
    marks = [name for name in layers[0]["marks"] if all(name in x["marks"] for x in layers)]
    return HeadSummary(
        layer=layer,
        head=head,
        spread=spread,
        effective_spread=max(over("largest", "effective_spread")),
        coefficient=max(over("largest", "coefficient")),
        entropy=float(np.mean(over("mean", "entropy"))),
        mean_coefficient=float(np.mean(over("mean", "coefficient"))),
        sink_share=float(np.mean(over("mean", "sink_share"))),
        mass={
            name: float(np.mean([x["mean"]["mass"][head][x["marks"].index(name)] for x in layers]))
            for name in marks
        },
        exponent=_exponent(layers, head),
        certified_spread=certified,
        headroom=None if certified is None else certified - spread,
        beyond=certified is not None and spread > certified + allowance,
    )


def _exponent(
    layers: list[dict[str, Any]], head: int
) -> tuple[float, float | None, float | None] | None:
    """γ from the chosen rows, averaged within octaves of n that every document has."""
    tables = []
    for x in layers:
        items = np.array([np.nan if v is None else v for v in x["chosen"]["items"][head]])
        odds = np.array([np.nan if v is None else v for v in x["chosen"]["log_odds"][head]])
        good = np.isfinite(odds) & (items >= SHORTEST)
        octave = np.floor(np.log2(np.where(good, items, 1))).astype(int)
        tables.append(
            {
                int(b): (np.log(items[octave == b]).mean(), odds[octave == b].mean())
                for b in np.unique(octave[good])
            }
        )
    common = sorted(set.intersection(*(set(table) for table in tables)))
    if len(common) < 2:
        return None
    lengths = [float(np.exp(np.mean([table[b][0] for table in tables]))) for b in common]
    found = dispersion_exponent(lengths, [[table[b][1] for b in common] for table in tables])
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
        certified = [x.certified_spread for x in here if x.certified_spread is not None]
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
    return "\n".join(lines)


def _up(value: float) -> float:
    """To two digits, never below: the column is an upper bound."""
    return float(np.ceil(value * 100) / 100)
