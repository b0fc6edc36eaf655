"""AltCLIP: XLM-RoBERTa and CLIP's image encoder in one file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import clip_vision_model, electra, ledger
from dispersion.architectures import roberta_prelayernorm as roberta
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.two_towers import Tower, family

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

CLASSES = ("AltCLIP",)
NOTES = "both towers: text is read by XLM-RoBERTa"
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
TEXT = Tower(
    "text_config",
    "text_model",
    ("altclip_text_model",),
    replace(
        electra.BLOCKS,
        tokens=None,
        causal=False,
        eps=1e-5,
        positions_absent=514,
        vary=roberta.vary,
        outside={
            **electra.BLOCKS.outside,
            r"(.+\.)?(transformation|pre_LN)\.(weight|bias)": ledger.HEAD,
        },
    ),
    dict(zip(_SIZES, (1024, 24, 16), strict=True)),
    override="text_config_dict",
)
VISION = Tower(
    "vision_config",
    "vision_model",
    ("altclip_vision_model",),
    clip_vision_model.BLOCKS,
    dict(zip(_SIZES, (768, 12, 12), strict=True)),
    override="vision_config_dict",
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a file of either spelling; newer ones call the image encoder's layers `layer` too."""
    newer = any("vision_model.encoder.layer." in name for name in checkpoint.names)
    stack = "encoder.layer" if newer else VISION.rules.stack
    vision = replace(VISION, rules=replace(VISION.rules, stack=stack))
    return family("altclip", CLASSES, (TEXT, vision), NOTES).read(checkpoint, asked)


FAMILY = Family("altclip", ("altclip",), CLASSES, NOTES, read)
