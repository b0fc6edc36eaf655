"""The rotation that GGUF metadata describes, as `rope_scaling` of a config."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint.gguf_architecture import Architecture
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

FREQS, LONG, SHORT = "rope_freqs", "rope_factors_long", "rope_factors_short"


def rope_scaling(
    meta: Metadata, config: Mapping[str, Any], found: Contents, architecture: Architecture
) -> dict[str, Any] | None:
    """`rope_scaling` of the config, or None where nothing is scaled.

    Divisors of the frequencies become a `longrope` scaling: those of `rope_freqs` (Llama 3.1) at
    every length with a factor of 1 on cos and sin, which is the same rotation; those of
    `rope_factors_short` and `_long` by the length of the context, which llama.cpp takes to be the
    one it allocates memory for. Yarn's ramp begins and ends at whole pairs, as in llama.cpp, also
    where a model's own code does not round (gpt-oss).

    Raises:
        UnsupportedError: a scaling that the architecture does not have.
        CheckpointError: a value is malformed.
    """
    kind = meta.get("rope.scaling.type", "linear")
    factor = 1.0
    for key in ("rope.scale_linear", "rope.scaling.factor"):  # the second, newer key wins
        if meta.nonzero(key):
            factor = meta.real(key)
    if kind == "linear" and factor == 1.0:  # what files mean that say nothing
        kind = "none"
    attention = meta.real("rope.scaling.attn_factor", 1.0)
    factors = {name: _divisors(meta, name, found) for name in found.factors}
    known = architecture.scalings
    plain = kind != "yarn" and (kind == "none" or factor == 1.0)
    if kind not in known or (kind != "yarn" and attention != 1.0 and LONG not in factors):
        msg = f"{shown(meta.file)} scales RoPE by {shown(kind)} with attention factor {attention}."
        msg = f"{msg} Known: {', '.join(known)}."
        raise UnsupportedError(msg)
    original = meta.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    if factors:
        whole = int(config["head_dim"] * config.get("partial_rotary_factor", 1.0))
        size = config.get("qk_rope_head_dim", whole) // 2
        wanted = ({FREQS}, {LONG, SHORT})
        fitting = all(len(divisors) == size for divisors in factors.values())
        if not plain or set(factors) not in wanted or not fitting:
            msg = (
                f"{shown(meta.file)}: {', '.join(sorted(factors))} must hold {size} numbers each, "
                "short and long ones together, and go with no other scaling of RoPE."
            )
            raise UnsupportedError(msg)
        return {
            "rope_type": "longrope",
            "factor": 1.0,
            "short_factor": factors.get(FREQS) or factors[SHORT],
            "long_factor": factors.get(FREQS) or factors[LONG],
            "attention_factor": attention,
            "original_max_position_embeddings": original,
        }
    if kind == "longrope":
        msg = f"{shown(meta.file)} scales RoPE by longrope without the tensors {LONG} and {SHORT}."
        raise UnsupportedError(msg)
    if kind == "yarn":
        yarn = {
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": meta.real("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": meta.real("rope.scaling.yarn_beta_slow", 1.0),
            "original_max_position_embeddings": original,
        }
        if attention != 1.0:  # it multiplies the usual factor, 1 + ln(factor)/10
            yarn["attention_factor"] = attention * (0.1 * math.log(max(factor, 1.0)) + 1.0)
        return yarn
    return None if plain else {"rope_type": "linear", "factor": factor}


def _divisors(meta: Metadata, name: str, found: Contents) -> list[float]:
    values = [float(value) for value in found.factors[name]]
    if not all(0 < value < math.inf for value in values):
        msg = f"{shown(meta.file)}: {name}.weight must hold positive divisors."
        raise UnsupportedError(msg)
    return values
