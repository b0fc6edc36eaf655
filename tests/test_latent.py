"""Latent attention: the cover of keys in two parts, its families, its witnesses."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion import growth, latent, latent_witness, witness
from dispersion.architectures import (
    latent_attention,
    latent_reader,
    ledger,
    longcat_flash,
    plan,
)
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import BallImage, Head
from dispersion.rotary import rotary_from_config
from dispersion.spread import spread_bound
from dispersion.verdict import Target

DATA = mechanism_checks.DATA
NAMES = ["deepseek_v2", "deepseek_v2__bias", "deepseek_v3", "deepseek_v3__yarn", "minicpm3"]
NAMES += ["dots3_note_text", "longcat_flash", "mistral4"]
NAMES += ["deepseek_v32", "deepseek_v32__yarn", "glm_moe_dsa", "hy_v4", "sarvam_mla"]
REFERENCE = json.loads((DATA / "logits.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])
HALVES = ("deepseek_v3__yarn", "hy_v4", "minicpm3")  # the others turn neighbouring coordinates
EPS = 1e-6


def reordered(x):
    """Neighbours (2j, 2j+1) moved to where half-split pairs stand."""
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def turned(x, angles):
    """Half-split rotation of the last axis; angles have one entry for each pair."""
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rms(x, gain, eps=EPS):
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


class Model:
    """One attention module, written from its definition; `layer` counts those of a model."""

    eps = EPS
    turned_gain = None  # of a norm on the rotated part of keys

    def __init__(self, name, layer):
        part = ""
        if name == "longcat_flash":
            layer, part = layer // 2, f".{layer % 2}"
        self.module = f"self_attn{part}."
        self.checkpoint = open_checkpoint(DATA / name)
        self.config = self.checkpoint.config
        if name == "dots3_note_text":  # sizes and bases of single layers
            kind = self.config["layer_types"][layer]
            rope = {"rope_theta": self.config["rope_parameters"][kind]["rope_theta"]}
            own = self.config["per_layer_config"].get(str(layer), {})
            self.config = {**self.config, **own, "rope_parameters": rope}
            self.eps = self.config["rms_norm_eps"]
        self.root = f"model.layers.{layer}."
        self.still, self.rope = (self.config[f"qk_{k}_head_dim"] for k in ("nope", "rope"))
        self.name = name
        self.gain = self.read(f"input_layernorm{part}.weight")
        self.latent_gain = self.read(f"{self.module}kv_a_layernorm.weight")
        self.factors = [1.0, 1.0]  # of all of queries, of the unrotated part of keys
        self.turned_gain = self.read(f"{self.module}k_rope_only_layernorm.weight")
        if name in ("dots3_note_text", "longcat_flash"):
            ranks = (self.config["q_lora_rank"], self.config["kv_lora_rank"])
            self.factors = [(len(self.gain) / rank) ** 0.5 for rank in ranks]
        self.rotation = dict(self.config)
        if name == "mistral4":  # its share is of the whole head
            rope = self.config["rope_parameters"]
            shares = ("partial_rotary_factor",)
            kept = {key: value for key, value in rope.items() if key not in shares}
            self.rotation["rope_parameters"] = kept

    def read(self, name):
        name = self.root + name
        return self.checkpoint.read(name).astype(np.float64) if name in self.checkpoint else None

    def project(self, states, name):
        name = self.module + name
        bias = self.read(f"{name}.bias")
        out = states @ self.read(f"{name}.weight").T
        return out if bias is None else out + bias

    def queries(self, states):
        if self.config["q_lora_rank"] is None:
            found = self.project(states, "q_proj")
        else:
            inner = self.project(states, "q_a_proj")
            found = self.project(
                rms(inner, self.read(f"{self.module}q_a_layernorm.weight"), self.eps), "q_b_proj"
            )
        return self.factors[0] * found.reshape(len(states), -1, self.still + self.rope)

    def growth(self, position):
        """What multiplies the query at a position."""
        rope = self.config.get("rope_parameters") or {}
        step = position // rope.get("original_max_position_embeddings", 1)
        return 1 + rope.get("llama_4_scaling_beta", 0.0) * math.log1p(step)

    def keys(self, states):
        """Keys before their rotation, (n, heads, head_dim)."""
        rank, heads = self.config["kv_lora_rank"], self.config["num_attention_heads"]
        both = self.project(states, "kv_a_proj_with_mqa")
        plain = self.project(rms(both[:, :rank], self.latent_gain, self.eps), "kv_b_proj")
        plain = self.factors[1] * plain.reshape(len(states), heads, -1)[:, :, : self.still]
        last = both[:, rank:]
        if self.turned_gain is not None:
            last = rms(last, self.turned_gain, self.eps)
        rope = np.repeat(last[:, None], heads, axis=1)
        return np.concatenate([plain, rope], axis=-1)

    def logits(self, states, positions):
        """Of the last query against all keys, (heads, n)."""
        rotary = rotary_from_config(self.rotation, None, self.rope)
        factor = rotary.attention_factor.upper
        query, keys = self.queries(states)[-1:], self.keys(states)
        parts = []
        for x, where in ((query, positions[-1:]), (keys, positions)):
            rope = x[..., self.still :]
            rope = rope if self.name in HALVES else reordered(rope)
            angles = where[:, None, None] * rotary.frequencies
            parts.append((x[..., : self.still], turned(rope, angles) * factor))
        (q, qr), (k, kr) = parts
        scale = (self.still + self.rope) ** -0.5
        rope = self.config.get("rope_parameters") or {}
        if rope.get("mscale_all_dim"):
            scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2
        scale *= self.growth(positions[-1])
        return scale * (np.einsum("xhd,nhd->hn", q, k) + np.einsum("xhd,nhd->hn", qr, kr))


def directions(width):
    """The vectors of tests/golden/logits.py, as the norm in front of attention leaves them."""
    x = np.sin(1.0 + np.arange(len(POSITIONS) * width) ** 1.5).reshape(-1, width)
    return math.sqrt(width) * x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_the_definition_are_those_of_the_real_module(name):
    """So that what is compared with it below is compared with the real module."""
    for layer, expected in enumerate(REFERENCE["logits"][name]):
        model = Model(name, layer)
        states = model.gain * directions(len(model.gain))
        found = model.logits(states, POSITIONS)
        np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def inside(ball, points):
    """The 2-norm of the smallest ball coordinate of each point (floats)."""
    shifted = points if ball.offset is None else points - ball.offset
    solved = np.linalg.lstsq(ball.radius.upper * ball.matrix, shifted.T, rcond=None)[0]
    left = ball.radius.upper * ball.matrix @ solved - shifted.T
    assert np.abs(left).max() <= 1e-9 * np.abs(points).max()
    return np.linalg.norm(solved, axis=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_normal_form_holds_every_query_and_key_and_gives_their_logits(name):
    rng = np.random.default_rng(2)
    for place, layer in enumerate(plan(open_checkpoint(DATA / name)).layers):
        model = Model(name, place)
        x = rng.standard_normal((40, len(model.gain)))
        x *= math.sqrt(len(model.gain)) / np.linalg.norm(x, axis=1, keepdims=True)
        states = model.gain * x
        positions = rng.permutation(np.arange(40))
        expected = model.logits(states, positions)
        queries, keys = model.queries(states), model.keys(states)
        for index, kv_head, head in layer.heads():
            assert kv_head == index
            factor = np.ones(head.query.head_dim)
            factor[head.rotary.pairs] = head.rotary.attention_factor.upper**2
            scaled = queries[:, index] * factor / model.factors[0]
            assert inside(head.query, scaled).max() <= 1 + 1e-9
            assert inside(head.key, keys[:, index]).max() <= 1 + 1e-9
            moved = head.rotary.rotate(keys[:, index], positions - positions[-1])
            row = head.scale.upper * moved @ scaled[-1]
            if head.growth is not None:
                row = row * mechanism_checks.middle(head.growth.factor(int(positions[-1]) + 1))
            # A growth is known to 2^-20.
            rough = 1e-9 if head.growth is None else 1e-6
            np.testing.assert_allclose(row, expected[index], atol=rough * np.abs(row).max())


# --- the cover --------------------------------------------------------------------------------


def parts(seed, rows=(4, 3), inputs=(6, 9)):
    rng = np.random.default_rng(seed)
    balls = [
        BallImage(matrix=rng.standard_normal((r, n)), radius=Enclosure.exact(float(n)))
        for r, n in zip(rows, inputs, strict=True)
    ]
    return rng, balls


@pytest.mark.parametrize("share", [-1.0, 1e-9, 0.2, 0.5, 0.93, 1.0, 7.0])
def test_any_share_covers_every_pair_of_points(share):
    rng, (first, second) = parts(3)
    second = replace(second, offset=rng.standard_normal(3))
    found = latent.joint_ball(first, second, share, cap="both")
    assert found.cap == "both"
    x = rng.standard_normal((200, 6))
    y = rng.standard_normal((200, 9))
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    points = np.concatenate(
        [
            first.radius.upper * x @ first.matrix.T,
            second.radius.upper * y @ second.matrix.T + second.offset,
        ],
        axis=1,
    )
    assert inside(found, points).max() <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_without_rotation_the_best_share_loses_nothing(seed):
    """The largest ‖X u‖ + ‖Y u‖ over the queries' ball, found by ascent, attains the bound."""
    rng, (first, second) = parts(seed)
    query = BallImage(matrix=rng.standard_normal((7, 8)))
    share = latent.best_share(query, first, second, np.zeros((0, 2), dtype=np.intp))
    key = latent.joint_ball(first, second, share, cap="")
    bound = spread_bound(Head(query=query, key=key, scale=Enclosure.exact(1.0))).spread
    maps = [
        ball.radius.upper * ball.matrix.T @ query.matrix[rows]
        for ball, rows in ((first, slice(4)), (second, slice(4, 7)))
    ]
    reached = 0.0
    for _ in range(20):
        u = rng.standard_normal(8)
        for _ in range(400):
            u = sum(m.T @ (m @ u) / np.linalg.norm(m @ u) for m in maps)
            u /= np.linalg.norm(u)
        reached = max(reached, 2 * sum(np.linalg.norm(m @ u) for m in maps))
    assert reached <= bound * (1 + 1e-12)
    assert bound <= reached * 1.0001  # the share is sought to within 1e-3


