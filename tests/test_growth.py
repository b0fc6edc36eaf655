"""Queries that grow with their position, norms behind the rotation, windows that do not slide."""

import math
from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion import growth, witness
from dispersion.architectures import attention_heads, plan
from dispersion.ceilings import Bounds
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.growth import LogBaseGrowth, LogGrowth, PowerGrowth
from dispersion.head import BallImage, Head
from dispersion.rotary import rotary
from dispersion.verdict import Target, Verdict

DATA = mechanism_checks.DATA
ONE = Enclosure.exact(1.0)
FULL = "full_attention"


def head(spread, **more):
    """A head whose rows spread by at most this, at the factor 1."""
    ball = BallImage(matrix=np.eye(3))
    return Head(query=ball, key=ball, scale=Enclosure.exact(spread / 2), **more)


@pytest.mark.parametrize("rule", [LogGrowth(0.1, 8192, first=1), LogGrowth(0.4, 10)])
def test_factors_enclose_the_definition_and_never_fall(rule):
    before = 0.0
    for n in [*range(1, 200), 8191, 8192, 8193, 8194, 10**5, 10**7, 2**60]:
        step = (n - 1 + rule.first) // int(rule.period)
        exact = 1 + rule.rate * math.log1p(step)
        found = rule.factor(n)
        assert found.lower < exact < found.upper
        assert found.upper >= before
        assert rule.envelope(n) >= found.upper * (1 - 2.0**-30)
        before = found.lower
    # No step is counted before it comes: positions are whole and small against 2^20.
    small = rule.factor(int(rule.period) - rule.first)
    assert small.upper < 1 + 2.0**-19


@pytest.mark.parametrize("rule", [PowerGrowth(0.1, 2048.0), PowerGrowth(0.0, 1.0)])
def test_powers_enclose_the_definition_and_never_settle(rule):
    before = 0.0
    for n in [*range(1, 50), 2048, 10**5, 10**9, 2**60]:
        found = rule.factor(n)
        assert found.lower < (1 + n / rule.period) ** rule.power < found.upper
        assert found.upper >= before
        assert rule.envelope(n) == found.upper
        before = found.lower
    assert rule.settles(1.0) is (rule.power == 0)
    assert rule.settles(0.0)
    for wrong in ({"power": -0.1}, {"period": 0.5}, {"power": math.inf}, {"period": math.nan}):
        with pytest.raises(ArgumentError, match="power must be 0 or more"):
            replace(rule, **wrong)


@pytest.mark.parametrize("trained", [2, 20, 8192])
def test_logarithms_to_a_base_enclose_the_definition_and_never_fall(trained):
    rule, before = LogBaseGrowth(trained), 0.0
    for n in [*range(1, 50), 8191, 8192, 8193, 32767, 10**7, 2**60]:
        exact = max(1.0, math.log(n) / math.log(trained))
        found = rule.factor(n)
        assert found.lower <= exact <= found.upper <= exact * (1 + 2.0**-19)
        assert found.lower >= before
        assert rule.envelope(n) >= found.upper
        before = found.lower
    assert rule.factor(trained) == ONE
    assert rule.settles(math.log(trained) * (1 - 2.0**-18))
    assert not rule.settles(math.log(trained))
    with pytest.raises(ArgumentError, match="trained must be 2 or more"):
        LogBaseGrowth(1)


def test_where_a_logarithm_settles_ceilings_fall_and_elsewhere_no_length_is_the_last():
    rule = LogBaseGrowth(100)
    slow, fast = 4.5, 5.0  # log 100 = 4.605
    bounds = Bounds(head(slow, growth=rule), slow * (1 + 1e-9), slow)
    found = [bounds.ceiling(Target(n)) for n in (2, 50, 99, 100, 101, 150, 10**3, 10**5, 10**9)]
    assert found == sorted(found, reverse=True)
    last = check_head(head(slow, growth=rule), [Target(200)]).largest_length
    assert 91 <= last < 110  # ⌊1 + e^4.5⌋ without growth
    assert check_head(head(fast, growth=rule), [Target(200)]).largest_length == math.inf


def test_ceilings_under_a_power_rise_again_so_no_length_is_the_last():
    """1/(1+(n−1)e^(−δτ)) at δ = 3 falls up to some length and is near 1 at a far one."""
    rule = PowerGrowth(0.1, 2048.0)
    near, far = (
        check_head(head(3.0, growth=rule), [Target(n, coefficient=0.9)]) for n in (10**4, 2**200)
    )
    assert near.results[0].ceiling.upper < 0.9 < far.results[0].ceiling.upper
    assert near.largest_length == math.inf


