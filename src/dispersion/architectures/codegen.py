"""CodeGen: GPT-J with queries, values and keys fused in four parts."""

from __future__ import annotations

from dataclasses import replace

from dispersion.architectures.gptj import BLOCKS
from dispersion.architectures.layouts import in_four_parts

FAMILY = replace(BLOCKS, sides=("qkv_proj",), layout=in_four_parts).family(
    "codegen", "CodeGen", "as gptj, with projections fused in four parts of queries, values, keys"
)
