"""RecurrentGemma (Griffin): local attention on each third layer, recurrences on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR
from dispersion.architectures.windows import SLIDING, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config


def _blocks(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`block_types` over and over; attention is always within `attention_window_size`."""
    stated = config.get("block_types")
    blocks = ["recurrent", "recurrent", "attention"] if stated is None else stated
    known = (
        isinstance(blocks, list) and blocks and set(map(str, blocks)) <= {"recurrent", "attention"}
    )
    if not known:
        msg = (
            "block_types in config.json must list recurrent and attention. "
            f"Got {shown(repr(stated))}."
        )
        raise CheckpointError(msg)
    window = LayerKind(SLIDING, integer(config, "attention_window_size", 2048))
    recurrent = LayerKind(LINEAR, attends=False)
    return tuple(
        window if blocks[i % len(blocks)] == "attention" else recurrent for i in range(layers)
    )


FAMILY = Decoder(
    module="temporal_block",
    input_norm="temporal_pre_norm",
    names={
        r"temporal_block\.[vo]_proj\.(weight|bias)": ledger.VALUE,
        r"channel_pre_norm\.weight": ledger.AFTER,
        r"mlp_block\..+": ledger.FEED_FORWARD,
    },
    gain_offset=1.0,
    partial=0.5,
    scaled_embedding=True,
    window=_blocks,
).family(
    "recurrent_gemma",
    "RecurrentGemma",
    "gains 1 + weight, partial RoPE, sliding; recurrent layers are skipped",
)
