"""Zamba 2: transformer blocks, shared by some of the Mamba 2 layers, on twice the hidden size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.hybrids import LINEAR
from dispersion.architectures.zamba import HYBRID, block_types, described, read_shared
from dispersion.config import flag, integer

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

RULES = replace(
    described("shared_transformer"), refused=("use_shared_attention_adapter", "use_long_context")
)
SILENT = [LINEAR, *[*[LINEAR] * 5, HYBRID] * 7]
SILENT += [*[LINEAR] * 4, HYBRID, *[LINEAR] * 3, HYBRID, LINEAR, LINEAR]


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config with `num_mem_blocks` blocks that turn with `use_mem_rope`."""
    config = checkpoint.config
    return read_shared(
        RULES,
        checkpoint,
        block_types(config, SILENT),
        layers,
        "zamba2",
        blocks=integer(config, "num_mem_blocks", 1),
        turns=flag(config, "use_mem_rope", default=False),
    )


FAMILY = replace(
    RULES.family("zamba2", "Zamba2", "shared blocks, RoPE on request; Mamba layers are skipped"),
    read=read,
)
