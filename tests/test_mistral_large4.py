"""Mistral Large 4: names of its own, learned growth and frequencies, latents of earlier layers."""

import json
import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import mistral_large4_text, plan
from dispersion.architectures.towers import TOWER
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.growth import LearnedGrowth
from dispersion.picked import PickedHead
from dispersion.rotary import rotary_from_config

NAME = "mistral_large4_text"
DATA = mechanism_checks.DATA
REFERENCE = json.loads((DATA / "logits.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])
TURNING, SOURCES = [True, False, True, False], [0, 1, 0, 1]


def reading():
    checkpoint = open_checkpoint(DATA / NAME)
    return checkpoint.config, lambda name: checkpoint.read(name).astype(np.float64)


def changed(drop=(), names=None, **config):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names} | (names or {})
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def turned(x, angles):
    """Neighbours turned together; angles have one entry for each pair."""
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([first * cos - second * sin, second * cos + first * sin], -1).reshape(x.shape)


def unturned(layer, x, source_x):
    """Queries of states behind a layer's norm, and keys of those behind its source's."""
    config, read = reading()
    module = f"layers.{layer}.attention."
    source = f"layers.{SOURCES[layer]}.attention."
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    still, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    queries = (x @ read(f"{module}wq.weight").T).reshape(len(x), heads, -1)
    both = source_x @ read(f"{source}wkv_a_with_mqa.weight").T
    first = both[:, :rank]
    first = first / np.sqrt((first**2).mean(-1, keepdims=True) + config["rms_norm_eps"])
    plain = first * read(f"{source}kv_a_norm.weight") @ read(f"{module}wkv_b.weight").T
    plain = plain.reshape(len(plain), heads, -1)[..., : -config["v_head_dim"]]
    if not TURNING[layer]:
        return queries, plain, np.zeros((0,))
    assert plain.shape[-1] == still
    last = np.repeat(both[:, None, rank:], heads, axis=1)
    base = rotary_from_config(config, None, rope)
    return (
        queries,
        np.concatenate([plain, last], -1),
        base.frequencies * np.exp(read("rotary_emb.alpha")),
    )


def row(layer, x, source_x, positions):
    """Logits of the last query, (heads, keys)."""
    config, read = reading()
    queries, keys, frequencies = unturned(layer, x[-1:], source_x)
    query, still = queries[-1], config["qk_nope_head_dim"]
    scale = query.shape[-1] ** -0.5
    rope = config["rope_parameters"]
    scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2
    if TURNING[layer]:
        factor = rotary_from_config(config, None, config["qk_rope_head_dim"]).attention_factor.upper
        query, keys = query.copy(), keys.copy()
        query[:, still:] = factor * turned(query[:, still:], positions[-1] * frequencies)
        where = positions[: len(keys), None, None] * frequencies
        keys[..., still:] = factor * turned(keys[..., still:], where)
    module = f"layers.{layer}.attention.ssmax_scaling."
    growth = read(f"{module}s") * math.log(positions[-1] + 1) + read(f"{module}b")
    return scale * growth[:, None] * np.einsum("hd,nhd->hn", query, keys)


def states(layer, count=None):
    """Behind the layer's norm and its source's, of the vectors of tests/golden/logits.py."""
    config, read = reading()
    width = config["hidden_size"]
    x = np.sin(1.0 + np.arange(6 * width) ** 1.5).reshape(6, -1)
    if count is not None:
        x = np.random.default_rng(layer).standard_normal((count, width))
    x *= math.sqrt(width) / np.linalg.norm(x, axis=1, keepdims=True)
    own, other = (read(f"layers.{i}.attention_norm.weight") for i in (layer, SOURCES[layer]))
    return x * own, x * other


@pytest.mark.parametrize("layer", range(4))
def test_logits_of_the_definition_are_those_of_the_real_module(layer):
    x, other = states(layer)
    expected = np.array(REFERENCE["logits"][NAME][layer])
    found = row(layer, x, other[: expected.shape[1]], POSITIONS)
    assert expected.shape[1] == (6 if SOURCES[layer] == layer else 5)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def inside(ball, points):
    matrix = ball.radius.upper * ball.matrix
    solved = np.linalg.lstsq(matrix, points.T, rcond=None)[0]
    assert np.abs(matrix @ solved - points.T).max() <= 1e-9 * np.abs(points).max()
    return np.linalg.norm(solved, axis=0).max() <= 1 + 1e-9


@pytest.mark.parametrize("layer", range(4))
def test_the_normal_form_holds_every_query_and_key_and_gives_their_logits(layer):
    x, other = states(layer, count=30)
    queries, keys, frequencies = unturned(layer, x, other)
    positions = np.arange(30)
    expected = row(layer, x, other, positions)
    config, _ = reading()
    assert changed().layers[layer].module == f"layers.{layer}.attention"
    for index, _, head in changed().layers[layer].heads():
        assert isinstance(head, PickedHead)
        assert head.window == config["index_topk"]
        factor = np.ones(head.query.head_dim)
        if TURNING[layer]:
            factor[head.rotary.pairs] = head.rotary.attention_factor.upper**2
            np.testing.assert_allclose(head.rotary.frequencies, frequencies, rtol=1e-14)
        scaled = queries[:, index] * factor
        assert inside(head.query, scaled)
        assert inside(head.key, keys[:, index])
        moved = keys[:, index]
        if TURNING[layer]:
            moved = head.rotary.rotate(moved, positions - positions[-1])
        last = head.growth.slope * math.log(30) + head.growth.start
        found = head.scale.upper * last * moved @ scaled[-1]
        np.testing.assert_allclose(found, expected[index], atol=1e-9 * np.abs(found).max())


@pytest.mark.parametrize("slope", [0.7, -0.7, 0.0])
@pytest.mark.parametrize("start", [1.5, -0.1, 0.0])
def test_factors_enclose_the_modulus_of_every_position(slope, start):
    rule = LearnedGrowth(slope, start)
    before = largest = 0.0
    for n in [*range(1, 60), 10**4, 10**9]:
        exact = abs(slope * math.log(n) + start)
        largest = max(largest, exact)
        found = rule.factor(n)
        assert found.lower <= exact <= found.upper
        assert before <= found.upper == rule.envelope(n)
        assert largest <= found.upper <= max(largest, abs(start)) + 2.0**-19 * (2 + 21 * abs(slope))
        before = found.upper
    assert rule.settles(1.0)
    assert rule.settles(1.5) is (slope == 0)


def test_numbers_of_a_growth_are_finite():
    for wrong in ((math.inf, 1.0), (1.0, math.nan)):
        with pytest.raises(ArgumentError, match="slope and start must be finite"):
            LearnedGrowth(*wrong)


def test_what_the_config_leaves_out_is_that_of_its_class():
    alone = changed(drop=("kv_source_layers",), names=latents()).layers
    assert "layers.2.attention.kv_a_norm.weight" in alone[2].tensors
    heads = [next(iter(x.heads()))[2] for x in changed(drop=("rope_parameters",)).layers]
    assert heads[0].rotary.attention_factor.upper == 1.0
    assert heads[0].rotary.kind == "yarn"
    assert heads[0].scale.upper == pytest.approx(heads[0].query.head_dim ** -0.5)
    assert mistral_large4_text._turning({}, 9) == [*(3 * [True] + [False]) * 2, True]
    assert mistral_large4_text._turning({"no_rope_layer_interval": 2}, 3) == [True, False, True]


def latents():
    """Those that the last two layers would have for themselves."""
    checkpoint = open_checkpoint(DATA / NAME)
    return {
        f"layers.{i + 2}.attention.{x}": checkpoint.read(f"layers.{i}.attention.{x}")
        for i in (0, 1)
        for x in ("wkv_a_with_mqa.weight", "kv_a_norm.weight")
    }


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"kv_source_layers": [0, 1, 0]}, CheckpointError, "kv_source_layers in config.json"),
        ({"kv_source_layers": [0, 1, 3, 1]}, CheckpointError, "itself or an earlier"),
        ({"kv_source_layers": [0, 1, 1, 1]}, UnsupportedError, "turns as it does"),
        ({"kv_source_layers": [0, 1, 2, 0]}, UnsupportedError, "turns as it does"),
        ({"no_rope_layers": [1, 0, 1]}, CheckpointError, "0 or 1 for 4 layers"),
        ({"no_rope_layers": [1, 0, 1, 2]}, CheckpointError, "0 or 1 for 4 layers"),
        ({"index_topk": 0}, CheckpointError, "index_topk in config.json"),
    ],
)
def test_what_does_not_fit_is_named(config, error, message):
    with pytest.raises(error, match=message):
        changed(**config)