def test_spread_and_ceiling_are_those_of_the_length():
    rule = LogGrowth(0.5, 16, first=1)
    grown = head(3.0, growth=rule)
    targets = [Target(n) for n in (4, 60, 4000)]
    found = check_head(grown, targets)
    for target, result in zip(targets, found.results, strict=True):
        n = target.length
        factor = 1 + 0.5 * math.log1p(n // 16)
        plain = check_head(head(3.0 * factor), [Target(n)])
        assert result.ceiling.upper == pytest.approx(plain.results[0].ceiling.upper, rel=1e-5)
    assert found.spread.upper == pytest.approx(3 * (1 + 0.5 * math.log1p(4000 // 16)), rel=1e-5)
    assert "4000 tokens" in found.notes[0]
    assert found.paper_spread >= found.spread.upper * (1 - 1e-9)


def test_the_largest_length_allows_for_growth():
    slow = LogGrowth(0.1, 1000)
    found = check_head(head(5.0, growth=slow), [Target(100)])
    length = int(found.largest_length)
    bounds = Bounds(head(5.0, growth=slow), 5.0 * (1 + 1e-9), 5.0)
    assert 149 <= length < math.inf
    for n in (length + 1, length + 2, 2 * length, 10**4, 10**6, 10**9):
        assert bounds.ceiling(Target(n)) < 0.5
    # Fast growth outruns the length: nothing is ruled out far away.
    fast = check_head(head(30.0, growth=LogGrowth(0.2, 10)), [Target(100)])
    assert fast.largest_length == math.inf
    windowed = check_head(head(5.0, growth=slow, window=64), [Target(100)])
    assert windowed.largest_length == math.inf


def test_any_token_counts_the_factor():
    rule = LogGrowth(1.0, 4)
    for n in (8, 40):
        target = Target(n, 0.5, retrieval="any")
        grown = check_head(head(2.0, growth=rule), [target]).results[0]
        plain = check_head(head(2.0).at(n), [target]).results[0]
        factor = rule.factor(n)
        scaled = check_head(
            replace(head(2.0), scale=Enclosure(factor.lower, factor.upper)), [target]
        ).results[0]
        assert grown.ceiling.upper == pytest.approx(scaled.ceiling.upper, rel=1e-6)
        assert grown.ceiling.upper >= plain.ceiling.upper
        assert grown.ceiling.lower <= grown.ceiling.upper


def test_what_does_not_go_together_is_named():
    rule = LogGrowth(0.1, 10)
    for more in ({"sink": 0.0}, {"inner": head(1.0)}):
        with pytest.raises(ArgumentError, match="growth must come without"):
            head(1.0, growth=rule, **more)
    with pytest.raises(ArgumentError, match="soft_cap must come without"):
        head(1.0, growth=rule, soft_cap=1.0)
    with pytest.raises(ArgumentError, match="window must be set"):
        head(1.0, chunked=True)
    for wrong in ((-0.1, 10), (0.1, 0.5), (math.inf, 10)):
        with pytest.raises(ArgumentError, match="rate must be"):
            LogGrowth(*wrong)


def test_chunks_show_the_first_queries_few_keys():
    chunked = head(1.0, window=10, chunked=True)
    assert [chunked.visible(n) for n in (1, 9, 10, 11, 20, 21)] == [1, 9, 10, 1, 10, 1]
    found = check_head(chunked, [Target(10), Target(11), Target(20)])
    assert found.results[1].ceiling.upper == 1.0
    assert found.results[0].ceiling.upper == found.results[2].ceiling.upper < 0.5
    assert found.largest_length == math.inf
    turning = replace(chunked, rotary=rotary([1.0], 3, rotated=2))
    exact = check_head(turning, [Target(20)], offsets="exact")
    assert exact.results[0].verdict is Verdict.RULED_OUT


# --- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["llama4_text", "ministral3", "hunyuan_v1_dense", "nanochat", "beam"]
)
def test_witnesses_lie_near_the_bounds(name):
    found = mechanism_checks.certified(name, "exact")
    for n, layer, index, spread in mechanism_checks.reached(name):
        certified = found[n, layer, index].spread
        assert spread * (1 - 1e-9) <= certified.upper <= 1.05 * max(spread, certified.lower)
        if name != "hunyuan_v1_dense":
            assert certified.lower >= 0.9 * spread
        else:
            assert certified.lower == 0


def test_a_gain_behind_the_rotation_leaves_no_rotation():
    for layer in plan(open_checkpoint(DATA / "hunyuan_v1_dense")).layers:
        for _, _, found in layer.heads():
            assert found.rotary is None
            gains = np.abs(np.diag(found.query.matrix) * np.diag(found.key.matrix))
            expected = 2 * 8 * gains.max() / math.sqrt(8)
            result = check_head(found, [Target(48)])
            assert result.spread.upper == pytest.approx(expected, rel=1e-12)
            assert result.results[0].ceiling.lower == 0


def test_layers_of_llama4_differ_as_its_config_says():
    first, second = mechanism_checks.heads("llama4_text")
    assert first.rotary is not None
    assert first.chunked
    assert first.window == 20
    assert first.growth is None
    assert "headwise QK norm" in first.cap
    assert second.rotary is None
    assert not second.chunked
    assert second.window is None
    assert second.growth == LogGrowth(0.3, 10.0, first=1)
    assert second.cap == "input RMSNorm"


def test_nanochat_turns_backward():
    found = mechanism_checks.heads("nanochat")[0]
    assert np.all(found.rotary.frequencies < 0)
    assert found.reach.gain is None


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_factor_of_cos_and_sin_in_front_of_a_norm_changes_the_share_of_epsilon(factor):
    rope = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0}
    rope |= {"original_max_position_embeddings": 64, "attention_factor": factor}
    before, found = (
        changed("nanochat", rope_parameters=each)[0]
        for each in ({"rope_type": "default", "rope_theta": 5000.0}, rope)
    )
    # rms(a·x, ε) = a·x / √(a²·mean x² + ε) = rms(x, ε/a²)
    assert found.reach.key_norm.eps == pytest.approx(before.reach.key_norm.eps / factor**2)
    assert found.scale == before.scale


# --- planted errors -----------------------------------------------------------------------------


def caught(name, offsets="free"):
    with pytest.raises((AssertionError, RuntimeError)):
        mechanism_checks.check_all(name, offsets)


@pytest.mark.parametrize("name", ["llama4_text", "ministral3"])
def test_growth_left_out_is_caught(monkeypatch, name):
    monkeypatch.setattr(growth.LogGrowth, "factor", lambda self, length: ONE)
    caught(name, "exact")


def test_growth_of_beams_full_layers_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(growth.PowerGrowth, "factor", lambda self, length: ONE)
    caught("beam", "exact")


def test_only_layers_of_beam_that_rest_grow():
    found = changed("beam")
    assert [h.rotary is None for h in found] == [False, True]
    assert [h.growth for h in found] == [None, PowerGrowth(0.1, 2048.0)]
    turned = {"rope_type": "default", "rope_theta": 100.0}
    both = changed("beam", rope_parameters=dict.fromkeys(("sliding_attention", FULL), turned))
    assert [h.growth for h in both] == [None, None]
    assert [h.rotary is None for h in both] == [False, False]
    with pytest.raises(CheckpointError, match="rope_theta under full_attention"):
        changed("beam", rope_parameters={"sliding_attention": turned})


def test_the_factor_of_the_first_position_is_caught(monkeypatch):
    real = growth.LogGrowth.factor
    monkeypatch.setattr(growth.LogGrowth, "factor", lambda self, length: real(self, 1))
    caught("llama4_text", "exact")


def test_gains_of_other_coordinates_are_caught(monkeypatch):
    """Products of gains of different coordinates."""
    real = attention_heads.Head

    def paired(**fields):
        key = fields["key"]
        mixed = np.diag(np.roll(np.diag(key.matrix), 1))
        return real(**fields | {"key": replace(key, matrix=mixed)})

    monkeypatch.setattr(attention_heads, "Head", paired)
    caught("hunyuan_v1_dense")


# --- configs ------------------------------------------------------------------------------------


def changed(name, drop=(), **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    full = {k: v for k, v in (checkpoint.config | config).items() if k not in drop}
    return [next(iter(layer.heads()))[2] for layer in plan(from_arrays(arrays, full)).layers]


def test_switches_of_llama4():
    tuned = changed("llama4_text", attn_temperature_tuning=False)
    assert [h.growth for h in tuned] == [None, None]
    assert changed("llama4_text", attn_temperature_tuning=4)[1].growth is not None
    plain = changed("llama4_text", use_qk_norm=False)
    assert {h.cap for h in plain} == {"input RMSNorm"}
    whole = changed("llama4_text", attention_chunk_size=None, drop=("layer_types",))
    assert [h.window for h in whole] == [None, None]
    default = changed("llama4_text", no_rope_layers=[], drop=("layer_types",))
    assert [h.rotary is None for h in default] == [False, False]
    with pytest.raises(UnsupportedError, match="layer_types"):
        changed("llama4_text", layer_types=["full_attention", "chunked_attention"])
    with pytest.raises(CheckpointError, match="no_rope_layers"):
        changed("llama4_text", no_rope_layers=[1], drop=("layer_types",))


def test_ministral3_needs_its_temperature():
    with pytest.raises(CheckpointError, match="rope_parameters for ministral3"):
        changed("ministral3", drop=("rope_parameters",))
    rope = open_checkpoint(DATA / "ministral3").config["rope_parameters"]
    for key in ("llama_4_scaling_beta", "original_max_position_embeddings"):
        short = {k: v for k, v in rope.items() if k != key}
        with pytest.raises(CheckpointError, match=key):
            changed("ministral3", rope_parameters=short)
    assert changed("ministral3", sliding_window=7)[0].window == 7


def test_both_kinds_of_hunyuan_are_read_alike():
    for model_type in ("hunyuan_v1_dense", "hunyuan_v1_moe"):
        found = changed("hunyuan_v1_dense", model_type=model_type)
        assert all(h.rotary is None for h in found)


def test_witnesses_of_growing_heads_are_built_for_their_length():
    second = mechanism_checks.heads("llama4_text")[1]
    results = check_head(second, [Target(8), Target(40)]).results
    for result in results:
        n = result.target.length
        alone = witness.build(second.at(n), n)
        assert result.ceiling.lower == pytest.approx(alone.coefficient(n), rel=1e-9)
