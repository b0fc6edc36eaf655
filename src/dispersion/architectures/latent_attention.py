"""Latent attention (DeepSeek): queries and keys made of small normalised latents, rotated in part.

q = W_qb·RMS(W_qa h), or W_q h;  k = (W_kb·RMS(W_kva h) first rows, R·(W_kva h) last rows): the
unrotated part of a key comes of a normalised latent, its rotated part of the hidden state itself.
`latent.py` covers the two by one ball image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.architectures.attention import Attention
from dispersion.checkpoint import to_float64
from dispersion.coupled_keys import CoupledKeys, States
from dispersion.covers import groups_of
from dispersion.directions import cone_of
from dispersion.head import ONE, Head
from dispersion.latent import best_share, joint_ball
from dispersion.latent_witness import inner_head, small_states
from dispersion.narrow import WIDEST, Narrow, through, typical
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.rows import scaled_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.directions import Cone
    from dispersion.enclosure import Enclosure
    from dispersion.head import BallImage

    Vector = NDArray[np.float64]

CAP = "input RMSNorm and latent RMSNorm"


@dataclass(frozen=True)
class LatentAttention(Attention):
    """One layer's latent attention; `query` and `key` name W_qb (or W_q) and W_kb.

    Attributes:
        rank: size of the keys' latent.
        query_rank: size of the queries' latent, or None where W_q reads the hidden state.
        still: coordinates of a head that no position turns; the others come behind them.
        value_dim: rows of values behind each head's rows of keys in W_kb.
        latent: tensor W_kva of shape [rank + rotated, width].
        latent_bias, latent_gain: its bias or None, and the gain of the norm of its first rows.
        query_latent, query_latent_bias, query_latent_gain: the same for queries, or None.
        turned_gain: gain of a norm behind the part of keys that turns, or None for no norm.
        key_factor: encloses a factor of the unrotated part of keys. One of queries, all of whose
            coordinates it multiplies, is in `scale`.
    """

    rank: int = 0
    query_rank: int | None = None
    still: int = 0
    value_dim: int = 0
    latent: str = ""
    latent_bias: str | None = None
    latent_gain: str = ""
    query_latent: str = ""
    query_latent_bias: str | None = None
    query_latent_gain: str = ""
    turned_gain: str | None = None
    key_factor: Enclosure = ONE

    @property
    def rotated(self) -> int:
        return self.head_dim - self.still

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        heads, rows = self.query.heads, self.rank + self.rotated
        shapes: dict[str, tuple[int, ...]] = {
            self.query.weight: (heads * self.head_dim, self.query_rank or self.width),
            self.key.weight: (heads * (self.still + self.value_dim), self.rank),
            self.latent: (rows, self.width),
            self.latent_gain: (self.rank,),
        }
        if self.latent_bias is not None:
            shapes[self.latent_bias] = (rows,)
        if self.turned_gain is not None:
            shapes[self.turned_gain] = (self.rotated,)
        if self.query_rank is not None:
            shapes[self.query_latent] = (self.query_rank, self.width)
            shapes[self.query_latent_gain] = (self.query_rank,)
            if self.query_latent_bias is not None:
                shapes[self.query_latent_bias] = (self.query_rank,)
        for norm in (self.input_norm, self.key_input):
            if norm is not None and norm.gain is not None:
                shapes[norm.gain] = (self.width,)
        return shapes

    @property
    def alone(self) -> bool:
        """Whether queries are linear in nothing but their latent, or in the state."""
        return True

    def input_gain(self, need: Callable[..., Vector]) -> Vector | None:
        """The gain of the norm in front, from a reader of tensors."""
        assert self.input_norm is not None
        return None if self.input_norm.gain is None else need(self.input_norm.gain)

    def query_ball(self, need: Callable[..., Vector], head: int, gain: Vector | None) -> BallImage:
        """One head's queries, from a reader of tensors and the gain of what W_qb or W_q reads."""
        part = slice(head * self.head_dim, (head + 1) * self.head_dim)
        return projection_ball(
            need(self.query.weight, part),
            norm="rms",
            gain=gain,
            cap=CAP if self.query_rank is None else "latent RMSNorm",
        )

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head), reading one head's rows of the large tensors at a time.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.input_norm is not None

        def read(name: str | None, part: slice | None = None) -> Vector | None:
            if name is None:
                return None
            values = checkpoint.read(name) if part is None else checkpoint.read(name, part)
            first = 0 if part is None else part.start
            return to_float64(values, tensor=name, first_row=first)

        def need(name: str | None, part: slice | None = None) -> Vector:
            found = read(name, part)
            assert found is not None
            return found

        gain = self.input_gain(need)
        key_gain = gain if self.key_input is None else read(self.key_input.gain)
        latent, bias = need(self.latent), read(self.latent_bias)
        turned = projection_ball(
            latent[self.rank :],
            norm="rms",
            gain=key_gain,
            bias=None if bias is None else bias[self.rank :],
        )
        latent_gain = need(self.latent_gain)
        # Behind a norm of its own the rotated part is no linear image of the state.
        if self.turned_gain is not None:
            turned = qk_norm_ball(
                need(self.turned_gain), kind="rms", head_dim=self.rotated, cap="RMSNorm of keys"
            )
        states = (
            None
            if self.turned_gain is not None
            else States(
                projection_ball(
                    latent[: self.rank],
                    norm="rms",
                    gain=key_gain,
                    bias=None if bias is None else bias[: self.rank],
                ),
                turned,
                self.eps,
            )
        )
        queries = queries_gain = queries_bias = None
        if self.query_rank is not None:
            queries, queries_gain = need(self.query_latent), need(self.query_latent_gain)
            queries_bias = read(self.query_latent_bias)
        cone = self._cone(queries, gain, queries_bias)
        small = None
        linear = self.turned_gain is None and self.key_input is None and self.alone
        if linear and queries is not None and queries_bias is None and bias is None:
            small = small_states(
                (queries, latent[: self.rank]),
                gain=gain,
                radius=math.sqrt(self.width),
                eps=self.eps,
            )
        stride = self.still + self.value_dim
        turns = self.rotary.pairs if self.rotary else np.empty((0, 2), dtype=np.intp)
        pairs = turns - self.still
        for head in range(self.query.heads):
            query = self.query_ball(need, head, gain if queries is None else queries_gain)
            query = scaled_rows(query, turns.ravel(), self.rotated_factor)
            part = slice(head * stride, head * stride + self.still)
            plain = projection_ball(need(self.key.weight, part), norm="rms", gain=latent_gain)
            plain = scaled_rows(plain, range(self.still), self.key_factor)
            key = joint_ball(plain, turned, best_share(query, plain, turned, pairs), cap=CAP)
            inner = None
            if small is not None and self.growth is None:
                inner = inner_head(
                    query,
                    plain,
                    turned,
                    small,
                    pairs=pairs,
                    scale=self.scale,
                    causal=self.causal,
                )
            built = Head(
                query=query,
                key=key,
                scale=self.scale,
                rotary=self.rotary,
                causal=self.causal,
                window=self.window,
                growth=self.growth,
                inner=inner,
                coupled=None if states is None else CoupledKeys(plain, states),
            )
            if cone is not None:
                closer = through(cone, query, typical(key, groups_of(built)))
                if closer is not query:
                    built = replace(built, narrow=Narrow((query, key), (closer, key)))
            yield head, head, built

    def _cone(
        self, queries: Vector | None, gain: Vector | None, bias: Vector | None
    ) -> Cone | None:
        """What the norm of the queries' latent sees; None for every direction."""
        if queries is None or not self.alone or len(queries) > WIDEST:
            return None
        if bias is None and len(queries) <= self.width:
            return None
        return cone_of(projection_ball(queries, norm="rms", gain=gain, bias=bias))
