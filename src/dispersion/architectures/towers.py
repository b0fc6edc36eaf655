"""Models with images or sound: the language model in them, without its towers.

What is said of such a model holds of contexts of text: there attention is causal and positions
count tokens. Towers have attention of their own, which is not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.results import Skipped

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

TOWER = "tower for images or sound, not part of the language model"
_TOWER = re.compile(r"(model\.)?(vision_tower|vision_model|audio_tower|vit_large_projector)\..+")


def language_model(checkpoint: Checkpoint) -> tuple[Checkpoint, tuple[Skipped, ...]]:
    """The checkpoint of the language model that `text_config` describes, and what is left out.

    `text_config` must be an object. What `quantization_config` says beside it holds for it too.
    """
    config = checkpoint.config
    kept = {n: info for n, info in checkpoint.infos.items() if not _TOWER.fullmatch(n)}
    left: Counter[str] = Counter(
        re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in checkpoint.names if name not in kept
    )
    nested = {**config["text_config"], "model_type": config["model_type"]}
    nested.setdefault("quantization_config", config.get("quantization_config"))
    return (
        replace(checkpoint, infos=kept, config=nested),
        tuple(Skipped(name, TOWER, count) for name, count in left.items()),
    )
