import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from dispersion import demo
from dispersion.errors import ArgumentError

DEMOS = Path(__file__).parents[1] / "demos"
MODEL_TYPES = {"plain": "llama", "headwise": "qwen3", "layerwise": "olmo2"}
ATTENTION = "model.layers.0.self_attn."


def tensors(name):
    """Tensors of a demo, float32, read from the bytes without the package's own reader."""
    data = (demo.path(name) / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    assert {entry["dtype"] for entry in header.values()} == {"F32"}
    return {
        key: np.frombuffer(data[8 + size :][slice(*entry["data_offsets"])], "<f4").reshape(
            entry["shape"]
        )
        for key, entry in header.items()
    }


def load(name, field):
    return json.loads((demo.path(name) / field).read_text(encoding="utf-8"))


@pytest.fixture
def train(monkeypatch):
    """demos/train.py as a module; it imports its neighbours by bare name."""
    monkeypatch.syspath_prepend(str(DEMOS))
    spec = importlib.util.spec_from_file_location("demo_train", DEMOS / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for neighbour in ("task", "model"):
        sys.modules.pop(neighbour)


def test_the_names_are_the_folders_there():
    folder = demo.path("plain").parent
    assert set(demo.names()) == set(MODEL_TYPES)
    assert {p.parent.name for p in folder.glob("*/config.json")} == set(demo.names())


def test_all_demos_together_take_at_most_300_kilobytes():
    files = [f for name in demo.names() for f in demo.path(name).iterdir()]
    assert sum(f.stat().st_size for f in files) <= 300_000


@pytest.mark.parametrize("function", [demo.path, demo.about])
def test_an_unknown_name_lists_the_known_ones(function):
    with pytest.raises(ArgumentError, match=r"'plan'.* plain, headwise, layerwise\."):
        function("plan")


@pytest.mark.parametrize("name", ["..", "", "plain/../plain"])
def test_a_name_is_not_a_path(name):
    with pytest.raises(ArgumentError):
        demo.path(name)


@pytest.mark.parametrize("name", demo.names())
def test_every_demo_is_described_in_one_line(name):
    assert demo.about(name)
    assert "\n" not in demo.about(name)


@pytest.mark.parametrize("name", demo.names())
def test_config_and_tensors_have_the_layout_of_their_family(name):
    config, shapes = load(name, "config.json"), {k: v.shape for k, v in tensors(name).items()}
    assert config["model_type"] == MODEL_TYPES[name]
    assert config["num_hidden_layers"] == 1
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config["hidden_size"]
    head_dim = config.get("head_dim", width // heads)
    assert (heads, key_heads, head_dim) == (4, 2, 16)
    assert shapes[ATTENTION + "q_proj.weight"] == (heads * head_dim, width)
    assert shapes[ATTENTION + "k_proj.weight"] == (key_heads * head_dim, width)
    norms = {"plain": None, "headwise": (16, 16), "layerwise": (64, 32)}[name]
    found = tuple(shapes.get(ATTENTION + f"{side}_norm.weight") for side in "qk")
    assert found == ((None, None) if norms is None else tuple((n,) for n in norms))
    assert ("model.layers.0.input_layernorm.weight" in shapes) == (name != "layerwise")
    assert config["tie_word_embeddings"]
    assert "lm_head.weight" not in shapes


@pytest.mark.parametrize("name", ["headwise", "layerwise"])
def test_qk_norm_gains_are_one_and_the_rest_is_trained(name):
    weights = tensors(name)
    fixed = load(name, "demo.json")["fixed_at_one"]
    assert fixed == [ATTENTION + "k_norm.weight", ATTENTION + "q_norm.weight"]
    untouched = [key for key, value in weights.items() if np.all(value == 1)]
    assert sorted(untouched) == fixed


@pytest.mark.parametrize("name", demo.names())
def test_the_record_says_what_was_trained_and_measured(name):
    record = load(name, "demo.json")
    assert record["train_length"] == load(name, "config.json")["max_position_embeddings"] == 16
    assert {"seed", "steps", "versions", "final_loss"} <= set(record)
    measured = record["measured"]
    assert {16 * factor for factor in (1, 2, 4, 16, 64)} <= {int(n) for n in measured}
    assert measured["16"]["accuracy"] >= 0.99
    assert all(0 <= share <= 1 for entry in measured.values() for share in entry.values())


def test_no_measured_coefficient_passes_the_ceiling_of_headwise_norm():
    for length, entry in load("headwise", "demo.json")["measured"].items():
        ceiling = 1 / (1 + (int(length) - 1) * math.exp(-8))
        assert entry["needle_coefficient"] <= ceiling


@pytest.mark.parametrize("name", demo.names())
def test_the_recorded_accuracy_is_that_of_the_stored_weights(train, name):
    record = load(name, "demo.json")
    again = train.evaluate(tensors(name), load(name, "config.json"), record["seed"], 64)
    there = record["measured"]["64"]
    # Rounding may turn a near-tie: two sequences, and float32 sums of coefficients below 1e-4.
    assert again["accuracy"] == pytest.approx(there["accuracy"], abs=2 / 1024)
    assert again["needle_coefficient"] == pytest.approx(there["needle_coefficient"], abs=2e-4)
