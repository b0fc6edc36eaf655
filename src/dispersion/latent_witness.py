"""Inputs for heads with latent attention: keys whose rotated part is negligible.

A latent is normalised, the rotated part of a key is not: for small hidden states the unrotated
part keeps its size (less what ε takes) and the rotated part vanishes with them. Over such states
the head has no rotation, and its keys are those of a QK norm whose rows are the latent's. What is
left of the rotated part goes into the row errors, so that evaluated witnesses allow for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma
from dispersion.head import BallImage, Head
from dispersion.queries import key_share
from dispersion.reach import QKNorm, Reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.enclosure import Enclosure

_UP = 1 + 2.0**-40
_MEAN_SQUARE = 1000.0  # of a latent, in units of ε: leaves 0.05 % of the norm to ε


@dataclass(frozen=True, eq=False)
class SmallStates:
    """Hidden states so small that the rotated part of a key hardly counts.

    Attributes:
        reach: how they reach both latents.
        share: norm at which every direction of the keys' latent is reached.
    """

    reach: Reach
    share: float


def small_states(
    latents: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    gain: NDArray[np.float64] | None,
    radius: float,
    eps: float,
) -> SmallStates | None:
    """Hidden states for a layer's witnesses; None where the keys' latent lacks full rank.

    Args:
        latents: the weights in front of the queries' and the keys' norm, without biases.
        gain: shape (width,), the gain of the norm in front of attention, or None.
        radius: √width.
        eps: ε of the latents' norms.

    """
    norms = [QKNorm(weight=w, bias=None, start=0, eps=eps) for w in latents]
    rows = latents[1] if gain is None else latents[1] * gain
    floor = float(np.linalg.eigvalsh(rows @ rows.T)[0]) if len(rows) <= rows.shape[1] else 0.0
    if floor <= 0:
        return None
    wanted = math.sqrt(len(rows) * _MEAN_SQUARE * eps / floor)
    reach = Reach(
        width=latents[1].shape[1],
        radius=min(radius, wanted),
        gain=gain,
        query_norm=norms[0],
        key_norm=norms[1],
    )
    share = key_share(reach)
    return SmallStates(reach, share) if share > 0 else None


def inner_head(
    query: BallImage,
    plain: BallImage,
    turned: BallImage,
    states: SmallStates,
    *,
    pairs: NDArray[np.intp],
    scale: Enclosure,
    causal: bool = True,
) -> Head | None:
    """The head over small hidden states, without rotation; None where the keys have a bias.

    Every row of it is a row of the whole head: on coordinates that turn, its keys are 0 up to the
    row error, which is alike for the two coordinates of a pair and holds at every rotation.

    Args:
        query: the queries, of both parts.
        plain, turned: the keys' unrotated and rotated parts; `turned` reads the hidden state.
        states: the hidden states.
        pairs: shape (P, 2), rotated pairs among the coordinates of `turned`; all of them turn.
        scale: the logit scale.
        causal: as in `Head`.

    """
    if turned.offset is not None or pairs.size != turned.head_dim:
        return None
    # |k_i| ≤ radius·‖row i‖ for hidden states of this size; a pair has the root of both squares.
    matrix = turned.matrix
    sizes = np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) * (1 + gamma(matrix.shape[1] + 8))
    if turned.row_error is not None:
        sizes = sizes + turned.row_error
    sizes[pairs] = np.sqrt((sizes[pairs] ** 2).sum(axis=1, keepdims=True))
    left = sizes * (states.reach.radius / (states.share * plain.radius.lower)) * _UP
    before = np.zeros(plain.head_dim) if plain.row_error is None else plain.row_error
    key = BallImage(
        matrix=np.concatenate([plain.matrix, np.zeros((len(left), plain.matrix.shape[1]))]),
        radius=plain.radius,
        row_error=np.concatenate([before, left]),
        cap=plain.cap,
    )
    return Head(query=query, key=key, scale=scale, causal=causal, reach=states.reach)
