"""Write tests/data/tokens.json: first-layer logits of the real models on token ids.

    python tests/golden/tokens.py        # needs the dependency group `golden`

For every checkpoint: CONTEXTS random contexts of LENGTH token ids, and for each head of layer 0
the logits of the last token against all, before any mask. The whole model runs, embeddings, their
scale and learned positions included. Run it again whenever the checkpoints are made anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from real import Real, _calls, last_row

DATA = Path(__file__).resolve().parents[1] / "data"
CONTEXTS, LENGTH = 6, 12
# Their first layers are bounded over any input only.
ANY_INPUT = ("roberta", "cohere__qk_norm", "gemma3n_text", "muse_spark_text")


def rows(real: Real, ids: list[int], types: list[int]) -> list[list[float]]:
    """Logits of the last of `ids` in layer 0, (heads, tokens)."""
    real.config._attn_implementation = "recorded"
    inputs = {"input_ids": torch.tensor([ids])}
    if real.config.model_type == "bert":
        inputs["token_type_ids"] = torch.tensor([types])
    with torch.no_grad(), real._precision():
        real.model(**inputs)
        found = last_row(_calls[0])[0].tolist()
    _calls.clear()
    return found


def main() -> None:
    torch.set_default_dtype(torch.float64)
    record = {}
    for folder in sorted(p for p in DATA.iterdir() if (p / "config.json").is_file()):
        real = Real.open(folder)
        if folder.name in ANY_INPUT or 0 not in real.attending:
            continue
        if getattr(real.attention(0), "sinks", None) is not None:
            continue  # contexts of token ids are built without a sink
        draw = np.random.default_rng(0)
        contexts = []
        for _ in range(CONTEXTS):
            ids = draw.integers(0, real.config.vocab_size, LENGTH).tolist()
            types = draw.integers(0, 2, LENGTH).tolist()
            contexts.append({"ids": ids, "types": types, "logits": rows(real, ids, types)})
        record[folder.name] = contexts
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(found)}" for name, found in record.items())
    (DATA / "tokens.json").write_text(f"{{\n{lines}\n}}\n")
    print(f"{len(record)} checkpoints")


if __name__ == "__main__":
    main()
