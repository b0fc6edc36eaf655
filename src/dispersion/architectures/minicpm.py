"""MiniCPM 1, 2 and 4: Llama's attention on scaled embeddings.

Read off the code published with the models, which transformers does not have. `scale_depth` and
`dim_model_base` act on what leaves a layer and the model, behind which the next norm stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_granted, check_scaling
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

# With it a query sees picked blocks of keys and means of others.
_GRANTED = {"sparse_config": None}

_FAMILY = Decoder(embedding_key="scale_emb").family(
    "minicpm", "MiniCPM", "Llama's attention, scaled embeddings"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config, unless its attention is sparse or turns otherwise."""
    config = checkpoint.config
    check_granted(config, _GRANTED, "minicpm")
    check_scaling(config, ("linear", "dynamic", "longrope"), "minicpm")
    scaling = config.get("rope_scaling")
    if checkpoint.format != "gguf" and isinstance(scaling, dict) and "short_factor" in scaling:
        checkpoint = replace(checkpoint, config={**config, "rope_scaling": _long(config, scaling)})
    return _FAMILY.read(checkpoint, layers)


def _long(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> dict[str, Any]:
    """LongRoPE as its code has it.

    The factor of cos and sin comes of the two lengths alone. Angles are made for the longest
    context at once: `long_factor` then holds for all shorter ones, too.

    Raises:
        UnsupportedError: there is another factor, or the longest context is not the longer one.
    """
    check_granted(scaling, {"factor": None, "attention_factor": None}, "minicpm's longrope")
    key = "original_max_position_embeddings"
    longest, trained = integer(config, "max_position_embeddings", 2048), integer(scaling, key)
    if longest < trained:
        msg = (
            f"max_position_embeddings in config.json must be at least {key} for minicpm's "
            f"longrope. Got {longest} and {trained}: not supported."
        )
        raise UnsupportedError(msg)
    return {
        **scaling,
        "short_factor": scaling.get("long_factor" if longest > trained else "short_factor"),
    }


FAMILY = replace(_FAMILY, read=read)
