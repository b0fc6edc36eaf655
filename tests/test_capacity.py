"""`dispersion.capacity` and `rigor_capacity`: values, edges, gradients and enclosures."""

import math
import warnings

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from capacity_checks import (
    FLAT,
    SHARES,
    check_attained,
    check_values,
    objective,
    spectra,
    true_log_capacity,
)
from dispersion import ArgumentError, capacity, rigor_capacity
from dispersion.enclosure import Enclosure, Estimate

positive = st.floats(1e-6, 1e5)
lists = st.lists(st.just(0.0) | positive, min_size=1, max_size=12)


@pytest.mark.parametrize(("dimension", "kappa", "value"), FLAT)
def test_reference_capacities(dimension, kappa, value):
    # Printed to 6 or 7 digits.
    assert capacity.capacity([kappa] * dimension) == pytest.approx(value, rel=1e-6)
    found = rigor_capacity.capacity([kappa] * dimension)
    assert found.lower <= value * (1 + 1e-6)
    assert found.upper >= value * (1 - 1e-6)
    assert found.upper / found.lower < 1 + 1e-9


@pytest.mark.parametrize(("n", "kappa", "value"), [x[:3] for x in SHARES])
def test_reference_shares(n, kappa, value):
    assert capacity.any_token_ceiling(n, list(kappa)) == pytest.approx(value, rel=5e-6)
    found = rigor_capacity.share(rigor_capacity.log_capacity(kappa), n)
    assert found.lower == pytest.approx(value, rel=5e-6)
    assert found.upper == pytest.approx(value, rel=5e-6)


def test_what_unit_gain_qk_norm_can_address():
    for d, tokens in [(64, 3629), (128, 99587), (256, 10_789_874)]:
        log = rigor_capacity.log_capacity([math.sqrt(d) * (1 + 2.0**-52)] * d)
        assert math.floor(2 * math.exp(log.upper)) == tokens


@pytest.mark.parametrize("module", [capacity, rigor_capacity])
def test_values_agree_with_high_precision(module):
    check_values(module)


@pytest.mark.parametrize("r", [64, 576])
@pytest.mark.parametrize("kind", ["mixture", "decay", "flat with a spike"])
def test_long_spectra(r, kind):
    rng = np.random.default_rng(r)
    kappa = {
        "mixture": 10 ** rng.uniform(-6, 5, r),
        "decay": 40 * np.exp(-np.arange(r) / 50),
        "flat with a spike": np.where(np.arange(r) == 7, 1e4, 3.0),
    }[kind]
    with mp.workdps(30):
        level = mp.mpf(float(capacity.water_level(kappa)))
        values = [mp.mpf(float(x)) for x in kappa]
        true = objective(values, level)
        # A minimum: the objective is higher on both sides of the level, however close.
        for step in (mp.mpf("1e-7"), mp.mpf("1e-3"), mp.mpf("0.5")):
            assert objective(values, level * (1 + step)) > true
            assert objective(values, level * (1 - step)) > true
    assert float(capacity.log_capacity(kappa)) == pytest.approx(float(true), rel=r * 2.0**-52)
    found = rigor_capacity.log_capacity(kappa)
    assert mp.mpf(found.lower) <= true
    # The float level is not the exact one: a square of its relative error, and an ulp.
    assert true <= mp.mpf(found.upper) * (1 + mp.mpf(2) ** -52)
    assert found.upper - found.lower <= 2.0**-36 * found.upper


@given(kappa=lists, factor=st.floats(1.0, 3.0), index=st.integers(0, 11))
def test_the_capacity_grows_with_every_value_and_stays_below_the_largest(kappa, factor, index):
    log = capacity.log_capacity(kappa)
    room = 1 + 64 * 2.0**-53
    assert 0 <= log <= max(kappa) * room
    grown = list(kappa)
    grown[index % len(kappa)] *= factor
    assert capacity.log_capacity(grown) >= log / room
    ball = rigor_capacity.log_capacity(kappa)
    assert ball.upper <= max(kappa)
    assert ball.lower / room <= log <= ball.upper * room


@given(kappa=lists, seed=st.integers(0, 99))
def test_order_zeros_and_shape_do_not_matter(kappa, seed):
    log = capacity.log_capacity(kappa)
    order = np.random.default_rng(seed).permutation(len(kappa))
    shuffled = [kappa[i] for i in order]
    # Summed in another order, and from another bracket where zeros are added.
    room = (len(kappa) + 32) * 2.0**-53
    assert capacity.log_capacity(shuffled) == pytest.approx(log, rel=room, abs=0)
    assert capacity.log_capacity([*kappa, 0.0, 0.0]) == pytest.approx(log, rel=room, abs=0)
    batch = capacity.log_capacity(np.array([kappa, shuffled, [0.0] * len(kappa)]))
    np.testing.assert_allclose(batch, [log, log, 0.0], rtol=room)
    assert rigor_capacity.log_capacity([*shuffled, 0.0]) == rigor_capacity.log_capacity(kappa)


