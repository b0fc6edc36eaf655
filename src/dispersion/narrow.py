"""Which ellipsoid holds a head's normalised queries or keys best, where they are no whole sphere.

directions.py proves that each of them holds the points; a few are tried, and the one with the least
sum of squared Gram entries is taken. Witnesses still come of the plain images, in whose coordinates
inputs are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.norms import section_ball

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.directions import Cone
    from dispersion.head import BallImage, Head

WIDEST = 512
"""Norms over more coordinates than this are taken to see every direction."""

_SHARES = (0.3, 0.5, 0.7, 0.9)
_STRETCHES = (1.0, 2.0, 8.0, 64.0)


@dataclass(frozen=True, eq=False)
class Narrow:
    """Closer images of a head's queries and keys, good for those two plain images alone.

    Attributes:
        plain: the images of all directions.
        balls: images that hold the same points.

    """

    plain: tuple[BallImage, BallImage]
    balls: tuple[BallImage, BallImage]


def narrowed(head: Head) -> Head:
    """The head with its closer images; the head itself where it has none, or none of its own."""
    if head.narrow is None or head.query is None or head.key is None:
        return head
    pairs = zip((head.query, head.key), head.narrow.plain, strict=True)
    if not all(_same(own, plain) for own, plain in pairs):
        return head
    query, key = head.narrow.balls
    return replace(head, query=query, key=key, narrow=None)


def _same(ball: BallImage, other: BallImage) -> bool:
    names = ("matrix", "offset", "row_error", "offset_error")
    return ball.radius == other.radius and all(
        getattr(ball, name) is getattr(other, name) for name in names
    )


def closest(
    cone: Cone,
    plain: BallImage,
    gain: NDArray[np.float64] | None,
    *,
    eps: float,
    start: int = 0,
    gain_offset: float = 0.0,
    bias: NDArray[np.float64] | None = None,
    still: NDArray[np.bool_] | None = None,
    seen: NDArray[np.float64] | None = None,
) -> BallImage:
    """The image of one head with the least sum of squares of its Gram matrix.

    Args:
        cone: what the norm sees.
        plain: the image of all directions, which is what comes back where nothing is closer.
        gain, start, gain_offset, bias: as for `section_ball`.
        eps: the norm's ε.
        still: for keys, the coordinates that do not turn, on which constants cancel; None for
            queries.
        seen: factors of coordinates that count in that sum; ones by default.

    """
    shares = (0.5,) if cone.levels is None else _SHARES
    moving = still is not None and bool(still.any()) and cone.levels is not None
    counted = np.ones(plain.head_dim, dtype=np.bool_) if still is None else ~still
    by = np.ones(plain.head_dim) if seen is None else seen
    best, least = plain, _size(plain, counted, by)
    for share in shares:
        for stretch in _STRETCHES if moving else (1.0,):
            section = cone.section(share, stretch, eps=eps * len(cone.rows))
            if section is None:
                continue
            ball = section_ball(
                section, plain, gain, start=start, gain_offset=gain_offset, bias=bias
            )
            size = _size(ball, counted, by)
            if size < least:
                best, least = ball, size
    return best


def _size(ball: BallImage, counted: NDArray[np.bool_], by: NDArray[np.float64]) -> float:
    gram = ball.gram * ball.radius.upper**2
    if ball.offset is not None:
        offset = np.where(counted, ball.offset, 0.0)
        gram = gram + np.outer(offset, offset)
    return float(np.linalg.norm(by[:, None] * gram * by))
