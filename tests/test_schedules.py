import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion import errors, rigor, schedules
from dispersion.schedules import Schedule, parse_schedule

EPS = np.finfo(np.float64).eps

EXACT = {
    "constant:1.7": lambda n: mp.mpf(1.7),
    "log:0.5": lambda n: mp.log(n) / 2,
    "sqrt-log": lambda n: mp.sqrt(2 * mp.log(n)),
    "yarn:8192": lambda n: (mp.mpf(1) / 10 * mp.log(max(mp.mpf(n) / 8192, 1)) + 1) ** 2,
    "llama4:0.1,8192": lambda n: 1 + mp.mpf(0.1) * mp.log(1 + n // 8192),
}
LENGTHS = [1, 2, 3, 8191, 8192, 8193, 16383, 16384, 32768, 10**6, 2**53]


@pytest.mark.parametrize("text", EXACT)
@pytest.mark.parametrize("n", LENGTHS)
def test_factors_are_enclosed_and_rounded_well(text, n):
    schedule = parse_schedule(text)
    with mp.workdps(60):
        exact = EXACT[text](n)
        enclosed = schedule.enclose(n)
        assert enclosed.lower <= exact <= enclosed.upper
        assert enclosed.upper - enclosed.lower <= 2 * EPS * enclosed.upper
        # A logarithm, a quotient, a square or root: a handful of roundings.
        assert abs(schedule(n) - exact) <= 8 * EPS * exact


@pytest.mark.parametrize("text", EXACT)
def test_arrays_and_jax_agree_with_numbers(text, x64):
    import jax

    schedule = parse_schedule(text)
    want = [schedule(n) for n in LENGTHS]
    assert isinstance(want[0], float)
    lengths = np.array(LENGTHS, dtype=np.float64)
    np.testing.assert_allclose(schedule(lengths), want, rtol=8 * EPS)
    np.testing.assert_allclose(jax.jit(schedule)(lengths), want, rtol=8 * EPS)
    slopes = jax.vmap(jax.grad(schedule))(lengths)
    assert np.isfinite(slopes).all()


def test_the_slope_of_a_schedule_is_its_derivative(x64):
    import jax

    assert float(jax.grad(parse_schedule("log:0.5"))(100.0)) == pytest.approx(0.005)
    assert float(jax.grad(parse_schedule("yarn:50"))(100.0)) == pytest.approx(
        2 * (0.1 * math.log(2) + 1) * 0.1 / 100
    )


@given(st.integers(1, 10**9), st.floats(0, 3), st.floats(0, 30))
def test_log_length_is_the_schedule_of_the_length_scaled_ceiling(n, c, spread):
    factor = Schedule("log", (c,)).enclose(n)
    scheduled = rigor.max_coefficient(n, rigor.product(spread, factor))
    direct = rigor.length_scaled_max_coefficient(n, spread, scale=c)
    assert scheduled.lower <= direct.upper
    assert direct.lower <= scheduled.upper
    # The rounding of a spread of up to 2000 logits, e^(2000·eps), is all that lies between.
    assert scheduled.upper <= direct.upper * (1 + 1e-11)


@given(st.sampled_from(sorted(EXACT)), st.integers(1, 2**50), st.integers(0, 2**50))
def test_no_schedule_ever_falls(text, n, more):
    schedule = parse_schedule(text)
    assert schedule.enclose(n + more).upper >= schedule.enclose(n).lower


@pytest.mark.parametrize("text", [*EXACT, "constant:1", "log:1e-3", "llama4:0,1"])
def test_text_survives_a_round_trip(text):
    assert parse_schedule(str(parse_schedule(text))) == parse_schedule(text)


def test_lengths_may_be_written_short():
    assert parse_schedule("yarn:8K") == parse_schedule("YARN:8192") == Schedule("yarn", (8192.0,))
    assert parse_schedule("llama4:0.1,8K").numbers == (0.1, 8192.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "one of constant:C, log:C, sqrt-log, yarn:L, llama4:A,L"),
        ("cosine", "Got 'cosine'"),
        ("log", "one of"),
        ("log:1,2", "one of"),
        ("sqrt-log:1", "one of"),
        ("log:x", "C of log:C must be a number. Got 'x'"),
        ("log:-1", "finite and 0 or more. Got -1.0"),
        ("log:nan", "finite and 0 or more"),
        ("log:inf", "finite and 0 or more"),
        ("yarn:0", "L of yarn:L must be a length such as 8K. Got '0'"),
        ("yarn:1.5", "L of yarn:L"),
        ("llama4:8192", "one of"),
    ],
)
def test_bad_schedules_are_refused(text, words):
    with pytest.raises(errors.ArgumentError) as caught:
        parse_schedule(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "numbers", "words"),
    [
        ("cosine", (), "one of"),
        ("log", (), "0 numbers"),
        ("yarn", (0.0,), "whole number of tokens"),
        ("yarn", (1.5,), "whole number of tokens"),
        ("llama4", (0.1, math.inf), "whole number of tokens"),
    ],
)
def test_bad_numbers_are_refused(kind, numbers, words):
    with pytest.raises(errors.ArgumentError, match=words):
        Schedule(kind, numbers)


def test_a_length_below_one_is_refused():
    for text in EXACT:
        with pytest.raises(errors.ArgumentError, match="n must be"):
            parse_schedule(text)(0.5)
        with pytest.raises(errors.ArgumentError, match="n must be"):
            parse_schedule(text).enclose(0)


def test_only_the_constant_schedule_does_not_vary():
    assert [t for t in EXACT if not parse_schedule(t).varies] == ["constant:1.7"]
    assert schedules.CONSTANT(5) == 1.0