def test_flat_spectra_have_the_closed_level():
    for d in (1, 2, 64, 576):
        for kappa in (1e-6, 0.5, 8.0, 1e5):
            exact = kappa * d / (kappa + d / 2 + math.hypot(kappa, d / 2))
            assert capacity.water_level([kappa] * d) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("module", [capacity, rigor_capacity])
def test_nothing_overflows(module):
    huge = [[1e5] * 576, [1e150, 1.0], [1.7e308, 1e308], [5e-324, 1e308], [5e-324] * 3, [1e-310]]
    for kappa in huge:
        log = module.log_capacity(kappa)
        high = getattr(log, "upper", log)
        assert 0 <= high <= max(kappa) * (1 + 2.0**-50)
        assert not math.isnan(getattr(log, "lower", log))
        for n in (1, 2, 10**12, 10**300):
            top = module.any_token_ceiling(n, kappa)
            assert 0 <= getattr(top, "upper", top) <= 1
            assert getattr(module.simplex_ceiling(n, kappa[0]), "upper", 1.0) <= 1
    found = module.capacity([1e5] * 576)
    assert getattr(found, "upper", found) == math.inf


def test_counts_of_any_size_are_enclosed():
    found = rigor_capacity.any_token_ceiling(10**400, [3.0, 2.0])
    assert found == Enclosure(0.0, 5e-324)
    assert rigor_capacity.any_token_ceiling(10**30, [1e5] * 64).upper == 1.0
    assert 0 < rigor_capacity.any_token_ceiling(10**30, [9.0] * 4).upper < 1e-26


def test_one_key_and_no_values_at_all():
    assert capacity.any_token_ceiling(1, [3.0]) == capacity.simplex_ceiling(1, 3.0) == 1.0
    assert rigor_capacity.any_token_ceiling(1, [0.0]) == Enclosure(1.0, 1.0)
    assert rigor_capacity.steep_ceiling(1, 0.0) == Enclosure(1.0, 1.0)
    assert capacity.log_capacity([0.0, 0.0]) == capacity.water_level([0.0]) == 0.0
    assert capacity.any_token_ceiling(5, [0.0]) == 0.2
    assert rigor_capacity.any_token_ceiling(4, [0.0, 0.0]) == Enclosure(0.25, 0.25)


def test_numbers_in_numbers_out():
    assert type(capacity.log_capacity([1, 2])) is float
    assert type(capacity.any_token_ceiling(3, (1.0, 2.0))) is float
    assert type(capacity.any_token_ceiling(3, 2 * [1.0])) is float
    assert capacity.log_capacity([[1.0, 2.0], [3.0, 0.0]]).shape == (2,)
    kappa = np.abs(np.random.default_rng(0).normal(size=(3, 4, 5)))
    n = np.array([2, 7, 10**6])[:, None]
    got = capacity.any_token_ceiling(n, kappa)
    assert got.shape == (3, 4)
    assert got.dtype == np.float64
    one = capacity.any_token_ceiling(7, kappa[1, 2].tolist())
    assert float(got[1, 2]) == pytest.approx(one, rel=1e-14)
    single = capacity.log_capacity(kappa.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, capacity.log_capacity(kappa), rtol=32 * 2.0**-24)
    assert capacity.log_capacity(np.array([2, 3])).dtype == np.float64


BAD = [
    ([], r"at least 1"),
    (np.zeros((3, 0)), r"at least 1"),
    ([1.0, -2.0], r"singular_values must be finite and 0 or more\. Got -2\.0"),
    ([1.0, math.nan], r"singular_values must be finite and 0 or more\. Got nan"),
    ([math.inf], r"singular_values must be finite and 0 or more\. Got inf"),
    (["a"], r"singular_values must be a list of numbers"),
    ([[1.0], [2.0, 3.0]], r"singular_values must be a list of numbers"),
    (3.0, r"singular_values must"),
]


@pytest.mark.parametrize(("kappa", "message"), BAD)
@pytest.mark.parametrize("module", [capacity, rigor_capacity])
def test_a_broken_spectrum_is_named(module, kappa, message):
    for call in (module.log_capacity, module.capacity, lambda k: module.any_token_ceiling(5, k)):
        with pytest.raises(ArgumentError, match=message):
            call(kappa)


