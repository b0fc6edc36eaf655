"""Bounded terms beside query times key: the cover, and Doge and Inkling, whose states make them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion.added_bias import still, widest_difference, with_width
from dispersion.architectures import doge, inkling2_text, inkling_text, plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.growth import LateGrowth
from dispersion.head import Head
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.picked import PickedHead
from dispersion.rotary import rotary
from dispersion.spread import spread_bound
from dispersion.verdict import Target

DATA = mechanism_checks.DATA
REFERENCE = json.loads((DATA / "logits.json").read_text())["logits"]
POSITIONS = np.array(json.loads((DATA / "logits.json").read_text())["positions"])
ROUNDING = 2.0**-40


def gains(seed, size=6):
    return np.exp(np.random.default_rng(seed).standard_normal(size))


def plain(**more):
    balls = [qk_norm_ball(gains(i), kind="rms", head_dim=6) for i in (0, 1)]
    return Head(*balls, scale=Enclosure.exact(0.25), **more)


@pytest.mark.parametrize("width", [1e-9, 0.5, 3.0, 1e4])
def test_the_spread_is_the_sum_of_both(width):
    """Attained: a key along the query with the upper end of the term, one against it."""
    whole = spread_bound(plain()).spread + width
    found = spread_bound(with_width(plain(), width)).spread
    # Shares are multiples of 2^-20, of which the best loses at most one.
    assert whole * (1 - ROUNDING) <= found <= whole * (1 + 2.0**-20)


def test_no_term_and_no_end_of_a_term():
    assert spread_bound(with_width(plain(), 0.0)).spread == spread_bound(plain()).spread
    assert not with_width(plain(), math.inf).bounded
    assert with_width(Head(None, None, Enclosure.exact(1.0)), 1.0).query is None
    turned = plain(rotary=rotary([1.0, 0.1, 0.01], 6))
    for wrong, width in ((turned, 1.0), (plain(soft_cap=3.0), 1.0), (plain(), -1.0)):
        with pytest.raises(ArgumentError, match="width must be 0 or more"):
            with_width(wrong, width)


def test_a_term_that_queries_make_leaves_nothing_in_common():
    """Sixteen states along sixteen profiles find a key each, which no common keys could give."""
    count, size = 16, 12.0
    reads = projection_ball(np.eye(count) * size / math.sqrt(count), norm="rms")
    width = widest_difference(reads, np.eye(count))
    assert width == pytest.approx(size * math.sqrt(2), rel=1e-6)
    share = 1 / (1 + (count - 1) * math.exp(-size))
    nothing = replace(plain(), scale=Enclosure.exact(2.0**-40))
    target = Target(count + 1, retrieval="any")
    for head in (with_width(nothing, width, common=False), nothing):
        found = check_head(head, [target, Target(count + 1)])
        above = found.results[0].ceiling.upper >= share
        assert above == (found.capacity is None) == (head is not nothing)
    # With keys in common the same width means less.
    assert check_head(with_width(nothing, width), [target]).results[0].ceiling.upper < share


@pytest.mark.parametrize("name", ["inkling_text", "inkling2_text", "layoutlmv3", "wavlm"])
def test_queries_of_these_see_no_keys_in_common(name):
    for layer in plan(open_checkpoint(DATA / name)).layers:
        for _, _, head in layer.heads():
            if not head.bounded:
                continue
            one, every = check_head(head, [Target(16), Target(16, retrieval="any")]).results
            assert not head.common
            assert every.ceiling.upper == one.ceiling.upper


def test_growth_multiplies_the_term_too():
    rule = LateGrowth(0.5, 4.0)
    found = check_head(with_width(plain(growth=rule), 3.0), [Target(64)])
    whole = (spread_bound(plain()).spread + 3.0) * (1 + 0.5 * math.log(16))
    assert found.spread.upper == pytest.approx(whole, rel=2.0**-18)
    assert found.spread.lower == 0


def test_late_growth_is_one_up_to_its_floor_and_never_falls():
    rule, before = LateGrowth(0.3, 20.0), 1.0
    for n in (1, 19, 20, 21, 100, 10**6, 2**60):
        exact = 1 + 0.3 * math.log(max(1.0, n / 20))
        found = rule.factor(n)
        assert found.lower <= exact <= found.upper == rule.envelope(n)
        assert found.upper >= before
        before = found.lower
    assert rule.factor(20).upper == 1.0
    assert rule.settles(3.0)
    assert not rule.settles(4.0)
    for wrong in ((-0.1, 1.0), (0.1, 0.0), (math.nan, 1.0)):
        with pytest.raises(ArgumentError, match="rate must be 0 or more and floor positive"):
            LateGrowth(*wrong)


def test_a_head_that_rests_has_the_bound_over_free_angles():
    turned = plain(rotary=rotary([1.0, 0.1], 6, rotated=4))
    found = still(turned)
    assert found.rotary is None
    assert spread_bound(found).spread == spread_bound(turned).spread
    assert spread_bound(found).spread > spread_bound(plain()).spread
    assert still(found) is found
    full = projection_ball(np.ones((6, 9)), norm="rms")
    with pytest.raises(ArgumentError, match="gains alone"):
        still(Head(full, full, Enclosure.exact(1.0), rotary=rotary([1.0], 6, rotated=2)))


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_the_widest_difference_is_that_of_the_best_pair_of_columns(norm):
    rng = np.random.default_rng(3)
    weight, profiles = rng.standard_normal((3, 20)), rng.standard_normal((3, 9))
    ball = projection_ball(weight, norm=norm, gain=rng.standard_normal(20))
    image = ball.radius.upper * ball.matrix.T
    exact = max(float(np.linalg.norm(image @ (p - q))) for p in profiles.T for q in profiles.T)
    assert exact * (1 - ROUNDING) <= widest_difference(ball, profiles) <= exact * (1 + 1e-6)
    assert widest_difference(ball, profiles[:, :1]) == 0.0


@pytest.mark.parametrize("factor", [-3.0, -0.2, 0.0, 0.7])
def test_the_ends_of_what_a_value_makes(factor):
    for low, high in ((-3.0, 2.0), (-50.0, -40.0), (19.0, 22.0), (1.0, 1.0)):
        t = np.linspace(low, high, 1000)
        made = np.exp(factor * np.logaddexp(0.0, t))
        found = doge.width(factor, low, high)
        assert np.ptp(made) <= found
        assert found <= np.ptp(made) * (1 + 1e-6) + 1e-7 * made.max()
    assert doge.width(40.0, 0.0, 50.0) == math.inf


# --- checkpoints --------------------------------------------------------------------------------


def changed(name, drop=(), names=None, **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names} if names is None else names
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return plan(from_arrays(arrays, full))


def heads(found):
    return [next(iter(layer.heads()))[2] for layer in found.layers]


@pytest.mark.parametrize(
    ("name", "loose"), [("doge", 1.32), ("doge__bias", 1.32), ("inkling_text", 1.07)]
)
def test_bounds_are_close_to_what_was_reached(name, loose):
    for offsets in ("free", "exact"):
        found = mechanism_checks.certified(name, offsets)
        for n, layer, index, spread in mechanism_checks.reached(name):
            bound = found[n, layer, index].spread.upper
            assert spread * (1 - ROUNDING) <= bound <= loose * spread


def caught(name):
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached(name)


@pytest.mark.parametrize("name", ["doge", "doge__bias"])
def test_biases_of_doge_left_out_are_caught(monkeypatch, name):
    monkeypatch.setattr(doge, "width", lambda *_: 0.0)
    caught(name)


def test_biases_of_inkling_left_out_are_caught(monkeypatch):
    monkeypatch.setattr(inkling_text, "widest_difference", lambda *_: 0.0)
    caught("inkling_text")


def test_growth_of_inklings_full_layers_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(inkling_text, "growth", lambda *_: None)
    caught("inkling_text")


def rms(x, gain, eps=1e-6):
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def states(read, root, norm):
    gain = read(f"{root}{norm}.weight")
    x = np.sin(1.0 + np.arange(6 * len(gain)) ** 1.5).reshape(6, -1)
    return gain * x / np.sqrt((x**2).mean(axis=1, keepdims=True))


def reader(name):
    checkpoint = open_checkpoint(DATA / name)
    return lambda n: checkpoint.read(n).astype(np.float64) if n in checkpoint else 0.0


@pytest.mark.parametrize("layer", [0, 1])
def test_inklings_definition_gives_the_logits_of_the_real_module(layer):
    """And queries, keys and differences of biases that the normal form holds."""
    read, root = reader("inkling_text"), f"layers.{layer}."
    module = f"{root}self_attn."
    x = states(read, root, "input_layernorm")
    made = x @ read(f"{module}k_proj.weight").T
    taps = read(f"{module}k_sconv.conv1d.weight")[:, 0]
    mixed = made.copy()
    for back in range(taps.shape[1]):
        moved = np.concatenate([np.zeros((back, made.shape[1])), made[: len(made) - back]])
        mixed += taps[:, taps.shape[1] - 1 - back] * moved
    key_gain, query_gain = (read(f"{module}{s}_norm.weight") for s in "kq")
    size = len(key_gain)
    keys = rms(mixed.reshape(6, -1, size), key_gain)
    queries = rms((x @ read(f"{module}q_proj.weight").T).reshape(6, -1, size), query_gain)
    profiles = read(f"{module}rel_logits_proj.proj")
    reads = (x[-1] @ read(f"{module}r_proj.weight").T).reshape(-1, len(profiles))
    group = queries.shape[1] // keys.shape[1]
    built = changed("inkling_text").layers[layer]
    for index, kv_head, head in built.heads():
        biases = np.zeros(6)
        for lag in range(min(6, profiles.shape[1])):
            biases[5 - lag] = reads[index] @ profiles[:, lag]
        tau = 1 + 0.3 * math.log(3) if layer else 1.0
        row = tau * (keys[:, kv_head] @ queries[-1, index] / size + biases)
        expected = REFERENCE["inkling_text"][layer][index]
        np.testing.assert_allclose(row, expected, atol=1e-9 * np.abs(expected).max())
        assert kv_head == index // group
        bound = check_head(head, [Target(6)]).spread.upper
        assert np.ptp(row[-3:] if head.window else row) <= bound
        assert head.scale.upper == pytest.approx(1 / size)


@pytest.mark.parametrize("name", ["doge", "doge__bias"])
def test_doges_definition_gives_the_logits_of_the_real_module(name):
    read = reader(name)
    for layer, built in enumerate(changed(name).layers):
        module, root = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}."
        x = states(read, root, "input_layernorm")

        def project(side, x=x, module=module):
            made = x @ read(f"{module}{side}_proj.weight").T
            return made + read(f"{module}{side}_proj.bias")

        size = len(read(f"{module}q_norm.weight"))
        queries, keys = (
            rms(project(s).reshape(6, -1, size), read(f"{module}{s}_norm.weight")) for s in "qk"
        )
        t = project("v") @ read(f"{module}dt_proj.weight").T + read(f"{module}dt_proj.bias")
        biases = np.exp(read(f"{module}A") * np.logaddexp(0.0, t))
        turn = rotary(5000.0 ** -(np.arange(size // 2) / (size // 2)), size)
        for index, kv_head, head in built.heads():
            turned = turn.rotate(keys[:, kv_head], POSITIONS - POSITIONS[-1])
            row = turned @ queries[-1, index] / math.sqrt(size) + biases[:, kv_head]
            expected = REFERENCE[name][layer][index]
            # The size of a head is no power of two times four everywhere; ε is 1e-6.
            np.testing.assert_allclose(row, expected, atol=1e-7 * np.abs(expected).max())
            assert np.ptp(row) <= check_head(head, [Target(6)]).spread.upper


def test_inkling_2_takes_the_smaller_cap_of_queries():
    """And is as close to what was reached as a key of a size below its clip lets it be."""
    found = mechanism_checks.certified("inkling2_text")
    for n, layer, index, spread in mechanism_checks.reached("inkling2_text"):
        bound = found[n, layer, index].spread.upper
        assert spread * (1 - ROUNDING) <= bound <= 1.3 * spread
    for large, same in ((1e3, True), (1e-3, False)):
        slides, full = heads(changed("inkling2_text", qk_l2_clip_threshold=large))
        assert (slides.query.matrix.shape[1] == 24) is same
        assert (full.query.matrix.shape[1] == 24) is same
        assert "L2 clip" in slides.key.cap
        assert (slides.window, full.window) == (3, None)
    tight = heads(changed("inkling2_text", rel_l2_clip_threshold=1e-6))[0]
    content = spread_bound(tight).spread
    assert spread_bound(heads(changed("inkling2_text"))[0]).spread > content * 1.01
    late = heads(changed("inkling2_text", ("log_scaling_n_floor", "log_scaling_alpha")))[1]
    assert late.growth == LateGrowth(0.1, 128000.0)


@pytest.mark.parametrize("left_out", ["widest_difference", "growth"])
def test_terms_of_inkling_2_left_out_are_caught(monkeypatch, left_out):
    nothing = {"widest_difference": 0.0, "growth": None}[left_out]
    monkeypatch.setattr(inkling2_text, left_out, lambda *_: nothing)
    caught("inkling2_text")


def test_sinks_and_residuals_of_inkling_2_are_accounted_for():
    found = changed("inkling2_text")
    assert not found.refused
    reasons = {s.name: s.reason for s in found.skipped}
    assert "sinks that tokens make" in reasons["layers.*.attn.attn_sink_proj.weight"]
    assert any("attn_res" in name for name in reasons)
    assert all(h.sink is None for h in heads(found))


@pytest.mark.parametrize("layer", [0, 1])
def test_what_inkling_2_makes_lies_within_its_clips(layer):
    """Logits of the real module against the bound on content and bias, which are apart here."""
    rows = REFERENCE["inkling2_text"][layer]
    for index, _, head in changed("inkling2_text").layers[layer].heads():
        row = np.array(rows[index])
        seen = row[-3:] if head.window else row
        assert np.ptp(seen) <= check_head(head, [Target(6)]).spread.upper


def test_doge_keeps_as_many_keys_as_its_config_says():
    assert [h.window for h in heads(changed("doge"))] == [2048, 2048]
    assert [h.window for h in heads(changed("doge", keep_window_size=5))] == [5, 5]
    assert [h.window for h in heads(changed("doge__bias"))] == [6, 6]
    assert [h.window for h in heads(changed("doge__bias", keep_window_size=4))] == [4, 4]
    for head in heads(changed("doge")):
        assert isinstance(head, PickedHead)
        assert head.rotary is None
    with pytest.raises(CheckpointError, match=r"keep_window_size in config.json"):
        changed("doge", keep_window_size=0)
    with pytest.raises(UnsupportedError, match="partial_rotary_factor"):
        changed("doge", rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5})


def test_layers_of_inkling_are_as_its_config_says():
    slides, full = heads(changed("inkling_text"))
    assert (slides.window, slides.growth) == (3, None)
    assert (full.window, full.growth) == (None, LateGrowth(0.3, 2.0))
    assert (slides.query.head_dim, full.query.head_dim) == (6 + 1, 4 + 1)
    for drop, changes in (
        (("log_scaling_n_floor",), {}),
        ((), {"log_scaling_n_floor": None}),
        ((), {"log_scaling_alpha": 0}),
    ):
        assert heads(changed("inkling_text", drop, **changes))[1].growth is None
    assert heads(changed("inkling_text", log_scaling_n_floor=7))[1].growth.floor == 7
    kinds = inkling_text.layer_kinds({}, 7)
    assert kinds == ["hybrid_sliding"] * 5 + ["hybrid", "hybrid_sliding"]
    assert inkling_text.layer_kinds({"local_layer_ids": [1]}, 2) == ["hybrid", "hybrid_sliding"]
    for wrong in ({"layer_types": ["hybrid"]}, {"layer_types": None, "local_layer_ids": 3}):
        with pytest.raises(CheckpointError, match=r"in config.json must"):
            changed("inkling_text", **wrong)
    with pytest.raises(UnsupportedError, match="must be hybrid or hybrid_sliding"):
        changed("inkling_text", layer_types=["hybrid", "full_attention"])
    with pytest.raises(CheckpointError, match=r"log_scaling_alpha"):
        changed("inkling_text", log_scaling_alpha=-1)


def test_profiles_of_another_extent_do_not_fit():
    with pytest.raises(CheckpointError, match=r"rel_logits_proj.proj.*must have shape"):
        changed("inkling_text", rel_extent=5)


OLD = {
    "self_attn.q_proj": "attn.wq_du",
    "self_attn.k_proj": "attn.wk_dv",
    "self_attn.v_proj": "attn.wv_dv",
    "self_attn.r_proj": "attn.wr_du",
    "self_attn.o_proj": "attn.wo_ud",
    "self_attn": "attn",
    "sconv.conv1d": "sconv",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "mlp_norm",
    "embed_tokens.embed_norm": "embed_norm",
    "embed_tokens": "embed",
}


def test_the_names_of_files_with_towers_are_known():
    checkpoint = open_checkpoint(DATA / "inkling_text")
    arrays = {}
    for name in checkpoint.names:
        new = name
        for one, other in OLD.items():
            new = new.replace(one, other)
        arrays[f"model.llm.{new}"] = checkpoint.read(name)
    arrays["model.llm.unembed.weight"] = np.ones((2, 2), np.float32)
    arrays["model.visual.layers.linear_0.weight"] = np.ones((2, 2), np.float32)
    config = {"model_type": "inkling_mm_model", "text_config": checkpoint.config}
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    for one, other in zip(heads(found), heads(changed("inkling_text")), strict=True):
        np.testing.assert_array_equal(one.key.matrix, other.key.matrix)
