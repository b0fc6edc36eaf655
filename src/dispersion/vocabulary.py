"""How far a first layer's logits can spread over real token ids: T15.

For query token a, |l| ≤ max over key tokens b of Σ over pairs |q_a,pair|·|k_b,pair|, whatever the
rotation angles; coordinates that no position turns enter with their exact products, from which a
constant in all keys cancels. Every row of a causal or windowed mask holds some of these keys, so
the bounds hold for it. The rounding of a model's own forward pass is not covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor
from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.embedding import States, norms
from dispersion.products import BLOCK, largest_products

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import Head

_UP = 1 + 2.0**-48
_VISIBLE = 2.0**-16  # relative errors of keys below this are the same for every query


@dataclass(frozen=True, eq=False)
class TokenSpreads:
    """Certified spreads of one head's rows, one for each item that can be the query.

    An item is a token id, or a token id with one of the rows added to it (learned positions).

    Attributes:
        spread: shape (items,), in logits, soft cap included. **Upper**: over all rotation angles.
        top: shape (items,), the key item with the largest logit.
        bottom: shape (items,), the one with the smallest, or None where the top key itself, at
            the opposite angle, has it.

    """

    spread: NDArray[np.float64]
    top: NDArray[np.intp]
    bottom: NDArray[np.intp] | None


def token_spreads(head: Head, queries: States, keys: States, *, block: int = BLOCK) -> TokenSpreads:
    """The certified spread of every query item against all key items (T15).

    Without rotation **tight** up to rounding; with rotation tight over free angles.

    Args:
        head: for its scale, rotation and soft cap.
        queries, keys: stored forms of `token_vectors.stored_form`, shape (items, r).
        block: queries treated at once; results do not depend on it beyond rounding.

    """
    still = _unturned(head)
    value = keys.value
    error = keys.error
    if still:
        # A constant in all keys' unturned coordinates cancels; less of it means less to bound.
        centre = value[:, :still].mean(axis=0)
        size = norms(value) + float(np.linalg.norm(centre)) * _UP
        value = value.copy()
        value[:, :still] -= centre
        error = (error + UNIT_ROUNDOFF * size) * _UP
    size_q, size_k = norms(queries.value), norms(value)
    largest = float(np.max(size_k + error)) * _UP
    against = queries.value
    if float(np.max(error)) > _VISIBLE * largest:
        # One ill-known key must not cost every query: its error enters with its own product.
        value = np.column_stack([value, error])
        against = np.column_stack([against, size_q])
        error = np.zeros(1)
    up, top = largest_products(against, value, block=block)
    down, bottom = up, None
    if still:
        value[:, :still] *= -1
        down, bottom = largest_products(against, value, block=block)
    reach = (gamma(value.shape[1] + 4) * 2 * largest + float(np.max(error))) * _UP
    slack = (size_q * reach + queries.error * largest) * _UP
    spread = (np.maximum(up + down, 0.0) + 2 * slack) * _UP
    return TokenSpreads(soft_capped(head, spread * (head.scale.upper * _UP)), top, bottom)


def soft_capped(head: Head, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spreads behind the head's soft cap, 2c·tanh(δ/2c) (T8). **Upper.**"""
    if head.soft_cap is None:
        return spread
    whole = 2 * head.soft_cap
    most = rigor.capped_spread(np.inf, head.soft_cap).upper
    # tanh is within a few units in the last place, which 2**-48 outweighs.
    capped = whole * np.tanh(spread / whole * _UP) * _UP
    return np.minimum(spread, np.minimum(capped, most))


def least_logit(head: Head, query: States, keys: States) -> tuple[float, int]:
    """The key item whose logit against one query stays smallest, whatever the angle. **Upper.**

    Args:
        head: for its scale and rotation.
        query: stored form of one item, shape (1, r).
        keys: stored forms, shape (items, r).

    """
    size_k = norms(keys.value)
    size = float(norms(query.value)[0])
    slack = size * (gamma(keys.value.shape[1] + 4) * size_k + keys.error)
    slack = slack + float(query.error[0]) * (size_k + keys.error)
    bounds = keys.value @ query.value[0] + slack * _UP
    chosen = int(np.argmin(bounds))
    bound = float(bounds[chosen])
    wide = head.scale.upper if bound > 0 else head.scale.lower
    return bound * wide + abs(bound) * wide * 2.0**-50, chosen


def _unturned(head: Head) -> int:
    """How many leading coordinates of a stored form no position turns."""
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return int(head.key.head_dim) if head.key is not None else 0
    return len(head.rotary.unrotated)
