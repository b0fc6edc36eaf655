"""Language models beside towers, under the names by which real classes save them.

wrapped.json says of each model_type what stands in front of its language model's names and what other
names begin with: tests/golden/wrapped.py. The weights are those of golden checkpoints.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import families, plan, supported_model_types
from dispersion.architectures.text_sizes import SIZES
from dispersion.architectures.towers import TOWER
from dispersion.architectures.wrappers import WRAPPERS
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, DispersionError, UnsupportedError

DATA = Path(__file__).parent / "data"
RECORD = json.loads((DATA / "wrapped.json").read_text())
SAVED = RECORD["wrapped"]
EMBEDDINGS = ("embed_tokens.weight", "embeddings.tok_embeddings.weight")
# Their towers come from libraries that make no tiny ones, or their defaults cannot be built.
NOT_BUILT = {"gemma3n", "perception_lm", "qwen3_omni_moe"}


def stem_of(names):
    (stem,) = {n.removesuffix(e) for n in names for e in EMBEDDINGS if n.endswith(e)}
    return stem


def language(golden):
    """Arrays of a golden checkpoint's language model by their names within it, and its config."""
    checkpoint = open_checkpoint(DATA / golden)
    stem = stem_of(checkpoint.names)
    config = checkpoint.config
    parts = [""] if "vision_config" not in config else ["layers.", "embed_tokens.", "norm."]
    own = [n for n in checkpoint.names if n.startswith(tuple(stem + part for part in parts))]
    text = config.get("text_config", config)
    return {n.removeprefix(stem): checkpoint.read(n) for n in own}, text


def wrapped(model_type, stem=None, **changes):
    """A file of this model_type with a golden checkpoint's language model, and its config."""
    saved = SAVED[model_type]
    inner, text = language(saved["golden"])
    stem = saved["stem"] if stem is None else stem
    arrays = {stem + name: array for name, array in inner.items()}
    for name in saved["beside"]:
        arrays[name.replace("*", "0")] = np.ones((2, 2), np.float32)
    config = text | {"model_type": WRAPPERS[model_type].inner} | changes
    for key in reversed(WRAPPERS[model_type].keys):
        config = {key: config}
    return arrays, config | {"model_type": model_type}


def heads(found):
    return [head for layer in found.layers for _, _, head in layer.heads()]


def same(one, other):
    for a, b in zip(heads(one), heads(other), strict=True):
        np.testing.assert_array_equal(a.query.matrix, b.query.matrix)
        np.testing.assert_array_equal(a.key.matrix, b.key.matrix)
        assert (a.scale, a.window, a.soft_cap) == (b.scale, b.window, b.soft_cap)
        assert (a.rotary is None) == (b.rotary is None)
        if a.rotary is not None:
            np.testing.assert_array_equal(a.rotary.frequencies, b.rotary.frequencies)
            np.testing.assert_array_equal(a.rotary.pairs, b.rotary.pairs)
    assert len(one.layers) == len(other.layers)


@pytest.mark.parametrize("model_type", SAVED)
def test_the_language_model_of_a_real_file_is_read_and_nothing_else(model_type):
    arrays, config = wrapped(model_type)
    found = plan(from_arrays(arrays, config))
    same(found, plan(open_checkpoint(DATA / SAVED[model_type]["golden"])))
    assert found.model["model_type"] == model_type
    assert not found.refused
    used = {name for layer in found.layers for name in layer.tensors}
    assert len(used) + sum(s.count for s in found.skipped) == len(arrays)
    towers = [s for s in found.skipped if s.reason == TOWER]
    assert sum(s.count for s in towers) == sum(
        "lm_head" not in n for n in SAVED[model_type]["beside"]
    )
    assert not any(s.name.startswith(SAVED[model_type]["stem"] + "layers") for s in towers)


def test_every_wrapper_that_can_be_built_is_recorded():
    assert set(SAVED) | NOT_BUILT == set(WRAPPERS)
    assert not set(SAVED) & NOT_BUILT
    assert set(WRAPPERS) <= set(supported_model_types())


def test_sizes_of_silent_configs_are_those_of_their_classes():
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    assert {name: dict(zip(keys, s, strict=True)) for name, s in RECORD["sizes"].items()} == SIZES
    known = {name for family in families() for name in family.model_types}
    assert set(SIZES) <= known
    assert {w.inner for w in WRAPPERS.values()} <= set(SIZES)
