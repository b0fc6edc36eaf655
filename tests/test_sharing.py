"""Layers that read the keys of an earlier layer (Gemma 3n and 4)."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dispersion import witness
from dispersion.architectures import decoder_reader, plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.head_contexts import head_context
from dispersion.lag_pairs import LagPairs
from dispersion.offsets import exact_spread
from dispersion.own_key import has_own_key
from dispersion.spread import spread_bound
from dispersion.verdict import Target
from mechanism_checks import reached

DATA = Path(__file__).parent / "data"
NAMES = ["gemma3n_text__shared", "gemma4_text__shared"]
OWNERS = {3: 1, 4: 2}
ROUNDING = 2.0**-40


def made(name, changes=None, without="", layers=None, **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if not without or without not in n}
    return plan(from_arrays(arrays | (changes or {}), checkpoint.config | config), layers=layers)


def shared_heads(name):
    return [
        (layer.layer, head)
        for layer in made(name).layers
        if layer.layer in OWNERS
        for _, _, head in layer.heads()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_the_owners_and_queries_the_layers_own(name):
    found = made(name)
    assert [layer.layer for layer in found.layers] == [0, 1, 2, 3, 4]
    assert not found.refused
    for layer in found.layers:
        own = f"model.layers.{layer.layer}."
        keys = f"model.layers.{OWNERS.get(layer.layer, layer.layer)}."
        assert {t for t in layer.tensors if t.startswith(own)} >= {
            f"{own}self_attn.q_proj.weight",
            f"{own}input_layernorm.weight",
        }
        assert f"{keys}self_attn.k_proj.weight" in layer.tensors
        assert f"{keys}self_attn.k_norm.weight" in layer.tensors
        assert f"{keys}input_layernorm.weight" in layer.tensors
        for _, _, head in layer.heads():
            assert head.self_attention
            assert head.causal
            assert not has_own_key(head)
            assert (head.reach.keys is not None) == (layer.layer in OWNERS)


def below_reached(name):
    """Layers with a bound below what ascent reached on the real modules."""
    heads = {(p.layer, i): h for p in made(name).layers for i, _, h in p.heads()}
    return {
        layer
        for n, layer, head, spread in reached(name)
        if check_head(heads[layer, head], [Target(n)]).spread.upper < spread * (1 - ROUNDING)
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_another_layer_are_caught(name, monkeypatch):
    assert not below_reached(name)
    attention = decoder_reader.Reader._attention
    checkpoint = open_checkpoint(DATA / name)

    def wrong(self, prefix, layer):
        """Layer 3 reads keys of layer 0, which has the same type and shapes."""
        found = attention(self, prefix, layer)
        if layer != 3:
            return found
        return dataclasses.replace(found, key=attention(self, prefix, 0).key)

    gains = [checkpoint.read(f"model.layers.{i}.self_attn.k_norm.weight") for i in (0, 1)]
    monkeypatch.setattr(decoder_reader.Reader, "_attention", wrong)
    expected = {
        p.layer: np.diag(next(iter(p.heads()))[2].key.matrix) for p in plan(checkpoint).layers
    }
    np.testing.assert_array_equal(expected[3], gains[0].astype(np.float64))
    assert below_reached(name) == {3}


def row_of(found, length):
    """The last row of a witness's own inputs, from the normal form alone."""
    head = found.head
    states = found.inputs(length)
    assert states.shape == (length + 1, head.reach.width)

    def points(rows, reach, ball, norm):
        x = rows / (1.0 if reach.gain is None else reach.gain) / reach.radius
        assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-12
        raw = rows @ norm.weight.astype(np.float64).T
        u = raw / np.sqrt(np.sum(raw**2, axis=1, keepdims=True) + raw.shape[1] * norm.eps)
        return ball.radius.upper * u @ ball.matrix.T

    reach = head.reach
    query = points(states[-1:], reach, head.query, reach.query_norm)[0]
    keys = points(states[:-1], reach.keys, head.key, reach.keys.key_norm)
    if head.rotary is not None:
        keys = head.rotary.rotate(keys, np.arange(length) - (length - 1))
    return (head.scale.upper * keys @ query)[-head.visible(length) :]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_a_witness_has_a_key_of_its_own_at_the_querys_position(name, n):
    for _, head in shared_heads(name):
        found = witness.build(head, n)
        row = row_of(found, n)
        share = np.exp(row - row.max())
        share = share / share.sum()
        largest = float(share[:-1].max()) if len(share) > 1 else 1.0
        # Other keys are bounded from above, so the coefficient is no less than claimed.
        assert found.coefficient(n) <= largest * (1 + 1e-9)
        if n > 1:
            assert found.coefficient(n) > 0
            assert found.spread(n) <= np.ptp(row) * (1 + 1e-9)
            assert found.spread(n) >= 0.5 * np.ptp(row)


