"""Products of queries with sinusoids of the distance: conformers."""

import math
from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion import sinusoid_bias
from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.distance_pairs import largest_difference, prepare
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.norms import projection_ball
from dispersion.sinusoid_bias import EXPLICIT, SinusoidBias
from dispersion.verdict import Target, Verdict

DATA = mechanism_checks.DATA
NAMES = ("parakeet_encoder", "wav2vec2_conformer")
SEEDS = range(5)


def random_bias(seed):
    rng = np.random.default_rng(seed)
    size, width = int(rng.integers(2, 9)), 2 * int(rng.integers(5, 12))

    def normal(*shape):
        return rng.standard_normal(shape)

    query, key = (
        projection_ball(
            normal(size, width) / math.sqrt(width) * np.exp(normal()),
            norm="layer",
            norm_bias=0.4 * normal(width),
            bias=0.4 * normal(size),
        )
        for _ in range(2)
    )
    weight = normal(size, width) / math.sqrt(width) * np.exp(normal())
    frequencies = 100.0 ** (-np.arange(0, width, 2) / width)
    scale = Enclosure.exact(0.5)
    return SinusoidBias(query, key, scale, weight, normal(size), frequencies)


def reached(bias, lags, seed, steps=200, starts=100):
    """The largest difference at distances that ascent reaches: the query climbs, keys are best."""
    rng = np.random.default_rng(seed)
    left, right = (b.matrix * b.radius.lower for b in (bias.query, bias.key))
    angles = np.asarray(lags, dtype=float)[:, None] * bias.frequencies
    waves = np.empty((len(lags), bias.weight.shape[1]))
    waves[:, 0::2], waves[:, 1::2] = np.sin(angles), np.cos(angles)
    rows = waves @ bias.weight.T
    levels = rows @ bias.between
    u = rng.standard_normal((starts, left.shape[1]))
    best = 0.0
    for _ in range(steps):
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        q = u @ left.T + bias.query.offset
        seen = q @ right
        half = np.linalg.norm(seen, axis=1)
        placed = q @ rows.T + levels
        i, j = placed.argmax(axis=1), placed.argmin(axis=1)
        best = max(best, float((2 * half + np.ptp(placed, axis=1)).max()))
        u = (2 * (seen / half[:, None]) @ right.T + rows[i] - rows[j]) @ left
    return best * bias.scale.lower


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [2, 7, 60])
def test_short_contexts_are_bounded_by_what_they_hold(seed, n):
    bias = random_bias(seed)
    bound = bias.joint(n)
    # Some query lies anywhere, so that distances of one row span n − 1 at most.
    spans = [np.arange(-before, n - before) for before in range(n)]
    values = [reached(bias, lags, seed) for lags in spans[:: max(1, n // 4)]]
    assert max(values) * (1 - 2.0**-40) <= bound
    assert bound <= 1.02 * max(max(values), reached(bias, np.arange(1 - n, n), seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_distance_exceeds_the_free_bound(seed):
    bias = random_bias(seed)
    far = np.random.default_rng(seed).integers(0, 10**6, 4000)
    free = bias.joint(EXPLICIT + 1)
    assert reached(bias, far, seed) <= free
    assert bias.joint(EXPLICIT) <= free
    assert free == bias.settled().joint(3) == bias.joint(10**9)
    assert free <= bias.spread(5) + 2 * bias.query.norm_upper * bias.key.norm_upper


@pytest.mark.parametrize("lost", ["between", "weight", "query", "angles"])
def test_a_bound_that_forgets_a_part_lies_below_what_is_reached(lost):
    below = 0
    for seed in SEEDS:
        bias = random_bias(seed)
        value = reached(bias, np.arange(-5, 6), seed)
        changed = {
            "between": {"between": np.zeros_like(bias.between)},
            "weight": {"weight": bias.weight / 2},
            "query": {"query": replace(bias.query, offset=None, offset_error=None)},
            "angles": {"frequencies": bias.frequencies / 30},
        }[lost]
        below += replace(bias, **changed).joint(11) < value * (1 - 1e-6)
    assert below


def test_the_rounding_of_angles_counts(monkeypatch):
    bias = random_bias(0)
    plain = bias.at(60)
    monkeypatch.setattr(sinusoid_bias, "_ANGLE_ROUNDING", 2.0**-10)
    rough = bias.at(60)
    off = replace(bias, frequencies=bias.frequencies * (1 + 2.0**-11)).at(60)
    moved = np.linalg.norm(off.keys.value - plain.keys.value, axis=1)
    assert np.all(moved <= rough.keys.error)
    assert np.any(moved > plain.keys.error)
    assert np.all(np.abs(off.levels.value - plain.levels.value)[:, 0] <= rough.levels.error)
    assert rough.joint(60) > plain.joint(60)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_reached_by_the_real_modules(name):
    """Ascent has its query at the end, so that keys on one side alone count."""
    mechanism_checks.check_all(name)
    found = {
        (layer.layer, index): head
        for layer in plan(open_checkpoint(DATA / name)).layers
        for index, _, head in layer.heads()
    }
    ratios = []
    for n, layer, index, spread in mechanism_checks.reached(name):
        bias = found[layer, index].bias.at(n)
        allowed = bias.places.allowed(n)
        before = np.arange(len(allowed)) >= -bias.places.low
        side = prepare(bias.query, bias.key, bias.keys, bias.queries, bias.levels)
        bound = largest_difference(side, allowed & before & before[:, None])
        ratios.append(bound * bias.scale.upper / spread)
    assert min(ratios) >= 1 - 2.0**-40
    assert max(ratios) < 1.3
    assert np.median(ratios) < 1.001


def arrays_of(checkpoint, drop=()):
    """All tensors but some, and but counters, which are whole numbers."""
    drop = (*drop, "num_batches_tracked")
    return {n: checkpoint.read(n) for n in checkpoint.names if not any(d in n for d in drop)}


def changed(name, changes, drop=()):
    """The plan of a golden checkpoint under a changed config, without some tensors."""
    checkpoint = open_checkpoint(DATA / name)
    return plan(from_arrays(arrays_of(checkpoint, drop), checkpoint.config | changes))


@pytest.mark.parametrize("kind", ["parakeet_ctc", "parakeet_rnnt", "parakeet_tdt"])
def test_a_model_around_the_encoder(kind):
    checkpoint = open_checkpoint(DATA / "parakeet_encoder")
    arrays = {f"encoder.{n}": array for n, array in arrays_of(checkpoint).items()}
    arrays["ctc_head.weight"] = np.zeros((5, 16, 1))
    outer = {"model_type": kind, "encoder_config": checkpoint.config}
    found = plan(from_arrays(arrays, outer))
    alone = changed("parakeet_encoder", {})
    assert found.model["model_type"] == kind
    assert not found.refused
    assert sum(s.count for s in found.skipped) == sum(s.count for s in alone.skipped) + 1
    for ours, theirs in zip(found.layers, alone.layers, strict=True):
        assert ours.tensors == tuple(f"encoder.{n}" for n in theirs.tensors)
        for (_, _, one), (_, _, other) in zip(ours.heads(), theirs.heads(), strict=True):
            assert one.bias.joint(9) == other.bias.joint(9)
    with pytest.raises(CheckpointError, match=r"encoder_config in config\.json must be an object"):
        plan(from_arrays(arrays, {"model_type": kind}))
    other = outer | {"encoder_config": checkpoint.config | {"model_type": "other"}}
    with pytest.raises(UnsupportedError, match="'other': not supported"):
        plan(from_arrays(arrays, other))


def test_sizes_of_an_inner_config_that_is_silent():
    """As the published CTC model has them, whose inner config is that of the class."""
    width = 1024
    arrays = {}
    square = np.zeros((width, width), np.float32)
    for layer in range(24):
        root = f"encoder.layers.{layer}."
        for norm in ("weight", "bias"):
            arrays[f"{root}norm_self_att.{norm}"] = np.ones(width, np.float32)
        for side in ("q_proj", "k_proj", "relative_k_proj"):
            arrays[f"{root}self_attn.{side}.weight"] = square
            if side != "relative_k_proj":
                arrays[f"{root}self_attn.{side}.bias"] = np.zeros(width, np.float32)
        for added in ("bias_u", "bias_v"):
            arrays[f"{root}self_attn.{added}"] = np.zeros((8, 128), np.float32)
    config = {"model_type": "parakeet_ctc", "encoder_config": {"model_type": "parakeet_encoder"}}
    found = plan(from_arrays(arrays, config))
    assert [layer.head_dim for layer in found.layers] == [128] * 24
    assert not found.refused


def test_positions_by_the_config():
    kind = "position_embeddings_type"
    for name in ("wav2vec2_conformer", "wav2vec2_bert"):
        with pytest.raises(UnsupportedError, match="'rotary': not supported"):
            changed(name, {kind: "rotary"})
    with pytest.raises(UnsupportedError, match="must be relative or null"):
        changed("wav2vec2_conformer", {kind: "relative_key"})
    drop = ("linear_pos", "pos_bias_")
    plain = changed("wav2vec2_conformer", {kind: None}, drop)
    assert all(head.bias is None for layer in plain.layers for _, _, head in layer.heads())
    refused = changed("wav2vec2_conformer", {kind: None}).refused
    assert len(refused) == 2
    conformer = open_checkpoint(DATA / "wav2vec2_conformer")
    arrays = arrays_of(conformer, ("pos_conv",))
    config = conformer.config | {"model_type": "wav2vec2-bert", kind: "relative"}
    other = plan(from_arrays(arrays, config))
    for ours, theirs in zip(other.layers, plan(conformer).layers, strict=True):
        assert ours.tensors == theirs.tensors


def test_what_is_added_to_queries_is_in_the_normal_form():
    checkpoint = open_checkpoint(DATA / "wav2vec2_conformer")
    added = checkpoint.read("encoder.layers.1.self_attn.pos_bias_u").astype(float)
    asked = checkpoint.read("encoder.layers.1.self_attn.pos_bias_v").astype(float)
    weight = checkpoint.read("encoder.layers.1.self_attn.linear_q.weight").astype(float)
    bias = checkpoint.read("encoder.layers.1.self_attn.linear_q.bias").astype(float)
    shift = checkpoint.read("encoder.layers.1.self_attn_layer_norm.bias").astype(float)
    own = weight @ shift + bias
    for index, _, head in plan(checkpoint).layers[1].heads():
        part = slice(8 * index, 8 * index + 8)
        np.testing.assert_allclose(head.query.offset, own[part] + added[index], rtol=1e-13)
        np.testing.assert_array_equal(head.bias.between, asked[index] - added[index])
        assert head.bias.query is head.query


def test_what_is_reported():
    found = audit(DATA / "parakeet_encoder", [Target(8), Target(4096, retrieval="any")], jobs=1)
    for head in found.heads:
        assert head.cap == "input LayerNorm, products with sinusoids"
        assert head.spread.lower == 0.0 < head.spread.upper <= head.paper_spread
        assert head.results[1].verdict in (Verdict.UNRESOLVED, Verdict.RULED_OUT)
        assert head.capacity is None
