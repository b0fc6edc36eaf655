"""Logits with a bounded term beside query times key, whatever it depends on, as a plain head.

Statement. Let a row's logits be s⟨q, k⟩ + b with q and k in balls and all b of the row within an
interval of length W. Up to a constant of the row they are s⟨(q, 1), (k, t)⟩ with |t| ≤ W/2s, and
for every share 0 < w < 1 the pair (k, t) lies in the joint cover of the two (latent.py). So the
head with one more coordinate bounds every row, and with w = α/(α + W/2), α the largest modulus of
s⟨q, k⟩, its spread is 2α + W: the sum of the two spreads, which is the largest there is where the
term does not depend on query and key.

Proof. By Cauchy–Schwarz s²⟨(q, 1), (k, t)⟩² ≤ (w + (1 − w))·(α²/w + (W/2)²/(1 − w)), which is
(α + W/2)² at that w.

A term that depends on the query's state beside its position is another one for every query: then
keys have no vectors in common, and nothing is said of any-token retrieval (`common`). Bounds on one
row hold all the same.

A factor of queries (growth.py) then multiplies the term as well; where it does not, heads of this
form have none.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.balls import product, quotient
from dispersion.cholesky import gamma
from dispersion.errors import ArgumentError
from dispersion.head import BallImage, Head
from dispersion.latent import joint_ball
from dispersion.spread import spread_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = "bounded bias"


def with_width(head: Head, width: float, *, common: bool = True) -> Head:
    """The head whose logits get a term from an interval of this length. **Upper.**

    Nothing is witnessed of it. A width that is not finite leaves the head unbounded.

    Args:
        head: a head that does not rotate and has no soft cap.
        width: W in logits, an upper bound.
        common: whether the term of a key is the same for all queries at one position.

    Raises:
        ArgumentError: the head rotates or has a soft cap, or width is negative.

    """
    if head.rotary is not None or head.soft_cap is not None or not width >= 0:
        msg = f"width must be 0 or more, of a head without rotary and soft_cap. Got {width}."
        raise ArgumentError(msg)
    plain = replace(head, reach=None, inner=None, coupled=None, common=head.common and common)
    if head.query is None or head.key is None or width == 0:
        return plain
    if math.isinf(width):
        return replace(plain, query=None, key=None)
    half = spread_bound(plain).spread / 2
    total = half + width / 2
    share = half / total if total else 0.5
    size = quotient(width, product(2.0, plain.scale.lower)).upper if width else 0.0
    term = BallImage(np.array([[size]]))
    words = f"{head.key.cap}, {WORDS}"
    return replace(
        plain,
        query=_with_one(head.query, words),
        key=joint_ball(head.key, term, share, cap=words),
    )


def _with_one(ball: BallImage, words: str) -> BallImage:
    """The image with one more coordinate, which is 1."""
    size, columns = ball.matrix.shape
    pad = {
        name: None if value is None else np.append(value, 0.0)
        for name in ("row_error", "offset_error")
        for value in [getattr(ball, name)]
    }
    offset = np.zeros(size) if ball.offset is None else ball.offset
    values = {f.name: getattr(ball, f.name) for f in fields(ball)}
    more = {
        "matrix": np.vstack([ball.matrix, np.zeros((1, columns))]),
        "offset": np.append(offset, 1.0),
        "cap": words,
        "given": None,
    }
    return BallImage(**values | pad | more)


def still(head: Head) -> Head:
    """A head with gains alone behind norms, with no rotation and the same spread over all angles.

    Both coordinates of a rotated pair get the larger gain of the two. **Tight** over free phases.

    Raises:
        ArgumentError: a ball is not one of gains alone.

    """
    if head.rotary is None:
        return head
    assert head.query is not None
    assert head.key is not None
    balls = []
    for ball in (head.query, head.key):
        if not ball.is_diagonal or ball.offset is not None:
            msg = "head must have norms with gains alone on queries and keys. Got another one."
            raise ArgumentError(msg)
        gains = np.abs(np.diag(ball.matrix))
        error = ball.row_error
        for first, second in head.rotary.pairs:
            gains[[first, second]] = gains[[first, second]].max()
            if error is not None:
                error = error.copy()
                error[[first, second]] = error[[first, second]].max()
        balls.append(replace(ball, matrix=np.diag(gains), row_error=error, given=None))
    return replace(head, query=balls[0], key=balls[1], rotary=None, reach=None, inner=None)


def widest_difference(reads: BallImage, profiles: NDArray[np.float64]) -> float:
    """The largest ⟨r, p − p′⟩ of a point r of a ball image and two columns p, p′. **Upper.**

    Attained but for rounding, of relative size 1e-7, where the image has no offset.

    Args:
        reads: what a query's input makes, r of m coordinates, about 0.
        profiles: shape (m, count), one column for each distance.

    """
    assert reads.offset is None
    size, count = profiles.shape
    if count < 2:
        return 0.0
    # The exact Gram matrix of the stored rows lies below this one: |Σ xᵢxⱼEᵢⱼ| ≤ c·(Σ|xᵢ|sᵢ)².
    slack = reads.coefficient * size * reads.row_sizes**2
    form = reads.gram + np.diag(slack * (1 + 2.0**-40))
    inner = profiles.T @ form @ profiles
    squares = np.diag(inner)
    widest = float(np.max(squares[:, None] + squares[None, :] - 2 * inner))
    moduli = np.abs(profiles).T
    most = float(np.max(moduli @ np.sqrt(np.diag(form))))
    widest = math.sqrt(max(widest, 0.0) + 8 * gamma(2 * size + 16) * most**2)
    if reads.row_error is not None:
        widest += 2 * float(np.max(moduli @ reads.row_error))
    return product(reads.radius, widest * (1 + 2.0**-40)).upper
