"""Step 3.5 Flash in GGUF files: what differs between its two kinds of layers."""

import numpy as np
import pytest

from checkpoints import refused
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import CheckpointError
from gguf_conversion import changed


def test_divisors_are_of_full_layers_alone(tmp_path):
    """The file has one for each pair of a whole head, of which full layers turn the first half."""
    held = {"rope_freqs.weight": np.array([2, 8, 64, 128], np.float32)}
    layers = plan(open_checkpoint(changed(tmp_path, "step3p5", {}, held))).layers
    sliding, full = (next(layer.heads())[2].rotary for layer in layers)
    np.testing.assert_allclose(full.frequencies, [1 / 2, 5e4**-0.5 / 8], rtol=1e-12)
    np.testing.assert_array_equal(full.pairs, [[0, 2], [1, 3]])
    np.testing.assert_allclose(sliding.frequencies, 5e2 ** (-np.arange(4) / 4), rtol=1e-12)
    np.testing.assert_array_equal(sliding.pairs, [(j, j + 4) for j in range(4)])


EMPTY = b"\x09\0\0\0\x04\0\0\0" + bytes(8)


@pytest.mark.parametrize("value", [None, 0, 2.0, "x", [0, 2], [2, 2**31], ["3", "2"], [3.0], EMPTY])
def test_query_heads_by_layer_are_positive_integers(tmp_path, value):
    path = changed(tmp_path, "step3p5", {"attention.head_count": value})
    refused(CheckpointError, "step35.attention.head_count must be", open_checkpoint, path)


def test_one_count_of_query_heads_holds_for_all_layers(tmp_path):
    config = open_checkpoint(changed(tmp_path, "step3p5", {"attention.head_count": 3})).config
    heads = config["num_attention_heads"], config["num_sliding_attention_heads"]
    assert heads == (3, 3)


def test_the_base_of_sliding_layers_must_be_stated(tmp_path):
    path = changed(tmp_path, "step3p5", {"rope.freq_base_swa": None})
    refused(CheckpointError, "rope.freq_base_swa must be a positive number", open_checkpoint, path)


def test_query_heads_that_key_heads_do_not_divide_are_refused(tmp_path):
    path = changed(tmp_path, "step3p5", {"attention.head_count_kv": 2})
    refused(CheckpointError, "num_key_value_heads", lambda: plan(open_checkpoint(path)))
