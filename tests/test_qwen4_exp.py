"""Qwen 4 Exp: what stands in front of a QK norm is immaterial; an indexer picks blocks of keys."""

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan, qwen4_exp_text
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.picked import PickedHead

NAME = "qwen4_exp_text"
DATA = mechanism_checks.DATA


def changed(drop=(), **config):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def head(found):
    return next(iter(found.layers[0].heads()))[2]


def test_bounds_are_attained():
    for offsets in ("free", "exact"):
        found = mechanism_checks.certified(NAME, offsets)
        for n, layer, index, spread in mechanism_checks.reached(NAME):
            bound = found[n, layer, index].spread.upper
            assert spread * (1 - 2.0**-40) <= bound <= spread * 1.001


def test_queries_are_the_first_half_of_each_heads_rows_and_gains_are_one_more():
    checkpoint = open_checkpoint(DATA / NAME)
    gain = 1 + checkpoint.read("layers.1.self_attn.q_norm.weight").astype(np.float64)
    np.testing.assert_array_equal(np.diag(head(changed()).query.matrix), gain)
    assert changed().layers[0].layer == 1
    assert head(changed()).rotary.pairs.shape == (2, 2)
    whole = {"rope_parameters": {"rope_theta": 5000.0}}
    assert head(changed(**whole)).rotary.pairs.shape == (4, 2)


def test_whole_blocks_are_picked():
    assert isinstance(head(changed()), PickedHead)
    assert head(changed()).window == 64
    assert head(changed(indexer_budget=30)).window == 28
    for wrong, name in (({"indexer_budget": 3}, "indexer_budget"), ({}, "indexer_compress_ratio")):
        with pytest.raises(CheckpointError, match=name):
            changed(drop=("indexer_compress_ratio",) if not wrong else (), **wrong)


def test_layer_types_are_read_in_both_spellings():
    kinds = [k.attends for k in qwen4_exp_text._kinds({}, 5)]
    assert kinds == [False, False, False, True, False]
    old = changed(layer_types=["linear_attention", "full_attention"])
    assert [x.layer for x in old.layers] == [1]
    with pytest.raises(UnsupportedError, match=r"layer_types\[1\]"):
        changed(layer_types=["linear_attention", "sliding_attention"])


def test_what_mixes_streams_is_skipped_with_a_reason():
    found = changed()
    assert not found.refused
    reasons = {s.name: s.reason for s in found.skipped}
    assert "in front of a norm" in reasons["layers.*.attn_hyper_connection.hc_norm.weight"]
    assert "picks the keys" in reasons["layers.*.self_attn.indexer.k_layernorm.weight"]