# --- witnesses ---------------------------------------------------------------------------------


def replayed(name, lengths=(3, 8, 40)):
    """What witnesses claim and what the definition gives for their inputs."""
    for place, layer in enumerate(plan(open_checkpoint(DATA / name)).layers):
        model = Model(name, place)
        for index, _, head in layer.heads():
            for n in lengths:
                found = witness.build(head.witnessed, n)
                assert found is not None
                row = model.logits(found.inputs(n), np.arange(n))[index]
                share = np.exp(row - row.max())
                yield found, n, row, (share / share.sum())[:-1].max()


def check_replayed(name):
    for found, n, row, coefficient in replayed(name):
        assert coefficient >= found.coefficient(n) * (1 - 1e-9)
        assert np.ptp(row) >= found.spread(n) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v3__yarn", "minicpm3", "longcat_flash"])
def test_the_definition_reaches_what_witnesses_claim(name):
    check_replayed(name)
    claims = [found.coefficient(n) for found, n, *_ in replayed(name)]
    assert max(claims) > 0.9


def test_a_rotated_part_that_is_left_out_is_caught(monkeypatch):
    real = latent_witness.BallImage

    def without(**fields):
        fields["row_error"] = fields["row_error"] * 0
        return real(**fields)

    monkeypatch.setattr(latent_witness, "BallImage", without)
    with pytest.raises(AssertionError):
        check_replayed("deepseek_v3")


