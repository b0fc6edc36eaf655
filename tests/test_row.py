"""`dispersion.row` in NumPy and Python numbers: values, edges, errors, and attempts to beat it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st

from dispersion import ArgumentError, row, testing
from row_checks import (
    check_adversarial,
    check_attained,
    check_caps,
    check_inverses,
    check_row,
    check_truth,
)
from truth import ARGUMENTS, REFERENCE


@pytest.mark.parametrize(("name", "arguments", "value"), REFERENCE)
def test_reference_values(name, arguments, value):
    assert getattr(row, name)(*arguments) == pytest.approx(value, rel=1e-12)


CHECKS = [check_truth, check_adversarial, check_attained, check_inverses, check_caps]


@pytest.mark.parametrize("check", CHECKS)
def test_the_module_passes(check):
    check(row)


def mutant(**replaced):
    return SimpleNamespace(**{**vars(row), **replaced})


def entropy_of_one_at_the_top(n, spread, *, temperature=1.0):
    return float(row.row_entropy(np.array([0.0] + [-spread] * (int(n) - 1))))


MUTANTS = {
    "n for n-1 in the ceiling": (
        mutant(max_coefficient=lambda n, d: row.max_coefficient(n + 1, d)),
        check_adversarial,
    ),
    "n for n-1 in the inverse": (
        mutant(required_spread=lambda n, p: row.required_spread(n + 1, p)),
        check_inverses,
    ),
    "a lost factor 2 in the cap": (
        mutant(capped_spread=lambda d, c: row.capped_spread(d, c) / 2),
        check_caps,
    ),
    "a lost factor 2 in the cap's argument": (
        mutant(capped_spread=lambda d, c: 2 * c * math.tanh(d / c)),
        check_caps,
    ),
    "an epsilon in a denominator": (
        mutant(max_coefficient=lambda n, d: 1 / (1 / row.max_coefficient(n, d) + 1e-6)),
        check_adversarial,
    ),
    "an epsilon in the sink's denominator": (
        mutant(sink_share=lambda n, x, *, sink: row.sink_share(n, x, sink=sink) / (1 + 1e-9)),
        check_adversarial,
    ),
    "k = 1 for the entropy": (mutant(min_entropy=entropy_of_one_at_the_top), check_adversarial),
    "an unclipped inverse": (
        mutant(required_spread=lambda n, p: math.log((n - 1) * p / (1 - p))),
        check_inverses,
    ),
    "the naive ceiling, nan at 800": (
        mutant(max_coefficient=lambda n, d: float(np.exp(d) / (np.exp(d) + n - 1))),
        check_truth,
    ),
    "the ceiling through a rounded exponent": (
        mutant(min_coefficient=lambda n, d: 1 / (1 + np.exp(np.log(max(n - 1, 1e-300)) + d))),
        check_truth,
    ),
    "the loose ceiling called tight": (
        mutant(max_coefficient=row.loose_max_coefficient),
        check_attained,
    ),
    "a required spread from a cancelling log": (
        mutant(required_spread=lambda n, p: max(0.0, math.log(max((n - 1) * p / (1 - p), 1)))),
        check_truth,
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mutant_is_caught(name):
    module, check = MUTANTS[name]
    with pytest.raises(AssertionError):
        check(module)


@given(logits=testing.rows(max_size=12))
def test_no_row_exceeds_a_bound(logits):
    n, spread = len(logits), float(np.ptp(logits))
    shares = np.exp(logits - logits.max())
    target(float(shares.max() / shares.sum() / row.max_coefficient(n, spread)), label="T1")
    target(row.min_entropy(n, spread) / float(row.row_entropy(logits) or 1.0), label="T3")
    check_row(row, logits)


def test_ascent_climbs_to_the_bounds_and_not_past_them():
    """Projected gradient ascent on the largest coefficient and descent on the entropy."""
    rng = np.random.default_rng(3)
    for n, spread in [(2, 1.0), (7, 2.0), (20, 4.0)]:
        sharpest, lowest = 0.0, math.inf
        for start in range(24):
            logits = rng.uniform(-spread, 0.0, n)
            for _ in range(200):
                shares = np.exp(logits - logits.max())
                shares /= shares.sum()
                gradient = -shares * shares.max()
                gradient[shares.argmax()] += shares.max()
                logits = np.clip(logits + 50 * gradient, -spread, 0.0)
            sharpest = max(sharpest, float(np.exp(logits).max() / np.exp(logits).sum()))
            # The entropy has a local minimum at every two-level row: start near each kind.
            logits = rng.uniform(-spread, -0.5 * spread, n)
            logits[: 1 + start % (n - 1)] *= 0.1
            for _ in range(200):
                shares = np.exp(logits) / np.exp(logits).sum()
                entropy = -(shares * np.log(shares)).sum()
                slope = -shares * (np.log(shares) + entropy)
                logits = np.clip(logits - 50 * slope, -spread, 0.0)
            lowest = min(lowest, float(row.row_entropy(logits)))
        room = n * 2.0**-50
        assert sharpest <= row.max_coefficient(n, spread) * (1 + room)
        assert sharpest >= row.max_coefficient(n, spread) * (1 - room)
        assert lowest >= row.min_entropy(n, spread) * (1 - room)
        assert lowest <= row.min_entropy(n, spread) * (1 + room)


@given(
    logits=testing.rows(min_size=2),
    cold=st.floats(0.0, 4.0),
    warmer=st.floats(0.0, 1.0),
)
def test_entropy_never_rises_with_the_inverse_temperature(logits, cold, warmer):
    warm = cold * warmer
    # Rounding of a sum of n terms, each with an exponent rounded by its own size.
    room = (len(logits) + 8 + 2 * cold * float(np.ptp(logits))) * 2.0**-52
    at_warm = row.row_entropy(logits, inverse_temperature=warm)
    at_cold = row.row_entropy(logits, inverse_temperature=cold)
    assert at_cold <= at_warm + room * (1 + math.log(len(logits)))
    assert row.entropy_slope(logits, inverse_temperature=cold) <= 0


def test_the_slope_of_the_entropy_is_its_derivative():
    logits = np.random.default_rng(0).normal(size=(3, 5))
    step = 2.0**-14
    for axis in (0, 1, -1, -2):
        up, down = (
            row.row_entropy(logits, inverse_temperature=0.75 + s, axis=axis) for s in (step, -step)
        )
        slope = row.entropy_slope(logits, inverse_temperature=0.75, axis=axis)
        # Central differences: third derivatives of order 10 times step²/6.
        np.testing.assert_allclose((up - down) / (2 * step), slope, atol=20 * step**2)


def test_masked_items_do_not_count_in_the_entropy():
    full = row.row_entropy(np.array([1.0, 0.0, 3.0]))
    assert row.row_entropy(np.array([1.0, -np.inf, 0.0, 3.0])) == full
    assert row.row_entropy(np.array([-np.inf, 2.0])) == 0.0


@pytest.mark.parametrize("spread", [0.0, 1e-9, 3.0, 800.0, 1e4, math.inf])
def test_one_item_takes_everything(spread):
    assert row.max_coefficient(1, spread) == 1.0
    assert row.min_coefficient(1, spread) == 1.0
    assert row.norm_max_coefficient(1, spread) == 1.0
    assert row.length_scaled_max_coefficient(1, spread) == 1.0
    assert row.min_entropy(1, spread) == 0.0
    assert row.norm_min_entropy(1, spread) == 0.0
    assert row.required_spread(1, 0.999) == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000, 32768, 10**12, 1.5, 1 + 2.0**-52])
def test_edges_are_exact(n):
    assert row.max_coefficient(n, 0) == row.min_coefficient(n, 0) == 1 / n
    assert row.loose_max_coefficient(n, 0) == 1 / n
    assert row.norm_max_coefficient(n, 0) == 1 / n
    assert row.max_coefficient(n, math.inf) == 1.0
    assert row.max_coefficient_with_sink(n, 0, 0, sink=-math.inf) == 1 / n
    assert row.sink_share(n, 0.0, sink=-math.inf) == 0.0
    assert row.set_mass(0, n, math.inf) == row.set_mass(0, n, 800.0) == 0.0
    assert row.set_mass(n, n, 5.0) == row.min_set_mass(n, n, 800.0) == 1.0
    assert row.capped_spread(math.inf, 30.0) == 60.0
    assert row.reachable_length(math.inf, 0.5) == math.inf
    assert row.closed_min_entropy(n, math.inf) == -math.inf
    if n > 1:
        assert row.min_coefficient(n, math.inf) == row.min_entropy(n, math.inf) == 0.0
        assert row.norm_min_entropy(n, math.inf) == 0.0


def test_the_closed_floor_stays_below_and_comes_close():
    n, spread = np.meshgrid([2, 3, 10, 1000, 10**6], np.linspace(0, 12, 49))
    exact, closed = row.min_entropy(n, spread), row.closed_min_entropy(n, spread)
    assert (closed <= exact + 8 * 2.0**-52 * (np.log(n) + spread)).all()
    assert 0 < row.min_entropy(1000, 3.0) - row.closed_min_entropy(1000, 3.0) < 3e-8


@given(n=testing.lengths(min_value=2, max_value=400), spread=testing.spreads(max_value=30.0))
def test_the_entropy_floor_is_the_least_over_every_whole_k(n, spread):
    k = np.arange(1, n)
    ratio = (n - k) / k * np.exp(-spread)
    every = np.log(k) + np.log1p(ratio) + spread * ratio / (1 + ratio)
    assert row.min_entropy(n, spread) == pytest.approx(every.min(), rel=16 * 2.0**-53, abs=0)


def test_logits_that_grow_with_log_n_have_three_limits():
    n = 1e300
    assert row.length_scaled_max_coefficient(n, 1.5) == 1.0
    assert row.length_scaled_max_coefficient(n, 1.0) == pytest.approx(0.5, rel=1e-12)
    assert row.length_scaled_max_coefficient(n, 0.5) < 1e-140
    assert row.length_scaled_max_coefficient(1000, 3.0, scale=0.5) == pytest.approx(
        row.max_coefficient(1000, 1.5 * math.log(1000)), rel=1e-13
    )


@pytest.mark.parametrize("name", ["max_coefficient", "min_coefficient", "min_entropy"])
def test_temperature_divides_the_spread(name):
    function = getattr(row, name)
    assert function(50, 6.0, temperature=4.0) == function(50, 1.5)
    assert function(50, math.inf, temperature=4.0) == function(50, math.inf)


def test_temperature_multiplies_the_required_spread():
    assert row.required_spread(50, 0.5, temperature=4.0) == 4 * row.required_spread(50, 0.5)
    assert row.reachable_length(6.0, 0.5, temperature=4.0) == row.reachable_length(1.5, 0.5)


def test_items_of_the_inverses_are_a_set():
    spread = row.required_spread(1000, 0.9, items=4)
    assert row.set_mass(4, 1000, spread) == pytest.approx(0.9, rel=1e-14)
    assert row.reachable_length(spread, 0.9, items=4) == pytest.approx(1000, rel=1e-13)


def test_the_ceiling_falls_with_length_and_rises_with_spread():
    n = np.unique(np.logspace(0, 12, 200).round())[:, None]
    spread = np.linspace(0, 60, 200)
    ceiling = row.max_coefficient(n, spread)
    assert (np.diff(ceiling, axis=0) <= 0).all()
    assert (np.diff(ceiling, axis=1) >= 0).all()
    assert (ceiling <= np.minimum(1, row.loose_max_coefficient(n, spread)) * (1 + 2.0**-51)).all()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arrays_broadcast_and_keep_their_type(name):
    values = {"n": 40, "m": 3, "d": 2.5, "p": 0.5, "l": 1.0, "c": 30.0}
    arguments = [values[x] for x in ARGUMENTS[name] if x != "b"]
    function = getattr(row, name)
    assert type(function(*arguments)) is float
    for dtype in (np.float64, np.float32):
        first = np.full((2, 1), arguments[0], dtype)
        second = np.full((3,), arguments[1], dtype)
        got = function(first, second, *arguments[2:])
        assert got.shape == (2, 3)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, function(*arguments), rtol=8 * np.finfo(dtype).eps)
    assert function(np.float16(arguments[0]), *arguments[1:]).dtype == np.float32


def test_whole_numbers_in_arrays_become_floats():
    assert row.max_coefficient(np.array([1, 10]), np.array([3, 3])).dtype == np.float64
    assert row.max_coefficient(np.array([7]), np.float32([0.0])).dtype == np.float32


BAD = [
    (lambda: row.max_coefficient(0, 1.0), r"n must be at least 1 and finite.* Got 0\."),
    (lambda: row.max_coefficient(math.inf, 1.0), r"n must be at least 1 and finite"),
    (lambda: row.max_coefficient(10**400, 1.0), r"n must be at least 1 and finite"),
    (lambda: row.max_coefficient(math.nan, 1.0), r"n must be .* Got nan\."),
    (lambda: row.max_coefficient(2, -1.0), r"spread must be 0 or more.* Got -1\.0\."),
    (lambda: row.max_coefficient(2, np.array([1.0, np.nan])), r"spread must .* Got nan\."),
    (lambda: row.max_coefficient(2, 1.0, temperature=0), r"temperature must be positive"),
    (lambda: row.required_spread(2, 1.0), r"coefficient must lie strictly between 0 and 1"),
    (lambda: row.required_spread(2, 0.5, items=3), r"items must not exceed n\. Got items=3, n=2"),
    (lambda: row.reachable_length(1.0, 0.0), r"coefficient must lie strictly between 0 and 1"),
    (lambda: row.set_mass(3, np.array([5, 2]), 1.0), r"m must not exceed n\. Got m=3, n=2\."),
    (lambda: row.set_mass(-1, 5, 1.0), r"m must be between 0 and n"),
    (lambda: row.capped_spread(1.0, 0.0), r"cap must be positive and finite"),
    (lambda: row.norm_min_entropy(3, -1.0), r"norm must be 0 or more"),
    (lambda: row.sink_share(3, math.inf), r"level must be finite"),
    (lambda: row.max_coefficient_with_sink(3, 1.0, 0.0, sink=math.inf), r"sink must be below inf"),
    (lambda: row.length_scaled_max_coefficient(3, 1.0, scale=-1), r"scale must be 0 or more"),
    (lambda: row.row_entropy(np.array([0.0, np.nan])), r"logits must not be nan or inf"),
    (lambda: row.max_coefficient([1, 2], 1.0), r"n must be a number or an array\. Got list\."),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_a_broken_rule_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
