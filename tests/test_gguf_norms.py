"""Norms of GGUF files that lie or are computed in another way than in the model."""

import math

import numpy as np
import pytest

from checkpoints import refused
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint, to_float64
from dispersion.errors import CheckpointError
from gguf_conversion import changed, golden, write

FACTORS_BY_LENGTH = ("rope_factors_long.weight", "rope_factors_short.weight")


def test_phi_moe_is_what_llama_cpp_computes(tmp_path):
    """An RMSNorm with a bias, where the model's own code centres states."""
    model = golden("phimoe")
    write(model, tmp_path / "m.gguf")
    found = open_checkpoint(tmp_path / "m.gguf")
    head = next(plan(found).layers[0].heads())[2]
    layer = "model.layers.0."
    weight, gain, bias = (
        to_float64(found.read(layer + name), tensor=name)
        for name in ("self_attn.q_proj.weight", "input_layernorm.weight", "input_layernorm.bias")
    )
    assert not head.reach.centred
    np.testing.assert_allclose(head.query.matrix, weight[:8] * gain, rtol=2.0**-50)
    np.testing.assert_allclose(head.query.offset, weight[:8] @ bias, atol=2.0**-45)
    assert head.query.radius.lower <= math.sqrt(32) <= head.query.radius.upper


def test_phi_moe_has_the_factors_of_its_file(tmp_path):
    held = dict.fromkeys(FACTORS_BY_LENGTH, np.array([1, 1, 2, 4], np.float32))
    stated = {"rope.scaling.attn_factor": 1.25, "rope.scaling.original_context_length": 64}
    found = plan(open_checkpoint(changed(tmp_path, "phimoe", stated, held)))
    rotary = next(found.layers[0].heads())[2].rotary
    plain = 5e3 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(rotary.frequencies_at(64), plain / [1, 1, 2, 4], rtol=1e-12)
    assert rotary.attention_factor.lower <= 1.25 <= rotary.attention_factor.upper


NOT_BY_HEAD = [np.ones(8), np.ones((2, 8)), np.ones((4, 4)), np.ones((4, 8, 1))]


@pytest.mark.parametrize("values", NOT_BY_HEAD, ids=lambda v: str(v.shape))
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_norms_of_chameleon_must_be_by_head(tmp_path, values, part):
    path = changed(tmp_path, "chameleon", {}, {f"blk.0.attn_q_norm.{part}": values})
    refused(CheckpointError, "q_norm", lambda: plan(open_checkpoint(path)))
    found = open_checkpoint(path)
    name = f"model.layers.0.self_attn.q_norm.{part}"
    refused(CheckpointError, "must have shape (4, 8)", found.read, name)


def test_rows_of_norms_by_head_can_be_read_alone(tmp_path):
    write(golden("chameleon"), tmp_path / "m.gguf")
    found = open_checkpoint(tmp_path / "m.gguf")
    name = "model.layers.1.self_attn.k_norm.bias"
    whole = found.read(name)
    np.testing.assert_array_equal(whole[0], golden("chameleon").source.read(name)[0])
    for rows in (slice(0, 0), slice(1, 2), slice(0, 2)):
        np.testing.assert_array_equal(found.read(name, rows), whole[rows])


def test_chameleon_must_say_where_its_norm_stands(tmp_path):
    path = changed(tmp_path, "chameleon", {"swin_norm": None})
    refused(CheckpointError, "chameleon.swin_norm must be true or false", open_checkpoint, path)