def test_verdicts_rest_on_inner_heads_and_never_exceed_certificates():
    layer = plan(open_checkpoint(DATA / "deepseek_v3")).layers[0]
    verdicts = set()
    for _, _, head in layer.heads():
        for target in (Target(8), Target(10**6), Target(8, retrieval="any")):
            result = check_head(head, [target]).results[0]
            assert result.ceiling.lower <= result.ceiling.upper
            verdicts.add(result.verdict.value)
            if head.inner is not None:
                alone = check_head(replace(head, inner=None), [target]).results[0]
                assert alone.ceiling.upper == result.ceiling.upper
                assert alone.ceiling.lower <= result.ceiling.lower
    assert verdicts == {"witnessed", "unresolved", "ruled_out"}


def test_biases_and_plain_queries_leave_heads_without_witnesses():
    for name in ("deepseek_v2", "deepseek_v2__bias"):
        for layer in plan(open_checkpoint(DATA / name)).layers:
            assert all(head.inner is None for _, _, head in layer.heads())


def test_a_latent_without_full_rank_leaves_heads_without_witnesses():
    first = latent_witness.small_states(
        (np.eye(3), np.ones((3, 3))), gain=None, radius=math.sqrt(3), eps=EPS
    )
    assert first is None


# --- planted errors ----------------------------------------------------------------------------


