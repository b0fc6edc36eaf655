"""Witnesses: every claim is reproduced by an explicit softmax over explicit inputs."""

import dataclasses

import numpy as np
import pytest

from attention_layer import Layer, layers
from dispersion import witness
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage
from dispersion.norms import qk_norm_ball
from dispersion.reach import QKNorm, Reach
from dispersion.rotary import rotary
from dispersion.spread import spread_bound
from head_checks import EPS, check_witness, check_witnesses, plain

KINDS = sorted(layers(0))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 9, 60])
def test_claims_are_reproduced_by_the_layer(name, n):
    layer = layers(1)[name]
    _, logits, _ = check_witness(layer, n)
    bound = spread_bound(layer.head())
    room = 256 * layer.width * EPS * (1 + float(np.abs(logits).max()))
    assert float(logits.max() - logits.min()) <= bound.spread + room
    assert float(np.abs(logits).max()) <= bound.level + room


def test_claims_survive_other_weights():
    check_witnesses(seed=2, lengths=(2, 5))


@pytest.mark.parametrize("name", [k for k in KINDS if not layers(0)[k].frequencies])
def test_spreads_without_rotation_are_attained(name):
    """T9 is tight: from three tokens on, two keys other than the query's own reach it."""
    layer = dataclasses.replace(layers(3)[name], window=None)
    if layer.qk != "none" and layer.eps > 1e-4:
        return  # ε then takes a visible share of the norm
    found = witness.build(layer.head(), 3)
    upper = spread_bound(layer.head()).spread
    assert upper * (1 - 1e-4) <= found.spread(3) <= upper


def test_unit_qk_norm_attains_the_closed_form():
    rng = np.random.default_rng(5)
    layer = Layer(rng, width=24, head_dim=4, qk="rms", eps=1e-9, scale=0.5)
    for side in "qk":
        layer.tensors[f"g_{side}"] = np.ones(4)
    assert spread_bound(layer.head()).spread == 4.0  # 2·√4
    assert witness.build(layer.head(), 3).spread(3) >= 4.0 * (1 - 1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_shorter_contexts_of_one_witness(name):
    """One witness answers for every length; far lags do not exist in short contexts."""
    layer = layers(4)[name]
    head = layer.head()
    found = witness.build(head, 200)
    for n in (1, 2, 3, 5, 30, 200):
        check_witness(layer, n, lambda *_: found, close=False)


def test_evaluation_at_all_lags_claims_no_less():
    layer = layers(5)["rotated with biases"]
    head = layer.head()
    first = witness.build(head, 60)
    closer = witness.evaluate(head, 60, first.direction, np.arange(1, 60))
    assert closer.coefficient(60) >= first.coefficient(60) * (1 - 1e-12)
    check_witness(layer, 60, lambda *_: closer)


@pytest.mark.parametrize("name", ["plain", "rotated with biases", "sink", "window", "qk norm"])
def test_several_tokens_hold_what_is_claimed(name):
    """Sink tokens together: at their own lags every one takes its largest logit."""
    layer = layers(6)[name]
    head = layer.head()
    n, tokens = 8, 2
    found = witness.evaluate(head, n, witness.build(head, n).direction, np.arange(1, n))
    claimed = found.coefficient(n, tokens)
    seen = found.visible(n)
    top = found.high.lower[: seen - 1] if not found.alike else np.repeat(found.high.lower[0], 7)
    low = found.low.lower[: seen - 1] if not found.alike else np.repeat(found.low.lower[0], 7)
    order = np.argsort(-top)
    others = np.append(low[order[tokens:]], found.own.lower)
    others = others if layer.sink is None else np.append(others, layer.sink)
    peak = top.max()
    held = np.exp(top[order[:tokens]] - peak).sum()
    assert 0 < claimed <= held / (held + np.exp(others - peak).sum()) * (1 + 1e-9)


def test_a_bias_that_outweighs_the_projection_leaves_no_claim():
    """All keys then point along the bias, even at ε = 0: no direction may be promised."""
    layer = Layer(np.random.default_rng(7), width=12, qk="rms", eps=0.0, bias=1e6, size=1e-3)
    found = witness.build(layer.head(), 4)
    assert found is None or found.spread(4) == 0.0


def test_inputs_with_epsilon_zero_stay_in_the_norm():
    layer = Layer(np.random.default_rng(8), width=12, qk="rms", eps=0.0, bias=0.1)
    states = witness.build(layer.head(), 6).inputs(6)
    x = layer.ball_coordinates(states)
    assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-12


def test_projections_without_full_rank_promise_nothing():
    layer = Layer(np.random.default_rng(9), width=3, head_dim=4, qk="rms", eps=1e-6)
    assert witness.build(layer.head(), 4) is None


def test_rows_that_cancel_under_layer_norm_promise_nothing():
    """Constant rows have rank 0 after the mean is removed; rounding alone remains."""
    layer = Layer(np.random.default_rng(10), width=12, head_dim=2, norm="layer", gain=False)
    layer = dataclasses.replace(layer, qk="rms", eps=1e-6)
    layer.tensors["w_k"] = np.array([[0.1], [0.7]]) * np.ones(12)
    assert witness.build(layer.head(), 4) is None


@pytest.mark.parametrize("qk", ["none", "rms"])
@pytest.mark.parametrize("frequencies", [(), (1.0, 0.3)])
def test_zero_projections_claim_nothing(qk, frequencies):
    layer = Layer(np.random.default_rng(11), qk=qk, eps=1e-6, frequencies=frequencies)
    layer.tensors["w_q"] = np.zeros_like(layer.tensors["w_q"])
    found = witness.build(layer.head(), 4)
    assert found is None or found.spread(4) == 0.0


def test_a_norm_on_keys_alone_is_no_shared_input():
    """Its own key would pass through a norm that the query does not: nothing is claimed."""
    weight = np.random.default_rng(12).standard_normal((4, 4))
    norm = QKNorm(weight, None, 0, 1e-6)
    head = plain(weight, qk_norm_ball(np.ones(4), kind="rms", head_dim=4))
    head = dataclasses.replace(head, reach=Reach(4, 2.0, key_norm=norm))
    assert witness.build(head, 4) is None


def test_heads_without_known_inputs_have_no_witness():
    assert witness.build(plain(np.eye(2), np.eye(2)), 4) is None
    capped = dataclasses.replace(plain(np.eye(2), np.eye(2)), query=None)
    assert witness.build(dataclasses.replace(capped, reach=Reach(2, 1.0)), 4) is None


def test_heads_of_rank_one_and_many_coordinates():
    rng = np.random.default_rng(13)
    for dim in (64, 256):
        a, c = rng.standard_normal((2, dim, 1))
        for turn in (None, rotary(10000.0 ** (-np.arange(dim // 2) / (dim // 2)), dim)):
            head = dataclasses.replace(plain(a, c, turn), reach=Reach(1, 1.0))
            found = witness.build(head, 32)
            assert 0 < found.spread(32) <= spread_bound(head).spread


def test_the_wide_ends_of_radius_and_scale_are_not_claimed():
    wide = Enclosure(1.0, 2.0)
    ball = BallImage(np.eye(2), radius=wide)
    head = plain(ball, ball, scale=wide)
    head = dataclasses.replace(head, reach=Reach(2, 1.0))
    assert witness.build(head, 3).spread(3) <= 2.0
