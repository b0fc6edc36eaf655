"""Keys of latent attention whose two parts come of one state, covered cell by cell.

Statement. Let a key be (F c, G x + o): x the hidden state, ‖x‖ ≤ 1, and c the normalised latent of
that state, of size ‖c‖ ≤ 1, with y = Y x + b the latent before its norm and y = σ c, σ > 0 (ε
included: σ² = ‖y‖² + rank·ε). Let σ lie within w of m. For any matrix L and any shares
α₁ + … + α₄ = 1 the key lies in the ball image without offset of

    M = [(F₀ + m L)/√α₁, w L/√α₂, (G₀ − L Y)/√α₃, (o₀ − L b)/√α₄],

F₀, G₀ and o₀ being F, G and o with zeros for the coordinates of the other part.

With α₄ = 0 the constant o₀ − L b is left out of M and becomes the offset.

Proof. L(σ c − Y x − b) = 0, so the key is (F₀ + m L) c + w L·((σ − m)/w) c + (G₀ − L Y) x +
(o₀ − L b) = M v, v = (√α₁ c, √α₂ ((σ − m)/w) c, √α₃ x, √α₄), and ‖v‖² ≤ α₁ + … + α₄ = 1.

So cells of σ that reach from 0 to its largest value hold every key. As these images are symmetric
about 0, a row's logits, of keys of whatever cells, lie between ± the largest cell's bound. L = 0
and one cell give the parts independently, as `latent.py` does. In the order of symmetric matrices
M Mᵀ is least at L = −N H⁻¹, with N = m F₀/α₁ − G₀Yᵀ/α₃ − o₀bᵀ/α₄ and
H = (m²/α₁ + w²/α₂) I + Y Yᵀ/α₃ + b bᵀ/α₄.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.head import BallImage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

_UP = 1 + 2.0**-40


@dataclass(frozen=True, eq=False)
class States:
    """How the hidden states of a layer reach the rotated part of keys and their latent.

    Attributes:
        latent: the image y of the latent before its norm, matrix of shape (rank, width), its bias
            as offset.
        turned: the rotated part of keys, matrix of shape (rotated, width). Both read the same ball
            of hidden states.
        eps: ε of the latent's norm.

    """

    latent: BallImage
    turned: BallImage
    eps: float

    @cached_property
    def spectrum(self) -> tuple[Matrix, Matrix]:
        """Eigenvalues μ and eigenvectors V of Y Yᵀ (floats only)."""
        values, vectors = np.linalg.eigh(self.latent.gram * self.latent.radius.upper**2)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def crossed(self) -> Matrix:
        """G Yᵀ V (floats only)."""
        radii = self.latent.radius.upper * self.turned.radius.upper
        both = self.turned.matrix @ self.latent.matrix.T
        return np.asarray(both @ self.spectrum[1] * radii)

    @cached_property
    def largest(self) -> float:
        """Upper bound on σ."""
        return math.hypot(self.latent.norm_upper, math.sqrt(self.latent.head_dim * self.eps)) * _UP


@dataclass(frozen=True, eq=False)
class Cell:
    """What covers the keys whose σ lies in an interval: m, w, L, shape (head_dim, rank), and α.

    Shares α are positive, but for a last one of 0, and taken relative to their sum.
    """

    middle: float
    half_width: float
    combination: Matrix
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class CoupledKeys:
    """The keys of one head: `plain` is the image of the normalised latent, in front."""

    plain: BallImage
    states: States

    @property
    def head_dim(self) -> int:
        return self.plain.head_dim + self.states.turned.head_dim

    @property
    def biased(self) -> bool:
        return self.states.latent.offset is not None or self.states.turned.offset is not None

    def image(self, cell: Cell, cap: str = "input norm") -> BallImage:
        """The ball image M of a cell, its constant the offset where its last share is 0."""
        still, rank = self.plain.head_dim, self.plain.matrix.shape[1]
        latent, turned = self.states.latent, self.states.turned
        combination = cell.combination
        mixed = np.abs(combination)
        lengths = _row_norms(combination)
        # Shares that add up to 1 but for rounding, which _UP outweighs: larger roots cover more.
        total = math.fsum(cell.shares)
        roots = [0.0 if not a else math.sqrt(total / a) * _UP for a in cell.shares]
        first, first_error = _placed(self.plain, 0, self.head_dim)
        third, third_error = _placed(turned, still, self.head_dim)
        before, before_error = _placed(latent, 0, rank)
        before_sizes = _row_norms(before)
        moved = mixed @ (before_error + gamma(rank + 4) * before_sizes)
        blocks = [
            roots[0] * (first + cell.middle * combination),
            roots[1] * cell.half_width * combination,
            roots[2] * (third - combination @ before),
        ]
        few = 8 * UNIT_ROUNDOFF
        row_error = (
            roots[0] * (first_error + few * (_row_norms(first) + cell.middle * lengths))
            + few * roots[1] * cell.half_width * lengths
            + roots[2] * (third_error + moved + few * (_row_norms(third) + mixed @ before_sizes))
        )
        constant = constant_error = None
        if self.biased:
            offset = np.zeros(self.head_dim)
            if turned.offset is not None:
                offset[still:] = turned.offset
            bias = np.zeros(rank) if latent.offset is None else latent.offset
            constant = offset - combination @ bias
            constant_error = gamma(rank + 8) * (np.abs(offset) + mixed @ np.abs(bias)) * _UP
            if roots[3]:
                blocks.append(roots[3] * constant[:, None])
                row_error = row_error + roots[3] * constant_error
                constant = constant_error = None
        return BallImage(
            matrix=np.concatenate(blocks, axis=1),
            offset=constant,
            row_error=row_error * _UP,
            offset_error=constant_error,
            cap=cap,
        )


def _placed(ball: BallImage, start: int, size: int) -> tuple[Matrix, Matrix]:
    """Radius · matrix as rows from `start` on of `size`, and bounds on the errors of the rows."""
    radius = ball.radius.upper
    width = radius - ball.radius.lower + 2 * UNIT_ROUNDOFF * radius
    error = width * _row_norms(ball.matrix)
    if ball.row_error is not None:
        error = error + radius * ball.row_error
    rows, errors = np.zeros((size, ball.matrix.shape[1])), np.zeros(size)
    part = slice(start, start + ball.head_dim)
    rows[part], errors[part] = radius * ball.matrix, error * _UP
    return rows, errors


def _row_norms(matrix: Matrix) -> Matrix:
    """Upper bounds on the 2-norms of rows, not below 2^-480 for one that is not zero."""
    sizes = np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) * (1 + gamma(matrix.shape[1] + 8))
    return np.where(np.any(matrix != 0, axis=1), np.maximum(sizes, 2.0**-480), 0.0)
