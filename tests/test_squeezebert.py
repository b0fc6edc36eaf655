"""SqueezeBERT: convolutions of width 1 in groups of channels as matrices of blocks."""

import json

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.architectures.squeezebert import in_blocks
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError

DATA = mechanism_checks.DATA


def stored():
    checkpoint = open_checkpoint(DATA / "squeezebert")
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_a_grouped_convolution_is_a_matrix_of_blocks(groups):
    """Each output by the definition: its own group's inputs times its row."""
    rng = np.random.default_rng(groups)
    weight, x = rng.standard_normal((6, 6 // groups, 1)), rng.standard_normal(6)
    size = 6 // groups
    exact = [sum(weight[o, i, 0] * x[o // size * size + i] for i in range(size)) for o in range(6)]
    np.testing.assert_allclose(in_blocks(weight) @ x, exact, rtol=1e-12)
    assert np.count_nonzero(in_blocks(weight)) == 36 // groups


def test_layers_read_the_norm_of_the_layer_before():
    found = plan(from_arrays(*stored())).layers
    norms = [[n for n in layer.tensors if "orm" in n] for layer in found]
    assert all("embeddings.LayerNorm" in n for n in norms[0])
    assert all("encoder.layers.0.output.layernorm" in n for n in norms[1])
    shapes = json.loads((DATA / "squeezebert" / "config.json").read_text())
    assert (shapes["q_groups"], shapes["k_groups"]) == (3, 4)


def test_wrong_groups_and_numbers_are_refused():
    arrays, config = stored()
    for change, words in (
        ({"q_groups": 2}, r"must have shape \(24, 12, 1\)"),
        ({"k_groups": 5}, "k_groups must divide hidden_size"),
    ):
        with pytest.raises(CheckpointError, match=words):
            plan(from_arrays(arrays, config | change))
    name = next(n for n in arrays if n.endswith("attention.key.weight"))
    arrays[name] = arrays[name].copy()
    arrays[name][7, 2, 0] = np.nan
    first = plan(from_arrays(arrays, config)).layers[0]
    with pytest.raises(CheckpointError, match=r"attention\.key\.weight"):
        list(first.heads())
