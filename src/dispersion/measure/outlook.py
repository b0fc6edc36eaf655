"""Predictions for people and as JSON: will a head still look at one token at 128K? Estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.lengths import format_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.measure.lengths import Prediction
    from dispersion.measure.predictions import HeadPrediction

TRIED = 8  # how many times the measured length predictions were held to longer runs
SHARP = 0.5  # a mean largest coefficient from which a head is counted as sharp


def predictions_as_json(found: Sequence[HeadPrediction]) -> list[dict[str, Any]]:
    """One entry a head; numbers that are not finite are None."""
    return [
        {
            "layer": head.layer,
            "head": head.head,
            "window": head.window,
            "exponent": {
                "value": _plain(head.exponent.value.value),
                "lower": _plain(head.exponent.lower.value),
                "upper": _plain(head.exponent.upper.value),
                "level": head.exponent.level,
                "units": head.exponent.units,
            },
            **{name: [_one(x) for x in values] for name, values in head.values.items()},
        }
        for head in found
    ]


def _one(found: Prediction) -> dict[str, Any]:
    parts = ("value", "lower", "upper", "damped", "constant", "dispersed")
    return {
        "length": found.length,
        **{name: _plain(getattr(found, name).value) for name in parts},
    }


def _plain(value: float) -> float | None:
    return float(f"{value:.7g}") if np.isfinite(value) else None


def outlook(found: Sequence[HeadPrediction], lengths: Sequence[int], measured: float) -> str:
    """What is expected at each length: one line a length, then one a layer.

    Args:
        found: from `predict_heads`.
        lengths: those that were asked for.
        measured: the longest length that the predictions start from, in tokens.

    Lengths rise.
    """
    if not found:
        return "No prediction: documents must show every head at two octaves of length or more."
    start = format_length(round(measured))
    lines = [
        f"Predicted from rows of up to about {start} tokens, on these documents. Estimates: they",
        "suppose that heads go on as they did, and are no bound. Mean largest coefficient:",
        "",
        f"  tokens    heads at {SHARP:g} or more    if nothing changed    fully dispersed    "
        "surely (whole interval)",
    ]
    for place, length in enumerate(lengths):
        heads = [head.values["coefficient"][place] for head in found]
        counts = [
            sum(getattr(x, name).value >= SHARP for x in heads)
            for name in ("value", "constant", "dispersed", "lower")
        ]
        lines.append(
            f"  {format_length(length):>6}    ≈{counts[0]:<18}  ≈{counts[1]:<18}  "
            f"≈{counts[2]:<15}  ≈{counts[3]}"
        )
    lines += ["", "  layer  heads  exponent ≈  coefficient ≈ now" + "".join(
        f"  at {format_length(length):>4}" for length in lengths
    ) + "  entropy ≈ then  first tokens ≈ then"]  # fmt: skip
    for layer in dict.fromkeys(head.layer for head in found):
        here = [head for head in found if head.layer == layer]
        first = [head.values["coefficient"] for head in here]
        shares = [[one[place].value.value for one in first] for place in range(len(lengths))]
        last = {
            name: [x.values[name][-1].value.value for x in here] for name in ("entropy", "sink")
        }
        lines.append(
            f"  {layer:5d}  {len(here):5d}"
            f"  {np.median([head.exponent.value.value for head in here]):10.2f}"
            f"  {np.mean([one[0].constant.value for one in first]):17.3f}"
            + "".join(f"  {np.mean(share):7.3f}" for share in shares)
            + f"  {np.mean(last['entropy']):14.2f}  {np.mean(last['sink']):19.3f}"
        )
    if lengths[-1] > TRIED * measured:
        lines += [
            "",
            f"{format_length(lengths[-1])} is {lengths[-1] / measured:.0f} times the length that "
            "was measured. Predictions",
            f"were only ever tried at {TRIED} times: measure longer documents.",
        ]
    lines += [
        "",
        "Means over a layer's heads; exponent: median. Each head with its interval: --json.",
    ]
    return "\n".join(lines)
