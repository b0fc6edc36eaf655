"""Heads with QK norm whose projections do not point everywhere, for large biases or few inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.architectures.head_rows import bias_of_head, rows_of_head, vectors_of
from dispersion.covers import groups_of, rotated_mask
from dispersion.directions import cone_of
from dispersion.head import BallImage
from dispersion.narrow import WIDEST, Narrow, closest, typical
from dispersion.norms import centred_rows, projection_ball
from dispersion.rows import scaled_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.architectures.attention import Attention, Norm, Projection
    from dispersion.checkpoint import Checkpoint
    from dispersion.directions import Cone
    from dispersion.head import Head

    Vectors = tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]


class Directions:
    """What the QK norms of one layer see.

    Args:
        checkpoint: where tensors lie.
        attention: the layer.
        vectors: gain and bias of the norms in front of queries and of keys.

    """

    def __init__(
        self, checkpoint: Checkpoint, attention: Attention, vectors: tuple[Vectors, Vectors]
    ) -> None:
        self._checkpoint, self._attention = checkpoint, attention
        before_keys = attention.key_input or attention.input_norm
        self._before = (attention.input_norm, before_keys)
        self._vectors = vectors
        self._cones: dict[tuple[int, int], Cone | None] = {}
        self._keys: tuple[BallImage | None, BallImage | None] = (None, None)

    def narrow(self, head: Head, index: int, kv_head: int) -> Head:
        """The head with closer images where its norms do not see all directions."""
        attention = self._attention
        straight = attention.through is None and attention.input_factor == 1
        usable = attention.known_inputs and straight
        if not usable or head.query is None or head.key is None:
            return head
        cones = self._of(0, attention.query, index), self._of(1, attention.key, kv_head)
        if cones[0] is None and cones[1] is None:
            return head
        groups = groups_of(head)
        query = key = None
        if cones[0] is not None:
            seen = typical(head.key, groups)
            query = self._closest(cones[0], attention.query, index, head.query, None, seen)
            if query is not None and attention.rotary is not None:
                # The plain image has this factor already.
                turned = attention.rotary.pairs.ravel()
                query = scaled_rows(query, turned, attention.rotated_factor)
        if cones[1] is not None:
            if self._keys[0] is not head.key:
                seen, still = typical(head.query, groups), ~rotated_mask(head)
                found = self._closest(cones[1], attention.key, kv_head, head.key, still, seen)
                self._keys = head.key, found
            key = self._keys[1]
        if query is None and key is None:
            return head
        balls = query or head.query, key or head.key
        return replace(head, narrow=Narrow((head.query, head.key), balls))

    def _of(self, which: int, side: Projection, index: int) -> Cone | None:
        """What the norm of a head's queries (0) or keys (1) sees; None for everything."""
        attention = self._attention
        size = attention.head_dim * (side.heads if attention.layerwise else 1)
        if side.norm is None or size > WIDEST:
            return None
        at = (which, 0 if attention.layerwise else index)
        if at not in self._cones:
            self._cones[at] = self._cone(side, side.norm, *at)
        return self._cones[at]

    def _closest(
        self,
        cone: Cone,
        side: Projection,
        index: int,
        plain: BallImage,
        still: NDArray[np.bool_] | None,
        seen: NDArray[np.float64],
    ) -> BallImage | None:
        """A closer image of one side of a head, or None."""
        assert side.norm is not None
        attention = self._attention
        gain, bias = vectors_of(self._checkpoint, side.norm.of_head(index))
        if side.norm.stacked:
            gain = None if gain is None else gain[index]
            bias = None if bias is None else bias[index]
        found = closest(
            cone,
            plain,
            gain,
            eps=attention.eps,
            start=index * attention.head_dim if attention.layerwise else 0,
            gain_offset=side.norm.gain_offset,
            bias=bias,
            still=still,
            seen=seen,
        )
        return None if found is plain else found

    def _cone(self, side: Projection, norm: Norm, which: int, index: int) -> Cone | None:
        """What the norm sees of one head, or of all heads where it treats them together."""
        attention, checkpoint = self._attention, self._checkpoint
        heads = range(side.heads) if attention.layerwise else (index,)
        before = self._before[which]
        vectors = self._vectors[which]
        plain = side.bias is None and (before is None or before.bias is None)
        width = (attention.key_width if which else None) or attention.width
        short = width - (before is not None and before.kind == "layer")
        if plain and short >= len(heads) * attention.head_dim:
            return None
        weight = np.concatenate([rows_of_head(checkpoint, attention, side, i) for i in heads])
        parts = [bias_of_head(checkpoint, attention, side, i) for i in heads]
        known = [part for part in parts if part is not None]
        bias = np.concatenate(known) if known else None
        if before is None:
            points = BallImage(matrix=weight, offset=bias)
        else:
            points = projection_ball(
                weight,
                norm=before.kind,
                gain=vectors[0],
                gain_offset=before.gain_offset,
                norm_bias=vectors[1],
                bias=bias,
                overwrite_weight=True,
            )
        if norm.kind == "layer":
            points = centred_rows(points)
        return cone_of(
            points,
            centred=before is not None and before.kind == "layer",
            bounded=before is not None,
        )
