"""Rows of heads that do not rotate, the query token's own key told apart.

Statement. Let the contents of a row differ by at most δ, those of another key and the own key by at
most δ₊ and those of the own key and another one by at most δ₋; let biases of positions differ by at
most b for two other keys, by b₊ for the own key and another one and by b₋ for another one and the
own key. A row of three keys or more spreads by at most max(δ + b, δ₋ + b₊, δ₊ + b₋), a row of two
by at most max(δ₋ + b₊, δ₊ + b₋), and one of a single key not at all.

Proof. The largest and the smallest logit of a row are those of two other keys, or one of them is
that of the own key.

δ₊ and δ₋ are smaller than δ, since query and own key have one input (own_key.py). Other keys may be
anything, so that nothing is gained without biases where a query sees three keys or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dispersion import own_key, rigor
from dispersion.cholesky import norm_upper
from dispersion.ellipsoid import cover
from dispersion.own_key import JointBall, has_own_key
from dispersion.picked import PickedHead
from dispersion.position_bias import AroundOwn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dispersion.head import Head

_UP = 1 + 2.0**-48
_SMALLEST, _LARGEST = 2.0**-200, 2.0**200
_WORTH = 0.005  # of a spread: what must be there to gain


def own_spreads(head: Head, spread: float, lengths: Iterable[int]) -> dict[int, float]:
    """Spreads of rows in contexts of these lengths, where anything is gained. **Upper.**

    Args:
        head: the head.
        spread: δ, with the logit scale and the soft cap, without biases of positions.
        lengths: tokens in the context.
    """
    if isinstance(head, PickedHead) or head.chunked or not head.self_attention:
        return {}
    # Whose inputs are not known may see keys of other kinds; layers may share keys.
    if head.reach is None or head.reach.keys is not None:
        return {}
    tied = head.rotary is None and head.growth is None and has_own_key(head) and _in_range(head)
    found: dict[int, float] = {}
    differences: tuple[float, float] | None = None
    for length in sorted(set(lengths)):
        seen = head.visible(length)
        if not head.causal:  # as many on the other side
            seen = min(length, 2 * seen - 1)
        if seen == 1:
            found[length] = 0.0
        around = _around(head, length)
        if seen == 1 or not tied or around is None:
            continue
        others = rigor.total(spread, around.others).upper if seen > 2 else 0.0
        biases = 0.0 if head.bias is None else head.bias.spread(length)
        usual = rigor.total(spread, biases).upper
        if usual - others <= _WORTH * usual:
            continue
        differences = differences or _own_differences(head)
        above, below = (_capped(head, spread, x) for x in differences)
        own = rigor.total(below, around.above).upper, rigor.total(above, around.below).upper
        found[length] = max(0.0, others, *own)
    return found


def _in_range(head: Head) -> bool:
    """Whether squares of both sides and of their products are float64."""
    assert head.query is not None
    assert head.key is not None
    return all(_SMALLEST < side.norm_upper < _LARGEST for side in (head.query, head.key))


def _around(head: Head, length: int) -> AroundOwn | None:
    """How biases of positions lie around the own key's."""
    return AroundOwn(0.0, 0.0, 0.0) if head.bias is None else head.bias.around_own(length)


def _capped(head: Head, spread: float, difference: float) -> float:
    if head.soft_cap is not None:
        difference = rigor.capped_spread(difference, head.soft_cap).upper
    return min(difference, spread)


def _own_differences(head: Head) -> tuple[float, float]:
    """Bounds on another key's content less the own one's, and the other way round."""
    assert head.query is not None
    assert head.key is not None
    joint = JointBall.of(head, None)
    size = head.query.head_dim
    keys = cover(head.key, keep=np.zeros(size, dtype=np.bool_))
    still, line, weights = np.eye(size), np.zeros(size), (1.0, 1.0)
    reach = head.query.norm_upper, head.key.norm_upper
    # Queries and own keys may differ from the float ones by their slacks.
    slack = 2 * joint.query_slack * reach[1] + joint.key_slack * reach[0]
    if keys.row_error is not None:
        slack += norm_upper(keys.row_error) * reach[0]
    found = []
    for sign in (1.0, -1.0):
        alpha, share, *_ = own_key.tuned(joint, keys.gram, line, sign, weights)
        bound = own_key.certified(joint, still, keys, line, sign, weights, alpha, share)
        found.append((bound + slack) * _UP * head.scale.upper * _UP)
    return found[0], found[1]
