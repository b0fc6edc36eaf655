import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dispersion
from dispersion import errors, rigor, rigor_capacity
from dispersion.enclosure import Enclosure, Estimate
from dispersion.norms import qk_norm_ball
from dispersion.planned import HeadPlan, Need
from dispersion.planning import PlannedHead, largest_logit, plan_head, plan_length
from dispersion.schedules import Schedule, parse_schedule
from dispersion.spread import spread_bound
from dispersion.verdict import Target

EPS = np.finfo(np.float64).eps
AT_128K = [Target(2**17), Target(2**17, retrieval="any")]


def both(length: int, coefficient: float = 0.5) -> list[Target]:
    return [Target(length, coefficient, retrieval=kind) for kind in ("one", "any")]


def change(head: PlannedHead, quantity: str, value: float) -> PlannedHead:
    if quantity == "log_factor":
        return dataclasses.replace(head, schedule=Schedule("log", (value,)))
    value = int(value) if quantity == "head_dim" else value
    return dataclasses.replace(head, **{quantity: value})


def ruled_out(head: PlannedHead, target: Target, kind: str) -> bool:
    row = plan_length(head, target)
    return row.one_ruled_out if kind == "one" else row.any_ruled_out


def needed(plan: HeadPlan, quantity: str, kind: str) -> Need:
    (need,) = [n for n in plan.needs if (n.quantity, n.retrieval) == (quantity, kind)]
    return need


# What unit-gain heads can do


@pytest.mark.parametrize(
    ("width", "capacity", "tokens"),
    [(64, 1814.975, 3629), (128, 49793.59, 99587), (256, 5394937.2, 10789874)],
)
def test_unit_gains_have_the_known_capacity(width, capacity, tokens):
    head = PlannedHead(width)
    kappa = largest_logit(head)
    assert kappa.lower <= math.sqrt(width) <= kappa.upper
    by_spectrum = rigor_capacity.capacity(np.full(width, kappa.upper)).upper
    assert by_spectrum == pytest.approx(capacity, rel=1e-6)
    assert math.floor(by_spectrum / 0.5) == tokens
    row = plan_length(head, AT_128K[0])
    # T13′ is a little below T13, and T12 below both for few tokens.
    assert capacity * 0.999 < row.capacity <= by_spectrum
    assert row.log_capacity == pytest.approx(math.log(row.capacity), rel=4 * EPS)
    assert row.flat_estimate is None
    assert row.retrievable <= tokens
    assert row.retrievable == math.floor(math.exp(width**0.5) + width**0.5 + 1)


def test_one_more_token_than_retrievable_is_ruled_out():
    for p in (0.3, 0.5, 0.9):
        row = plan_length(PlannedHead(64), Target(2**17, p))
        spectrum = np.full(64, 8.0)
        keys = int(row.retrievable)
        assert rigor_capacity.any_token_ceiling(keys, spectrum).upper >= p
        assert rigor_capacity.any_token_ceiling(keys + 1, spectrum).upper < p


def test_lengths_have_the_ceilings_and_floors_of_their_theorems():
    plan = plan_head(PlannedHead(64), [Target(2**20), Target(2**12)])
    assert [row.target.length for row in plan.lengths] == [2**12, 2**20]
    assert plan.largest_logit == 8.0
    for row in plan.lengths:
        n = row.target.length
        assert row.spread == 16.0
        assert row.one_ceiling == rigor.max_coefficient(n, 16.0).upper
        every = rigor_capacity.any_token_ceiling(n - 1, np.full(64, 8.0)).upper
        assert row.any_ceiling == every
        assert row.entropy_floor == rigor.min_entropy(n, 16.0).lower
        assert (row.one_ruled_out, row.any_ruled_out) == (row.one_ceiling < 0.5, every < 0.5)


def test_the_longest_length_is_the_last_not_ruled_out():
    plan = plan_head(PlannedHead(64), AT_128K)
    assert plan.longest["one"] == rigor.reachable_length(16.0, 0.5).upper
    assert plan.longest["any"] == plan.lengths[0].retrievable + 1  # the query's own key
    for kind, length in plan.longest.items():
        assert not ruled_out(PlannedHead(64), Target(int(length)), kind)
        assert ruled_out(PlannedHead(64), Target(int(length) + 1), kind)
    assert plan_head(PlannedHead(64, schedule=Schedule("log", (1.0,))), AT_128K).longest == {}