@pytest.mark.parametrize("name", NAMES)
def test_the_own_key_is_as_free_as_any_other(name):
    """Exact offsets take pairs with lag 0 for two keys of different tokens."""
    for _, head in shared_heads(name):
        free = spread_bound(head).spread
        alone = dataclasses.replace(head, reach=None)
        if head.rotary is None:
            continue
        assert exact_spread(head, 5, free).spread == exact_spread(alone, 5, free).spread
        assert LagPairs(head, 5).pair(0, 3, free).bound == LagPairs(alone, 5).pair(0, 3, free).bound


@pytest.mark.parametrize("name", NAMES)
def test_contexts_for_every_token_hold_with_the_own_key_in_the_denominator(name):
    _, head = shared_heads(name)[0]
    n = 3
    found = head_context(head, n, steps=20)
    assert found.hidden_own.shape == (n, head.reach.width)
    for index in range(n):
        states = found.inputs(index)
        assert states.shape == (n + 2, head.reach.width)
        np.testing.assert_array_equal(states[-2], found.hidden_own[index])


@pytest.mark.parametrize("name", NAMES)
def test_keys_that_a_sharing_layer_holds_beside_are_skipped(name):
    """Files of the Hub hold them, the model ignores them."""
    root = "model.layers.3.self_attn."
    extra = {f"{root}k_proj.weight": np.ones((8, 16), np.float32)}
    extra |= {f"{root}k_norm.weight": np.ones(8, np.float32)}
    extra |= {f"{root}v_proj.weight": np.ones((8, 16), np.float32)}
    found = made(name, extra)
    usual = made(name)
    assert not found.refused
    assert [layer.tensors for layer in found.layers] == [layer.tensors for layer in usual.layers]
    reasons = {s.name: s.reason for s in found.skipped}
    assert reasons["model.layers.*.self_attn.k_proj.weight"] == (
        "the layer reads the keys of an earlier one"
    )


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ("layers.1.self_attn.k_proj.bias", {1, 3}),
        ("layers.1.self_attn.k_scale", {1, 3}),
        ("layers.1.input_layernorm.bias", {1, 3}),
        ("layers.3.self_attn.q_proj.bias", {3}),
        ("layers.0.self_attn.k_proj.bias", {0}),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_tensor_of_the_owner_refuses_both_layers(name, extra, refused):
    found = made(name, {f"model.{extra}": np.ones(8, np.float32)})
    assert {int(r.name.split(".")[2]) for r in found.refused} == refused
    assert {layer.layer for layer in found.layers} == {0, 1, 2, 3, 4} - refused


@pytest.mark.parametrize("name", NAMES)
def test_a_sharing_layer_alone_is_read_with_its_owners_keys(name):
    found = made(name, layers=frozenset({4}))
    assert [layer.layer for layer in found.layers] == [4]
    assert "model.layers.2.self_attn.k_proj.weight" in found.layers[0].tensors
    with pytest.raises(CheckpointError, match=r"layers\.2\.self_attn\.k_proj\.weight"):
        made(name, without="2.self_attn.k_proj", layers=frozenset({4}))
    with pytest.raises(CheckpointError, match="num_kv_shared_layers"):
        made(name, num_kv_shared_layers=5)


def test_key_heads_of_a_sharing_layer_must_be_its_owners():
    sizes = {str(i): {"head_dim": 16, "num_key_value_heads": 1} for i in (2, 4)}
    assert len(made(NAMES[1], per_layer_config=sizes).layers) == 5
    sizes["4"] = {"head_dim": 8, "num_key_value_heads": 1}
    with pytest.raises(CheckpointError, match="layer 4 reads the keys of layer 2"):
        made(NAMES[1], per_layer_config=sizes)
