"""What a file of measurements says of every head at longer lengths (T14). Estimates.

From the means by octave of length that every document's record holds: one run over documents shows
each head at all lengths up to theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.enclosure import Estimate
from dispersion.errors import ArgumentError
from dispersion.measure.lengths import RECENT, Exponent, Prediction, dispersion_exponent, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FIRST = 5  # octaves of fewer than 32 keys have no part: rows are still filling up
MOST_ODDS = math.log(1e5)  # shares beyond 1 - 1e-5, and below 1e-5, are taken for these


@dataclass(frozen=True)
class HeadLengths:
    """One head's means by octave of the number of unmasked keys.

    Attributes:
        layer, head: indices.
        octaves: shape (b,): i of 2^i ≤ n < 2^(i+1), those that every document has, well filled.
        lengths: shape (b,): geometric mean of n.
        window: the most keys that any row saw, where that is less than the documents have tokens;
            None for a head that sees them all.
        log_odds: shape (documents, b): means of the largest coefficient's log odds.
        values: shape (documents, b) each: mean "coefficient", "entropy", and share of the first
            tokens (as many as were asked for at most), "sink".
    """

    layer: int
    head: int
    octaves: tuple[int, ...]
    lengths: Floats
    window: int | None
    log_odds: Floats
    values: dict[str, Floats]

    def up_to(self, length: int) -> HeadLengths:
        """Without the rows of more than `length` keys."""
        kept = [i for i, octave in enumerate(self.octaves) if 2 ** (octave + 1) <= length]
        return HeadLengths(
            self.layer,
            self.head,
            tuple(self.octaves[i] for i in kept),
            self.lengths[kept],
            self.window,
            self.log_odds[:, kept],
            {name: table[:, kept] for name, table in self.values.items()},
        )


@dataclass(frozen=True)
class HeadPrediction:
    """One head at other lengths. Estimates.

    Attributes:
        layer, head: indices.
        exponent: γ over the last octaves measured.
        window: see `HeadLengths`: a window's rows grow no further, so its predictions are for as
            many keys as it sees.
        values: for "coefficient" (mean of the largest), "entropy" and "sink" a prediction at each
            length.
    """

    layer: int
    head: int
    exponent: Exponent
    window: int | None
    values: dict[str, tuple[Prediction, ...]]


def by_length(lines: Sequence[dict[str, Any]]) -> list[HeadLengths]:
    """Every head's means by octave, from documents as a file of measurements holds them.

    Raises:
        ArgumentError: no documents, documents of different models, or measured without octaves.
    """
    if not lines:
        msg = "lines must hold at least one measured document. Got none."
        raise ArgumentError(msg)
    if not all("octaves" in layer for line in lines for layer in line["layers"]):
        msg = "measurements must hold means by octave of length: measure the documents anew."
        raise ArgumentError(msg)
    shapes = {tuple((x["layer"], len(x["rows"])) for x in line["layers"]) for line in lines}
    if len(shapes) != 1:
        msg = "lines must be of one model. Got documents with different layers or heads."
        raise ArgumentError(msg)
    found = []
    for place, (layer, heads) in enumerate(next(iter(shapes))):
        layers = [line["layers"][place] for line in lines]
        common = sorted(set.intersection(*(_filled(x["octaves"]) for x in layers)))
        at = [[x["octaves"]["index"].index(octave) for octave in common] for x in layers]
        items = np.array(
            [np.take(x["octaves"]["items"], i) for x, i in zip(layers, at, strict=True)]
        )
        mark = _sink(layers[0]["marks"])
        for head in range(heads):
            most = max(x["largest"]["items"][head] for x in layers)
            found.append(
                HeadLengths(
                    layer=layer,
                    head=head,
                    octaves=tuple(common),
                    lengths=np.exp(np.log(items).mean(0)) if common else np.zeros(0),
                    window=int(most) if most < min(line["tokens"] for line in lines) else None,
                    log_odds=_table(layers, at, "log_odds", head),
                    values={
                        "coefficient": _table(layers, at, "coefficient", head),
                        "entropy": _table(layers, at, "entropy", head),
                        "sink": _table(layers, at, "mass", head, mark),
                    },
                )
            )
    return found


def _sink(marks: list[str]) -> int:
    """The largest set of first tokens that was measured."""
    counts = [int(name.split()[1]) if name.startswith("first ") else 0 for name in marks]
    if not any(counts):
        msg = "measurements must hold the share of first tokens: measure with --first."
        raise ArgumentError(msg)
    return int(np.argmax(counts))


def _table(
    layers: list[dict[str, Any]], at: list[list[int]], name: str, head: int, mark: int | None = None
) -> Floats:
    """Shape (documents, octaves); nan where nothing finite was measured."""
    rows = []
    for layer, places in zip(layers, at, strict=True):
        values = [layer["octaves"]["mean"][name][head][place] for place in places]
        values = values if mark is None else [value[mark] for value in values]
        rows.append([math.nan if value is None else float(value) for value in values])
    return np.array(rows, dtype=np.float64).reshape(len(layers), len(at[0]))


def _filled(octaves: dict[str, Any]) -> set[int]:
    """Octaves with at least a quarter of their rows."""
    pairs = zip(octaves["index"], octaves["rows"], strict=True)
    return {index for index, rows in pairs if index >= FIRST and 4 * rows >= 2**index}


def predict_heads(
    heads: Sequence[HeadLengths], lengths: Sequence[int], *, level: float = 0.95
) -> list[HeadPrediction]:
    """Coefficient, entropy and share of the first tokens of every head at other lengths (T14).

    Heads with fewer than two octaves in common, or none that a window leaves, are left out.

    Args:
        heads: from `by_length`.
        lengths: n of the predictions, in tokens.
        level: of the intervals.
    """
    found = []
    for head in heads:
        if (gamma := exponent(head, level=level)) is None:
            continue
        values = {
            name: tuple(predict_one(head, name, n, level=level) for n in lengths)
            for name in head.values
        }
        found.append(HeadPrediction(head.layer, head.head, gamma, head.window, values))
    return found


def exponent(head: HeadLengths, *, level: float = 0.95) -> Exponent | None:
    """γ of a head over its `RECENT` longest octaves; None where there are fewer than two."""
    recent = slice(max(0, len(head.lengths) - RECENT), len(head.lengths))
    x, y = head.lengths[recent], head.log_odds[:, recent]
    if len(x) < 2 or not np.isfinite(y).all():
        return None
    return dispersion_exponent(x, y, level=level)


def log_odds(shares: Floats) -> Floats:
    """log(p/(1-p)), within what a mean of float32 shares can tell."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(shares) - np.log1p(-np.minimum(shares, 1.0))
    return np.clip(odds, -MOST_ODDS, MOST_ODDS)


def predict_one(head: HeadLengths, name: str, length: int, *, level: float = 0.95) -> Prediction:
    """One statistic of a head at another length, as `predict_heads` gives it."""
    keys = length if head.window is None else min(length, head.window)
    table = head.values[name]
    if name == "entropy":
        return predict(head.lengths, table, keys, quantity="entropy", level=level)
    odds = log_odds(table)
    found = predict(head.lengths, odds, keys, level=level)
    # Shares that a mean of float32 shares cannot tell from nothing, or from everything.
    if odds[:, -1].min() <= -MOST_ODDS:
        found = replace(found, lower=Estimate(0.0))
    if odds[:, -1].max() >= MOST_ODDS:
        found = replace(found, upper=Estimate(1.0))
    return found
