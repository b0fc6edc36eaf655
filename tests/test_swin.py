"""Swin and Swin 2: windows, padding, biases by place, names and sizes of the stages."""

import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.architectures.swinv2 import biases, factor, ways
from dispersion.architectures.window_attention import least_keys, row_widths
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.head import Head
from dispersion.norms import projection_ball
from dispersion.verdict import Target
from dispersion.zero_state import with_zero_state

DATA = mechanism_checks.DATA
NAMES = ("clap_audio_model", "swin", "swinv2")
ROUNDING = 2.0**-40


def changed(name, config=(), rename=(), drop=()):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if n not in drop}
    for old, new in rename:
        arrays = {n.replace(old, new): a for n, a in arrays.items()}
    return plan(from_arrays(arrays, {**checkpoint.config, **dict(config)}))


def heads(found):
    return [(layer, index, head) for layer in found.layers for index, _, head in layer.heads()]


def spreads(found):
    return [check_head(head, [Target(9)]).spread.upper for _, _, head in heads(found)]


def places(side):
    """Index of the way between two places of a window, as the real modules compute it."""
    at = np.array([(y, x) for y in range(side) for x in range(side)])
    lags = at[:, None] - at[None] + side - 1
    return lags[..., 0] * (2 * side - 1) + lags[..., 1]


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_lies_below_what_ascent_reached(name):
    mechanism_checks.check_all(name)


def biases_of(layer, checkpoint):
    """What the layer's own tensors say of each way, shape (ways, heads), in plain float64."""
    read = {name.rpartition(".self.")[2]: checkpoint.read(name) for name in layer.tensors}
    if "relative_position_bias_table" in read:
        return read["relative_position_bias_table"].astype(float)
    net = "continuous_position_bias_mlp"
    first, shift, second = (
        read[f"{net}.{part}"].astype(float) for part in ("0.weight", "0.bias", "2.weight")
    )
    lags = np.arange(-2, 3) * 8 / (3 if layer.layer == 0 else 2)  # windows of 4 were trained on
    told = np.sign(lags) * np.log2(np.abs(lags) + 1) / 3
    made = [np.maximum(first @ (y, x) + shift, 0) @ second.T for y in told for x in told]
    return 16 / (1 + np.exp(-np.array(made)))


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_the_sum_of_what_ascent_reached_and_the_biases(name):
    """What was reached is without biases, and without padding, for which a little is added."""
    checkpoint = open_checkpoint(DATA / name)
    side = 2 if name == "clap_audio_model" else 3
    certified, apart = mechanism_checks.certified(name), {}
    for layer in plan(checkpoint).layers:
        rows = biases_of(layer, checkpoint)[places(side)]
        for head in range(layer.query_heads):
            apart[layer.layer, head] = np.ptp(rows[..., head], axis=1).max()
    for n, layer, head, spread in mechanism_checks.reached(name):
        whole, found = spread + apart[layer, head], certified[n, layer, head]
        assert whole * (1 - ROUNDING) <= found.spread.upper <= 1.05 * whole, (n, layer, head)
        assert found.spread.lower == 0


def test_a_row_holds_the_ways_of_one_place_alone():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((7, 7, 2))
    rows = table.reshape(49, 2)[places(4)]
    exact = np.ptp(rows, axis=1).max(axis=0)
    np.testing.assert_allclose(row_widths(table, table), exact, rtol=1e-14)
    assert np.all(row_widths(table, table) >= exact)
    assert exact[0] < np.ptp(table[..., 0])  # ways that no row has both of
    wider = row_widths(table - 1, table + 2)
    np.testing.assert_allclose(wider, exact + 3, rtol=1e-14)


