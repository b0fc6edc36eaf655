"""`check` and `check_head`: ceilings, verdicts and the largest length, for heads of every kind."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dispersion import checking, rigor, witness
from dispersion.ceilings import ceiling
from dispersion.checking import Place, check, check_head
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.head import BallImage, Head
from dispersion.norms import qk_norm_ball, unit_ball
from dispersion.reach import Reach
from dispersion.rotary import rotary
from dispersion.spread import spread_bound
from dispersion.testing import heads
from dispersion.verdict import Target, Verdict

LENGTHS = (1, 2, 3, 17, 300, 4096, 2**20)
# A float evaluation of a row of some hundred terms, against a certified number.
ROUNDING = 2.0**-40


def plain_head(dim=64, **more):
    """Unit-gain QK norm: spread 2·√dim whatever the positions (T10)."""
    ball = qk_norm_ball(None, kind="rms", head_dim=dim)
    return Head(query=ball, key=ball, scale=Enclosure.exact(dim**-0.5), **more)


def projected_head(rng, *, size=1.0, rotated=False, biased=False, **more):
    """A head of dimension 4 behind an RMSNorm of width 6, whose inputs are known."""
    dim, width = 4, 6

    def side():
        offset = 0.3 * rng.standard_normal(dim) if biased else None
        return BallImage(rng.standard_normal((dim, width)), offset=offset)

    turn = rotary([1.0, 0.1], dim) if rotated else None
    return Head(
        query=side(),
        key=side(),
        scale=Enclosure.exact(size),
        rotary=turn,
        reach=Reach(width=width, radius=1.0),
        **more,
    )


def scaled_to(spread, **more):
    """A head without rotation whose spread is certified to be `spread`, up to rounding."""
    ball = unit_ball(4)
    return Head(
        query=ball,
        key=ball,
        scale=Enclosure.exact(spread / 2),
        reach=Reach(width=4, radius=1.0),
        **more,
    )


def row_of(head, states):
    """Coefficients of the last query in floats, from inputs of the layer."""
    x = states / head.reach.radius
    q = head.query.matrix @ x[-1]
    k = x @ head.key.matrix.T
    q = q if head.query.offset is None else q + head.query.offset
    k = k if head.key.offset is None else k + head.key.offset
    if head.rotary is not None:
        places = np.arange(len(states))
        q = head.rotary.rotate(q, places[-1:], length=len(states))[0]
        k = head.rotary.rotate(k, places, length=len(states))
    logits = head.scale.upper * (k @ q)
    if head.soft_cap is not None:
        logits = head.soft_cap * np.tanh(logits / head.soft_cap)
    if head.window is not None:
        logits[: -head.window] = -np.inf
    weights = np.exp(logits - logits.max())
    sink = 0.0 if head.sink is None else math.exp(head.sink - logits.max())
    return weights / (weights.sum() + sink)


def targets(lengths=LENGTHS, **more):
    return [Target(n, **more) for n in lengths]


KINDS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "size": st.sampled_from([0.05, 0.3, 1.0, 4.0]),
        "rotated": st.booleans(),
        "biased": st.booleans(),
        "soft_cap": st.none() | st.sampled_from([1.0, 5.0, 30.0]),
        "sink": st.none() | st.sampled_from([-4.0, 0.0, 3.0]),
        "window": st.none() | st.sampled_from([1, 2, 7, 200]),
        "causal": st.booleans(),
    }
)


def drawn(kind):
    return projected_head(np.random.default_rng(kind.pop("seed")), **kind)


# --- properties -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(head=heads(), p=st.sampled_from([0.01, 0.5, 0.99]), m=st.sampled_from([0, 1, 3]))
def test_answers_of_any_head_are_consistent(head, p, m):
    found = check_head(head, targets(coefficient=p, sink_tokens=m))
    assert 0 <= found.spread.lower <= found.spread.upper
    assert found.spread.upper <= found.paper_spread
    uppers = [r.ceiling.upper for r in found.results if r.target.length >= m]
    assert uppers == sorted(uppers, reverse=True)
    for r in found.results:
        assert 0 <= r.ceiling.lower <= r.ceiling.upper <= 1
        assert (r.verdict is Verdict.RULED_OUT) == (r.ceiling.upper < p)
        assert r.verdict is not Verdict.WITNESSED  # nothing is known about this head's inputs
        if r.target.length < m:
            continue  # fewer tokens than were to share the mass
        if r.verdict is Verdict.RULED_OUT:
            assert r.target.length > found.largest_length
        elif r.target.length > found.largest_length:  # rounding decides a tie
            assert r.ceiling.upper == pytest.approx(p, rel=2.0**-48)


@settings(max_examples=60)
@given(kind=KINDS, p=st.sampled_from([0.2, 0.5, 0.9]))
def test_verdicts_say_what_the_ceilings_say(kind, p):
    head = drawn(kind)
    found = check_head(head, targets(coefficient=p))
    for r in found.results:
        assert 0 <= r.ceiling.lower <= r.ceiling.upper <= 1
        expected = Verdict.UNRESOLVED
        if r.ceiling.upper < p:
            expected = Verdict.RULED_OUT
        elif r.ceiling.lower >= p:
            expected = Verdict.WITNESSED
        assert r.verdict is expected
        assert check(head, r.target).ceiling.upper == r.ceiling.upper


@settings(max_examples=60)
@given(kind=KINDS, n=st.sampled_from([2, 3, 8, 60]), attack=st.integers(0, 2**16))
def test_no_input_passes_the_ceiling_or_the_spread(kind, n, attack):
    head = drawn(kind)
    result = check_head(head, [Target(n)])
    rng = np.random.default_rng(attack)
    for _ in range(8):
        x = rng.standard_normal((n, head.reach.width))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        if rng.random() < 0.7:  # all keys but one alike: the rows that T1 is attained by
            x[:-1] = x[0]
            x[rng.integers(n - 1)] = -x[0] if rng.random() < 0.5 else x[-1]
        row = row_of(head, x)
        assert row.max() <= result.results[0].ceiling.upper * (1 + ROUNDING)
        seen = row[row > 0]
        if len(seen) == min(n, head.window or n):
            assert np.log(seen.max() / seen.min()) <= result.spread.upper + ROUNDING * 100


@settings(max_examples=60)
@given(kind=KINDS, n=st.sampled_from([2, 3, 8, 60]))
def test_the_inputs_of_a_witness_reach_what_it_claims(kind, n):
    head = drawn(kind)
    found = witness.build(head, n)
    assert found is not None
    states = found.inputs(n)
    assert np.linalg.norm(states, axis=1).max() <= head.reach.radius * (1 + ROUNDING)
    row = row_of(head, states)
    best = row.max() if min(n, head.window or n) == 1 else row[:-1].max()
    assert best >= found.coefficient(n) - ROUNDING
    claimed = check_head(head, [Target(n)]).results[0].ceiling
    assert found.coefficient(n) <= claimed.upper
    assert best <= claimed.upper * (1 + ROUNDING)


@settings(max_examples=60)
@given(
    spread=st.floats(0.01, 24.0),
    p=st.floats(0.02, 0.98),
    m=st.integers(0, 5),
    sink=st.none() | st.floats(-6.0, 3.0),
)
def test_the_largest_length_is_the_last_that_is_not_ruled_out(spread, p, m, sink):
    head = scaled_to(spread, sink=sink)
    longest = check_head(head, [Target(2, p, sink_tokens=m)]).largest_length
    assert longest == int(longest) < 2**50
    assert check(head, Target(int(longest) + 1, p, sink_tokens=m)).verdict is Verdict.RULED_OUT
    if longest >= 1:
        last = check(head, Target(int(longest), p, sink_tokens=m))
        assert last.verdict is not Verdict.RULED_OUT
    else:
        assert sink is not None  # only a sink can rule out a row of one token


@given(spread=st.floats(0.0, 800.0), m=st.integers(1, 4), sink=st.none() | st.floats(-9, 9))
def test_ceilings_fall_with_the_length_and_rise_with_the_tokens(spread, m, sink):
    head = scaled_to(1.0, sink=sink)
    found = [ceiling(head, spread / 2, spread, n, min(m, n)) for n in (5, 6, 50, 10**6, 10**12)]
    assert found == sorted(found, reverse=True)
    assert ceiling(head, spread / 2, spread, 50, m) <= ceiling(head, spread / 2, spread, 50, m + 1)


# --- numbers ----------------------------------------------------------------------------------


def test_a_unit_gain_head_stops_where_the_closed_form_says():
    for turned in (None, rotary([1.0, 0.01], 64)):
        found = check_head(plain_head(rotary=turned), targets((4096, 2**23, 2**24)))
        assert found.spread.upper == pytest.approx(16, rel=1e-9)
        assert found.spread.upper >= 16
        assert found.largest_length == math.floor(1 + math.exp(16))
        assert [r.verdict for r in found.results] == [
            Verdict.UNRESOLVED,
            Verdict.UNRESOLVED,
            Verdict.RULED_OUT,
        ]


def test_the_spread_is_never_looser_than_the_product_bound():
    """A query bias over rows of almost nothing: the joint bound alone loses every digit here."""
    query = BallImage(np.array([[2.0**-126], [0.0]]), offset=np.array([1.0, 0.0]))
    head = Head(query=query, key=BallImage(np.ones((2, 1))), scale=Enclosure.exact(1.0))
    found = check_head(head, targets())
    # max‖q‖ = 1 + 2⁻¹²⁶ and max‖k‖ = √2.
    assert 2 <= found.spread.upper <= 2 * math.sqrt(2) * (1 + ROUNDING)


def test_sink_tokens_share_the_mass():
    """T2: m / (m + (n − m) e^−δ)."""
    head = scaled_to(6.0)
    for m, n in ((1, 100), (4, 100), (4, 2**20), (7, 8)):
        found = check(head, Target(n, sink_tokens=m)).ceiling.upper
        assert found == pytest.approx(m / (m + (n - m) * math.exp(-6)), rel=1e-9)
    assert check(head, Target(100, sink_tokens=0)).ceiling == check(head, Target(100)).ceiling
    assert check(head, Target(3, sink_tokens=9)).ceiling.upper == 1.0
    tokens = check_head(head, [Target(100, sink_tokens=4)]).largest_length
    assert tokens == math.floor(4 * (1 + math.exp(6)))


def test_a_learned_sink_lowers_the_ceiling():
    """T7, with the level that the spread and a key bias leave: half the spread here."""
    head, n = scaled_to(6.0, sink=2.0), 20
    expected = 1 / (1 + (n - 1) * math.exp(-6) + math.exp(2 - 3))
    assert check(head, Target(n)).ceiling.upper == pytest.approx(expected, rel=1e-9)
    assert check(head, Target(1)).ceiling.upper == pytest.approx(1 / (1 + math.exp(-1)), rel=1e-9)
    strong = check_head(scaled_to(6.0, sink=9.0), targets())
    assert {r.verdict for r in strong.results} == {Verdict.RULED_OUT}
    assert strong.largest_length == 0
    # Without self-attention a bias common to all keys only moves the level.
    raised = replace(
        head, key=replace(head.key, offset=np.full(4, 2.0)), sink=2.0, self_attention=False
    )
    assert check(raised, Target(n)).ceiling.upper > expected
    assert spread_bound(raised).spread == pytest.approx(6, rel=1e-9)


def test_a_soft_cap_bounds_the_spread():
    head = scaled_to(200.0, soft_cap=2.0)
    found = check_head(head, targets((2, 54, 56, 4096)))
    assert found.spread.upper <= 4.0
    assert found.spread.upper == pytest.approx(4 * math.tanh(50), rel=1e-9)
    assert "soft cap 2" in found.cap
    assert found.largest_length == math.floor(1 + math.exp(4))  # 55
    assert [r.verdict is Verdict.RULED_OUT for r in found.results] == [False, False, True, True]


def test_a_window_hides_the_length():
    head = scaled_to(3.0, window=16)
    found = check_head(head, targets((4, 15, 16, 17, 4096)))
    assert found.window == 16
    assert len({r.ceiling for r in found.results[2:]}) == 1
    expected = rigor.max_coefficient(16, found.spread.upper).upper
    assert found.results[-1].ceiling.upper == expected
    assert found.largest_length == math.inf  # 1 + e³ = 21 tokens are more than it ever sees
    assert check_head(scaled_to(3.0, window=40), targets()).largest_length == 21
    nothing = check(scaled_to(3.0, window=1), Target(4096))
    assert nothing.ceiling == Enclosure(1.0, 1.0)
    assert nothing.verdict is Verdict.WITNESSED


@pytest.mark.parametrize("self_attention", [True, False])
def test_one_two_and_three_tokens(self_attention):
    found = check_head(scaled_to(2.0, self_attention=self_attention), targets((1, 2, 3)))
    one, two, three = (r.ceiling for r in found.results)
    assert one == Enclosure(1.0, 1.0)
    assert two.upper == pytest.approx(1 / (1 + math.exp(-2)), rel=1e-9)
    assert three.upper == pytest.approx(1 / (1 + 2 * math.exp(-2)), rel=1e-9)
    # W_Q = W_K here, so a query of full norm gives its own key the largest logit too.
    expected = [0.5, 1 / (2 + math.exp(-2))] if self_attention else [two.upper, three.upper]
    assert [two.lower, three.lower] == pytest.approx(expected, rel=1e-9)


def test_without_rotation_and_own_key_the_ceiling_is_attained():
    found = check_head(scaled_to(9.0, self_attention=False), targets((2, 100, 2**20)))
    for r in found.results:
        assert r.ceiling.lower == pytest.approx(r.ceiling.upper, rel=1e-9)
    assert found.spread.lower == pytest.approx(found.spread.upper, rel=1e-9)


def test_a_witnessed_head_needs_known_inputs():
    head = scaled_to(30.0, self_attention=False)
    assert check(head, Target(4096)).verdict is Verdict.WITNESSED
    hidden = check(replace(head, reach=None), Target(4096))
    assert hidden.verdict is Verdict.UNRESOLVED
    assert hidden.ceiling.lower == 0
    assert hidden.ceiling.upper == check(head, Target(4096)).ceiling.upper


# --- heads without a cap ----------------------------------------------------------------------


@pytest.mark.parametrize("missing", [("query",), ("key",), ("query", "key")])
def test_without_a_norm_cap_nothing_is_bounded(missing):
    head = replace(scaled_to(3.0), **dict.fromkeys(missing))
    found = check_head(head, targets())
    assert {r.verdict for r in found.results} == {Verdict.UNBOUNDED}
    assert {r.ceiling for r in found.results} == {Enclosure(0.0, 1.0)}
    assert found.spread == Enclosure(0.0, math.inf)
    assert found.paper_spread == math.inf
    assert found.largest_length == math.inf
    assert "no norm caps" in found.notes[0]


def test_a_soft_cap_alone_bounds_a_head():
    """T8: the spread is at most 2c whatever the inputs; nothing is witnessed."""
    head = replace(scaled_to(3.0, soft_cap=3.0), query=None, key=None)
    found = check_head(head, targets((2, 404, 405, 2**20)))
    assert found.spread.upper == pytest.approx(6, rel=1e-12)
    assert found.largest_length == math.floor(1 + math.exp(6))  # 404
    assert [r.verdict for r in found.results] == [
        Verdict.UNRESOLVED,
        Verdict.UNRESOLVED,
        Verdict.RULED_OUT,
        Verdict.RULED_OUT,
    ]
    assert found.notes == ()
    below = check_head(replace(head, sink=1.0), targets((404,)))
    assert below.results[0].verdict is Verdict.RULED_OUT
    expected = 1 / (1 + 403 * math.exp(-6) + math.exp(1 - 3))
    assert below.results[0].ceiling.upper == pytest.approx(expected, rel=1e-9)


# --- offsets ----------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), biased=st.booleans(), causal=st.booleans())
def test_exact_offsets_are_tighter_and_hold(seed, biased, causal):
    head = projected_head(
        np.random.default_rng(seed), size=0.5, rotated=True, biased=biased, causal=causal
    )
    asked = targets((1, 2, 3, 24))
    free, exact = (check_head(head, asked, offsets=o) for o in ("free", "exact"))
    assert exact.spread_kind == "exact"
    assert exact.notes == ()
    assert exact.spread.upper <= free.spread.upper
    assert exact.largest_length <= free.largest_length
    for a, b in zip(exact.results, free.results, strict=True):
        assert a.ceiling.upper <= b.ceiling.upper
        assert a.ceiling.lower <= a.ceiling.upper
    found = witness.build(head, 24)
    assume(found is not None)
    assert found.coefficient(24) <= exact.results[-1].ceiling.upper
    assert found.spread(24) <= exact.spread.upper


def test_exact_offsets_without_time_report_the_free_bound_and_say_so():
    head = projected_head(np.random.default_rng(0), rotated=True)
    asked = targets((8, 4096))
    free = check_head(head, asked)
    none = check_head(head, asked, offsets="exact", budget=0.0)
    assert none.spread_kind == "free"
    assert none.spread == free.spread
    assert [r.ceiling for r in none.results] == [r.ceiling for r in free.results]
    assert none.largest_length == free.largest_length
    assert [note.split(" did not fit")[0] for note in none.notes] == [
        "exact offsets at 8 tokens",
        "exact offsets at 4096 tokens",
    ]


def test_exact_offsets_change_nothing_without_rotation():
    head = scaled_to(3.0)
    assert check_head(head, targets(), offsets="exact") == check_head(head, targets())


def test_an_unknown_kind_of_offsets_is_refused():
    with pytest.raises(ArgumentError, match="offsets must be 'free' or 'exact'"):
        check(scaled_to(3.0), Target(8), offsets="guess")


# --- the rest ---------------------------------------------------------------------------------


def test_results_keep_the_order_asked_and_the_place_given():
    asked = [Target(4096), Target(2), Target(300, 0.9), Target(300, 0.1, sink_tokens=2)]
    found = check_head(scaled_to(3.0), asked, place=Place("model.layers.3.self_attn", 3, 5, 1))
    assert [r.target for r in found.results] == asked
    assert (found.module, found.layer, found.head, found.kv_head) == (
        "model.layers.3.self_attn",
        3,
        5,
        1,
    )
    for target, answer in zip(asked, found.results, strict=True):
        assert check(scaled_to(3.0), target) == answer


def test_a_head_without_questions_still_has_its_spread():
    found = check_head(scaled_to(3.0), [])
    assert found.results == ()
    assert found.spread.upper == pytest.approx(3, rel=1e-9)
    assert found.largest_length == math.inf


def test_a_witness_above_the_certificate_is_reported_as_the_bug_it_is(monkeypatch):
    ball = BallImage(np.eye(4))
    head = Head(ball, ball, Enclosure.exact(1.0), reach=Reach(4, 1.0))
    real = checking.spread_bound

    def too_small(head, **options):
        return replace(real(head, **options), spread=0.5)

    monkeypatch.setattr(checking, "spread_bound", too_small)
    with pytest.raises(RuntimeError, match="please report"):
        check(head, Target(8))
