"""What models hand to their attention, and the weights their eager code makes of it.

    python tests/golden/measured.py      # rewrites tests/data/measured.npz

For every layer of each checkpoint: queries, keys and the arguments with which `dispersion.measure`
reads them, and the eager attention weights of the same tokens, from a second forward pass with
`output_attentions`. Float32 throughout, as the statistics are.
"""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from dispersion.measure import hooks
from dispersion.measure.documents import Document
from dispersion.measure.running import Model

DATA = Path(__file__).parents[1] / "data"
NAMES = ("gemma2", "gpt2", "gpt_oss", "llama", "modernbert", "qwen3")
LENGTH = 29


def tokens(model, length=LENGTH):
    """Some token ids, the same in every run."""
    size = model.model.config.vocab_size
    return tuple(int(x) for x in np.random.default_rng(0).integers(0, size, length))


def eager_weights(model, ids):
    """Per layer (heads, n, n): the weights of the model's own eager attention."""
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.model(torch.tensor([ids]), output_attentions=True)
    return [layer[0].float().numpy() for layer in found.attentions]


def captured(model, ids):
    """Per layer what the hook hands to `layer_statistics`, and what comes back."""
    calls = []
    original = hooks.layer_statistics

    def keep(q, k, **options):
        calls.append((q, k, options))
        return original(q, k, **options)

    with mock.patch.object(hooks, "layer_statistics", keep):
        found = model.measure(Document("tokens", ids))
    return calls, found


def main():
    arrays, facts = {}, {}
    for name in NAMES:
        model = Model(DATA / name)
        ids = tokens(model)
        calls, _ = captured(model, ids)
        weights = eager_weights(model, ids)
        for layer, ((q, k, options), own) in enumerate(zip(calls, weights, strict=True)):
            place = f"{name}/{layer}"
            arrays[f"{place}/q"], arrays[f"{place}/k"] = q, k
            arrays[f"{place}/weights"] = own
            kept = {x: options[x] for x in ("scale", "causal", "window", "soft_cap")
                    if options.get(x) is not None}  # fmt: skip
            for part in ("sinks", "mask"):
                if options.get(part) is not None:
                    arrays[f"{place}/{part}"] = options[part]
            facts[place] = kept
    arrays["facts"] = np.array(json.dumps(facts))
    np.savez_compressed(DATA / "measured.npz", **arrays)


if __name__ == "__main__":
    main()
