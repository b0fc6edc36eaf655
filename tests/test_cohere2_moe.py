"""Cohere 2 with experts: which layers turn, and which norm stands in front."""

from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError

DATA = Path(__file__).parent / "data"
FULL, SLIDING = "full_attention", "sliding_attention"


def first_heads(name="cohere2_moe", changes=None, drop=()):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in (checkpoint.config | (changes or {})).items() if k not in drop}
    return [next(iter(p.heads()))[2] for p in plan(from_arrays(arrays, config)).layers]


def turning(*args, **kwargs):
    return [head.rotary is not None for head in first_heads(*args, **kwargs)]


def test_sliding_layers_turn_and_dense_ones_where_all_of_those_are_full():
    assert turning() == [True, True, False]
    assert [h.window for h in first_heads()] == [None, 6, None]
    assert turning(changes={"mlp_layer_types": ["sparse"] * 3}) == [False, True, False]
    # With dense layers that slide by a pattern of their own, a full dense one rests.
    assert turning(changes={"prefix_dense_sliding_window_pattern": 2}) == [False, True, False]


def test_silent_configs_count_patterns_apart():
    drop = ("layer_types", "mlp_layer_types")
    silent = {"first_k_dense_replace": 1, "sliding_window_pattern": 2}
    assert turning(changes=silent, drop=drop) == [True, True, False]
    assert [h.window for h in first_heads(changes=silent, drop=drop)] == [None, 6, None]
    two = silent | {"first_k_dense_replace": 2}
    assert turning(changes=two, drop=drop) == [True, True, True]
    assert [h.window for h in first_heads(changes=two, drop=drop)] == [None, None, 6]
    prefix = two | {"prefix_dense_sliding_window_pattern": 2}
    assert turning(changes=prefix, drop=drop) == [True, False, True]
    assert [h.window for h in first_heads(changes=prefix, drop=drop)] == [6, None, 6]


@pytest.mark.parametrize(("name", "centred"), [("", True), ("__old_dialect", False)])
def test_the_norm_is_a_layer_norm_unless_the_config_has_an_rms_epsilon(name, centred):
    for head in first_heads(f"cohere2_moe{name}"):
        assert head.reach.centred is centred
        assert head.reach.bias is None
        sums = head.query.matrix.sum(axis=1)
        assert bool(np.allclose(sums, 0.0, atol=1e-12)) is centred


@pytest.mark.parametrize("wrong", ["dense", ["dense"], ["dense", "sparse", "other"]])
def test_kinds_of_layers_are_checked(wrong):
    with pytest.raises(CheckpointError, match="mlp_layer_types"):
        first_heads(changes={"mlp_layer_types": wrong})
