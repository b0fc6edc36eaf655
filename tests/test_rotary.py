import json
import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.rotary import RopeRule, rotary, rotary_from_config

CASES = json.loads((Path(__file__).parent / "data" / "rotary.json").read_text())
RULES = {
    "gemma3_text": RopeRule(1e6, "rope_local_base_freq", 1e4),
    "gemma4_text": RopeRule(1e6, "rope_local_base_freq", 1e4),
    "olmo3": RopeRule(500000.0, "rope_theta", 500000.0),
    "glm": RopeRule(interleaved=True),
}
EPS = np.finfo(np.float64).eps


def read(case):
    rule = RULES.get(case["config"]["model_type"], RopeRule())
    return rotary_from_config(case["config"], case["layer_type"], case["head_dim"], rule)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_frequencies_equal_the_modelling_code(case):
    """A power of θ loses ln θ roundings of its exponent; a handful of products follow."""
    found = read(case)
    reference = np.array(case["frequencies"])
    turning = reference[reference != 0]
    np.testing.assert_allclose(found.frequencies, turning, rtol=32 * EPS)
    for length, frequencies in case["at"].items():
        np.testing.assert_allclose(found.frequencies_at(int(length)), frequencies, rtol=32 * EPS)
    assert case["attention_factor"] in found.attention_factor
    width = found.attention_factor.upper - found.attention_factor.lower
    assert width <= 64 * EPS


def test_some_frequencies_change_with_the_context_and_others_do_not():
    kinds = {c["name"]: read(c) for c in CASES}
    assert kinds["dynamic_old"].length_dependent
    assert kinds["longrope_phi3"].length_dependent
    assert not kinds["yarn_old"].length_dependent
    dynamic = kinds["dynamic_old"]
    np.testing.assert_array_equal(dynamic.frequencies_at(4096), dynamic.frequencies)
    assert np.all(dynamic.frequencies_at(5000)[1:] < dynamic.frequencies[1:])


def test_su_is_longrope():
    case = next(c for c in CASES if c["name"] == "longrope_phi3")
    old = json.loads(json.dumps(case["config"]))
    old["rope_scaling"]["type"] = "su"
    found = rotary_from_config(old, None, case["head_dim"])
    assert found.kind == "longrope"
    np.testing.assert_array_equal(found.frequencies, read(case).frequencies)


def test_longrope_with_one_set_of_factors_does_not_depend_on_the_context():
    factors = [1.0, 2.0, 4.0, 8.0]
    scaling = {"type": "longrope", "factor": 1.0, "short_factor": factors, "long_factor": factors}
    found = rotary_from_config({"max_position_embeddings": 64, "rope_scaling": scaling}, None, 8)
    assert not found.length_dependent
    np.testing.assert_array_equal(found.frequencies_at(10**6), found.frequencies)
    assert found.attention_factor.lower == found.attention_factor.upper == 1


def test_pairs_cover_the_rotated_coordinates():
    half = rotary([1.0, 0.5], 6, rotated=4)
    assert half.pairs.tolist() == [[0, 2], [1, 3]]
    assert half.unrotated.tolist() == [4, 5]
    interleaved = rotary([1.0, 0.5, 0.25], 6, interleaved=True)
    assert interleaved.pairs.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert interleaved.unrotated.size == 0
    partial = read(next(c for c in CASES if c["name"] == "partial_interleaved"))
    assert partial.pairs[-1].tolist() == [14, 15]
    assert partial.unrotated.tolist() == list(range(16, 32))
    proportional = read(next(c for c in CASES if c["name"] == "proportional"))
    assert proportional.pairs.tolist() == [[j, j + 16] for j in range(4)]


@pytest.mark.parametrize("interleaved", [False, True])
def test_still_pairs_are_left_where_they_are(interleaved):
    rule = RopeRule(interleaved=interleaved)
    turns = {"rope_type": "sections", "rope_theta": 100.0, "still_pairs": [2, 0]}
    found = rotary_from_config({"rope_parameters": turns}, None, 8, rule)
    plain = rotary_from_config({"rope_theta": 100.0}, None, 8, rule)
    np.testing.assert_array_equal(found.pairs, plain.pairs[[1, 3]])
    np.testing.assert_array_equal(found.frequencies, plain.frequencies[[1, 3]])
    np.testing.assert_array_equal(found.unrotated, sorted(plain.pairs[[0, 2]].ravel()))
    x = np.random.default_rng(3).standard_normal(8)
    turned = found.rotate(x, 5)
    np.testing.assert_array_equal(turned[found.unrotated], x[found.unrotated])
    moved = found.pairs.ravel()
    np.testing.assert_array_equal(turned[moved], plain.rotate(x, 5)[moved])


def rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_only_the_lag_enters_a_logit_and_keys_turn_backwards(interleaved):
    """q at position m and k at n, each turned by its own position: rotate(k, −lag) gives it."""
    rng = np.random.default_rng(0)
    turn = rotary(10000.0 ** (-np.arange(4) / 4), 8, interleaved=interleaved)
    q, k = rng.standard_normal((2, 8))
    m, n = 37, 12
    logit = turn.rotate(q, m) @ turn.rotate(k, n)
    scale = np.linalg.norm(q) * np.linalg.norm(k)
    assert abs(q @ turn.rotate(k, -(m - n)) - logit) <= 64 * m * EPS * scale
    assert abs(q @ turn.rotate(k, m - n) - logit) > 1e-3 * scale


def test_half_split_rotation_is_the_modelling_formula():
    rng = np.random.default_rng(1)
    turn = rotary(10000.0 ** (-np.arange(4) / 4), 8)
    x = rng.standard_normal(8)
    positions = np.array([0, 1, 5, 1000])
    angle = np.concatenate([turn.angles(positions)] * 2, axis=-1)
    expected = x * np.cos(angle) + rotate_half(x) * np.sin(angle)
    np.testing.assert_array_equal(turn.rotate(x, positions), expected)
    assert turn.rotate(np.tile(x, (4, 1)), positions).shape == (4, 8)


def test_nested_null_is_no_rotation_where_the_family_knows_it():
    config = {"rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 9.0}}}
    assert rotary_from_config(config, "full_attention", 8) is None
    assert rotary_from_config(config, "sliding_attention", 8).frequencies[1] == 9.0 ** (-1 / 4)
    # Gemma 3 and Olmo 3 fill a null entry with the plain rotation.
    assert rotary_from_config(config, "full_attention", 8, RULES["olmo3"]).kind == "default"


BAD = {
    "theta": ({"rope_theta": 0.0}, CheckpointError, "rope_theta"),
    "theta_text": ({"rope_theta": "1e4"}, CheckpointError, "rope_theta"),
    "theta_nan": ({"rope_theta": math.nan}, CheckpointError, "rope_theta"),
    "factor": ({"rope_scaling": {"type": "linear"}}, CheckpointError, "factor"),
    "yarn_factor": ({"rope_scaling": {"type": "yarn"}}, CheckpointError, "factor"),
    "llama3": (
        {"max_position_embeddings": 64, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        CheckpointError,
        "low_freq_factor",
    ),
    "trained_length": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        CheckpointError,
        "max_position_embeddings",
    ),
    "list": (
        {
            "max_position_embeddings": 64,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
        },
        CheckpointError,
        "short_factor",
    ),
    "shape": ({"rope_scaling": 4.0}, CheckpointError, "rope_scaling"),
    "partial": ({"partial_rotary_factor": 0.1}, CheckpointError, "partial_rotary_factor"),
    "nested": (
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        CheckpointError,
        "rope_parameters",
    ),
    "entry": (
        {"rope_parameters": {"full_attention": 3, "sliding_attention": {}}},
        CheckpointError,
        "rope_parameters",
    ),
    "huge": ({"rope_theta": 10**400}, CheckpointError, "rope_theta"),
    "all_still": (
        {"rope_parameters": {"rope_type": "sections", "still_pairs": [0, 1, 2, 3]}},
        CheckpointError,
        "still_pairs",
    ),
    "no_pair": (
        {"rope_parameters": {"rope_type": "sections", "still_pairs": [4]}},
        CheckpointError,
        "still_pairs",
    ),
    "nothing_still": (
        {"rope_parameters": {"rope_type": "sections"}},
        CheckpointError,
        "still_pairs",
    ),
    "unknown": ({"rope_scaling": {"type": "spiral"}}, UnsupportedError, "spiral"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_config_is_one_line_that_names_the_key(name):
    config, error, word = BAD[name]
    with pytest.raises(error, match=word) as caught:
        rotary_from_config(config, None, 8)
    assert "\n" not in str(caught.value)


def test_a_base_that_overflows_is_refused():
    with pytest.raises(CheckpointError, match="rope_theta"):
        rotary_from_config({"rope_theta": 5e-324}, None, 256)


def test_an_odd_head_dim_cannot_rotate():
    with pytest.raises(CheckpointError, match="head_dim"):
        rotary_from_config({}, None, 7)


def test_pairs_that_overlap_and_vectors_of_the_wrong_size_are_refused():
    with pytest.raises(ArgumentError, match="pairs"):
        rotary([1.0, 0.5], 4, rotated=2)
    with pytest.raises(ArgumentError, match="head_dim"):
        rotary([1.0], 2).rotate(np.zeros(3), 1)
