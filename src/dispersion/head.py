"""The normal form of an attention head: two affine images of a unit ball and a rotation.

Every supported head computes  l = f(s·⟨R_t q, R_j k⟩)  with  q = ρ_q A u + a, ‖u‖ ≤ 1,  and
k = ρ_k C v + c, ‖v‖ ≤ 1, where s is the logit scale, R_j the rotation of position j and f the
identity or a soft cap. Architectures only differ in how they produce these; bounds never hear of
architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.coupled_keys import CoupledKeys
    from dispersion.growth import Growth
    from dispersion.narrow import Narrow
    from dispersion.points import Point
    from dispersion.position_bias import Bias
    from dispersion.reach import Reach
    from dispersion.rotary import Rotary

ONE = Enclosure(1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Gram:
    """A Gram matrix that was computed beforehand (device.py), of one array and no other.

    Attributes:
        of: the array that it belongs to.
        value: of @ of.T as computed, float64.
        coefficient: as `BallImage.coefficient`.

    """

    of: NDArray[np.float64]
    value: NDArray[np.float64]
    coefficient: float


@dataclass(frozen=True, eq=False)
class BallImage:
    """The set {radius · matrix @ u + offset : ‖u‖₂ ≤ 1}, an ellipsoid in head space.

    Attributes:
        matrix: float64, shape (head_dim, r).
        offset: float64, shape (head_dim,), or None for zero (a projection or norm bias).
        radius: encloses the exact factor in front of the matrix, such as √width.
        row_error: shape (head_dim,); row i of the exact matrix differs from row i of `matrix` by
            at most row_error[i] in 2-norm. None where the stored matrix is exact. A diagonal
            matrix (gains) stands for a diagonal one.
        offset_error: shape (head_dim,); the same for the entries of `offset`.
        cap: words naming what bounds the input ("input RMSNorm", "headwise QK norm", …).
        given: the Gram matrix of `matrix`, where somebody computed it already. One of another
            array is not used.

    """

    matrix: NDArray[np.float64]
    offset: NDArray[np.float64] | None = None
    radius: Enclosure = ONE
    row_error: NDArray[np.float64] | None = None
    offset_error: NDArray[np.float64] | None = None
    cap: str = "input norm"
    given: Gram | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2:
            msg = f"matrix must have shape (head_dim, r). Got shape {self.matrix.shape}."
            raise ArgumentError(msg)
        rows = self.matrix.shape[0]
        for name in ("offset", "row_error", "offset_error"):
            value = getattr(self, name)
            if value is not None and value.shape != (rows,):
                msg = f"{name} must have shape (head_dim,)=({rows},). Got {value.shape}."
                raise ArgumentError(msg)
        if self.offset is None and self.offset_error is not None:
            object.__setattr__(self, "offset", np.zeros(rows))
        if self.radius.lower < 0:
            msg = f"radius must not be negative. Got {self.radius}."
            raise ArgumentError(msg)

    @property
    def head_dim(self) -> int:
        return int(self.matrix.shape[0])

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """Matrix @ matrix.T in float64, shape (head_dim, head_dim), computed once.

        Raises:
            ArgumentError: an entry overflows float64, or the matrix is not finite.

        """
        if self.given is not None and self.given.of is self.matrix:
            return self.given.value
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.asarray(self.matrix @ self.matrix.T)
        if not np.all(np.isfinite(found)):
            largest = float(np.max(np.abs(self.matrix)))
            msg = (
                f"matrix must be finite, its rows shorter than 1e150. Got an entry of {largest:g}."
            )
            raise ArgumentError(msg)
        return found

    @property
    def coefficient(self) -> float:
        """Entry (i, j) of `gram` is off by at most this times the 2-norms of rows i and j.

        That holds with 16 roundings more, such as those of a factor and a sum, but for underflow.
        """
        from dispersion.cholesky import gamma

        if self.given is not None and self.given.of is self.matrix:
            return self.given.coefficient
        return gamma(self.matrix.shape[1] + 16)

    @cached_property
    def row_sizes(self) -> NDArray[np.float64]:
        """Upper bounds on the 2-norms of the rows of the stored matrix, shape (head_dim,).

        Never below 2^-480 for a row that is not zero, so that error terms made of them also
        outweigh what underflows in `gram`.
        """
        squares = np.diag(self.gram)
        sizes = np.sqrt(squares * (1 + 2 * self.coefficient)) * (1 + 2.0**-50)
        sizes = np.maximum(sizes, 2.0**-480)
        for row in np.flatnonzero(~(squares > 0)):
            if not np.any(self.matrix[row]):
                sizes[row] = 0.0
        return sizes

    @cached_property
    def norm_upper(self) -> float:
        """Certified upper bound on the largest 2-norm of a point of the image, computed once."""
        from dispersion.ellipsoid import best_weight, cover
        from dispersion.rigor import product

        if self.is_diagonal and all(
            x is None for x in (self.offset, self.row_error, self.offset_error)
        ):
            return product(self.radius, float(np.abs(self.matrix).max())).upper
        weight = 0.5
        if self.offset is not None and np.any(self.offset):
            weight = best_weight(self.gram * self.radius.upper**2, self.offset)
        return cover(self, weight).norm_upper()

    @property
    def offset_point(self) -> Point:
        """The offset (zero where there is none) with the 2-norm of its error."""
        from dispersion.cholesky import norm_upper
        from dispersion.points import Point

        value = np.zeros(self.head_dim) if self.offset is None else self.offset
        error = 0.0
        if self.offset_error is not None:
            error = norm_upper(self.offset_error)
        return Point(value, error)

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether the matrix is square and diagonal (gain-only QK norm)."""
        m = self.matrix
        if m.shape[0] != m.shape[1]:
            return False
        # Rows that rounding alone made diagonal have errors as large as their entries.
        small = self.row_error is None or np.all(self.row_error <= np.abs(np.diag(m)) / 256)
        return bool(small and np.count_nonzero(m - np.diag(np.diag(m))) == 0)


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head in normal form.

    Attributes:
        query, key: the two ball images, of equal head_dim; None where no norm caps that side
            (the head is then unbounded).
        scale: encloses the logit scale, YaRN's squared factor included when all dimensions rotate.
        rotary: the rotation of positions, or None.
        soft_cap: c of l = c·tanh(z/c), or None.
        sink: a learned sink logit added to the denominator, or None.
        window: number of keys a query can see (the sliding window, or all positions that there
            are), or None for all.
        chunked: whether windows do not slide: a query sees the keys of its own chunk of `window`
            tokens up to itself.
        causal: whether a query sees only itself and earlier tokens.
        self_attention: whether the query token is one of its own keys. Where `reach` has states of
            keys apart (layers that share keys), its key does not follow from its query.
        reach: how inputs of the attention layer reach points of the two balls; None when unknown,
            and then nothing can be WITNESSED, unless through `inner`.
        bias: what positions add to the logits, or None; for heads that do not rotate.
        growth: what positions multiply queries by, or None.
        inner: a head all of whose rows are rows of this one and whose inputs are known, from which
            witnesses come; None for the head itself.
        coupled: the keys in two parts of one state (latent attention), all of which `key` holds
            too; None where nothing closer than `key` is known.
        common: whether queries at one position see a key as one and the same vector, and as one
            bias. Where what it adds depends on their states too, T12 to T13″ do not hold.
        narrow: closer images of queries and keys, for bounds; None where nothing closer is known.

    """

    query: BallImage | None
    key: BallImage | None
    scale: Enclosure
    rotary: Rotary | None = None
    soft_cap: float | None = None
    sink: float | None = None
    window: int | None = None
    chunked: bool = False
    causal: bool = True
    self_attention: bool = True
    reach: Reach | None = field(default=None, repr=False)
    bias: Bias | None = None
    growth: Growth | None = None
    inner: Head | None = field(default=None, repr=False)
    coupled: CoupledKeys | None = field(default=None, repr=False)
    common: bool = True
    narrow: Narrow | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.bias is not None and (
            self.sink is not None or self.window is not None or self.rotary is not None
        ):
            msg = "bias must come without sink, window and rotary. Got one of them with a bias."
            raise ArgumentError(msg)
        if self.soft_cap is not None and (self.bias is not None or self.growth is not None):
            msg = "soft_cap must come without bias and growth. Got one of them with a soft cap."
            raise ArgumentError(msg)
        if self.growth is not None and (self.sink is not None or self.inner is not None):
            msg = "growth must come without sink and inner. Got one of them with growth."
            raise ArgumentError(msg)
        if self.bias is not None and self.bias.one_sided and not self.causal:
            msg = (
                "bias must hold for keys on both sides where causal is false. Got a one-sided one."
            )
            raise ArgumentError(msg)
        if self.chunked and self.window is None:
            msg = "window must be set where chunked is true. Got none."
            raise ArgumentError(msg)
        if self.query and self.key and self.query.head_dim != self.key.head_dim:
            msg = (
                "query and key must have the same head_dim. "
                f"Got {self.query.head_dim} and {self.key.head_dim}."
            )
            raise ArgumentError(msg)
        if self.scale.lower < 0:
            msg = f"scale must not be negative. Got {self.scale}; negate the query instead."
            raise ArgumentError(msg)
        if self.soft_cap is not None and not self.soft_cap > 0:
            msg = f"soft_cap must be positive. Got {self.soft_cap}."
            raise ArgumentError(msg)
        if self.window is not None and self.window < 1:
            msg = f"window must be at least 1. Got {self.window}."
            raise ArgumentError(msg)

    @property
    def bounded(self) -> bool:
        return self.query is not None and self.key is not None

    @property
    def most_seen(self) -> int | None:
        """How many keys a query sees at most, in a context of any length; None for all."""
        return self.window

    def at(self, length: int) -> Head:
        """The head for the last query of a context of `length` tokens, its factor in the scale."""
        if self.growth is None:
            return self
        from dispersion.balls import product

        return replace(
            self,
            scale=product(self.scale, self.growth.factor(length)),
            growth=None,
        )

    def visible(self, length: int) -> int:
        """How many keys the last query sees in a context of `length` tokens."""
        if self.window is None:
            return length
        return (length - 1) % self.window + 1 if self.chunked else min(length, self.window)

    @property
    def witnessed(self) -> Head:
        """The head from which witnesses come."""
        return self.inner or self

    @property
    def cap(self) -> str:
        """What bounds the inputs, in words."""
        caps = [b.cap for b in (self.query, self.key) if b is not None]
        return " and ".join(dict.fromkeys(caps)) or "nothing"
