"""A.X K2: a gate behind the norm in front, and queries that read their latent twice."""

import json
import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import axk2, plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError
from dispersion.head import BallImage
from dispersion.latent import summed_ball
from dispersion.picked import PickedHead
from dispersion.rotary import rotary_from_config

NAME = "axk2"
DATA = mechanism_checks.DATA
REFERENCE = json.loads((DATA / "logits.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])


def reading():
    checkpoint = open_checkpoint(DATA / NAME)
    return checkpoint.config, lambda name: checkpoint.read(name).astype(np.float64)


def rms(x, gain, eps=1e-6):
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def states(x, layer):
    """Of directions, behind the gated norm."""
    _, read = reading()
    root = f"model.layers.{layer}.input_layernorm."
    x = x / np.linalg.norm(x, axis=1, keepdims=True) * math.sqrt(x.shape[1])
    y = read(f"{root}norm.weight") * x
    inner = y @ read(f"{root}W_down.weight").T
    inner = inner / (1 + np.exp(-inner))
    return y / (1 + np.exp(-(inner @ read(f"{root}W_up.weight").T)))


def made(h, layer):
    """Queries and keys of states, unturned, (n, heads, head_dim)."""
    config, read = reading()
    root = f"model.layers.{layer}.self_attn."

    def project(name, x):
        return x @ read(f"{root}{name}.weight").T

    heads, values, rank = (config[k] for k in ("num_attention_heads", "v_head_dim", "kv_lora_rank"))
    c = project("q_a_proj", h) + read(f"{root}q_a_proj.bias")
    both = np.concatenate([rms(c, read(f"{root}q_a_layernorm.weight")), c], axis=1)
    queries = project("q_b_proj", both).reshape(len(h), heads, -1)[..., :-values]
    kv = project("kv_a_proj_with_mqa", h) + read(f"{root}kv_a_proj_with_mqa.bias")
    plain = project("kv_b_proj", rms(kv[:, :rank], read(f"{root}kv_a_layernorm.weight")))
    plain = plain.reshape(len(h), heads, -1)[..., :-values]
    last = np.repeat(kv[:, None, rank:], heads, axis=1)
    return queries, np.concatenate([plain, last], axis=-1)


def row(head, query, keys, positions):
    turned = head.rotary.rotate(keys, positions - positions[-1])
    return head.scale.upper * turned @ query


def test_logits_of_the_definition_are_those_of_the_real_module():
    config, _ = reading()
    for layer, built in enumerate(plan(open_checkpoint(DATA / NAME)).layers):
        x = np.sin(1.0 + np.arange(6 * config["hidden_size"]) ** 1.5).reshape(6, -1)
        queries, keys = made(states(x, layer), layer)
        rope = rotary_from_config(config, None, config["qk_rope_head_dim"])
        for index, _, head in built.heads():
            np.testing.assert_array_equal(head.rotary.frequencies, rope.frequencies)
            found = row(head, queries[-1, index], keys[:, index], POSITIONS)
            expected = np.array(REFERENCE["logits"][NAME][layer][index])
            np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def inside(ball, points):
    """The largest 2-norm of the smallest ball coordinates of points (floats)."""
    shifted = points if ball.offset is None else points - ball.offset
    matrix = ball.radius.upper * ball.matrix
    solved = np.linalg.lstsq(matrix, shifted.T, rcond=None)[0]
    assert np.abs(matrix @ solved - shifted.T).max() <= 1e-9 * np.abs(points).max()
    return np.linalg.norm(solved, axis=0).max()


def test_the_balls_hold_every_query_and_key():
    config, _ = reading()
    for layer, built in enumerate(plan(open_checkpoint(DATA / NAME)).layers):
        x = np.random.default_rng(layer).standard_normal((300, config["hidden_size"]))
        queries, keys = made(states(x, layer), layer)
        for index, _, head in built.heads():
            assert isinstance(head, PickedHead)
            assert head.coupled is None
            assert inside(head.query, queries[:, index]) <= 1 + 1e-9
            assert inside(head.key, keys[:, index]) <= 1 + 1e-9


def test_gates_shorten_states_and_never_lengthen_them():
    config, read = reading()
    gain = read("model.layers.0.input_layernorm.norm.weight")
    x = np.random.default_rng(0).standard_normal((500, config["hidden_size"]))
    shares = np.linalg.norm(states(x, 0) / gain, axis=1) / math.sqrt(len(gain))
    assert 0.3 < shares.min() < shares.max() < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_of_two_balls_is_covered_and_no_larger_than_both(seed):
    rng = np.random.default_rng(seed)
    balls = [
        BallImage(
            rng.standard_normal((4, n)) * size,
            offset=rng.standard_normal(4),
            radius=Enclosure.exact(2.0),
        )
        for n, size in ((5, 1.0), (7, 10.0**seed))
    ]
    found = summed_ball(*balls, cap="both")
    points = []
    for ball in balls:
        u = rng.standard_normal((200, ball.matrix.shape[1]))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        points.append(2.0 * u @ ball.matrix.T + ball.offset)
    assert inside(found, points[0] + points[1]) <= 1 + 1e-9
    centred = [BallImage(b.matrix, radius=b.radius) for b in balls]
    both = sum(b.norm_upper for b in centred)
    assert summed_ball(*centred, cap="").norm_upper <= both * (1 + 1e-5)


def test_bounds_hold_what_was_reached_and_say_how_loose_they_are():
    """Each gate might be near 1, but not all for one state; a factor on both sides of a logit."""
    for offsets, loose in (("free", 3.1), ("exact", 3.0)):
        found = mechanism_checks.certified(NAME, offsets)
        for n, layer, index, spread in mechanism_checks.reached(NAME):
            bound = found[n, layer, index].spread.upper
            assert spread * (1 - 2.0**-40) <= bound <= loose * spread


def test_the_second_reading_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(axk2, "summed_ball", lambda first, second, cap: first)
    with pytest.raises(AssertionError):
        test_the_balls_hold_every_query_and_key()


def test_queries_without_a_latent_are_refused():
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {name: checkpoint.read(name) for name in checkpoint.names}
    with pytest.raises(CheckpointError, match=r"q_lora_rank .* must be a number"):
        plan(from_arrays(arrays, checkpoint.config | {"q_lora_rank": None}))
