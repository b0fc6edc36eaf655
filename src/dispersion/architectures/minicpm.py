"""MiniCPM 1, 2 and 4: Llama's attention on scaled embeddings.

Read off the code published with the models, which transformers does not have. `scale_depth` and
`dim_model_base` act on what leaves a layer and the model, behind which the next norm stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_granted, check_scaling

if TYPE_CHECKING:
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
    # Its code has the factor of cos and sin from the two lengths alone.
    scaling = config.get("rope_scaling")
    if checkpoint.format != "gguf" and isinstance(scaling, dict) and "short_factor" in scaling:
        check_granted(scaling, {"factor": None, "attention_factor": None}, "minicpm's longrope")
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
