"""What a witness reaches where positions bias the logits (ALiBi): the target is the nearest key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.balls import product, total
from dispersion.position_bias import LinearBias, coefficient_of_nearest

if TYPE_CHECKING:
    from dispersion.head import Head
    from dispersion.witness import Witness


def possible(head: Head) -> bool:
    """Whether inputs are built for a head: not where a table of distances biases its logits."""
    return head.bias is None or isinstance(head.bias, LinearBias)


def spread(witness: Witness, length: int) -> float:
    """A spread reached by some row in a context of `length` tokens, in logits. **Lower.**

    The top key is the nearest one or the query's own, the bottom key the one farthest away.
    """
    bias = witness.head.bias
    others = witness.visible(length) - (0 if witness.own is None else 1)
    if not isinstance(bias, LinearBias) or others < 1:
        return 0.0
    top, bottom = float(witness.high.lower[0]), float(witness.low.upper[0])
    slack, slope = bias.slack(length), bias.slope
    candidates = [0.0]
    if others > 1:
        grown = product(slope.lower, others - 1)
        candidates.append(total(top, -bottom, grown, -slack).lower)
    if witness.own is not None:
        low, high = float(witness.own.lower[0]), float(witness.own.upper[0])
        grown = product(slope.lower, others)
        candidates.append(total(low, -bottom, grown, -slack).lower)
        candidates.append(total(top, -slope.upper, -high, -slack).lower)
    return max(candidates)


def coefficient(witness: Witness, length: int, tokens: int) -> float:
    """What the `tokens` nearest tokens besides the query's hold together. **Lower.**"""
    bias = witness.head.bias
    own = None if witness.own is None else float(witness.own.upper[0])
    others = witness.visible(length) - (0 if own is None else 1)
    if others < tokens:
        return 1.0 if witness.visible(length) <= tokens else 0.0
    if not isinstance(bias, LinearBias):
        return 0.0
    top, bottom = float(witness.high.lower[0]), float(witness.low.upper[0])
    return coefficient_of_nearest(bias, top, bottom, own, others, tokens)