@pytest.mark.parametrize("n", [0, -1, math.nan, math.inf])
def test_a_broken_count_is_named(n):
    for module in (capacity, rigor_capacity):
        with pytest.raises(ArgumentError, match="n must be"):
            module.any_token_ceiling(n, [1.0])
    with pytest.raises(ArgumentError, match="n must be a whole number"):
        rigor_capacity.any_token_ceiling(2.5, [1.0])
    with pytest.raises(ArgumentError, match="dimension must be a whole number"):
        rigor_capacity.flat_log_capacity(0, 1.0)


# --- enclosures of T13′ and T13″ --------------------------------------------------------------


def true_log_mean(d, kappa):
    """log of the mean of e^(κ x_1) over the sphere, by quadrature of its density."""
    with mp.workdps(30):
        kappa = mp.mpf(kappa)
        if d == 1:
            return mp.log(mp.cosh(kappa))
        # Substitute x = cos φ; pull e^κ out.
        weight = mp.quad(lambda a: mp.sin(a) ** (d - 2), [0, mp.pi / 2, mp.pi])
        cuts = [0, 1 / mp.sqrt(1 + kappa), mp.pi / 2, mp.pi]
        mass = mp.quad(lambda a: mp.sin(a) ** (d - 2) * mp.exp(kappa * (mp.cos(a) - 1)), cuts)
        return kappa + mp.log(mass / weight)


def true_flat(d, kappa):
    """The least of the bounds with a uniform measure on one sphere, over its radius."""
    mean = true_log_mean(d, kappa)
    if mean <= mp.mpf(kappa) / 2:
        return mp.mpf(kappa) - mean
    with mp.workdps(30):
        root = mp.findroot(
            lambda s: true_log_mean(d, s) - mp.mpf(kappa) / 2,
            (mp.mpf(kappa) / 2, mp.mpf(kappa)),
            solver="anderson",
        )
        return true_log_mean(d, root**2 / kappa)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("kappa", [1e-6, 0.5, 3.0, 8.0, 60.0])
def test_flat_bounds_are_those_of_the_sphere(d, kappa):
    true = true_flat(d, kappa)
    found = rigor_capacity.flat_log_capacity(d, kappa)
    room = mp.mpf(10) ** -16 * (1 + true)  # the quadrature's own
    assert found.lower - room <= true <= found.upper + room
    assert found.upper - found.lower <= 2.0**-49 * (1 + found.upper)
    direct = mp.mpf(kappa) - true_log_mean(d, kappa)
    estimate = rigor_capacity.flat_log_capacity_estimate(d, kappa)
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(float(direct), rel=1e-12)
    assert estimate.value <= found.upper
    wide = rigor_capacity.flat_log_capacity(d, Enclosure(kappa / 2, kappa))
    assert wide.upper == found.upper
    assert wide.lower == rigor_capacity.flat_log_capacity(d, kappa / 2).lower


@pytest.mark.parametrize(("d", "kappa"), [(1, 2.0), (4, 8.0), (8, 24.0)])
def test_the_potential_of_a_sphere_is_least_at_an_end(d, kappa):
    """The step of T13′'s proof that needs it, and the bound at radii other than the best."""
    found = rigor_capacity.flat_log_capacity(d, kappa).upper

    def log_mean(y):
        y = np.maximum(y, 1e-9)
        power = (d / 2 - 1) * np.log(2 / y)
        return special.gammaln(d / 2) + power + np.log(special.ive(d / 2 - 1, y)) + y

    for radius in np.linspace(0.2, 1.4, 13) * math.sqrt(kappa):
        x = np.linspace(0, math.sqrt(kappa), 200)
        logs = log_mean(radius * x) - (x**2 + radius**2) / 2
        assert logs.min() >= min(logs[0], logs[-1]) - 1e-12
        energy = log_mean(radius**2) - radius**2
        assert energy - 2 * logs.min() >= found - 1e-12


def test_the_flat_bound_is_below_t13_and_t1_where_it_is_proved():
    for d in (1, 2, 8, 128):
        for kappa in np.linspace(0.01, d, 9):
            flat = rigor_capacity.flat_log_capacity(d, kappa)
            # The two agree to second order in κ/d; T13's own enclosure is 2^-36 wide.
            assert flat.lower <= rigor_capacity.log_capacity([kappa] * d).upper
            assert flat.upper <= kappa
            grown = rigor_capacity.flat_log_capacity(d, min(d, kappa * 1.01))
            assert grown.upper >= flat.lower


