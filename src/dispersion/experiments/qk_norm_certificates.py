"""What trained weights of the experiment allow each head at each length, certified by the package.

A head becomes the normal form that audits use: without QK norm the image of the RMSNorm's ball
under its projections (T9), with QK norm that of the norm's gains; a learned sink (T7) and s·log n
(T6) included. No formula stands here.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.balls import product
from dispersion.checking import check_head
from dispersion.enclosure import Enclosure
from dispersion.experiments import qk_norm_model as model
from dispersion.head import BallImage, Head
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.schedules import CONSTANT, Schedule
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS = 6
_HALF = 0.5  # the coefficient that any-token retrieval is asked for; ceilings do not depend on it


def head_of(p: model.Tree, variant: model.Variant, i: int, h: int, n: int) -> Head:
    """Head h of layer i for a query that sees n keys, in normal form."""
    part = slice(h * model.HEAD_DIM, (h + 1) * model.HEAD_DIM)

    def array(name: str) -> Any:
        return np.asarray(p[f"{i}.{name}"], dtype=np.float64)

    def ball(side: str) -> BallImage:
        if variant.qk_norm == "none":
            # Weights are [in, out] here and [out, in] there.
            return projection_ball(array(side)[:, part].T, norm="rms", gain=array("norm"))
        gain = array(f"{side}_gain")
        start = part.start if variant.qk_norm == "layerwise" else 0
        return qk_norm_ball(
            gain, kind="rms", head_dim=model.HEAD_DIM, norm_width=len(gain), start=start
        )

    schedule = CONSTANT
    if variant.remedy == "log":
        # A negative s turns queries around and leaves bounds as they are.
        schedule = Schedule("log", (abs(float(array("s")[h])),))
    return Head(
        ball("q"),
        ball("k"),
        product(Enclosure.exact(model.HEAD_DIM**-0.5), schedule.enclose(n)),
        sink=float(array("sink")[h]) if variant.remedy == "sink" else None,
    )


def certificates(
    p: model.Tree, variant: model.Variant, items: Sequence[int]
) -> dict[str, list[list[float]]]:
    """Upper bounds, [layer and head][length], for queries behind contexts of so many items.

    They see two keys more, the opening token and themselves. ``spread`` of a row, in logits;
    ``one``, the share of one token (T1, T7); ``any``, what every token can get (T12 to T13″);
    ``log_capacity``, log N in nats (T13, T13′).
    """
    found: dict[str, list[list[float]]] = {
        name: [] for name in ("spread", "one", "any", "log_capacity")
    }
    for i in range(model.LAYERS):
        for h in range(model.HEADS):
            for values in found.values():
                values.append([])
            for n in items:
                _check(found, head_of(p, variant, i, h, n + 2), n + 2)
    return found


def _check(found: dict[str, list[list[float]]], head: Head, n: int) -> None:
    result = check_head(head, [Target(n, _HALF), Target(n, _HALF, "any")])
    one, every = (answer.ceiling.upper for answer in result.results)
    assert result.capacity is not None
    for name, value in (
        ("spread", result.spread.upper),
        ("one", one),
        ("any", every),
        ("log_capacity", result.capacity.log_upper),
    ):
        found[name][-1].append(_rounded_up(value))


def _rounded_up(value: float) -> float:
    return float(Context(prec=_DIGITS, rounding=ROUND_CEILING).plus(Decimal(value)))