def caught(name, offsets="exact"):
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached(name, offsets)


def test_the_plain_sum_in_place_of_shares_is_caught(monkeypatch):
    """C₁C₁ᵀ + C₂C₂ᵀ without weights holds each part, not both at once."""
    real = latent._enlarged
    monkeypatch.setattr(latent, "_enlarged", lambda ball, share: real(ball, 1.0))
    caught("deepseek_v3")


def test_a_rotated_part_bounded_like_a_latent_is_caught(monkeypatch):
    real = latent_attention.joint_ball

    def joint(plain, turned, share, *, cap):
        return real(plain, replace(turned, radius=plain.radius), share, cap=cap)

    monkeypatch.setattr(latent_attention, "joint_ball", joint)
    caught("deepseek_v2")


def test_a_stretch_factor_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(latent_reader, "stretch_factor", lambda *_: Enclosure.exact(1.0))
    caught("deepseek_v3__yarn")


def below_reached(name):
    """Whether some bound lies below what ascent reached, module by module."""
    layers = plan(open_checkpoint(DATA / name)).layers
    heads = {(place, i): h for place, p in enumerate(layers) for i, _, h in p.heads()}
    return any(
        check_head(heads[layer, head], [Target(n)]).spread.upper < spread * (1 - 2.0**-40)
        for n, layer, head, spread in mechanism_checks.reached(name)
    )


@pytest.mark.parametrize("factor", ["query", "key"])
def test_factors_of_longcat_left_out_are_caught(monkeypatch, factor):
    assert not below_reached("longcat_flash")
    real = longcat_flash.root_of_quotient
    ranks = {"query": 12, "key": 10}

    def without(width, rank):
        return Enclosure.exact(1.0) if rank == ranks[factor] else real(width, rank)

    monkeypatch.setattr(longcat_flash, "root_of_quotient", without)
    assert below_reached("longcat_flash")


def test_the_growth_of_mistral4_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(growth.LogGrowth, "factor", lambda self, length: Enclosure.exact(1.0))
    with pytest.raises(AssertionError):
        test_the_normal_form_holds_every_query_and_key_and_gives_their_logits("mistral4")


# --- configs -----------------------------------------------------------------------------------


