"""A.X K2: latent attention on picked keys, behind a gated norm; queries read their latent twice.

The gate multiplies every coordinate of the normalised state by a number between 0 and 1, no larger
than its ceiling over all states, so that √d·g ⊙ σ ⊙ u, ‖u‖ ≤ 1, is √d·g ⊙ σ̂ ⊙ u′ with ‖u′‖ ≤ 1
again: the ceilings σ̂ act as a gain (`gates.py`). A query is W₁ RMS(c) + W₂ c with c = W_a h: the
sum of a ball image of the latent's norm and one of the state's, which are covered together without
using that both have one direction. Where gates come near 1, but not all of them for one state,
bounds are two to five times what inputs reach.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm
from dispersion.architectures.indexed_attention import NAMES, IndexedAttention, indexed
from dispersion.architectures.latent_reader import Latent
from dispersion.config import integer
from dispersion.errors import CheckpointError
from dispersion.gates import gated_gain
from dispersion.latent import summed_ball
from dispersion.mapped import mapped_ball
from dispersion.norms import projection_ball

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from dispersion.architectures.latent_attention import LatentAttention
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import BallImage, Head

    Vector = NDArray[np.float64]

CAP = "input RMSNorm and latent RMSNorm"


@dataclass(frozen=True)
class TwiceRead(IndexedAttention):
    """One layer; rows of `query` read the normalised latent, then the latent itself.

    Behind each head's rows of queries are as many of a gate on the output as it has values.

    Attributes:
        gate_rank: coordinates between the two maps of the gate.
    """

    gate_rank: int = 0

    @property
    def gates(self) -> tuple[str, str]:
        """The maps of the gate, down and up."""
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        root = self.input_norm.gain.removesuffix("norm.weight")
        return f"{root}W_down.weight", f"{root}W_up.weight"

    @property
    def alone(self) -> bool:
        return False

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        assert self.query_rank is not None
        rows = self.query.heads * (self.head_dim + self.value_dim)
        down, up = self.gates
        return super().tensors | {
            self.query.weight: (rows, 2 * self.query_rank),
            down: (self.gate_rank, self.width),
            up: (self.width, self.gate_rank),
        }

    def input_gain(self, need: Callable[..., Vector]) -> Vector | None:
        gain = super().input_gain(need)
        assert gain is not None
        return gated_gain(gain, *(need(name) for name in self.gates))

    def query_ball(self, need: Callable[..., Vector], head: int, gain: Vector | None) -> BallImage:
        assert self.query_rank is not None
        start = head * (self.head_dim + self.value_dim)
        rows = need(self.query.weight, slice(start, start + self.head_dim))
        first = projection_ball(rows[:, : self.query_rank], norm="rms", gain=gain)
        second = mapped_ball(
            rows[:, self.query_rank :],
            need(self.query_latent),
            None if self.query_latent_bias is None else need(self.query_latent_bias),
            norm="rms",
            gain=self.input_gain(need),
        )
        return summed_ball(first, second, cap=CAP)

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head), whose keys are covered by one ball image alone."""
        for index, kv_head, head in super().heads(checkpoint):
            yield index, kv_head, replace(head, coupled=None)


def _finish(config: Mapping[str, Any], found: LatentAttention) -> TwiceRead:
    """The attention whose queries read their latent twice.

    Raises:
        CheckpointError: queries have no latent.
    """
    if found.query_rank is None:
        msg = "q_lora_rank in config.json must be a number for this model. Got None."
        raise CheckpointError(msg)
    picking = indexed(config, found)
    values = {f.name: getattr(picking, f.name) for f in fields(picking)}
    assert found.input_norm is not None
    assert found.input_norm.gain is not None
    norm = found.input_norm.gain.replace("input_layernorm.", "input_layernorm.norm.")
    rank = integer(config, "gated_norm_rank", 16)
    return TwiceRead(**values | {"input_norm": Norm("rms", norm), "gate_rank": rank})


FAMILY = Latent(
    names={
        **NAMES,
        r"post_attention_layernorm\.(norm|W_down|W_up)\.weight": ledger.AFTER,
    },
    finish=_finish,
).family(
    "axk2",
    ("axk2",),
    "AXK2",
    "latent attention on index_topk keys, a gated norm, queries that read their latent twice",
)
