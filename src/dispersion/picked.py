"""Heads whose queries see some keys alone, which the model itself picks from all before them.

An indexer (DeepSeek's sparse attention) is a mask that depends on the input. The logits of the keys
that it leaves are those of the head, at any lag; how many it leaves is known, which ones is not. So
the spread is bounded over all keys of the context, a row over as many keys as are picked, and
nothing is said of what several queries do to common keys: they may share none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dispersion.errors import ArgumentError
from dispersion.head import Head


@dataclass(frozen=True, eq=False)
class PickedHead(Head):
    """A head each of whose queries sees at least min(length, `window`) keys, anywhere before it.

    Attributes:
        more: whether it may see more than those.

    """

    more: bool = False

    @property
    def most_seen(self) -> int | None:
        return None if self.more else self.window

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunked or self.reach is not None or self.inner is not None:
            msg = "chunked, reach and inner must not be set where keys are picked. Got one of them."
            raise ArgumentError(msg)


def picked(head: Head, count: int, *, more: bool = False) -> PickedHead:
    """The head with `count` picked keys for each query, or `more`; what inputs reach is forgotten.

    Whether a context that attains something would see its own keys is the indexer's business.
    """
    values = {f.name: getattr(head, f.name) for f in fields(Head)}
    return PickedHead(**values | {"window": count, "reach": None, "inner": None, "more": more})