def changed(name, **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    full = {k: v for k, v in (checkpoint.config | config).items() if v is not ...}
    return arrays, full


def test_sisters_of_the_same_shape_are_read_alike():
    arrays, config = changed("deepseek_v3")
    expected = plan(from_arrays(arrays, config))
    for model_type in ("glm4_moe_lite", "axk1", "youtu"):
        found = plan(from_arrays(arrays, config | {"model_type": model_type}))
        assert found.family == "deepseek_v3"
        for one, other in zip(expected.layers, found.layers, strict=True):
            heads = zip(one.heads(), other.heads(), strict=True)
            assert all(np.array_equal(a[2].key.matrix, b[2].key.matrix) for a, b in heads)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q_lora_rank": ...}, "q_lora_rank"),
        ({"kv_lora_rank": ...}, "kv_lora_rank"),
        ({"qk_rope_head_dim": 6}, "kv_b_proj|q_b_proj|kv_a_proj"),
        ({"v_head_dim": ...}, "v_head_dim"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"num_hidden_layers": 1, "num_nextn_predict_layers": 0}, "also holds layer 1"),
    ],
)
def test_a_config_that_does_not_fit_is_named(changes, words):
    with pytest.raises(CheckpointError, match=words):
        plan(from_arrays(*changed("deepseek_v3", **changes)))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("longcat_flash", {"head_dim": 8}, "head_dim in config.json must be qk_rope_head_dim"),
        ("longcat_flash", {"num_layers": 2}, "num_layers=2.*lacks layer 1"),
        ("longcat_flash", {"q_lora_rank": None}, "q_lora_rank"),
        ("mistral4", {"rope_parameters": None}, "rope_parameters for mistral4"),
        ("dots3_note_text", {"rope_scaling": {"factor": 2.0}}, "rope_scaling in config.json must"),
        ("dots3_note_text", {"rope_parameters": {}}, "must state rope_theta and the rope_type"),
        ("dots3_note_text", {"layer_types": ["indexed_attention"]}, "layer_types in config.json"),
        ("dots3_note_text", {"per_layer_config": {"1": {"a": 1}}}, "must map layers to sizes"),
        ("dots3_note_text", {"num_key_value_heads": 1}, "num_key_value_heads in config.json"),
        ("dots3_note_text", {"per_layer_config": {}}, "tensor .*layers.1.*must have shape"),
        (
            "mistral4",
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": None}},
            "partial_rotary_factor under",
        ),
        ("mistral4", {"qk_rope_head_dim": 6}, "partial_rotary_factor under"),
    ],
)
def test_a_config_of_a_sister_that_does_not_fit_is_named(name, changes, words):
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        plan(from_arrays(*changed(name, **changes)))


def test_mistral4_sets_a_share_that_is_not_given():
    arrays, config = changed("mistral4")
    stated = plan(from_arrays(arrays, config))
    config["rope_parameters"] = dict(config["rope_parameters"])
    del config["rope_parameters"]["partial_rotary_factor"]
    found = plan(from_arrays(arrays, config))
    for one, other in zip(stated.layers, found.layers, strict=True):
        heads = zip(one.heads(), other.heads(), strict=True)
        for (*_, a), (*_, b) in heads:
            np.testing.assert_array_equal(a.rotary.frequencies, b.rotary.frequencies)
    assert not found.refused


def test_both_attentions_of_a_layer_of_longcat_are_read():
    arrays, config = changed("longcat_flash")
    found = plan(from_arrays(arrays, config))
    modules = [f"model.layers.0.self_attn.{part}" for part in (0, 1)]
    assert [layer.module for layer in found.layers] == modules
    assert [layer.layer for layer in found.layers] == [0, 0]
    assert found.model["layers"] == 2
    arrays["model.layers.0.self_attn.1.q_norm.weight"] = np.ones(4, np.float32)
    found = plan(from_arrays(arrays, config))
    assert [r.name for r in found.refused] == modules[1:]
    assert [layer.module for layer in found.layers] == modules[:1]


