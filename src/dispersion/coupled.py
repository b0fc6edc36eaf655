"""Spread of heads with latent attention whose keys are known to come of one state (T9, T10).

`latent.py` covers the two parts of a key independently; where the hidden state hardly has more
coordinates than the latent, that loses up to two thirds. Here the largest bound of the cells of
`coupled_keys.py` counts, each of which ties both parts together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from dispersion.coupled_search import Search
from dispersion.covers import groups_of, joint_norm, shaped_cover
from dispersion.ellipsoid import cover
from dispersion.scaling import SMALL

if TYPE_CHECKING:
    from dispersion.coupled_keys import CoupledKeys
    from dispersion.coupled_search import Interval
    from dispersion.head import BallImage, Head

_MOST, _FEW = 41, 8
"""Cells solved for a head, and for one of more than `SMALL` coordinates."""
_WORTHWHILE, _RARELY = 0.985, 0.95
"""Cells are made where a bound may fall below this share of what it is without them."""
_FOUND: WeakKeyDictionary[CoupledKeys, tuple[Search, tuple[Interval, ...]]] = WeakKeyDictionary()


def coupled_norm(head: Head, plain: float) -> float:
    """Upper bound on max |⟨R q, R′ k⟩| over queries, keys and all rotations (T10). **Upper.**

    Before the logit scale and any soft cap. Source: the statement in coupled_keys.py.

    Args:
        head: a head with `coupled` keys.
        plain: a bound for its `key`, which no result exceeds.

    """
    assert head.query is not None
    search, cells = coupled_cells(head, plain)
    if not cells:
        return plain
    return min(plain, max(_norm(head, head.query, search, cell) for cell in cells))


def coupled_cells(head: Head, plain: float = math.inf) -> tuple[Search, tuple[Interval, ...]]:
    """Intervals that hold all σ; none where they would hardly win (floats only).

    Found once for a head.
    """
    assert head.coupled is not None
    assert head.query is not None
    known = _FOUND.get(head.coupled)
    if known is not None and known[0].query is head.query and known[0].rotary is head.rotary:
        return known
    size = head.query.head_dim
    most, enough = (_MOST, _WORTHWHILE) if size <= SMALL else (_FEW, _RARELY)
    with np.errstate(all="ignore"):
        search = Search(head.query, head.coupled, groups_of(head), head.rotary)
        try:
            found = search, tuple(search.best(enough * plain, most))
        except np.linalg.LinAlgError:
            found = search, ()
    _FOUND[head.coupled] = found
    return found


def _norm(head: Head, query: BallImage, search: Search, cell: Interval) -> float:
    assert head.coupled is not None
    keys = head.coupled.image(cell.cell)
    if head.rotary is None:
        return joint_norm(query, keys)
    return shaped_cover(cover(keys), cell.scales, search.forward, search.backward).norm_upper(
        cover(query)
    )
