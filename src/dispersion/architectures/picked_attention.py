"""One layer's attention on keys that an indexer picks for each query."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dispersion.architectures.attention import Attention
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head


@dataclass(frozen=True, kw_only=True)
class PickedAttention(Attention):
    """Attention each of whose queries sees at least `picks` keys, anywhere before it."""

    picks: int

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head) as any attention does, each with its picked keys."""
        for index, kv_head, head in super().heads(checkpoint):
            yield index, kv_head, picked(head, self.picks)


def with_picks(found: Attention, picks: int | None) -> Attention:
    """The attention where `picks` keys are picked, nothing of which is said over token ids."""
    if picks is None:
        return found
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    return PickedAttention(**values | {"embedding": None}, picks=picks)
