"""`dispersion.rigor`: enclosures that contain the truth, tightly, and never on the wrong side."""

import math
import threading
from fractions import Fraction
from types import SimpleNamespace

import flint
import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dispersion import ArgumentError, balls, rigor, rigor_entropy, row, testing
from dispersion.enclosure import Enclosure
from row_checks import check_adversarial, check_enclosures, check_row
from truth import ARGUMENTS, REFERENCE, points

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(("name", "arguments", "value"), REFERENCE)
def test_reference_values_are_inside(name, arguments, value):
    assert float(value) in getattr(rigor, name)(*arguments)


def test_enclosures_contain_the_truth_and_are_tight():
    check_enclosures(rigor)


def test_no_adversarial_row_exceeds_a_certified_bound():
    check_adversarial(rigor, slack=0)


@given(logits=testing.rows(max_size=10))
def test_no_row_exceeds_a_certified_bound(logits):
    check_row(rigor, logits, slack=0)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arrays_and_balls_compute_the_same_statement(name):
    for point in points(name, 60, seed=2, whole=True):
        ball = getattr(rigor, name)(*point.arguments, **point.keywords)
        number = getattr(row, name)(*point.arguments, **point.keywords)
        # 4 ulp as in test_row; the two functions with documented larger errors have theirs.
        room = 4 * math.ulp(min(ball.upper, 1e308))
        if name == "norm_min_entropy":
            room *= 1 + point.arguments[1]
        if name == "closed_min_entropy":
            room = 4 * math.ulp(math.log(point.arguments[0]) + point.arguments[1] + 1)
        upper = ball.upper + (name == "reachable_length")  # the ball's is a whole number
        assert ball.lower - room <= number <= upper + room, (point, ball, number)


# Mutants: each answers an enclosure that a certificate must not contain.


def mutant(**replaced):
    return SimpleNamespace(**{**vars(rigor), **replaced})


def inward(name):
    """The real function, rounded to the wrong side by one ulp at each end."""

    def function(*arguments, **keywords):
        true = getattr(rigor, name)(*arguments, **keywords)
        lower = math.nextafter(true.lower, math.inf)
        upper = math.nextafter(true.upper, -math.inf)
        return SimpleNamespace(lower=lower, upper=upper)

    return function


def nearest_entropy(n, spread):
    value = row.min_entropy(n, spread)
    return SimpleNamespace(lower=value, upper=value)


def one_at_the_top(n, spread):
    with flint.ctx.workprec(200):
        return rigor.from_arb(rigor_entropy._two_level(1, n, flint.arb(spread)))


def lower_end(name):
    """The real function at the lower end of every spread: the unsafe end."""

    def function(n, spread, **keywords):
        return getattr(rigor, name)(n, spread.lower, **keywords)

    return function


