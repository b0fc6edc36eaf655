"""Layers that read a linear map of a norm: ELECTRA's and ALBERT's first."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dispersion import mapped
from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.mapped import mapped_ball
from matrix_truth import exact_projector, fraction, rational, within_rows
from mechanism_checks import check_all

DATA = Path(__file__).parent / "data"
MAP = "albert.encoder.embedding_hidden_mapping_in"
GROUPS = "albert.encoder.albert_layer_groups"


def made(name="albert", changes=None, without="", **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if not without or without not in n}
    return plan(from_arrays(arrays | (changes or {}), checkpoint.config | config))


def roundings(function, norm, size):
    """Rows and offset of the exact image lie within the stated errors of the stored ones."""
    rng = np.random.default_rng(4)
    for width, inner in ((1, 1), (9, 4), (5, 21)):
        weight = rng.standard_normal((3, width)) * size
        through = rng.standard_normal((width, inner))
        weight[1] = weight[1].mean() + 1e-9 * weight[1]
        shift, beta = rng.standard_normal(width), rng.standard_normal(inner)
        gain, bias = rng.standard_normal(inner), rng.standard_normal(3)
        ball = function(weight, through, shift, norm=norm, gain=gain, norm_bias=beta, bias=bias)
        exact = rational(weight) * rational(through) * rational(np.diag(gain))
        exact = exact * exact_projector(inner) if norm == "layer" else exact
        assert within_rows(exact, ball.matrix, ball.row_error)
        state = rational(through) * rational(beta) + rational(shift)
        offset = rational(weight) * state + rational(bias)
        for i in range(3):
            assert abs(offset[i, 0] - fraction(ball.offset[i])) <= fraction(ball.offset_error[i])
        # Not a lazy multiple of the terms' sizes.
        most = np.linalg.norm((np.abs(weight) @ np.abs(through)) * np.abs(gain), axis=1)
        assert np.all(ball.row_error <= most * (width + 3 * inner + 32) * 2.0**-52)


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_products_of_two_matrices_state_their_rounding(norm, size):
    roundings(mapped_ball, norm, size)


def test_a_product_without_its_rounding_is_caught():
    def exact_at_heart(*args, **keywords):
        return dataclasses.replace(mapped_ball(*args, **keywords), row_error=np.zeros(3))

    with pytest.raises(AssertionError):
        roundings(exact_at_heart, "rms", 1.0)


def test_without_biases_there_is_the_projections_own():
    weight, through, bias = np.ones((2, 3)), np.ones((3, 4)), np.array([1.0, 2.0])
    ball = mapped_ball(weight, through, None, norm="rms", bias=bias)
    np.testing.assert_array_equal(ball.offset, bias)
    np.testing.assert_array_equal(ball.matrix, np.full((2, 4), 3.0))
    assert 4**0.5 in ball.radius
    with pytest.raises(ArgumentError, match=r"through must have shape.*\(4, 3\)"):
        mapped_ball(weight, through.T, None, norm="rms")


def test_albert_runs_its_blocks_in_order_and_reads_the_norm_of_the_one_before():
    found = made()
    blocks = [layer.module.removeprefix(f"{GROUPS}.") for layer in found.layers]
    assert blocks == [f"{g}.albert_layers.0.attention" for g in (0, 0, 1)]
    assert [layer.layer for layer in found.layers] == [0, 1, 2]
    checkpoint = open_checkpoint(DATA / "albert")

    def read(name):
        return checkpoint.read(name).astype(np.float64)

    mean = np.eye(24) - 1 / 24
    for layer, norm in ((1, 0), (2, 0)):
        gain = read(f"{GROUPS}.{norm}.albert_layers.0.full_layer_layer_norm.weight")
        weight = read(f"{found.layers[layer].module}.key.weight")[8:16]
        head = list(found.layers[layer].heads())[1][2]
        np.testing.assert_allclose(head.key.matrix, weight * gain @ mean, atol=1e-13)
    head = next(iter(found.layers[0].heads()))[2]
    gain = read("albert.embeddings.LayerNorm.weight")
    weight = read(f"{found.layers[0].module}.query.weight")[:8] @ read(f"{MAP}.weight")
    np.testing.assert_allclose(head.query.matrix, weight * gain @ (np.eye(6) - 1 / 6), atol=1e-13)
    assert head.reach.width == 24
    assert head.reach.coordinates == 6
    inner = [layer.module for layer in made("albert__inner").layers]
    assert [module[-len("0.attention") :][0] for module in inner] == ["0", "1", "0", "1"]


def test_a_layer_of_albert_alone_is_read_with_the_norm_it_needs():
    checkpoint = open_checkpoint(DATA / "albert")
    found = plan(checkpoint, layers=frozenset({2}))
    (layer,) = found.layers
    assert layer.module.startswith(f"{GROUPS}.1.")
    assert f"{GROUPS}.0.albert_layers.0.full_layer_layer_norm.weight" in layer.tensors
    assert not any(MAP in name for name in layer.tensors)
    assert len(layer.tensors) + sum(s.count for s in found.skipped) == len(checkpoint.names)


@pytest.mark.parametrize("inner", ["weight", "bias"])
def test_the_map_is_part_of_the_certificate(inner, monkeypatch):
    """Leaving out the map's bias, or taking another matrix, falls below what ascent reached."""
    check_all("albert")

    def wrong(weight, through, shift, **keywords):
        if inner == "bias":
            return mapped_ball(weight, through, 0 * shift, **keywords)
        return mapped_ball(weight, through / 2, shift, **keywords)

    monkeypatch.setattr("dispersion.architectures.attention_heads.mapped_ball", wrong)
    with pytest.raises(AssertionError):
        check_all("albert")
    assert mapped.mapped_ball is mapped_ball


@pytest.mark.parametrize(
    ("extra", "layers"),
    [
        (f"{GROUPS}.0.albert_layers.0.attention.q_norm.weight", [2]),
        (f"{GROUPS}.1.albert_layers.0.attention.relative.weight", [0, 1]),
        # Layers that run one block are refused together.
        (f"{MAP}.scale", [2]),
        (f"{GROUPS}.0.albert_layers.0.full_layer_layer_norm.scale", []),
        (f"{GROUPS}.1.albert_layers.0.full_layer_layer_norm.scale", [0, 1]),
    ],
)
def test_an_unknown_tensor_refuses_the_layers_that_may_depend_on_it(extra, layers):
    found = made(changes={extra: np.ones(4, np.float32)})
    assert [layer.layer for layer in found.layers] == layers
    assert found.refused
    assert all(extra in r.reason for r in found.refused)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"num_hidden_groups": 4}, CheckpointError, "num_hidden_groups.*never runs"),
        ({"num_hidden_groups": 1}, CheckpointError, "also holds layer 1"),
        ({"inner_group_num": 2}, CheckpointError, "inner_group_num=2.*lacks layer 1"),
        ({"embedding_size": 8}, CheckpointError, r"mapping_in\.weight must have shape \(24, 8\)"),
        ({"max_position_embeddings": 31}, CheckpointError, "must have 31 rows"),
        ({"position_embedding_type": "relative_key"}, UnsupportedError, "relative_key"),
    ],
)
def test_a_config_of_another_albert_is_refused(config, error, words):
    with pytest.raises(error, match=words):
        made(**config)


def test_a_projected_electra_is_read_whole():
    found = made("electra__projected")
    assert [layer.layer for layer in found.layers] == [0, 1]
    assert not found.refused
    assert "embeddings_project.weight" in found.layers[0].tensors
    with pytest.raises(CheckpointError, match="embeddings_project"):
        made("electra__projected", without="embeddings_project")
