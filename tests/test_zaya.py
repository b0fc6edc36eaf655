"""ZAYA: whatever convolutions make of tokens, a norm gives queries and keys one size."""

import json
import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan, zaya
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.verdict import Target

NAME = "zaya"
DATA = mechanism_checks.DATA


def changed(drop=(), **config):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def heads(found):
    return [next(iter(layer.heads()))[2] for layer in found.layers]


@pytest.mark.parametrize("offsets", ["free", "exact"])
def test_bounds_are_attained_by_the_real_module(offsets):
    found = mechanism_checks.certified(NAME, offsets)
    for n, layer, index, spread in mechanism_checks.reached(NAME):
        bound = found[n, layer, index].spread.upper
        assert spread * (1 - 2.0**-40) <= bound <= spread * 1.0001


def test_the_bound_is_twice_the_root_of_the_size_times_the_learned_factor():
    checkpoint = open_checkpoint(DATA / NAME)
    for layer in changed().layers:
        factors = checkpoint.read(f"{layer.module}.qk_norm.temp").astype(np.float64)
        for index, kv_head, head in layer.heads():
            assert kv_head == index // 2
            exact = 2 * math.sqrt(head.query.head_dim) * abs(factors[kv_head])
            assert check_head(head, [Target(9)]).spread.upper == pytest.approx(exact, rel=1e-14)


def test_another_key_heads_factor_is_caught(monkeypatch):
    real = zaya._ball
    monkeypatch.setattr(zaya, "_ball", lambda *args: real(*args[:-1], 1 - args[-1]))
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached(NAME)


def test_the_real_logits_are_no_larger():
    recorded = json.loads((DATA / "logits.json").read_text())["logits"][NAME]
    for layer, rows in zip(changed().layers, recorded, strict=True):
        for index, _, head in layer.heads():
            bound = check_head(head, [Target(6)]).spread.upper
            assert np.abs(rows[index]).max() <= bound / 2
            assert np.ptp(rows[index]) <= bound


def test_windows_and_rotations_are_those_of_the_config():
    assert [h.window for h in heads(changed())] == [None, 6]
    assert [h.window for h in heads(changed(drop=("layer_types",)))] == [None, None]
    assert [h.window for h in heads(changed(drop=("rope_parameters",)))] == [None, 6]
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    for wrong in (
        {"rope_parameters": {"hybrid": rope}},
        {"rope_parameters": rope},
        {"rope_parameters": {"rope_theta": 5000.0, "hybrid_sliding": rope}},
        {"rope_scaling": rope},
    ):
        with pytest.raises(UnsupportedError, match="without a factor for this model"):
            changed(**wrong)
    with pytest.raises(UnsupportedError, match="must be hybrid or hybrid_sliding"):
        changed(layer_types=["hybrid", "full_attention"])
    with pytest.raises(CheckpointError, match="must list 2 layers"):
        changed(layer_types=["hybrid"])
    with pytest.raises(CheckpointError, match="sliding_window"):
        changed(sliding_window=None)


def test_biases_and_convolutions_change_no_bound():
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    for layer in range(2):
        root = f"model.layers.{layer}.self_attn.qkv_proj."
        for side in "qk":
            rows = len(arrays[f"{root}{side}_proj.weight"])
            arrays[f"{root}{side}_proj.bias"] = np.full(rows, 9.0, np.float32)
        arrays[f"{root}conv_qk_grouped.weight"] = arrays[f"{root}conv_qk_grouped.weight"] * 7
    found = plan(from_arrays(arrays, checkpoint.config | {"attention_bias": True}))
    assert not found.refused
    for one, other in zip(heads(found), heads(changed()), strict=True):
        np.testing.assert_array_equal(one.key.matrix, other.key.matrix)
    # A bias that the config does not tell of is not passed over.
    refused = plan(from_arrays(arrays, checkpoint.config)).refused
    assert [r.name for r in refused] == [f"model.layers.{i}.self_attn" for i in range(2)]
