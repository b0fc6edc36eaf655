"""SigLIP's head: one learned probe asks, and the encoder's normalised output answers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from flint import fmpq

from dispersion.architectures import plan, pooling_attention
from dispersion.architectures.pooling_attention import constant_query
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.verdict import Target, Verdict
from golden.numbering import numbers
from matrix_truth import fraction, rational
from mechanism_checks import reached

NAME = "siglip_vision_model__head"
FOLDER = Path(__file__).parent / "data" / NAME
HEAD = "head.attention"


def made(changes=None, without="", layers=None, **config):
    checkpoint = open_checkpoint(FOLDER)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if not without or without not in n}
    arrays |= changes or {}
    return plan(from_arrays(arrays, checkpoint.config | config), layers=layers)


def pooled(found):
    (layer,) = (p for p in found.layers if p.module == HEAD)
    return [head for _, _, head in layer.heads()]


def results(found):
    number = numbers(found.layers)
    heads = {(number[p.module, p.layer], i): h for p in found.layers for i, _, h in p.heads()}
    for n, layer, head, spread in reached(NAME):
        yield layer, check_head(heads[layer, head], [Target(n)]), spread


def test_the_head_is_read_with_the_last_layer():
    found = made()
    assert [layer.module for layer in found.layers][1:] == [HEAD]
    assert [layer.layer for layer in found.layers] == [0, 0]
    assert not found.refused
    assert len(made(layers=frozenset({0})).layers) == 2


def test_its_logits_are_those_of_the_real_module():
    """As reported by `MultiheadAttention`, up to a constant of the row."""
    record = json.loads((FOLDER.parent / "logits.json").read_text())["logits"][NAME][1]
    checkpoint = open_checkpoint(FOLDER)
    gain, bias = (checkpoint.read(f"post_layernorm.{p}").astype(float) for p in ("weight", "bias"))
    width = len(gain)
    x = np.sin(1.0 + np.arange(6 * width) ** 1.5).reshape(6, width)[:5]
    x = x - x.mean(axis=1, keepdims=True)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    for head, expected in zip(pooled(made()), record, strict=True):
        keys = head.key.radius.upper * u @ head.key.matrix.T + head.key.offset
        row = head.scale.upper * keys @ head.query.matrix[:, 0]
        np.testing.assert_allclose(row - row[0], np.array(expected) - expected[0], rtol=1e-8)
    assert bias.any()


def test_bounds_are_attained_and_nothing_is_witnessed():
    seen = 0
    for layer, result, spread in results(made()):
        assert result.spread.upper >= spread * (1 - 2.0**-40)
        if layer == 1:
            seen += 1
            assert result.spread.upper <= spread * 1.0001
            assert result.spread.lower == 0
            assert result.results[0].verdict in (Verdict.RULED_OUT, Verdict.UNRESOLVED)
            assert result.cap == "learned probe and input LayerNorm"
    assert seen


@pytest.mark.parametrize("wrong", ["bias", "norm"])
def test_another_query_or_norm_is_caught(monkeypatch, wrong):
    if wrong == "bias":

        def without(weight, probe, bias):
            return constant_query(weight, probe, 0 * bias)

        monkeypatch.setattr(pooling_attention, "constant_query", without)
        found = made()
    else:
        first = open_checkpoint(FOLDER).read("encoder.layers.0.layer_norm1.weight")
        found = made({"post_layernorm.weight": first})
    assert any(
        result.spread.upper < spread * (1 - 2.0**-40) for _, result, spread in results(found)
    )


def test_the_rounding_of_the_query_is_stated():
    rng = np.random.default_rng(3)
    for width in (1, 9, 64):
        weight, probe = rng.standard_normal((5, width)), rng.standard_normal(width)
        bias = rng.standard_normal(5)
        ball = constant_query(weight, probe, bias)
        exact = rational(weight) * rational(probe) + rational(bias)
        for i in range(5):
            off = abs(exact[i, 0] - fraction(ball.matrix[i, 0]))
            assert off <= fraction(ball.row_error[i])
            most = np.abs(weight[i]) @ np.abs(probe) + abs(bias[i])
            assert ball.row_error[i] <= most * (width + 20) * 2.0**-52
    assert fmpq(0) <= off


def test_a_head_that_the_config_leaves_out_or_the_file_lacks():
    found = made(vision_use_head=False)
    assert [r.name for r in found.refused] == [HEAD]
    assert len(found.layers) == 1
    found = made(without="head.")
    assert not found.refused
    assert len(found.layers) == 1
    with pytest.raises(CheckpointError, match=r"head\.probe"):
        made(without="probe")
    found = made({f"{HEAD}.bias_k": np.ones((1, 1, 16), np.float32)})
    assert [r.name for r in found.refused] == [HEAD]
    assert not math.isnan(results(made()).__next__()[2])
