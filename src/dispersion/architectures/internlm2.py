"""InternLM 2 and 2.5: Llama's attention, its projections fused group by group.

Read off the code published with the models, which transformers does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.granted import check_scaling
from dispersion.architectures.layouts import grouped
from dispersion.architectures.rotations import rope

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Its code knows two ways to scale the rotation."""
    check_scaling(config, ("linear", "dynamic"), "internlm2")
    return blocks


FAMILY = Blocks(
    stack="layers",
    module="attention",
    norm="attention_norm",
    norm_kind="rms",
    norm_parts=("weight",),
    sides=("wqkv",),
    layout=grouped,
    key_heads="num_key_value_heads",
    bias="bias",
    eps=1e-6,
    eps_key="rms_norm_eps",
    rotation=rope(),
    tokens="tok_embeddings.weight",
    vary=vary,
    inside={
        r"attention\.wo\.(weight|bias)": ledger.VALUE,
        r"attention\.(rope|rotary_emb)\.inv_freq": ledger.FREQUENCIES,
        r"feed_forward\..+": ledger.FEED_FORWARD,
        r"ffn_norm\.weight": ledger.AFTER,
    },
    outside={
        r"tok_embeddings\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?(output|v_head)\..+": ledger.HEAD,
    },
).family("internlm2", "InternLM2", "one projection in groups of queries, key and value")