def test_any_token_takes_the_least_of_what_applies():
    kappa = [5.0, 0.1, 0.0]
    n = 100
    steep = rigor_capacity.steep_ceiling(n, 0.1, 5.0).upper
    assert rigor_capacity.any_token_ceiling(n, kappa, steep=True).upper == steep
    assert rigor_capacity.any_token_ceiling(n, kappa).upper > steep
    few = rigor_capacity.any_token_ceiling(3, [2.0] * 40).upper
    assert few == rigor_capacity.simplex_ceiling(3, 2.0).upper
    flat = rigor_capacity.any_token_ceiling(10**4, [6.0] * 8).upper
    assert flat == rigor_capacity.share(rigor_capacity.flat_log_capacity(8, 6.0), 10**4).upper


def test_the_tight_ceilings_are_attained():
    check_attained(rigor_capacity)
    check_attained(capacity)


# --- JAX --------------------------------------------------------------------------------------


def test_jit_vmap_and_grad_agree(x64):
    import jax
    import jax.numpy as jnp

    kappa = np.array([x for x in spectra() if len(x) == 4])
    log = jax.jit(jax.vmap(capacity.log_capacity))(kappa)
    assert log.dtype == jnp.float64
    np.testing.assert_allclose(log, capacity.log_capacity(kappa), rtol=32 * 2.0**-53)
    ceiling = jax.jit(capacity.any_token_ceiling)(jnp.float64(50.0), kappa)
    np.testing.assert_allclose(ceiling, capacity.any_token_ceiling(50, kappa), rtol=1e-13)
    for values in kappa:
        slope = jax.jit(jax.grad(capacity.log_capacity))(values)
        level = float(capacity.water_level(values))
        over = np.maximum(values - level, 0.0)
        np.testing.assert_allclose(slope, over / (values * (values + over)), rtol=1e-9, atol=1e-15)


def test_the_gradient_is_that_of_the_minimum(x64):
    import jax

    kappa = np.array([6.0, 3.0, 1.0, 0.25])
    slope = jax.grad(capacity.log_capacity)(kappa)
    for index in range(len(kappa)):
        step = 1e-4 * kappa[index]
        moved = [
            true_log_capacity(tuple(kappa + sign * step * (np.arange(4) == index)))
            for sign in (1, -1)
        ]
        # Third derivatives of order 1 times step²/6; the differences themselves are exact.
        assert float(slope[index]) == pytest.approx(
            float((moved[0] - moved[1]) / (2 * step)), abs=1e-7
        )


def test_gradients_are_finite_at_the_edges(x64):
    import jax
    import jax.numpy as jnp

    both = jax.value_and_grad(capacity.any_token_ceiling, argnums=(0, 1))
    for kappa in ([0.0, 0.0], [1e5, 0.0], [1e-300, 1e5], [2.0, 2.0], [5e-324, 0.0]):
        for n in (1.0, 2.0, 1e12):
            value, slopes = both(jnp.float64(n), jnp.array(kappa))
            assert 0 < value <= 1 or kappa[0] == 0.0
            assert all(np.isfinite(s).all() for s in slopes), (n, kappa, slopes)


def test_float32_is_kept():
    import jax
    import jax.numpy as jnp

    kappa = jnp.array([[6.0, 3.0, 1.0, 0.5], [1e5, 1e-6, 0.0, 2.0]])
    got = jax.jit(capacity.log_capacity)(kappa)
    assert got.dtype == jnp.float32
    true = [float(true_log_capacity(tuple(map(float, row)))) for row in np.asarray(kappa)]
    np.testing.assert_allclose(got, true, rtol=16 * 2.0**-24)


def test_numpy_stays_numpy_when_jax_is_loaded():
    import jax  # noqa: F401

    kappa = np.array([3.0, 1.0])
    assert type(capacity.any_token_ceiling(9, kappa)) in (np.ndarray, np.float64)
    assert capacity.any_token_ceiling(9, kappa).dtype == np.float64


@settings(max_examples=30)
@given(kappa=lists, n=st.integers(1, 10**12))
def test_arrays_and_balls_compute_the_same_ceiling(kappa, n):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        number = capacity.any_token_ceiling(n, kappa)
        ball = rigor_capacity.any_token_ceiling(n, kappa)
    # log N and κn/(n−1) are rounded before they are exponentiated; the ball may be lower by T13′.
    room = (64 + 8 * max(kappa)) * 2.0**-53
    assert ball.upper <= number * (1 + room) + 5e-324
