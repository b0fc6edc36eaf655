"""BigBird: BERT, whose queries see some blocks of keys: near ones, both ends, and random ones.

A query in the first or the last block sees all keys. Any other sees the first block, its own and
both neighbours, the last one, and blocks drawn at random, which are not counted here. Of these no
padding at an end of a context leaves less than two whole blocks. Short contexts are seen whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import bert
from dispersion.architectures.picked_attention import with_picks
from dispersion.architectures.plans import Family, Plan
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint

WHOLE, SPARSE = "original_full", "block_sparse"
SEEN = 2  # blocks that every query sees at least


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder, or a decoder's self-attention, which is whole with a cache alone.

    Raises:
        UnsupportedError: the config names another kind of attention, or projections without biases.
    """
    config = checkpoint.config
    kind = config.get("attention_type", SPARSE)
    if kind not in (WHOLE, SPARSE):
        msg = (
            f"attention_type in config.json must be {WHOLE} or {SPARSE}. "
            f"Got {shown(repr(kind))}: not supported."
        )
        raise UnsupportedError(msg)
    if not flag(config, "use_bias", default=True):
        msg = "use_bias in config.json must be true for big_bird. Got false: not supported."
        raise UnsupportedError(msg)
    picks = None if kind == WHOLE else SEEN * integer(config, "block_size", 64)

    def beside(prefix: str, layer: int, found: Attention) -> Attention:  # noqa: ARG001
        return with_picks(found, picks)

    return bert.read_encoder(checkpoint, asked, "big_bird", plain=False, beside=beside)


FAMILY = Family(
    "big_bird",
    ("big_bird",),
    ("BigBird",),
    "as bert, each query on near, outer and random blocks of keys",
    read,
)