@pytest.mark.parametrize("norm", ["headwise", "layerwise"])
def test_a_planned_head_is_the_head_of_its_normal_form(norm):
    planned = PlannedHead(16, norm=norm, heads=4, key_heads=2, scale=0.25)
    shared = {"query": 64, "key": 32} if norm == "layerwise" else {"query": 16, "key": 16}
    balls = {
        side: qk_norm_ball(None, kind="rms", norm_width=width, head_dim=16)
        for side, width in shared.items()
    }
    head = dispersion.Head(**balls, scale=Enclosure.exact(0.25))
    certified = spread_bound(head).spread
    assert 2 * largest_logit(planned).upper == pytest.approx(certified, rel=1e-9)


def test_layerwise_norm_shares_what_headwise_norm_gives_each_head():
    plan = plan_head(PlannedHead(64, heads=32, key_heads=8), AT_128K)
    norms = plan.norms
    assert (norms.headwise, norms.mean) == (8.0, 8.0)
    assert norms.layerwise == 8.0 * 16  # √(32·8) heads' worth
    assert norms.layerwise_mean == pytest.approx(8 * math.sqrt(8), rel=2 * EPS)
    assert norms.headwise_plan == plan.lengths[-1]
    other = plan_head(PlannedHead(64, norm="layerwise", heads=32, key_heads=8), AT_128K)
    assert other.norms == norms
    assert other.lengths[-1] == norms.layerwise_plan
    assert plan_head(PlannedHead(64), AT_128K).norms is None


