"""Write tests/data/tokens.json: first-layer logits of the real models on token ids.

    python tests/golden/tokens.py [NAME ...]      # needs the dependency group `golden`

For every checkpoint with a layer that reads token embeddings and can be bounded: CONTEXTS random
contexts of LENGTH token ids, and for each of its heads the logits of the last token against all,
before any mask. The whole model runs, embeddings, their scale and learned positions included.
`make.py` runs it for the checkpoints that it makes.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from logits import DATA, checkpoints
from places import SEQ2SEQ
from real import Real, _calls, last_row

from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

CONTEXTS, LENGTH = 6, 12


def rows(real: Real, ids: list[int], types: list[int]) -> list[list[float]]:
    """Logits of the last of `ids` in layer 0, (heads, tokens)."""
    inputs = {"input_ids": torch.tensor([ids])}
    if real.config.model_type in ("albert", "bert", "electra", "megatron-bert", "rembert"):
        inputs["token_type_ids"] = torch.tensor([types])
    model = real.model
    if real.kind in ("moonshine", "whisper"):
        model = model.decoder  # what its first layer reads does not hang on the audio
    elif real.kind in SEQ2SEQ:
        model = model.encoder
    if real.two_towers:
        model = model.text_model
    with torch.no_grad(), real._precision(), real._recording(recorded=True):
        model(**inputs)
        found = last_row(_calls[0])[0].tolist()
    _calls.clear()
    return found


def bounded(folder: Path) -> bool:
    """Whether the first layer is bounded over token ids, and not over any input only."""
    layers = plan(open_checkpoint(folder)).layers
    # not the model's first where that has no softmax
    layer = next((each for each in layers if not each.layer and each.embedding is not None), None)
    if layer is None:
        return False
    norm = next(iter(layer.heads()))[2].reach.query_norm
    return norm is None or not norm.centred


def contexts(folder: Path) -> list[dict[str, Any]]:
    """Random token ids and what the model makes of them."""
    torch.set_default_dtype(torch.float64)
    real = Real.open(folder)
    draw = np.random.default_rng(0)
    found = []
    for _ in range(CONTEXTS):
        ids = draw.integers(0, real.sizes.vocab_size, LENGTH).tolist()
        types = draw.integers(0, 2, LENGTH).tolist()
        found.append({"ids": ids, "types": types, "logits": rows(real, ids, types)})
    return found


def update(names: list[str]) -> None:
    """Record checkpoints anew, all where none is named, and leave the others as they are."""
    path = DATA / "tokens.json"
    record = json.loads(path.read_text()) if names else {}
    for folder in checkpoints(names):
        record.pop(folder.name, None)
        if bounded(folder):
            record[folder.name] = contexts(folder)
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(record[name])}" for name in sorted(record))
    path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    update(sys.argv[1:])