def test_latents_that_a_sharing_layer_should_not_have_refuse_it():
    found = changed(names=latents())
    assert {x.name for x in found.refused} == {"layers.2.attention", "layers.3.attention"}


def test_frequencies_are_finite_and_there():
    alpha = np.full(2, 100.0, dtype=np.float32)
    with pytest.raises(CheckpointError, match=r"logarithms of at most 80. Got 100"):
        list(changed(names={"rotary_emb.alpha": alpha}).layers[0].heads())
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if "alpha" not in n}
    with pytest.raises(CheckpointError, match=r"rotary_emb.alpha"):
        plan(from_arrays(arrays, checkpoint.config))


def test_bounds_are_close_to_what_was_reached():
    """Where nothing turns they attain it, but for a larger factor at an earlier position."""
    found = mechanism_checks.certified(NAME, "exact")
    for n, layer, index, spread in mechanism_checks.reached(NAME):
        loose = 1.15 if TURNING[layer] else 1.0001
        assert spread * (1 - 2.0**-40) <= found[n, layer, index].spread.upper <= loose * spread


def caught():
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached(NAME, "exact")


def test_growth_left_out_is_caught(monkeypatch):
    real = LearnedGrowth.factor
    monkeypatch.setattr(LearnedGrowth, "factor", lambda self, length: real(self, 1))
    caught()


def test_learned_frequencies_left_out_are_caught(monkeypatch):
    monkeypatch.setattr(mistral_large4_text, "_moved", lambda rotary, factors: rotary)
    caught()


def test_beside_a_tower_the_same_heads_are_read_under_the_names_of_its_files():
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {
        n.replace("rotary_emb", "lerope").replace("embed_tokens", "tok_embeddings"): (
            checkpoint.read(n)
        )
        for n in checkpoint.names
    }
    tower = ["vision_encoder.transformer.layers.0.attention.wq.weight", "patch_merger.x.weight"]
    arrays |= {name: np.ones((2, 2), np.float32) for name in tower}
    config = {"model_type": "mistral_large4", "text_config": checkpoint.config}
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    assert {s.name.replace("*", "0") for s in found.skipped if s.reason == TOWER} == set(tower)
    for one, other in zip(found.layers, changed().layers, strict=True):
        for a, b in zip(one.heads(), other.heads(), strict=True):
            np.testing.assert_array_equal(a[2].key.matrix, b[2].key.matrix)
            assert a[2].growth == b[2].growth
            if a[2].rotary is not None:
                np.testing.assert_array_equal(a[2].rotary.frequencies, b[2].rotary.frequencies)