def test_the_layerwise_bounds_are_attained():
    # Every head gets the same q and k: norms √(HD) and √(KD) spread evenly, or all in one head.
    heads, key_heads, width = 6, 2, 9
    norms = plan_head(PlannedHead(width, heads=heads, key_heads=key_heads), AT_128K).norms
    unit = np.eye(width)[0]
    query, key = np.tile(unit * 3, (heads, 1)), np.tile(unit * 3, (key_heads, 1))
    assert np.linalg.norm(query) == pytest.approx(math.sqrt(heads * width))
    logits = np.abs([q @ key[h // 3] for h, q in enumerate(query)]) / 3
    assert logits.mean() == pytest.approx(norms.mean)
    alone = math.sqrt(heads * width) * math.sqrt(key_heads * width) / 3
    assert alone == pytest.approx(norms.layerwise)
    # Own key tokens: each head's key token puts its whole norm into that head's key head.
    apart = np.array([q @ (unit * math.sqrt(key_heads * width)) for q in query]) / 3
    assert apart.mean() == pytest.approx(norms.layerwise_mean)


# Schedules, caps, sinks, windows, temperature


@pytest.mark.parametrize("text", ["log:0.5", "sqrt-log", "yarn:4K", "llama4:0.1,4K", "constant:2"])
def test_a_schedule_multiplies_the_logits_at_each_length(text):
    schedule = parse_schedule(text)
    for target in (Target(2**12), Target(2**20)):
        row = plan_length(PlannedHead(64, schedule=schedule), target)
        assert row.multiplier == schedule.enclose(row.target.length)
        assert row.spread == pytest.approx(16 * schedule(row.target.length), rel=8 * EPS)
        kappa = 8 * row.multiplier.upper
        want = rigor_capacity.log_capacity(np.full(64, kappa)).upper
        assert row.log_capacity <= want * (1 + 8 * EPS)


def test_log_length_lets_a_head_reach_any_length_where_its_factor_suffices():
    # T6: the ceiling tends to 1 or 0 as the factor times the spread is above or below 1.
    lengths = [Target(2**k) for k in (10, 30, 50)]
    above, below = (
        [plan_length(PlannedHead(64, schedule=s), each).one_ceiling for each in lengths]
        for s in (Schedule("log", (1.1 / 16,)), Schedule("log", (0.9 / 16,)))
    )
    assert above == sorted(above)
    assert below == sorted(below, reverse=True)
    assert above[-1] > 0.96
    assert below[-1] < 0.04


def test_a_temperature_is_a_smaller_gain():
    cold = plan_length(PlannedHead(64, temperature=2.0), AT_128K[0])
    assert cold == plan_length(PlannedHead(64, gain=0.5), AT_128K[0])


def test_a_soft_cap_bends_the_spread_before_the_temperature():
    row = plan_length(PlannedHead(64, soft_cap=5.0, temperature=0.5), AT_128K[0])
    assert row.spread == 2 * rigor.capped_spread(16.0, 5.0).upper
    assert row.spread < 20


def test_under_a_soft_cap_capacity_counts_from_one_half_up():
    head = PlannedHead(64, soft_cap=30.0)
    half, less, more = (plan_length(head, Target(2**17, p)) for p in (0.5, 0.49, 0.51))
    assert half.any_ceiling == less.any_ceiling == 0.5
    assert half.any_ruled_out
    assert more.any_ruled_out
    assert not less.any_ruled_out
    assert less.retrievable == math.inf
    uncapped = plan_length(PlannedHead(64), Target(2**17, 0.49))
    assert uncapped.any_ruled_out


def test_a_sink_takes_from_both_ceilings_and_voids_the_entropy_floor():
    plain = plan_length(PlannedHead(64), AT_128K[0])
    row = plan_length(PlannedHead(64, sink=8.0), AT_128K[0])
    want = rigor.max_coefficient_with_sink(2**17, 16.0, 8.0, sink=8.0).upper
    assert row.one_ceiling == want < plain.one_ceiling
    assert want < 0.5  # a sink as high as the highest logit leaves less than half
    assert row.one_ruled_out
    assert row.any_ruled_out
    assert row.entropy_floor is None


def test_a_window_limits_the_row():
    windowed = plan_head(PlannedHead(64, window=1024), both(2**20))
    short = plan_head(PlannedHead(64), [Target(1024)])
    for name in ("one_ceiling", "any_ceiling", "entropy_floor"):
        assert getattr(windowed.lengths[0], name) == getattr(short.lengths[0], name)
    assert windowed.longest == {"one": math.inf, "any": math.inf}
    assert plan_head(PlannedHead(64, window=2**13), AT_128K).longest["any"] == 2990


def test_the_flat_bound_beyond_its_proof_is_an_estimate():
    row = plan_length(PlannedHead(8, gain=8.0), AT_128K[0])
    assert isinstance(row.flat_estimate, Estimate)
    assert row.flat_estimate.value < row.log_capacity
    kappa = largest_logit(PlannedHead(8, gain=8.0)).upper
    assert row.log_capacity == rigor_capacity.log_capacity(np.full(8, kappa)).upper


def test_a_lower_rank_holds_fewer_tokens():
    sizes = [plan_length(PlannedHead(64, rank=r), AT_128K[0]).capacity for r in (1, 4, 16, 64)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 10


def test_a_head_without_a_norm_is_its_largest_singular_value():
    plain = plan_head(PlannedHead(64, norm="none", sigma=8.0), AT_128K)
    assert plain.lengths[0] == plan_length(PlannedHead(64), AT_128K[0])
    assert {need.quantity for need in plain.needs} >= {"sigma"}
    unit = plan_length(PlannedHead(64, norm="l2", scale=8.0), AT_128K[0])
    assert unit == plain.lengths[0]
    assert largest_logit(PlannedHead(64, norm="l2")).upper == 1.0


# What a target takes

HEADS = {
    "plain": PlannedHead(32),
    "gains": PlannedHead(48, gain=3.0, temperature=1.5),
    "low rank": PlannedHead(64, rank=6, gain=2.0),
    "layerwise": PlannedHead(16, norm="layerwise", heads=4, key_heads=2),
    "l2": PlannedHead(64, norm="l2", scale=5.0, sink=1.0),
    "no norm": PlannedHead(24, norm="none", sigma=7.0, window=512),
    "cap and sink": PlannedHead(64, soft_cap=20.0, sink=0.0),
    "schedule": PlannedHead(32, schedule=parse_schedule("llama4:0.1,8192")),
    "scale": PlannedHead(40, scale=0.2),
}
TARGETS = [Target(2**12, 0.5), Target(2**16, 0.9)]


@pytest.mark.parametrize("target", TARGETS, ids=["4K", "64K"])
@pytest.mark.parametrize("name", HEADS)
def test_what_is_solved_for_meets_the_target_and_a_thousandth_less_does_not(name, target):
    head = HEADS[name]
    plan = plan_head(head, both(target.length, target.coefficient))
    quantities = {need.quantity for need in plan.needs}
    strength = "sigma" if head.norm == "none" else "gain"
    assert quantities == {strength, "temperature", "log_factor", "head_dim"}
    solved = 0
    for need in plan.needs:
        if need.meets is None or need.ruled_out is None:
            continue
        solved += 1
        kind = need.retrieval
        less = need.meets * (1.001 if need.quantity == "temperature" else 0.999)
        if need.quantity == "head_dim":
            less = need.meets - 1
            assert need.ruled_out == less
        else:
            assert need.ruled_out == pytest.approx(need.meets, rel=1e-6)
        assert not ruled_out(change(head, need.quantity, need.meets), target, kind)
        assert ruled_out(change(head, need.quantity, need.ruled_out), target, kind)
        assert ruled_out(change(head, need.quantity, less), target, kind)
    assert solved >= 4


@settings(max_examples=8)
@given(
    width=st.integers(2, 48),
    gain=st.floats(0.1, 20),
    length=st.integers(8, 2**22),
    p=st.floats(0.2, 0.99),
    kind=st.sampled_from(["one", "any"]),
    quantity=st.sampled_from(["gain", "temperature", "log_factor"]),
)
def test_solved_values_meet_their_targets_wherever_they_lie(width, gain, length, p, kind, quantity):
    head, target = PlannedHead(width, gain=gain), Target(length, p)
    need = needed(plan_head(head, [dataclasses.replace(target, retrieval=kind)]), quantity, kind)
    assert not ruled_out(change(head, quantity, need.meets), target, kind)
    less = need.meets * (1.001 if quantity == "temperature" else 0.999)
    assert ruled_out(change(head, quantity, less), target, kind)


def test_solutions_agree_with_the_closed_inverses():
    plan = plan_head(PlannedHead(64), both(2**20))
    spread_needed = rigor.required_spread(2**20, 0.5).lower
    close = pytest.approx
    assert needed(plan, "gain", "one").meets == close(spread_needed / 16, rel=1e-6)
    assert needed(plan, "temperature", "one").meets == close(16 / spread_needed, rel=1e-6)
    factor = spread_needed / (16 * math.log(2**20))
    assert needed(plan, "log_factor", "one").meets == close(factor, rel=1e-6)
    assert needed(plan, "head_dim", "one").meets == math.ceil((spread_needed / 2) ** 2)


def test_easy_and_hopeless_targets_are_told_apart():
    easy = plan_head(PlannedHead(64), both(4, 0.2))
    for need in easy.needs:
        # A share of a fifth among four is had without any spread.
        worst = {"temperature": math.inf, "head_dim": 1}.get(need.quantity, 0.0)
        assert (need.meets, need.ruled_out) == (worst, None)
    capped = plan_head(PlannedHead(64, soft_cap=3.0), AT_128K)
    assert needed(capped, "gain", "one") == Need("gain", "one", None, math.inf)
    assert needed(capped, "log_factor", "any").meets is None
    assert needed(capped, "head_dim", "one") == Need("head_dim", "one", None, 2**14)
    assert needed(capped, "temperature", "one").meets > 0
    dead = plan_head(PlannedHead(64, gain=0.0), AT_128K)
    assert needed(dead, "temperature", "one").meets is None
    assert dead.lengths[0].capacity == 1.0


def test_no_width_is_ruled_out_below_one_that_is_not_beyond_the_flat_proof():
    # With large gains T13′ starts to apply at a width, so that the certified ceiling is no longer
    # monotone; the answer still stands between neighbours.
    head, target = PlannedHead(8, gain=4.0), Target(300, 0.5)
    need = needed(plan_head(head, both(target.length, target.coefficient)), "head_dim", "any")
    assert need.meets == need.ruled_out + 1
    assert ruled_out(change(head, "head_dim", need.ruled_out), target, "any")


@settings(max_examples=25)
@given(
    st.floats(0, 30), st.floats(0, 30), st.integers(2, 2**30), st.sampled_from([None, 4.0, 50.0])
)
def test_stronger_heads_never_have_lower_ceilings(low, high, length, cap):
    low, high = sorted((low, high))
    weak, strong = (
        plan_length(
            PlannedHead(16, norm="none", sigma=sigma, soft_cap=cap, sink=0.0), Target(length)
        )
        for sigma in (low, high)
    )
    assert weak.one_ceiling <= strong.one_ceiling
    assert weak.any_ceiling <= strong.any_ceiling
    assert weak.any_ceiling <= weak.one_ceiling


def test_no_found_context_exceeds_the_any_token_ceiling():
    # Random contexts and a regular simplex, which attains T12.
    rng = np.random.default_rng(1)
    for sigma, n, width in ((2.0, 6, 5), (4.0, 9, 3)):
        row = plan_length(PlannedHead(width, norm="none", sigma=sigma), Target(n + 1))
        for _ in range(50):
            keys = rng.standard_normal((n, width))
            keys /= np.linalg.norm(keys, axis=1, keepdims=True)
            logits = sigma * keys @ keys.T
            shares = np.exp(np.diag(logits)) / np.exp(logits).sum(axis=1)
            assert shares.min() <= row.any_ceiling
    simplex = np.eye(6) - 1 / 6
    simplex /= np.linalg.norm(simplex, axis=1, keepdims=True)
    logits = 2.0 * simplex @ simplex.T
    shares = np.exp(np.diag(logits)) / np.exp(logits).sum(axis=1)
    row = plan_length(PlannedHead(5, norm="none", sigma=2.0), Target(7))
    assert shares.min() == pytest.approx(row.any_ceiling, rel=1e-12)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"head_dim": 0}, "head_dim must be a whole number from 1 to 16384"),
        ({"head_dim": 2**15}, "from 1 to 16384"),
        ({"head_dim": math.inf}, "whole number"),
        ({"norm": "batch"}, "norm must be one of headwise, layerwise, l2, none"),
        ({"norm": "none"}, "sigma must be given"),
        ({"norm": "none", "sigma": math.inf}, "sigma must be given with norm none, finite"),
        ({"norm": "none", "sigma": 1.0, "gain": 2.0}, "part of sigma"),
        ({"norm": "none", "sigma": 1.0, "scale": 2.0}, "part of sigma"),
        ({"sigma": 1.0}, "sigma goes with norm none"),
        ({"norm": "layerwise"}, "heads is needed"),
        ({"key_heads": 2}, "goes with heads"),
        ({"heads": 8, "key_heads": 3}, "must divide heads. Got 3 of 8"),
        ({"heads": 2, "key_heads": 4}, "from 1 to heads"),
        ({"norm": "l2", "heads": 2}, "matters only to norm"),
        ({"gain": -1.0}, "gain must be finite"),
        ({"gain": math.nan}, "gain must be finite"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"soft_cap": math.inf}, "soft_cap must be positive and finite"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"sink": -math.inf}, "sink must be a finite logit"),
        ({"rank": 65}, "head_dim"),
        ({"window": 0}, "window must be"),
    ],
)
def test_planned_heads_without_meaning_are_refused(numbers, words):
    with pytest.raises(errors.ArgumentError) as caught:
        PlannedHead(**{"head_dim": 64, **numbers})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_questions_without_meaning_are_refused():
    with pytest.raises(errors.ArgumentError, match="one or more"):
        plan_head(PlannedHead(64), [])
    with pytest.raises(errors.ArgumentError, match="sink_tokens=0"):
        plan_head(PlannedHead(64), [Target(4096, sink_tokens=4)])


def test_a_length_of_one_or_two_is_no_trouble():
    for n in (1, 2):
        row = plan_length(PlannedHead(64), Target(n))
        assert row.any_ceiling >= 0.5
        assert not row.any_ruled_out
    assert plan_length(PlannedHead(1), Target(1)).one_ceiling == 1.0
