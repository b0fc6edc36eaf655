"""T5Gemma 2: own keys turn, the encoder's do not, and one softmax runs over both."""

import json

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.picked import PickedHead
from dispersion.verdict import Target

NAME = "t5gemma2"
DATA = mechanism_checks.DATA
REFERENCE = json.loads((DATA / "logits.json").read_text())
RECORD = json.loads((DATA / NAME / "adversarial.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])
MODULES = [f"{side}.layers.{i}.self_attn" for side in ("encoder", "decoder") for i in (0, 1)]
EPS = 1e-6


def changed(stack=None, **changes):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = json.loads(json.dumps(checkpoint.config))
    where = {"encoder": lambda c: c["encoder"]["text_config"], "decoder": lambda c: c["decoder"]}
    for side in where if stack is None else (stack,):
        where[side](config).update(changes)
    return plan(from_arrays(arrays, config))


def heads(found):
    return [next(iter(layer.heads()))[2] for layer in found.layers]


def reader():
    checkpoint = open_checkpoint(DATA / NAME)
    return lambda name: checkpoint.read(f"model.{name}").astype(np.float64)


def rms(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * (1 + weight)


def points(place):
    """Queries and keys of both heads, unturned, of the vectors of tests/golden/logits.py."""
    read, module = reader(), MODULES[place]
    norm = read(f"{module.removesuffix('self_attn')}pre_self_attn_layernorm.weight")
    x = np.sin(1.0 + np.arange(6 * len(norm)) ** 1.5).reshape(6, -1)
    x /= np.sqrt((x**2).mean(-1, keepdims=True))
    states = x * (1 + norm)
    others = states
    if place > 1:
        others = np.concatenate([x[:-1] * (1 + read("encoder.norm.weight")), states[-1:]])
    both = []
    for side, given in (("q", states), ("k", others)):
        made = (given @ read(f"{module}.{side}_proj.weight").T).reshape(6, -1, 8)
        both.append(rms(made, read(f"{module}.{side}_norm.weight")))
    return both


@pytest.mark.parametrize("place", range(4))
def test_logits_of_the_definition_are_those_of_the_real_module(place):
    """And the normal form's, where the encoder's keys stand at the position of the first token."""
    queries, keys = points(place)
    layer = plan(open_checkpoint(DATA / NAME)).layers[place]
    assert layer.module == f"model.{MODULES[place]}"
    theta = (300.0, 5000.0)[place % 2]
    frequencies = theta ** -(np.arange(4) / 4)
    for index, _, head in layer.heads():
        np.testing.assert_allclose(head.rotary.frequencies, frequencies, rtol=1e-6)
        where = POSITIONS.copy()
        if place > 1:
            where[:-1] = 0
        key = keys[:, 0]
        for ball, made in ((head.query, queries[:, index]), (head.key, key)):
            inner = made / np.diag(ball.matrix) / ball.radius.upper
            assert np.linalg.norm(inner, axis=1).max() <= 1 + 1e-12
        turned = head.rotary.rotate(key, where - POSITIONS[-1])
        row = head.scale.upper * turned @ queries[-1, index]
        expected = REFERENCE["logits"][NAME][place][index]
        np.testing.assert_allclose(row, expected, atol=1e-9 * np.abs(expected).max())


def test_each_stack_sees_as_many_keys_as_in_the_real_model():
    found = heads(plan(open_checkpoint(DATA / NAME)))
    assert [h.causal for h in found] == [False, False, True, True]
    assert [h.window for h in found] == [3, None, 5, None]
    assert [isinstance(h, PickedHead) for h in found] == [True, False, True, False]
    for n, record in RECORD["lengths"].items():
        assert [h.visible(int(n)) for h in found[:2]] == record["visible"][:2]
    windows = [heads(changed("encoder", sliding_window=w))[0].window for w in (1, 2, 5, 6, 7)]
    assert windows == [1, 1, 3, 3, 4]


def test_the_decoders_bounds_are_those_over_free_angles_and_attained_there():
    """Two keys of the encoder stand at one lag, which no pair of different lags covers."""
    found = heads(plan(open_checkpoint(DATA / NAME)))
    for place in (2, 3):
        assert found[place].rotary.placed
        exact, free = (
            check_head(found[place], [Target(32)], offsets=o).spread.upper
            for o in ("exact", "free")
        )
        reached = max(h["free_phase"] for h in RECORD["heads"] if h["layer"] == place)
        assert exact == free
        assert reached * (1 - 1e-6) <= free <= reached * 1.0001
    assert mechanism_checks.unknown_inputs(NAME)


def test_what_the_config_leaves_out_is_that_of_its_class():
    checkpoint = open_checkpoint(DATA / NAME)
    config = json.loads(json.dumps(checkpoint.config))
    for own in (config["encoder"]["text_config"], config["decoder"]):
        for key in ("rope_parameters", "sliding_window", "query_pre_attn_scalar"):
            del own[key]
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    found = heads(plan(from_arrays(arrays, config)))
    assert [h.window for h in found] == [2048, None, 4096, None]
    assert found[0].scale.upper == 1 / 16
    slowest = [h.rotary.frequencies[-1] for h in found]
    np.testing.assert_allclose(slowest, [1e4**-0.75, 1e6**-0.75] * 2, rtol=1e-6)


def test_a_factor_of_cos_and_sin_below_one_is_refused():
    """Own keys' logits get its square, those of the encoder's keys the factor itself."""
    for factor, fits in ((1.5, True), (0.5, False)):
        rope = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0}
        rope |= {"original_max_position_embeddings": 64, "attention_factor": factor}
        both = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
        if fits:
            before, after = (heads(changed(**c))[3] for c in ({}, {"rope_parameters": both}))
            assert after.scale.upper == pytest.approx(before.scale.upper * factor**2)
            continue
        with pytest.raises(UnsupportedError, match=r"must be at least 1.*Got 0.5"):
            changed("decoder", rope_parameters=both)
        changed("encoder", rope_parameters=both)


def test_a_stack_without_a_config_is_named():
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    for key, name in (("decoder", "decoder"), ("encoder", "encoder.text_config")):
        config = {**checkpoint.config, key: None}
        with pytest.raises(CheckpointError, match=rf"{name} in config.json must be a mapping"):
            plan(from_arrays(arrays, config))