def test_layers_that_predict_further_tokens_are_skipped_by_name():
    arrays, config = changed("deepseek_v3", num_hidden_layers=1, num_nextn_predict_layers=1)
    found = plan(from_arrays(arrays, config))
    assert [layer.layer for layer in found.layers] == [0]
    assert not found.refused
    further = [s for s in found.skipped if s.reason == ledger.DRAFT]
    assert sum(s.count for s in further) == sum(".layers.1." in name for name in arrays)


def test_values_without_a_size_of_their_own_take_the_width_of_a_head():
    arrays, config = changed("minicpm3", v_head_dim=None)
    with pytest.raises(CheckpointError, match="kv_b_proj"):
        plan(from_arrays(arrays, config))  # 24 / 4 is not what the file holds


def test_ling_calls_its_modules_otherwise():
    """Layer 1 is the one with attention; logits of the definition, of the module, of the form."""
    model = object.__new__(Model)
    model.module, model.root, model.name = "attention.", "model.layers.1.", "bailing_hybrid"
    model.checkpoint = open_checkpoint(DATA / model.name)
    model.config = model.rotation = model.checkpoint.config
    model.still, model.rope = (model.config[f"qk_{k}_head_dim"] for k in ("nope", "rope"))
    model.gain = model.read("input_layernorm.weight")
    model.latent_gain = model.read("attention.kv_a_layernorm.weight")
    model.factors = [1.0, 1.0]
    states = model.gain * directions(len(model.gain))
    expected = np.array(REFERENCE["logits"][model.name][1])
    found = model.logits(states, POSITIONS)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    queries, keys = model.queries(states), model.keys(states)
    for index, _, head in plan(model.checkpoint).layers[0].heads():
        assert inside(head.query, queries[:, index]).max() <= 1 + 1e-9
        assert inside(head.key, keys[:, index]).max() <= 1 + 1e-9
        moved = head.rotary.rotate(keys[:, index], POSITIONS - POSITIONS[-1])
        row = head.scale.upper * moved @ queries[-1, index]
        np.testing.assert_allclose(row, found[index], atol=1e-9 * np.abs(found).max())


def test_an_older_config_of_dots_says_the_same_in_its_own_words():
    arrays, config = changed("dots3_note_text")
    flat = {k: v for k, v in config.items() if k not in ("per_layer_config", "rope_parameters")}
    flat |= {f"swa_{key}": value for key, value in config["per_layer_config"]["1"].items()}
    flat |= {"swa_head_dim": 10, "rope_theta": 7000.0, "swa_rope_theta": 300.0}
    flat |= {"layer_types": ["full_attention", "sliding_attention"]}
    both = [plan(from_arrays(arrays, c)) for c in (config, flat)]
    for one, other in zip(*(x.layers for x in both), strict=True):
        assert one.window == other.window
        for (*_, a), (*_, b) in zip(one.heads(), other.heads(), strict=True):
            np.testing.assert_array_equal(a.query.matrix, b.query.matrix)
            np.testing.assert_array_equal(a.key.matrix, b.key.matrix)
            np.testing.assert_array_equal(a.rotary.frequencies, b.rotary.frequencies)
            assert (a.scale, a.window) == (b.scale, b.window)
    first = [next(iter(layer.heads()))[2] for layer in both[0].layers]
    assert [head.window for head in first] == [64, 6]
    seen = plan(from_arrays(arrays, flat | {"use_dsa": False}))
    assert next(iter(seen.layers[0].heads()))[2].window is None  # no indexer picks its keys


def test_the_first_two_layers_of_dots_do_not_slide_where_no_layer_types_say_so():
    arrays, config = changed("dots3_note_text")
    del config["layer_types"]
    with pytest.raises(UnsupportedError, match="must agree for all layers of one type"):
        plan(from_arrays(arrays, config))
