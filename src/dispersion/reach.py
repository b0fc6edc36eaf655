"""How inputs of an attention layer reach points of a head's two balls.

Bounds need only the balls. A witness needs more: the hidden state to feed the attention module
so that the query and the keys take given values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class QKNorm:
    """A norm between a projection and the logits.

    Attributes:
        weight: the projection rows that the norm treats together, shape (rows, width): one head's
            for headwise norm, all heads' for layerwise norm. Any float dtype, memory-mapped.
        bias: the projection's bias over the same rows, shape (rows,), or None.
        start: the head's first row within `weight`.
        eps: the ε inside the norm's square root.
        centred: whether the norm removes the mean (LayerNorm).

    """

    weight: NDArray[Any]
    bias: NDArray[Any] | None
    start: int
    eps: float
    centred: bool = False


@dataclass(frozen=True, eq=False)
class Reach:
    """Hidden states the attention layer can receive, and what lies between them and the balls.

    A hidden state is  h = radius · gain ⊙ x + bias,  ‖x‖ ≤ 1, with x ⟂ 1 where `centred`. Without
    QK norm the ball coordinate u (or v) of a token is its x. Where a linear map T stands between
    the norm and attention, h = T (radius · gain ⊙ x) + bias.

    Attributes:
        width: size of a hidden state.
        radius: √width after RMSNorm or LayerNorm; inf where no norm precedes attention.
        gain: shape (width,), or None for ones (1+w already applied).
        bias: shape (width,), the norm's own bias, or None.
        centred: whether the norm before attention removes the mean.
        query_norm, key_norm: the QK norms, or None.
        through: T, shape (width, r) for a norm of r coordinates, or None; without QK norms.
        keys: where keys are made of other states than queries (of another stack in
            cross-attention, of another layer where layers share keys), those states and the norm
            behind their projection; else None.

    """

    width: int
    radius: float
    gain: NDArray[Any] | None = None
    bias: NDArray[Any] | None = None
    centred: bool = False
    query_norm: QKNorm | None = None
    key_norm: QKNorm | None = None
    through: NDArray[Any] | None = None
    keys: Reach | None = None

    @property
    def coordinates(self) -> int:
        """How many coordinates x has."""
        return self.width if self.through is None else int(self.through.shape[1])

    @property
    def of_keys(self) -> Reach:
        """The states that keys are made of."""
        return self if self.keys is None else self.keys
