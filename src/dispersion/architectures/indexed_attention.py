"""Latent attention in which an indexer picks the keys that a query sees (DeepSeek V3.2)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.latent_attention import LatentAttention
from dispersion.architectures.latent_reader import Latent
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

    Config = Mapping[str, Any]

NAMES = {r"self_attn\.indexer\..+": ledger.INDEXER}


@dataclass(frozen=True)
class IndexedAttention(LatentAttention):
    """One layer's latent attention; `picks` is how many keys a query sees of those before it.

    A layer that takes over the keys another layer picked sees as many. `sinks` may name a tensor.
    """

    picks: int = 0

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        sinks = {} if self.sinks is None else {self.sinks: (self.query.heads,)}
        return super().tensors | sinks

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head) as latent attention does, each with its picked keys and sink."""
        sinks = None
        if self.sinks is not None:
            sinks = to_float64(checkpoint.read(self.sinks), tensor=self.sinks)
        for index, kv_head, head in super().heads(checkpoint):
            found = picked(head, self.picks)
            if sinks is not None:
                found = replace(found, sink=float(sinks[index]))
            yield index, kv_head, found


def indexed(config: Config, found: LatentAttention, *, sinks: str | None = None) -> LatentAttention:
    """The attention with `index_topk` keys for each query, and a sink of this name or none."""
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    if sinks is not None:
        values["sinks"] = f"{found.module}.{sinks}"
    return IndexedAttention(**values, picks=integer(config, "index_topk", 2048))


def _turned(config: Config, found: LatentAttention) -> LatentAttention:
    """As `indexed`, for code that knows neither plain queries nor another pairing."""
    if not flag(config, "rope_interleave", default=True) or found.query_rank is None:
        key = "rope_interleave" if found.query_rank is not None else "q_lora_rank"
        msg = f"{key}={shown(repr(config[key]))} in config.json is not supported for this model."
        raise UnsupportedError(msg)
    return indexed(config, found)


SPARSE = Latent(names=NAMES, finish=_turned)
