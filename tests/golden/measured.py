"""What models hand to their attention, and the weights their eager code makes of it.

    python tests/golden/measured.py [NAME ...]      # rewrites tests/data/measured.npz, or these

For every layer of each checkpoint: queries, keys and the arguments with which `dispersion.measure`
reads them, and the eager attention weights of the same tokens, from a second forward pass with
`output_attentions`. Float32 throughout, as the statistics are. And, of the checkpoints that cannot
be measured, why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from dispersion.errors import DispersionError
from dispersion.measure import hooks
from dispersion.measure.documents import Document
from dispersion.measure.running import Model

DATA = Path(__file__).parents[1] / "data"
LONG = ("gemma2", "gpt2", "gpt_oss", "llama", "modernbert", "qwen3")
LENGTH, SHORT = 29, 15  # tokens for those, and for all others


def tokens(model, length=LENGTH):
    """Some token ids, the same in every run."""
    size = model.model.config.vocab_size
    return tuple(int(x) for x in np.random.default_rng(0).integers(0, size, length))


def eager_weights(model, ids):
    """Per layer (heads, n, n): the weights of the model's own eager attention."""
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.model(torch.tensor([ids]), output_attentions=True)
    return [None if layer is None else layer[0].float().numpy() for layer in found.attentions]


def captured(model, ids):
    """Per layer what the hook hands to `layer_statistics`, and what comes back."""
    calls = []
    original = hooks.layer_statistics

    def keep(q, k, **options):
        calls.append((q, k, options))
        return original(q, k, **options)

    with mock.patch.object(hooks, "layer_statistics", keep):
        found = model.measure(Document("tokens", ids))
    # A model that computes with its masks runs twice: the second pass is the one that counts.
    return calls[-len(found) :], found


def names():
    """Every checkpoint of one file; shards and floats of 16 bits are other tests' business."""
    return sorted(path.parent.name for path in DATA.glob("*/config.json"))


def add(name, arrays, facts):
    """What one checkpoint's layers were handed, and their eager weights."""
    model = Model(DATA / name)
    if getattr(model.model.config, "vocab_size", None) is None:
        model.measure(Document("tokens", (0,)))  # refuses it by name
    if model.model._can_set_experts_implementation():
        model.model.set_experts_implementation("eager")  # fused experts need wider ones than these
    ids = tokens(model, LENGTH if name in LONG else SHORT)
    calls, found = captured(model, ids)
    weights = eager_weights(model, ids)
    places = sorted(found)
    if len(weights) > len(places):  # layers without a softmax say something else, or nothing
        weights = [weights[place] for place in places]
    for layer, (q, k, options), own in zip(places, calls, weights, strict=True):
        place = f"{name}/{layer}"
        arrays[f"{place}/q"], arrays[f"{place}/k"] = q, k
        arrays[f"{place}/weights"] = own
        kept = {x: options[x] for x in ("scale", "causal", "window", "soft_cap")
                if options.get(x) is not None}  # fmt: skip
        for part in ("sinks", "mask"):
            if options.get(part) is not None:
                arrays[f"{place}/{part}"] = options[part]
        facts[place] = kept


def kept(named):
    """What is stored of all other checkpoints."""
    with np.load(DATA / "measured.npz") as stored:
        arrays = {k: stored[k] for k in stored.files if k.split("/")[0] not in named}
    facts, refused = (json.loads(str(arrays.pop(k))) for k in ("facts", "refused"))
    facts = {k: v for k, v in facts.items() if k.split("/")[0] not in named}
    return arrays, facts, {k: v for k, v in refused.items() if k not in named}


def main(named):
    arrays, facts, refused = kept(named) if named else ({}, {}, {})
    for name in named or names():
        try:
            add(name, arrays, facts)
        except DispersionError as error:
            refused[name] = str(error).replace(f"{DATA}/", "")
        print(f"{name}: {refused.get(name, 'measured')}", flush=True)
    arrays["facts"] = np.array(json.dumps(facts))
    arrays["refused"] = np.array(json.dumps(refused))
    np.savez_compressed(DATA / "measured.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