MUTANTS = {
    **{f"{x} rounded inward": (mutant(**{x: inward(x)}), check_enclosures) for x in ARGUMENTS},
    "entropy rounded to nearest": (mutant(min_entropy=nearest_entropy), check_enclosures),
    "k = 1 for the entropy": (mutant(min_entropy=one_at_the_top), check_adversarial),
    "n for n-1": (
        mutant(max_coefficient=lambda n, d: rigor.max_coefficient(n + 1, d)),
        check_adversarial,
    ),
    "an unclipped inverse": (
        mutant(
            required_spread=lambda n, p: rigor.from_arb(
                (flint.arb(max(n - 1, 1)) * flint.arb(p) / (1 - flint.arb(p))).log()
            )
        ),
        check_enclosures,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mutant_is_caught(name):
    module, check = MUTANTS[name]
    with pytest.raises(AssertionError):
        check(module)


def check_widening(module):
    """An enclosed spread gives an enclosure of the values at both of its ends."""
    spread = Enclosure(2.0, 9.0)
    for name in ("max_coefficient", "min_coefficient", "min_entropy", "norm_min_entropy"):
        wide = getattr(module, name)(100, spread)
        for end in (2.0, 5.0, 9.0):
            point = getattr(rigor, name)(100, end)
            assert wide.lower <= point.lower <= point.upper <= wide.upper, (name, end)


def test_an_enclosed_spread_covers_both_ends():
    check_widening(rigor)


@pytest.mark.parametrize("name", ["max_coefficient", "min_coefficient", "min_entropy"])
def test_taking_the_lower_end_of_a_spread_is_caught(name):
    with pytest.raises(AssertionError):
        check_widening(mutant(**{name: lower_end(name)}))


def test_an_unbounded_spread_bounds_nothing():
    spread = Enclosure(3.0, math.inf)
    assert rigor.max_coefficient(10, spread).upper == 1.0
    assert rigor.min_coefficient(10, spread).lower == 0.0
    assert rigor.min_entropy(10, spread).lower == 0.0
    assert rigor.norm_min_entropy(10, spread).lower == 0.0
    assert rigor.closed_min_entropy(10, spread).lower == -math.inf
    assert rigor.reachable_length(spread, 0.5).upper == math.inf
    assert rigor.capped_spread(spread, 30.0).upper == 60.0
    assert rigor.max_coefficient_with_sink(10, spread, 0.0).upper == 0.5
    assert rigor.loose_max_coefficient(10, spread).upper == math.inf


@pytest.mark.parametrize("n", [1, 2, 3, 2**63, 10**400])
def test_edges(n):
    assert rigor.max_coefficient(1, 5.0) == Enclosure.exact(1.0)
    assert rigor.min_entropy(1, 5.0) == Enclosure.exact(0.0)
    uniform = rigor.max_coefficient(n, 0.0)
    assert Fraction(uniform.lower) <= Fraction(1, n) <= Fraction(uniform.upper)
    assert rigor.set_mass(0, n, 5.0) == Enclosure.exact(0.0)
    assert rigor.set_mass(n, n, 5.0) == Enclosure.exact(1.0)
    assert rigor.max_coefficient(n, 1e5).upper <= 1.0
    assert rigor.max_coefficient(n, 1e308).upper == 1.0


@pytest.mark.parametrize("spread", [5e-324, 1e-300, 1e-30])
@pytest.mark.parametrize("n", [2, 3, 1000, 2**63])
def test_the_entropy_floor_survives_tiny_spreads(n, spread):
    got = rigor.min_entropy(n, spread)
    with mp.workdps(40):
        assert got.lower <= mp.log(n) <= got.upper  # less than 1e-60 above the floor
    assert got.upper - got.lower <= 2 * math.ulp(got.upper)


@given(
    spread=testing.spreads(max_value=600.0),
    p=st.floats(1e-9, 1 - 1e-9),
    items=st.integers(1, 5),
)
def test_the_reachable_length_is_the_last_not_ruled_out(spread, p, items):
    length = rigor.reachable_length(spread, p, items=items)
    assert length.lower == math.floor(length.lower)
    assume(length.upper < 2**53)
    above, upto = int(length.upper) + 1, int(length.lower)
    # One ulp of p decides the outcome where a step of one item does not move the ceiling by it.
    assert rigor.set_mass(items, above, spread).lower < p
    assert rigor.set_mass(items, upto, spread).upper >= p


def test_lengths_round_to_the_stated_sides_beyond_2_53():
    got = rigor.reachable_length(60.0, 0.25)
    with mp.workdps(60):
        true = mp.floor(1 + 3 * mp.e**60)
    assert got.lower < true < got.upper
    assert math.nextafter(got.lower, math.inf) == got.upper
    assert rigor.reachable_length(1e5, 0.5) == Enclosure(math.nextafter(math.inf, 0.0), math.inf)


@given(n=testing.lengths(min_value=2), p=st.floats(1e-9, 1 - 1e-9))
def test_below_the_required_spread_the_coefficient_is_out_of_reach(n, p):
    needed = rigor.required_spread(n, p)
    assume(needed.lower > 0)
    assert rigor.max_coefficient(n, needed.lower).lower <= p
    assert rigor.max_coefficient(n, needed.upper).upper >= p


def check_softmax(function):
    """Against exact logits at high precision, huge ones and infinite ends included."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        size = 10 ** rng.uniform(-2, 5)
        logits = rng.uniform(-size, size, 4).tolist()
        counts = [int(c) for c in 10 ** rng.uniform(0, 18, 3)]
        got = function(logits[0], list(zip(logits[1:], counts, strict=True)))
        with mp.workdps(60):
            others = (
                c * mp.e ** (mp.mpf(x) - logits[0]) for x, c in zip(logits[1:], counts, strict=True)
            )
            true = 1 / (1 + mp.fsum(others))
            assert got.lower <= true <= got.upper, (logits, counts)
            assert got.upper - got.lower <= 2 * math.ulp(float(true)), (logits, counts)
    wide = function(Enclosure(0.0, 1.0), [(Enclosure(-2.0, -1.0), 3)])
    assert wide.lower <= 1 / (1 + 3 * math.exp(-1)) * (1 + 2.0**-50)
    assert wide.upper >= 1 / (1 + 3 * math.exp(-3)) * (1 - 2.0**-50)
    assert function(Enclosure(0.0, 0.0), [(Enclosure(-math.inf, 1.0), 2)]).upper == 1.0
    assert function(0.0, [(Enclosure(0.0, math.inf), 1)]) == Enclosure(0.0, 0.5)
    assert function(3.0, []) == Enclosure.exact(1.0)
    assert function(3.0, [(50.0, 0)]) == Enclosure.exact(1.0)


def test_softmax_of_enclosed_logits():
    check_softmax(rigor.softmax_coefficient)


def forgets_counts(target, others):
    return rigor.softmax_coefficient(target, [(logit, min(c, 1)) for logit, c in others])


def takes_middles(target, others):
    def middle(x):
        return x if isinstance(x, float) else max(-1e300, min(1e300, (x.lower + x.upper) / 2))

    return rigor.softmax_coefficient(middle(target), [(middle(x), c) for x, c in others])


@pytest.mark.parametrize("function", [forgets_counts, takes_middles])
def test_a_wrong_softmax_is_caught(function):
    with pytest.raises(AssertionError):
        check_softmax(function)


@given(a=finite, b=finite, c=finite)
def test_sums_products_and_quotients_are_the_tightest_enclosures(a, b, c):
    exact = [
        (rigor.total(a, b, c), Fraction(a) + Fraction(b) + Fraction(c)),
        (rigor.product(a, b, c), Fraction(a) * Fraction(b) * Fraction(c)),
    ]
    if b:
        exact.append((rigor.quotient(a, b), Fraction(a) / Fraction(b)))
    for got, true in exact:
        assert got.lower <= true <= got.upper
        assert got.lower == got.upper or math.nextafter(got.lower, math.inf) == got.upper


@given(st.lists(st.tuples(finite, finite).map(sorted), min_size=2, max_size=2), st.data())
def test_operations_on_intervals_contain_every_choice(pairs, data):
    first, second = (Enclosure(*pair) for pair in pairs)
    a, b = (data.draw(st.floats(*pair)) for pair in pairs)
    assert _inside(Fraction(a) * Fraction(b), rigor.product(first, second))
    assert _inside(Fraction(a) + Fraction(b), rigor.total(first, second))
    if not second.lower <= 0 <= second.upper:
        assert _inside(Fraction(a) / Fraction(b), rigor.quotient(first, second))


def _inside(true, enclosure):
    return enclosure.lower <= true <= enclosure.upper


def test_infinite_ends():
    line = Enclosure(1.0, math.inf)
    assert rigor.product(line, Enclosure(-3.0, 2.0)) == Enclosure(-math.inf, math.inf)
    assert rigor.product(line, 0.0) == Enclosure(0.0, 0.0)
    assert rigor.total(line, -4.0) == Enclosure(-3.0, math.inf)
    assert rigor.quotient(1.0, line) == Enclosure(0.0, 1.0)
    assert rigor.quotient(line, 2.0) == Enclosure(0.5, math.inf)
    assert rigor.sqrt_enclosure(line) == Enclosure(1.0, math.inf)
    assert not rigor.to_arb(line).is_finite()


@pytest.mark.parametrize("value", [0, 1, 64, 576, 2, 3, 4096, 10**30 + 1, 0.1, 5e-324, 1e308])
def test_square_roots(value):
    got = rigor.sqrt_enclosure(value)
    assert Fraction(got.lower) ** 2 <= Fraction(value) <= Fraction(got.upper) ** 2
    exact = Fraction(got.lower) ** 2 == value
    assert got.upper == (got.lower if exact else math.nextafter(got.lower, math.inf))


@given(st.floats(allow_nan=False))
def test_a_float_survives_the_round_trip(value):
    if math.isinf(value):
        assert rigor.from_arb(rigor.to_arb(value)) == Enclosure(-math.inf, math.inf)
    else:
        assert rigor.from_arb(rigor.to_arb(value)) == Enclosure.exact(value)


@pytest.mark.parametrize(
    ("ball", "expected"),
    [
        (flint.arb(2) ** -1080, Enclosure(0.0, 5e-324)),
        (-(flint.arb(2) ** -5000), Enclosure(-5e-324, 0.0)),
        (flint.arb(2) ** 1024, Enclosure(math.nextafter(math.inf, 0), math.inf)),
        (-(flint.arb(2) ** 5000), Enclosure(-math.inf, -math.nextafter(math.inf, 0))),
        (flint.arb(3) * flint.arb(2) ** -1075, Enclosure(5e-324, 1e-323)),
        (flint.arb("nan"), Enclosure(-math.inf, math.inf)),
        (flint.arb(1, 1), Enclosure(0.0, 2.0)),
    ],
)
def test_balls_round_outward_at_the_ends_of_float64(ball, expected):
    got = rigor.from_arb(ball)
    slack = 4e-9 if expected.upper == 2.0 else 0.0  # a radius has 30 bits
    assert expected.lower - slack <= got.lower <= expected.lower
    assert expected.upper <= got.upper <= expected.upper + slack


def test_the_working_precision_is_put_back_and_threads_share_it():
    before = flint.ctx.prec
    wide = []

    def work():
        for n in range(2, 60):
            got = rigor.max_coefficient(n, 3.3)
            wide.append((got.upper - got.lower) / got.upper)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wide) == 4 * 58
    assert max(wide) <= 2.0**-51
    assert flint.ctx.prec == before
    with pytest.raises(ArgumentError):
        rigor.max_coefficient(0, 1.0)
    assert flint.ctx.prec == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rigor.max_coefficient(0, 1.0), r"n must be a whole number of at least 1\. Got 0"),
        (lambda: rigor.max_coefficient(2.5, 1.0), r"n must be a whole number.* Got 2\.5"),
        (lambda: rigor.max_coefficient(math.inf, 1.0), r"n must be a whole number.* Got inf"),
        (lambda: rigor.max_coefficient(True, 1.0), r"n must be a whole number.* Got True"),
        (lambda: rigor.min_entropy(3, Enclosure(-1.0, 1.0)), r"spread must be 0 or more"),
        (lambda: rigor.min_entropy(3, math.nan), r"must not be nan"),
        (lambda: rigor.set_mass(4, 3, 1.0), r"m must not exceed n\. Got m=4, n=3"),
        (lambda: rigor.required_spread(4, 1.0), r"coefficient must lie strictly between 0 and 1"),
        (lambda: rigor.capped_spread(4.0, -1.0), r"cap must be positive and finite"),
        (lambda: rigor.quotient(1.0, Enclosure(-1.0, 1.0)), r"denominator must not contain 0"),
        (lambda: rigor.sqrt_enclosure(-1.0), r"value must be 0 or more"),
        (lambda: rigor.softmax_coefficient(0.0, [(0.0, -1)]), r"count must be a whole number"),
    ],
)
def test_a_broken_rule_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_the_names_of_row_are_the_names_of_rigor():
    scalar = set(row.__all__) - {"row_entropy", "entropy_slope"}
    assert scalar <= set(rigor.__all__)
    assert all(hasattr(balls, x) for x in ("in_precision", "round_down", "round_up"))


@pytest.mark.parametrize("temperature", [0.1, 1 / 3, 3.0])
def test_temperature_divides_the_spread_without_rounding(temperature):
    with mp.workdps(50):
        spread = mp.mpf(7.3) / mp.mpf(temperature)
        for m in (1, 4):
            for bound, sign in ((rigor.set_mass, -1), (rigor.min_set_mass, 1)):
                true = m / (m + (50 - m) * mp.e ** (sign * spread))
                got = bound(m, 50, 7.3, temperature=temperature)
                assert got.lower <= true <= got.upper
                assert got.upper - got.lower <= 2 * math.ulp(got.upper)
        true = min(
            mp.log(k) + mp.log1p(r) + spread * r / (1 + r)
            for k in range(1, 50)
            for r in [(50 - k) * mp.e**-spread / k]
        )
        got = rigor.min_entropy(50, 7.3, temperature=temperature)
        assert got.lower <= true <= got.upper
        true = mp.mpf(temperature) * mp.log(49 * mp.mpf(0.7) / (1 - mp.mpf(0.7)))
        got = rigor.required_spread(50, 0.7, temperature=temperature)
        assert got.lower <= true <= got.upper
        true = mp.floor(1 + mp.e**spread * (1 - mp.mpf(0.7)) / mp.mpf(0.7))
        got = rigor.reachable_length(7.3, 0.7, temperature=temperature)
        assert got.lower <= true <= got.upper


def test_enclosed_arguments_widen_to_the_safe_sides():
    spread, p = Enclosure(4.0, 5.0), Enclosure(0.4, 0.6)
    length = rigor.reachable_length(spread, p)
    assert length.lower == rigor.reachable_length(4.0, 0.6).lower
    assert length.upper == rigor.reachable_length(5.0, 0.4).upper
    needed = rigor.required_spread(1000, p)
    assert needed.lower == rigor.required_spread(1000, 0.4).lower
    assert needed.upper == rigor.required_spread(1000, 0.6).upper
    top, sink = Enclosure(-1.0, 2.0), Enclosure(0.0, 3.0)
    most = rigor.max_coefficient_with_sink(1000, spread, top, sink=sink)
    assert most.lower == rigor.max_coefficient_with_sink(1000, 4.0, -1.0, sink=3.0).lower
    assert most.upper == rigor.max_coefficient_with_sink(1000, 5.0, 2.0, sink=0.0).upper
    share = rigor.sink_share(1000, top, sink=sink)
    assert share.lower == rigor.sink_share(1000, 2.0, sink=0.0).lower
    assert share.upper == rigor.sink_share(1000, -1.0, sink=3.0).upper
    assert rigor.sink_share(1000, top, sink=-math.inf) == Enclosure.exact(0.0)
