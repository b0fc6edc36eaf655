"""Spreads over token ids with learned positions, from norms alone (theory T15, the looser form).

Vocabulary × positions combinations are too many to pair with each other. One by one they are not:
with w a token row and p a position row, both centred, a query is  (A w + A p)/σ + a  with
width·(σ² − ε) = ‖w + p‖², so the norms of all combinations follow from two small products. Since a
constant in all keys cancels without rotation,  spread ≤ 2·scale·‖q‖·max‖k − k₀‖  for any k₀.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma
from dispersion.embedding import States, centred, norms
from dispersion.token_vectors import affine, blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.embedding import EmbeddingInput
    from dispersion.enclosure import Enclosure
    from dispersion.token_vectors import Projection

    Vector = NDArray[np.float64]

_UP = 1 + 2.0**-44  # outweighs some hundred roundings of positive terms
_TRUSTED = 0.25  # a relative error of σ² up to this leaves 1/σ within the same relative error


@dataclass(frozen=True, eq=False)
class LargestNorms:
    """For every token, the largest norm over all rows added to it, and which row has it.

    Attributes:
        norm: shape (vocabulary,). **Upper.**
        extra: shape (vocabulary,), the row.

    """

    norm: Vector
    extra: NDArray[np.intp]


def largest_norms(
    inputs: EmbeddingInput, sides: Sequence[Projection], extras: States
) -> list[LargestNorms]:
    """The norms of queries, and of keys about a centre, in one pass over the table.

    Args:
        inputs: the token table; a LayerNorm follows the sum.
        sides: projections without QK norm and without rotation.
        extras: rows added to tokens.

    """
    rows = centred(extras)
    placed = [affine(rows, side.ball.matrix, side.ball.row_error) for side in sides]
    parts = list(blocks(inputs, max(1, len(extras.value) // inputs.width)))
    offsets = _offsets(inputs, sides, parts[len(parts) // 2], rows, placed)
    found = [
        LargestNorms(np.empty(inputs.vocabulary), np.empty(inputs.vocabulary, np.intp))
        for _ in sides
    ]
    for part in parts:
        tokens = _tokens(inputs, part)
        inverse, relative = _inverse_deviation(tokens, rows, inputs.shrunk_eps)
        for index, side in enumerate(sides):
            own = affine(tokens, side.ball.matrix, side.ball.row_error)
            bound = _norm_bounds(own, placed[index], offsets[index], inverse, relative)
            # Whatever the deviation, a normalised state is no longer than √width.
            reach = _frobenius(side) * math.sqrt(inputs.width) + offsets[index].size
            bound = np.minimum(np.where(relative <= _TRUSTED, bound, np.inf), reach * _UP)
            chosen = np.argmax(bound, axis=1)
            found[index].norm[part] = bound[np.arange(len(bound)), chosen]
            found[index].extra[part] = chosen
    return found


@dataclass(frozen=True, eq=False)
class _Offset:
    value: Vector
    error: float

    @property
    def size(self) -> float:
        return float(np.linalg.norm(self.value)) * _UP + self.error


def _tokens(inputs: EmbeddingInput, part: slice) -> States:
    raw = inputs.rows(inputs.tokens, part)
    return centred(States(raw, np.zeros(len(raw))))


def _offsets(
    inputs: EmbeddingInput,
    sides: Sequence[Projection],
    part: slice,
    rows: States,
    placed: Sequence[States],
) -> list[_Offset]:
    """A query's own offset; for keys minus the mean over one block, in place of theirs."""
    tokens = _tokens(inputs, part)
    inverse, _ = _inverse_deviation(tokens, rows, inputs.shrunk_eps)
    found = []
    for side, extra in zip(sides, placed, strict=True):
        ball = side.ball
        if side.side == "query":
            error = 0.0 if ball.offset_error is None else float(np.linalg.norm(ball.offset_error))
            value = np.zeros(ball.head_dim) if ball.offset is None else ball.offset
            found.append(_Offset(value, error * _UP))
            continue
        own = tokens.value @ ball.matrix.T
        total = inverse.sum(axis=1) @ own + inverse.sum(axis=0) @ extra.value
        found.append(_Offset(-total / inverse.size, 0.0))
    return found


def _inverse_deviation(tokens: States, rows: States, eps: Enclosure) -> tuple[Vector, Vector]:
    """1/σ of every combination, shape (tokens, rows), and a bound on its relative error."""
    width = tokens.value.shape[1]
    total = norms(tokens.value)[:, None] + norms(rows.value)[None]
    square = _square_of_sums(tokens.value, rows.value)
    drift = tokens.error[:, None] + rows.error[None]
    error = gamma(2 * width + 32) * total**2 + (2 * total + drift) * drift
    half = (eps.upper - eps.lower) / 2
    variance = np.maximum(square, 0.0) / width + (eps.lower + half)
    slack = (error / width + half) * _UP
    least = variance - slack
    relative = np.where(least > 0, slack / np.where(least > 0, least, 1.0), np.inf)
    return 1 / np.sqrt(variance), relative * _UP + 2.0**-50


def _norm_bounds(
    own: States, extra: States, offset: _Offset, inverse: Vector, relative: Vector
) -> Vector:
    """Upper bounds on ‖(x + y)/σ + o‖ for every token image x and every added image y."""
    columns = own.value.shape[1]
    total = norms(own.value)[:, None] + norms(extra.value)[None]
    square = _square_of_sums(own.value, extra.value)
    linear = (own.value @ offset.value)[:, None] + (extra.value @ offset.value)[None]
    length = total * inverse
    whole = float(offset.value @ offset.value)
    value = (square * inverse + 2 * linear) * inverse + whole
    spread = length + math.sqrt(whole) * _UP
    value = np.sqrt(np.maximum(value, 0.0) + gamma(2 * columns + 32) * spread**2)
    drift = (own.error[:, None] + extra.error[None]) * inverse * (1 + relative)
    return np.asarray((value + relative * length + drift + offset.error) * _UP)


def _square_of_sums(first: Vector, second: Vector) -> Vector:
    """‖x + y‖² for all pairs of rows, within γ·(‖x‖ + ‖y‖)²."""
    square = 2 * (first @ second.T)
    square += np.einsum("ij,ij->i", first, first)[:, None]
    square += np.einsum("ij,ij->i", second, second)[None]
    return np.asarray(square)


def _frobenius(side: Projection) -> float:
    size = float(np.linalg.norm(side.ball.matrix)) * _UP
    error = side.ball.row_error
    return size if error is None else size + float(np.linalg.norm(error)) * _UP
