"""Kimi Linear: latent attention in which nothing turns."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import latent_attention, ledger, plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, DispersionError, UnsupportedError
from dispersion.verdict import Target
from mechanism_checks import reached

DATA = Path(__file__).parent / "data"
NAME = "kimi_linear"
LINEAR, FULL = "linear_attention", "full_attention"
EPS = 1e-6


def made(changes=None, drop=(), **config):
    checkpoint = open_checkpoint(DATA / NAME)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names} | (changes or {})
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def parts():
    """Queries (n, heads, 10), keys (n, heads, 10) of six states, from the definition."""
    checkpoint = open_checkpoint(DATA / NAME)

    def read(name):
        return checkpoint.read(f"model.layers.1.{name}.weight").astype(np.float64)

    x = np.sin(1.0 + np.arange(6 * 24) ** 1.5).reshape(6, 24)
    states = read("input_layernorm") * math.sqrt(24) * x / np.linalg.norm(x, axis=1, keepdims=True)
    queries = (states @ read("self_attn.q_proj").T).reshape(6, 3, 10)
    both = states @ read("self_attn.kv_a_proj_with_mqa").T
    latent, shared = both[:, :10], both[:, 10:]
    latent = latent / np.sqrt((latent**2).mean(axis=1, keepdims=True) + EPS)
    plain = latent * read("self_attn.kv_a_layernorm") @ read("self_attn.kv_b_proj").T
    plain = plain.reshape(6, 3, 9)[:, :, :6]
    keys = np.concatenate([plain, np.repeat(shared[:, None], 3, axis=1)], axis=2)
    return queries, keys


def test_the_normal_form_holds_what_the_real_module_computes():
    queries, keys = parts()
    (layer,) = made().layers
    expected = json.loads((DATA / "logits.json").read_text())["logits"][NAME]
    assert expected[0] == []
    for index, _, head in layer.heads():
        assert head.rotary is None
        row = head.scale.upper * keys[:, index] @ queries[-1, index]
        scale = np.abs(expected[1][index]).max()
        np.testing.assert_allclose(row, expected[1][index], atol=1e-9 * scale)
        for ball, points in ((head.query, queries[:, index]), (head.key, keys[:, index])):
            solved = np.linalg.lstsq(ball.radius.upper * ball.matrix, points.T, rcond=None)[0]
            left = ball.radius.upper * ball.matrix @ solved - points.T
            assert np.abs(left).max() <= 1e-9 * np.abs(points).max()
            assert np.linalg.norm(solved, axis=0).max() <= 1 + 1e-9


def bounds():
    (layer,) = made().layers
    heads = {index: head for index, _, head in layer.heads()}
    for n, number, index, spread in reached(NAME):
        assert number == 1
        yield check_head(heads[index], [Target(n)]).spread.upper, spread


def test_bounds_are_near_what_was_reached():
    """Ascent does not find states whose latent is tiny beside the part that is not normalised."""
    for upper, spread in bounds():
        assert spread * (1 - 2.0**-40) <= upper <= 1.25 * spread


def test_a_part_that_is_left_out_is_caught(monkeypatch):
    real = latent_attention.joint_ball

    def first_alone(plain, turned, share, *, cap):
        found = real(plain, turned, share, cap=cap)
        found.matrix[plain.head_dim :] = 0.0
        return found

    monkeypatch.setattr(latent_attention, "joint_ball", first_alone)
    assert any(upper < spread for upper, spread in bounds())


def test_linear_layers_are_skipped_though_their_names_are_alike():
    found = made()
    assert [layer.layer for layer in found.layers] == [1]
    assert not found.refused
    skipped = {s.name: s.reason for s in found.skipped}
    assert skipped["model.layers.*.self_attn.q_proj.weight"] == ledger.WITHOUT_SOFTMAX
    # A layer with latents that the config calls linear is no mere linear layer.
    latents = {"model.layers.0.self_attn.kv_b_proj.weight": np.ones((27, 10), np.float32)}
    assert [r.name for r in made(latents).refused] == ["model.layers.0.self_attn"]


def test_the_dialect_of_the_hub_counts_layers_from_one():
    drop = ("layer_types",)
    for stated in ({"full_attn_layers": [2], "kda_layers": [1]}, {"head_dim": 4}):
        if "head_dim" in stated:
            with pytest.raises(CheckpointError, match="softmax attention"):  # every fourth
                made(drop=drop, linear_attn_config=stated)
            continue
        assert [p.layer for p in made(drop=drop, linear_attn_config=stated).layers] == [1]


@pytest.mark.parametrize(
    "stated",
    [
        {"full_attn_layers": [2]},
        {"full_attn_layers": [1], "kda_layers": [1]},
        {"full_attn_layers": [0], "kda_layers": [1]},
        {"full_attn_layers": 2, "kda_layers": [1]},
        {"full_attn_layers": [[]], "kda_layers": [1]},
    ],
)
def test_lists_that_do_not_name_every_layer_once_are_refused(stated):
    with pytest.raises(CheckpointError, match="full_attn_layers and kda_layers"):
        made(drop=("layer_types",), linear_attn_config=stated)


def test_a_rotation_is_not_read():
    with pytest.raises(UnsupportedError, match="mla_use_nope"):
        made(mla_use_nope=False)
    with pytest.raises(DispersionError, match="layer_types"):
        made(layer_types=[FULL])
