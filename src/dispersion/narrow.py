"""Which ellipsoid holds a head's normalised queries or keys best, where they are no whole sphere.

directions.py proves that each of them holds the points; a few are tried, and the one with the least
sum of squared Gram entries is taken. Witnesses still come of the plain images, in whose coordinates
inputs are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma, norm_upper
from dispersion.norms import section_ball

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.directions import Cone
    from dispersion.head import BallImage, Head

_UP = 1 + 2.0**-40

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


def through(cone: Cone, ball: BallImage, seen: NDArray[np.float64] | None = None) -> BallImage:
    """The image of a latent behind a norm, where it does not point everywhere.

    Args:
        cone: what the norm sees.
        ball: the image of all directions, its matrix behind the norm, without offset; what comes
            back where nothing is closer.
        seen: as for `closest`.

    """
    assert ball.offset is None
    assert ball.offset_error is None
    counted = np.ones(ball.head_dim, dtype=np.bool_)
    by = np.ones(ball.head_dim) if seen is None else seen
    best, least = ball, _size(ball, counted, by)
    for share in (0.5,) if cone.levels is None else _SHARES:
        section = cone.section(share)
        if section is None:
            continue
        # ‖M‖ is at most its Frobenius norm; the product is rounded once for each coordinate.
        largest = norm_upper(section.matrix.ravel())
        error = gamma(len(section.matrix) + 8) * ball.row_sizes
        if ball.row_error is not None:
            error = error + ball.row_error
        found = replace(
            ball, matrix=ball.matrix @ section.matrix, row_error=error * (largest * _UP), given=None
        )
        size = _size(found, counted, by)
        if size < least:
            best, least = found, size
    return best


def _size(ball: BallImage, counted: NDArray[np.bool_], by: NDArray[np.float64]) -> float:
    gram = ball.gram * ball.radius.upper**2
    if ball.offset is not None:
        offset = np.where(counted, ball.offset, 0.0)
        gram = gram + np.outer(offset, offset)
    return float(np.linalg.norm(by[:, None] * gram * by))


def typical(ball: BallImage, groups: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean sizes of the coordinates, those that turn together alike (floats only)."""
    squares = np.einsum("ij,ij->i", ball.matrix, ball.matrix)
    means = np.bincount(groups, weights=squares) / np.bincount(groups)
    return np.asarray(np.sqrt(means[groups]) * ball.radius.upper)
