"""Token embeddings as the inputs of a first attention layer (theory T15).

What enters attention is then no arbitrary point of a ball but one of finitely many vectors: the
norm of an embedding row, or of the sum of a token, a position and a type row. They are computed in
float64 with a bound on their distance to the exact ones; the table is read a block of rows at a
time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.head import ONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.reach import Reach

_UP = 1 + 2.0**-48
# Models add ε in float32 or in float64; an enclosure of both is a certificate for either.
_EPS_ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class EmbeddingInput:
    """Where the inputs of a first attention layer come from.

    An input is  norm(scale · token + position + type),  the norm being the one of the head's
    `Reach`, or the sum itself where no norm stands there.

    Attributes:
        source: the file.
        tokens: name of the token table, shape (vocabulary, width).
        width: size of a row.
        eps: the ε of the norm.
        positions, types: names of learned tables whose rows are added, or None.
        scale: encloses the factor on token rows, whatever precision a model rounds it to.
        before: rows of `positions` in front of the first position's, which no token of a context
            takes.
        zeroed: the token id whose row a model takes for zeros (ESM's mask), or None.

    """

    source: Checkpoint
    tokens: str
    width: int
    eps: float
    positions: str | None = None
    types: str | None = None
    scale: Enclosure = ONE
    before: int = 0
    zeroed: int | None = None

    def __post_init__(self) -> None:
        if self.positions is not None and self.scale != ONE:
            msg = "scale must be 1 where position embeddings are added."
            raise ArgumentError(msg)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tensors that the inputs come from."""
        return tuple(n for n in (self.tokens, self.positions, self.types) if n is not None)

    @property
    def vocabulary(self) -> int:
        """Number of token ids: the rows of the table, padding included."""
        return self.source.info(self.tokens).shape[0]

    def check(self) -> None:
        """Compare the file's header with what the inputs need; reads no values.

        Raises:
            UnsupportedError: a table is missing.
            CheckpointError: a table has another width.

        """
        for name in self.tables:
            if name not in self.source:
                msg = (
                    f"tensor {shown(name)} must be in the file for --inputs vocabulary, whose "
                    "inputs are its rows. Got a file without it; use --inputs ball."
                )
                raise UnsupportedError(msg)
            shape = self.source.info(name).shape
            least = 1 + (self.before if name == self.positions else 0)
            if len(shape) != 2 or shape[1] != self.width or shape[0] < least:
                msg = (
                    f"tensor {shown(name)} must have shape (rows, {self.width}) to fit "
                    f"config.json. Got {shape}."
                )
                raise CheckpointError(msg)

    def rows(self, name: str, part: slice | None = None) -> NDArray[np.float64]:
        """Rows of a table in float64, exactly.

        Raises:
            CheckpointError: a value is not finite.

        """
        first = 0 if part is None else part.start
        found = to_float64(self.source.read(name, part), tensor=name, first_row=first)
        if name == self.tokens and self.zeroed is not None:
            found = np.where(
                np.arange(first, first + len(found))[:, None] == self.zeroed, 0.0, found
            )
        return found

    def extras(self) -> States | None:
        """Every position row plus every type row, index position · types + type; None without."""
        if self.positions is None:
            return None
        rows = self.source.info(self.positions).shape[0]
        total = self.rows(self.positions, slice(self.before, rows))
        error = np.zeros(len(total))
        if self.types is not None:
            types = self.rows(self.types)
            total = (total[:, None] + types[None]).reshape(-1, self.width)
            error = UNIT_ROUNDOFF * norms(total) * _UP
        return States(total, error)

    @property
    def type_count(self) -> int:
        return 1 if self.types is None else self.source.info(self.types).shape[0]

    @property
    def shrunk_eps(self) -> Enclosure:
        """The ε that acts alike on unscaled rows: ε/scale², since norm(c·e; ε) = norm(e; ε/c²)."""
        low = self.eps * (1 - _EPS_ROUNDING) / self.scale.upper**2
        high = self.eps * (1 + _EPS_ROUNDING) / self.scale.lower**2
        return Enclosure(low / _UP, high * _UP)


@dataclass(frozen=True, eq=False)
class States:
    """Vectors (n, size) and bounds (n,) on the 2-norm distance to the exact ones."""

    value: NDArray[np.float64]
    error: NDArray[np.float64]


def token_states(
    inputs: EmbeddingInput, reach: Reach, part: slice, extras: States | None = None
) -> States:
    """What attention reads for a block of token ids, before the norm's gain and bias.

    Args:
        inputs: where the rows come from.
        reach: says which norm stands before attention.
        part: the token ids.
        extras: rows added to each token, or None; item t·len(extras) + x is token t with row x.

    Returns:
        z with the attention input gain ⊙ z + bias, ‖z‖ ≤ √width after a norm.

    Raises:
        CheckpointError: an embedding is not finite.

    """
    raw = inputs.rows(inputs.tokens, part)
    error = np.zeros(len(raw))
    if extras is not None:
        size = norms(raw)
        error = (extras.error[None] + UNIT_ROUNDOFF * (size[:, None] + norms(extras.value))) * _UP
        error = error.reshape(-1)
        raw = (raw[:, None] + extras.value[None]).reshape(-1, inputs.width)
    if math.isinf(reach.radius):
        if inputs.scale != ONE:
            msg = "scale must be 1 where no norm stands before attention."
            raise ArgumentError(msg)
        return States(raw, error)
    states = States(raw, error)
    return normalised(centred(states) if reach.centred else states, inputs.shrunk_eps)


def centred(raw: States) -> States:
    """Rows with their mean removed."""
    value = raw.value
    # |fl(mean) − mean| ≤ γ·mean|x| ≤ γ‖x‖/√width, on each of width coordinates.
    error = (raw.error + gamma(value.shape[1] + 4) * norms(value)) * _UP
    return States(value - value.mean(axis=1, keepdims=True), error)


def normalised(raw: States, eps: Enclosure) -> States:
    """x/√(mean x² + ε) with its error.

    The map is Lipschitz with constant 1/√(mean x² + ε) at x, which shrinks as x grows: an error of
    x counts relative to its size.

    Args:
        raw: x.
        eps: encloses ε, above zero.

    """
    value, error = raw.value, raw.error
    width = value.shape[1]
    square = np.einsum("ij,ij->i", value, value) / width
    size = np.sqrt(square * width) * (1 + gamma(width + 4))
    low = _lowered_square(square, size, error, width)
    half = (eps.upper - eps.lower) / 2
    unit = value / np.sqrt(square + (eps.lower + half))[:, None]
    floor = np.sqrt(low + eps.lower) / _UP
    relative = gamma(width + 10) + half / (low + eps.lower)
    return States(unit, ((error + size * relative) / floor) * _UP)


def norms(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """2-norms of rows, rounded up: relative error at most (columns + 4) units."""
    columns = value.shape[1]
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", value, value)) * (1 + gamma(columns + 4)))


def _lowered_square(
    square: NDArray[np.float64],
    size: NDArray[np.float64],
    error: NDArray[np.float64],
    width: int,
) -> NDArray[np.float64]:
    """A lower bound on mean x² anywhere between x and its float image."""
    share = error / np.maximum(size, 1e-300) * (1 + gamma(2 * width + 16))
    least = np.maximum(0.0, 1 - share * _UP) ** 2
    return np.asarray(square * least * (1 - gamma(width + 8)))
