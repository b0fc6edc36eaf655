"""Queries and keys of token ids in one head's space, with bounds on their errors (theory T15).

A stored vector holds what bounds over all rotation angles need: the coordinates that no position
turns, then the magnitude of each rotated pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from dispersion.checkpoint import to_float64
from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.embedding import EmbeddingInput, States, normalised, norms, token_states
from dispersion.enclosure import Enclosure
from dispersion.errors import UnsupportedError
from dispersion.norms import SHIFTED_GAIN_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head
    from dispersion.reach import QKNorm, Reach

    Side = Literal["query", "key"]

_UP = 1 + 2.0**-48
BLOCK_ENTRIES = 2**21  # of a block of states: 16 MiB in float64
_EPS_ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class Projection:
    """One side of one head: from states to points of head space."""

    head: Head
    side: Side

    @property
    def ball(self) -> BallImage:
        found = self.head.query if self.side == "query" else self.head.key
        assert found is not None
        return found

    @property
    def reach(self) -> Reach:
        assert self.head.reach is not None
        return self.head.reach

    @property
    def norm(self) -> QKNorm | None:
        return self.reach.query_norm if self.side == "query" else self.reach.key_norm

    @cached_property
    def rows(self) -> Projected | None:
        """What the QK norm treats together, in float64; None without QK norm."""
        return None if self.norm is None else projected(self.reach, self.norm)

    def points(self, states: States, unit: States | None = None) -> States:
        """Points of head space, shape (n, head_dim), with errors.

        Args:
            states: z of `token_states`.
            unit: `unit_rows` of these states, if at hand.

        """
        norm = self.norm
        if norm is None:
            found = affine(states, self.ball.matrix, self.ball.row_error)
            return added(found, self.ball.offset, self.ball.offset_error)
        unit = self.unit_rows(states) if unit is None else unit
        own = slice(norm.start, norm.start + self.ball.head_dim)
        gains = np.diag(self.ball.matrix)
        value = unit.value[:, own] * gains
        slack = 0.0 if self.ball.row_error is None else float(np.max(self.ball.row_error))
        size = norms(unit.value[:, own])
        error = unit.error * (float(np.max(np.abs(gains))) + slack)
        error = error + (slack + 2 * UNIT_ROUNDOFF * float(np.max(np.abs(gains)))) * size
        return added(States(value, error * _UP), self.ball.offset, self.ball.offset_error)

    def unit_rows(self, states: States) -> States:
        """What the QK norm makes of all rows it treats together, before its gain."""
        assert self.rows is not None
        assert self.norm is not None
        low, high = (self.norm.eps * (1 + sign * _EPS_ROUNDING) for sign in (-1, 1))
        return normalised(self.rows.of(states), Enclosure(low, high))

    @property
    def layerwise(self) -> bool:
        return self.norm is not None and len(self.norm.weight) != self.ball.head_dim

    def check(self) -> None:
        """Refuse what has no bound here.

        Raises:
            UnsupportedError: LayerNorm on queries or keys.

        """
        if self.norm is not None and (self.norm.centred or not self.ball.is_diagonal):
            msg = (
                "QK norm must be an RMS norm for --inputs vocabulary. Got LayerNorm on queries or "
                "keys; use --inputs ball."
            )
            raise UnsupportedError(msg)


@dataclass(frozen=True, eq=False)
class Projected:
    """Rows of a projection behind the norm's own gain and bias, in float64."""

    matrix: NDArray[np.float64]
    row_error: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None
    offset_error: NDArray[np.float64] | None

    def of(self, states: States) -> States:
        return added(affine(states, self.matrix, self.row_error), self.offset, self.offset_error)


def projected(reach: Reach, norm: QKNorm) -> Projected:
    """W·diag(gain) and W·bias + b of the rows that a QK norm treats together."""
    weight = to_float64(norm.weight, tensor="projection")
    matrix, relative = weight, 0.0
    if reach.gain is not None:
        matrix = weight * reach.gain
        relative = 2 * UNIT_ROUNDOFF
        with np.errstate(over="ignore"):
            rounded = reach.gain.astype(np.float32)
        if np.any(reach.gain != rounded):
            # Models round 1 + w to float32; a gain that float32 holds is not rounded.
            relative += SHIFTED_GAIN_ROUNDING
    offset, error = None, None
    if reach.bias is not None:
        offset = weight @ reach.bias
        error = np.abs(weight) @ np.abs(reach.bias) * gamma(weight.shape[1] + 8)
    if norm.bias is not None:
        bias = to_float64(norm.bias, tensor="projection bias")
        offset = bias if offset is None else offset + bias
        error = None if error is None else error + 2 * UNIT_ROUNDOFF * np.abs(offset)
    return Projected(matrix, norms(matrix) * relative if relative else None, offset, error)


def affine(
    states: States, matrix: NDArray[np.float64], row_error: NDArray[np.float64] | None
) -> States:
    """M z for every row z, with its error."""
    largest = float(np.linalg.norm(norms(matrix))) * _UP
    slack = 0.0 if row_error is None else float(np.linalg.norm(row_error)) * _UP
    relative = gamma(matrix.shape[1] + 4) * largest + slack
    error = (largest + slack) * states.error + relative * norms(states.value)
    return States(states.value @ matrix.T, error * _UP)


def added(
    points: States,
    offset: NDArray[np.float64] | None,
    offset_error: NDArray[np.float64] | None,
) -> States:
    """Points with a constant vector added."""
    if offset is None:
        return points
    size = float(np.linalg.norm(offset)) * _UP
    slack = 0.0 if offset_error is None else float(np.linalg.norm(offset_error)) * _UP
    error = points.error + slack + UNIT_ROUNDOFF * (norms(points.value) + size) * _UP
    return States(points.value + offset, error * _UP)


def stored_form(head: Head, points: States) -> States:
    """Unturned coordinates and magnitudes of rotated pairs: no farther from the exact ones."""
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return points
    first, second = head.rotary.pairs.T
    squares = points.value[:, first] ** 2 + points.value[:, second] ** 2
    form = np.concatenate([points.value[:, head.rotary.unrotated], np.sqrt(squares)], axis=1)
    return States(form, (points.error + 4 * UNIT_ROUNDOFF * norms(form)) * _UP)


def blocks(inputs: EmbeddingInput, items_per_token: int = 1) -> Iterator[slice]:
    """Token ids in blocks of at most BLOCK_ENTRIES state entries."""
    step = max(1, BLOCK_ENTRIES // (inputs.width * items_per_token))
    for start in range(0, inputs.vocabulary, step):
        yield slice(start, min(inputs.vocabulary, start + step))


def collect(
    inputs: EmbeddingInput, sides: Sequence[Projection], extras: States | None = None
) -> list[States]:
    """The stored forms of all items for each side, in one pass over the table.

    Memory: items × (pairs + unturned coordinates) float64 per side, and a few blocks.
    """
    count = 1 if extras is None else len(extras.value)
    total = inputs.vocabulary * count
    found: list[States] = []
    for part in blocks(inputs, count):
        states = token_states(inputs, sides[0].reach, part, extras)
        units: dict[Side, States] = {}  # a layerwise norm is the same for all heads of a side
        for index, side in enumerate(sides):
            if side.layerwise and side.side not in units:
                units[side.side] = side.unit_rows(states)
            form = stored_form(side.head, side.points(states, units.get(side.side)))
            if len(found) <= index:
                size = form.value.shape[1]
                found.append(States(np.empty((total, size)), np.empty(total)))
            window = slice(part.start * count, part.stop * count)
            found[index].value[window] = form.value
            found[index].error[window] = form.error
    return found
