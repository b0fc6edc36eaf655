"""Ling and Ring with linear layers: DeepSeek's latent attention on every sixth layer, gated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.hybrids import attending_every
from dispersion.architectures.latent_reader import Latent

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

MODULE, PLAIN, PARTIAL = "attention", "default", "partial_rotary_factor"
RULES = Latent(
    module=MODULE,
    theta=6000000.0,
    window=attending_every(6, "layer_group_size"),
    softmax=r"kv_[ab]_proj(_with_mqa)?\.weight",
    names={
        rf"{MODULE}\.dense\.(weight|bias)": ledger.VALUE,
        rf"{MODULE}\.g_proj\.weight": ledger.GATE,
    },
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config with the class's defaults where it is silent."""
    config = {"q_lora_rank": None, **checkpoint.config}
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if isinstance(rope, dict) and (rope.get("rope_type") or rope.get("type") or PLAIN) == PLAIN:
        # Only scaled rotations look at this key, wherever it stands.
        for key in ("rope_scaling", "rope_parameters"):
            if isinstance(config.get(key), dict):
                config[key] = {k: v for k, v in config[key].items() if k != PARTIAL}
        config.pop(PARTIAL, None)
    if config.get("num_nextn_predict_layers") is None:
        config["num_nextn_predict_layers"] = config.get("num_mtp_layers", 1)
    return RULES.read("bailing_hybrid", replace(checkpoint, config=config), layers)


FAMILY = replace(
    RULES.family(
        "bailing_hybrid",
        ("bailing_hybrid",),
        "BailingHybrid",
        "latent attention, interleaved RoPE on a part; linear layers are skipped",
    ),
    read=read,
)