def seen(size, side, shift):
    """The fewest keys that a row sees unhidden, by the regions of the real masks."""
    size = -(-size // side) * side
    at = np.arange(size)
    region = (at >= size - side).astype(int) + (at >= size - shift) if shift else 0 * at
    marks = region[:, None] * 3 + region
    squares = marks.reshape(size // side, side, size // side, side).transpose(0, 2, 1, 3)
    windows = squares.reshape(-1, side**2)
    return (windows[:, :, None] == windows[:, None]).sum(axis=-1).min()


@pytest.mark.parametrize("side", range(1, 9))
def test_no_query_sees_fewer_keys_than_are_counted(side):
    for shift in {0, side // 2}:
        counts = {seen(size, side, shift) for size in range(1, 4 * side)}
        assert min(counts) == least_keys(side, shift)


@pytest.mark.parametrize("size", [0.0, 0.2, 1.0, 5.0])
def test_the_key_of_padding_lies_within_the_enlarged_ball(size):
    """It is the smallest u of the point that says so; a ball without it need not hold it."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        weight, gain = rng.standard_normal((5, 12)), np.exp(0.4 * rng.standard_normal(12))
        gain[seed] *= -1e-9
        shift, bias = size * rng.standard_normal(12), rng.standard_normal(5)
        ball = projection_ball(weight, norm="layer", gain=gain, norm_bias=shift, bias=bias)
        held = with_zero_state(ball, weight, gain, shift)
        lengths = []
        for each in (ball, held):
            u, _, rank, _ = np.linalg.lstsq(each.radius.upper * each.matrix, bias - each.offset)
            assert rank == 5
            lengths.append(np.linalg.norm(u))
        assert lengths[1] <= 1 + ROUNDING
        assert (lengths[0] > 1) == (size == 5.0) or size == 1.0
        np.testing.assert_array_equal(held.matrix[:, :12], ball.matrix)
        # The new column is no longer than the point, and short where it nearly lies within.
        column, way = (np.linalg.norm(x) for x in (held.matrix[:, 12], bias - ball.offset))
        assert column <= way / math.sqrt(12) * (1 + ROUNDING) * (0.8 if size == 0.2 else 1.0)


def test_biases_of_swin2_hold_those_of_its_net():
    rng = np.random.default_rng(1)
    net = [rng.standard_normal(shape) for shape in ((512, 2), (512,), (3, 512))]
    for spread in (0.02, 1.0, 100.0):  # sigmoids in the middle and at their ends
        told = ways(4, 7)
        inner = np.maximum(told @ net[0].T + net[1], 0) @ (spread * net[2].T)
        exact = 8 + 8 * np.tanh(inner / 2)
        low, high = biases(told, net[0], net[1], spread * net[2])
        assert np.all((low <= exact) & (exact <= high))
        assert np.all((low >= 0) & (high <= 16))
        # Each of the 512 terms may be off by 2^-20 of about one.
        assert np.max(high - low) <= 8 * spread * 512 * 2.0**-20 * 20
    np.testing.assert_allclose(ways(3, 4)[0, 2], [-math.log2(5) / 3, 0])
    assert np.all(ways(1, 0) == 0)


def test_factors_of_swin2_end_at_100():
    for x in (-3.0, 0.0, 1.5, 4.6):
        assert factor(x).lower <= math.exp(x) * (1 + ROUNDING)
        assert factor(x).upper >= math.exp(x) * (1 - ROUNDING)
        assert factor(x).upper <= factor(x).lower * (1 + ROUNDING)
    assert factor(4.606).upper == factor(4.606).lower == factor(900.0).upper == 100.0


NEWER = (
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    ("attention.self.relative", "attention.relative_position_bias.relative"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
MORE = "swin.encoder.layers.0.blocks.0.attention."


def test_names_of_newer_code_mean_the_same():
    old, new = changed("swin"), changed("swin", rename=NEWER)
    assert not new.refused
    for (_, _, one), (_, _, other) in zip(heads(old), heads(new), strict=True):
        np.testing.assert_array_equal(one.key.matrix, other.key.matrix)
    for kind in ("donut-swin", "maskformer-swin"):
        assert len(heads(changed("swin", {"model_type": kind}))) == len(heads(old))
    assert old.model["max_positions"] is None


def test_layers_are_numbered_through_and_can_be_asked_for():
    found = changed("swin").layers
    assert [(layer.layer, layer.query_heads, layer.window) for layer in found] == [
        (0, 2, 9),
        (1, 2, 1),  # shifted by one place
        (2, 4, 9),
    ]
    checkpoint = open_checkpoint(DATA / "swin")
    for asked in (1, 2):
        alone = plan(checkpoint, layers=frozenset({asked}))
        assert [layer.module for layer in alone.layers] == [found[asked].module]
        used = {name for layer in alone.layers for name in layer.tensors}
        assert len(used) + sum(s.count for s in alone.skipped) == len(checkpoint.names)


def test_a_tensor_that_is_not_known_refuses_its_layer_alone():
    checkpoint = open_checkpoint(DATA / "swin")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    arrays["swin.encoder.layers.1.blocks.0.attention.self.key_norm.weight"] = np.ones(4)
    found = plan(from_arrays(arrays, checkpoint.config))
    assert [r.name for r in found.refused] == ["swin.encoder.layers.1.blocks.0.attention"]
    assert [layer.layer for layer in found.layers] == [0, 1]


def test_swin2sr_has_stages_of_one_width_and_one_grid():
    stages = (("encoder.layers.", "encoder.stages."), (".blocks.", ".layers."))
    checkpoint = open_checkpoint(DATA / "swinv2")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if ".layers.0.blocks." in n}
    for old, new in stages:
        arrays = {n.replace(old, new): a for n, a in arrays.items()}
    # A second layer and a second stage, as wide as the first.
    arrays |= {n.replace(".layers.0.", ".layers.1."): a for n, a in arrays.items()}
    arrays |= {n.replace("stages.0.", "stages.1."): a for n, a in arrays.items()}
    config = {**checkpoint.config, "model_type": "swin2sr", "depths": [2, 2]}
    for rows, windows in ((7, [9, 1, 9, 1]), (3, [9] * 4), (2, [4] * 4)):
        config["image_size"] = [2 * rows, 4]
        found = plan(from_arrays(arrays, config))
        assert [layer.window for layer in found.layers] == windows
    # Its code knows no other size of windows that nets were trained on.
    config["image_size"] = [14, 10]
    own = plan(from_arrays(arrays, config))
    assert spreads(own)[:2] != spreads(changed("swinv2"))[:2]
    assert spreads(own)[:2] == spreads(changed("swinv2", {"pretrained_window_sizes": [0, 0]}))[:2]


def test_half_a_grid_makes_the_windows_of_a_stage_smaller():
    assert [layer.window for layer in changed("swinv2", {"image_size": 8}).layers] == [9, 4]
    absent = changed("swinv2", {"pretrained_window_sizes": None})
    assert len(absent.layers) == 2


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("swin", {"depths": [3, 1]}, r"depths\[0\]"),
        ("swin", {"depths": 3}, "depths in config.json must be a list"),
        ("swin", {"num_heads": [2]}, "a number for each of 2 stages"),
        ("swin", {"num_heads": [3, 4]}, "num_heads must divide"),
        ("swin", {"window_size": 4}, r"must have shape \(49, 2\)"),
        ("swinv2", {"image_size": 2}, "patches in every stage"),
        ("swinv2", {"pretrained_window_sizes": [4]}, "pretrained_window_sizes"),
        ("swinv2", {"pretrained_window_sizes": [4, 1]}, "0, or 2 or more"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(name, config, words):
    with pytest.raises(CheckpointError, match=words):
        changed(name, config)


@pytest.mark.parametrize("part", ["query.bias", "key.weight", "logit_scale"])
def test_a_nan_is_found_where_lengths_are_divided_out(part):
    checkpoint = open_checkpoint(DATA / "swinv2")
    arrays = {n: checkpoint.read(n).astype(np.float32) for n in checkpoint.names}
    name = next(n for n in arrays if n.endswith(part))
    arrays[name].ravel()[0] = np.nan
    with pytest.raises(CheckpointError, match=part):
        heads(plan(from_arrays(arrays, checkpoint.config)))


def test_ceilings_count_the_keys_that_every_query_sees():
    _, _, head = heads(changed("swin"))[0]
    assert isinstance(head, Head)
    for n, keys in ((4, 4), (9, 9), (4096, 9)):
        found = check_head(head, [Target(n)])
        spread = found.spread.upper
        exact = 1 / (1 + (keys - 1) * math.exp(-spread))
        assert found.results[0].ceiling.upper == pytest.approx(exact, rel=1e-12)
