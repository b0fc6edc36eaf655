"""Heads whose queries and keys fill the same balls at every position: Dory and TimesFM 2.5."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.rotary import rotary_from_config
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data"
REFERENCE = json.loads((DATA / "logits.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])
NAMES = ("dory", "timesfm2_5")
RAW_SCALE, EPS = 1000.0, 1e-6  # as in tests/golden/real.py; of the norms of queries and keys
LARGEST = 200.0  # of the logits, to which rounding is in proportion


def loaded(name):
    checkpoint = open_checkpoint(DATA / name)
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


def normalised(x, *, mean):
    """Rows behind an L2 norm, or behind an RMS norm over the root of their size."""
    square = np.sum(x**2, axis=-1, keepdims=True)
    return x / np.sqrt(square + EPS * (x.shape[-1] if mean else 1))


def row(name, layer, head, kv_head, built):
    """The last row of logits: the balls of a head at the points that hidden states give."""
    arrays, config = loaded(name)
    mean = name == "timesfm2_5"
    width, size = config["hidden_size"], config["head_dim"]
    x = np.sin(1.0 + np.arange(len(POSITIONS) * width) ** 1.5).reshape(-1, width)
    x = RAW_SCALE * math.sqrt(width) * x / np.linalg.norm(x, axis=1, keepdims=True)
    states, kind = normalised(x, mean=mean), None
    if mean:
        root = layer.module.removesuffix("self_attn")
        states = states * math.sqrt(width) * arrays[f"{root}input_layernorm.weight"]
    else:
        kind = config["layer_types"][2 * layer.layer]
    turning = rotary_from_config(config, kind, size)
    points = []
    for side, index, ball in (("q", head, built.query), ("k", kv_head, built.key)):
        weight = arrays[f"{layer.module}.{side}_proj.weight"][index * size : (index + 1) * size]
        u = normalised(states @ weight.astype(np.float64).T, mean=mean)
        points.append(ball.radius.upper * turning.rotate(u, POSITIONS) @ ball.matrix.T)
    return built.scale.upper * points[1] @ points[0][-1]


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_the_balls_are_those_of_the_real_module(name):
    for layer in plan(open_checkpoint(DATA / name)).layers:
        expected = REFERENCE["logits"][name][layer.layer]
        for head, kv_head, built in layer.heads():
            found = row(name, layer, head, kv_head, built)
            np.testing.assert_allclose(found, expected[head], rtol=0, atol=1e-11 * LARGEST)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_near_what_ascent_reached(name):
    found = mechanism_checks.certified(name)
    for n, layer, index, spread in mechanism_checks.reached(name):
        certified = found[n, layer, index].spread
        assert spread * (1 - 1e-9) <= certified.upper <= 1.05 * spread
        assert certified.lower == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_no_rotation_is_left_and_heads_of_a_group_share_their_keys(name):
    for layer in plan(open_checkpoint(DATA / name)).layers:
        heads = [built for _, _, built in layer.heads()]
        assert all(built.rotary is None and built.reach is None for built in heads)
        assert len({id(built.key) for built in heads}) == layer.key_heads < layer.query_heads


def test_published_files_of_dory_hold_two_layers_for_one():
    arrays, config = loaded("dory")
    renamed = {}
    for name, value in arrays.items():
        before, found, rest = name.partition("layers.")
        index, _, rest = rest.partition(".")
        part, _, end = rest.partition(".")
        if part in ("self_attn", "mlp"):
            rest = f"{2 * int(index) + (part == 'mlp')}.mixer.{end}"
        elif found:
            second = part == "lambda_2"
            rest = f"{2 * int(index) + second}.{'mlp_alpha' if second else 'attn_alpha'}"
        renamed[before + found + rest if found else name] = value
    published = plan(from_arrays(renamed, config))
    assert [layer.layer for layer in published.layers] == [0, 2]
    assert not published.refused
    saved = plan(from_arrays(arrays, config))
    for one, other in zip(saved.layers, published.layers, strict=True):
        for (_, _, a), (_, _, b) in zip(one.heads(), other.heads(), strict=True):
            np.testing.assert_array_equal(a.query.matrix, b.query.matrix)
            assert (a.scale, a.window) == (b.scale, b.window)


def bound(arrays, config):
    head = next(iter(plan(from_arrays(arrays, config)).layers[0].heads()))[2]
    return check_head(head, [Target(8)]).spread.upper


def test_the_vector_on_queries_is_squared_over_the_square_of_the_initial_range():
    arrays, config = loaded("dory")
    name = next(n for n in arrays if n.endswith("0.self_attn.sqk"))
    usual = bound(arrays, config)
    half = config | {"initializer_range": config["initializer_range"] / 2}
    assert bound(arrays | {name: -2 * arrays[name]}, config) == pytest.approx(4 * usual, rel=1e-12)
    assert bound(arrays, half) == pytest.approx(4 * usual, rel=1e-12)
    with pytest.raises(CheckpointError, match="sqk"):
        plan(from_arrays({n: v for n, v in arrays.items() if n != name}, config))


@pytest.mark.parametrize("x", [-40.0, 0.0, 3.0, 30.0])
def test_softplus_of_models_lies_within_the_error(x):
    arrays, config = loaded("timesfm2_5")
    name = next(n for n in arrays if n.endswith("0.self_attn.scaling"))
    arrays |= {name: np.full_like(arrays[name], x)}
    built = next(iter(plan(from_arrays(arrays, config)).layers[0].heads()))[2]
    gain = arrays[name.replace("scaling", "q_norm.weight")].astype(np.float64)
    soft = x if x > 20 else math.log1p(math.exp(x))  # what models compute
    assert np.all(np.abs(np.diag(built.query.matrix) - soft * gain) <= built.query.row_error)
    assert np.all(built.query.row_error <= 1e-9 * np.abs(soft * gain))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["q_proj.weight", "k_proj.weight"])
def test_a_weight_that_is_not_finite_is_found(name, part):
    arrays, config = loaded(name)
    tensor = next(n for n in arrays if n.endswith(f"0.self_attn.{part}"))
    arrays[tensor] = arrays[tensor].copy()
    arrays[tensor][9, 1] = np.nan
    with pytest.raises(CheckpointError, match=part):
        list(plan(from_arrays(arrays, config)).layers[0].heads())
