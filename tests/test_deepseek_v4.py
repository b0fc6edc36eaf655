"""DeepSeek V4: normed keys of tokens and of groups of tokens, sinks, a window beside them."""

import json
import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import deepseek_v4, plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.picked import PickedHead
from dispersion.verdict import Target

NAME = "deepseek_v4"
DATA = mechanism_checks.DATA
SLIDING, CSA, HCA = deepseek_v4.TYPES


def changed(drop=(), scaled=None, **config):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    for name, factor in (scaled or {}).items():
        arrays[name] = arrays[name] * np.float32(factor)
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def heads(found):
    return [next(iter(layer.heads()))[2] for layer in found.layers]


def test_bounds_are_close_to_what_was_reached():
    """Groups of one token, and of one with the token in front of it, stand beside the tokens."""
    found = mechanism_checks.certified(NAME)
    for n, layer, index, spread in mechanism_checks.reached(NAME):
        bound = found[n, layer, index].spread.upper
        assert spread * (1 - 2.0**-40) <= bound <= 1.25 * spread


def test_the_larger_gain_of_the_two_norms_counts():
    checkpoint = open_checkpoint(DATA / NAME)
    for layer in changed().layers:
        names = [n for n in layer.tensors if n.endswith("attn.norm.weight")]
        names += [n for n in layer.tensors if n.endswith("compressor.norm.weight")]
        assert len(names) == (1 if layer.layer == 0 else 2)
        most = max(float(np.abs(checkpoint.read(n)).max()) for n in names)
        for _, kv_head, head in layer.heads():
            assert kv_head == 0
            exact = 2 * math.sqrt(head.query.head_dim) * most
            assert check_head(head, [Target(9)]).spread.upper == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("part", ["", "compressor."])
def test_either_norm_may_give_the_larger_keys(part):
    """Bounds of layers with groups grow with the gains of both, of others with their own."""
    before = [check_head(h, [Target(3)]).spread.upper for h in heads(changed())]
    scaled = {f"model.layers.{i}.attn.{part}norm.weight": 50.0 for i in (0, 1, 2) if i or not part}
    after = [check_head(h, [Target(3)]).spread.upper for h in heads(changed(scaled=scaled))]
    for layer, (one, other) in enumerate(zip(before, after, strict=True)):
        assert (other > 10 * one) is (layer > 0 or not part)


def test_recorded_logits_are_no_larger():
    recorded = json.loads((DATA / "logits.json").read_text())["logits"][NAME]
    for layer, rows in zip(changed().layers, recorded, strict=True):
        for index, _, head in layer.heads():
            row = np.array(rows[index])
            assert len(row) == (6 if layer.layer == 0 else 12)
            bound = check_head(head, [Target(6)]).spread.upper
            assert np.abs(row).max() <= bound / 2


def test_sinks_and_windows_are_those_of_the_file():
    checkpoint = open_checkpoint(DATA / NAME)
    for layer in changed(sliding_window=9).layers:
        sinks = checkpoint.read(f"{layer.module}.attn_sink")
        found = [head for _, _, head in layer.heads()]
        np.testing.assert_array_equal([h.sink for h in found], sinks)
        assert all(isinstance(h, PickedHead) and h.window == 9 for h in found)
        # Groups of tokens come on top of the window, but in the first layer of this one.
        assert {h.most_seen for h in found} == {9 if layer.layer == 0 else None}
        results = [check_head(h, [Target(40)]) for h in found]
        said = "a query sees 9 keys or more: ceilings are those of 9 keys"
        assert {r.window for r in results} == {h.most_seen for h in found}
        assert all((said in r.notes) is (layer.layer > 0) for r in results)
    assert heads(changed(drop=("sliding_window",)))[0].window == 128


def test_layer_types_of_old_and_silent_configs():
    kinds = deepseek_v4._types
    assert kinds({}, 5) == [HCA, HCA, HCA, CSA, HCA]
    assert kinds({}, 1) == [HCA]
    assert kinds({"compress_ratios": [0, 4, 128, 0]}, 3) == [SLIDING, CSA, HCA]
    with pytest.raises(CheckpointError, match=r"layer_types in config.json must list 2"):
        kinds({"layer_types": [HCA]}, 2)
    for wrong in (
        {"compress_ratios": [2, 4]},
        {"compress_ratios": [[4], {}]},
        {"layer_types": [HCA, "full_attention"]},
    ):
        with pytest.raises(UnsupportedError, match=r"layer_types in config.json must be of"):
            kinds(wrong, 2)


def test_a_factor_of_cos_and_sin_is_refused():
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0}
    plain = {"rope_type": "default", "rope_theta": 1e4}
    for fits in (
        {"rope_parameters": yarn},
        {"rope_parameters": None, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"main": plain, "compress": yarn | {"attention_factor": 1.0}}},
    ):
        assert len(changed(**fits).layers) == 3
    for wrong in (
        {"main": plain, "compress": yarn},
        {"main": plain, "compress": yarn | {"attention_factor": 1.2}},
        yarn | {"attention_factor": 1.2},
        {"rope_type": "longrope"},
    ):
        with pytest.raises(UnsupportedError, match="must leave cos and sin as they are"):
            changed(rope_parameters=wrong)
