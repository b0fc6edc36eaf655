"""Sarvam 105B: DeepSeek V3's attention with plain queries, also in an older dialect of YaRN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.latent_reader import Latent

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

OLD = "deepseek_yarn"
RULES = Latent(interleave_key="rope_interleave")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that may be silent on `q_lora_rank` or call YaRN by its first name."""
    config = {"q_lora_rank": None, **checkpoint.config}
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and OLD in (scaling.get("type"), scaling.get("rope_type")):
        kept = {key: value for key, value in scaling.items() if key != "type"}
        config["rope_scaling"] = {**kept, "rope_type": "yarn"}
    if config.get("num_nextn_predict_layers") is None:
        config["num_nextn_predict_layers"] = config.get("num_mtp_layers")
    return RULES.read("sarvam_mla", replace(checkpoint, config=config), layers)


FAMILY = replace(
    RULES.family(
        "sarvam_mla",
        ("sarvam_mla",),
        "SarvamMLA",
        "latent attention, interleaved RoPE on a part unless rope_interleave is false",
    ),
    read=read,
)
