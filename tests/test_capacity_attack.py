"""Attempts to beat the any-token ceilings, contexts that attain them, and planted mutants."""

import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from capacity_checks import (
    check_capacity,
    check_contexts,
    cross_polytope,
    cube,
    exact_coefficients,
    float_coefficients,
    polygon,
    simplex,
    two_ends,
)
from dispersion import capacity, rigor_capacity
from dispersion.ascent import climb
from dispersion.contexts import best_context

# Floats: n terms with exponents of some 1e-15 relative to logits up to 40.
ROUNDING = 2.0**-40


def test_no_context_of_the_bank_exceeds_a_ceiling():
    check_contexts(capacity)
    check_contexts(rigor_capacity, slack=2.0**-44)


# --- attacks ----------------------------------------------------------------------------------


def spectrum(kind, r, top):
    index = np.arange(r)
    return {
        "flat": np.full(r, top),
        "decaying": top * np.exp(-index / 2),
        "one large": np.where(index == 0, top, top / 10),
        "with zeros": np.where(index % 2 == 0, top, 0.0),
    }[kind]


def in_ball(points, norms):
    sizes = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(sizes, 1e-12) * norms[:, None]


CONTEXTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["flat", "decaying", "one large", "with zeros"]),
        "n": st.integers(2, 24),
        "r": st.integers(1, 9),
        "top": st.floats(0.01, 20.0),
        "sphere": st.booleans(),
        "tied": st.booleans(),
        "noise": st.floats(0.0, 1.0),
        "seed": st.integers(0, 2**20),
    }
)


def hold(n, kappa, shares):
    """Every ceiling, rounded and certified, against the coefficients of one context."""
    least, harmonic = shares.min(), len(shares) / np.sum(1 / shares)
    kappa = kappa.tolist()
    certified = rigor_capacity.any_token_ceiling(n, kappa, steep=True).upper
    assert least <= certified * (1 + ROUNDING)
    assert least <= capacity.any_token_ceiling(n, kappa) * (1 + ROUNDING)
    log = rigor_capacity.log_capacity(kappa).upper
    assert harmonic <= math.exp(log) / n * (1 + ROUNDING)
    for p in (0.1, 0.5, 0.9):
        assert np.count_nonzero(shares >= p) <= math.exp(log) / p * (1 + ROUNDING)
    return least / certified


@settings(max_examples=150)
@given(case=CONTEXTS)
def test_no_random_context_exceeds_a_ceiling(case):
    rng = np.random.default_rng(case["seed"])
    n, r = case["n"], case["r"]
    kappa = spectrum(case["kind"], r, case["top"])
    norms = np.ones(n) if case["sphere"] else rng.uniform(0, 1, n)
    base = cross_polytope(r)[np.arange(n) % (2 * r)] + case["noise"] * rng.standard_normal((n, r))
    keys = in_ball(base, norms)
    queries = keys
    if not case["tied"]:
        queries = in_ball(keys + case["noise"] * rng.standard_normal((n, r)), np.ones(n))
    target(hold(n, kappa, float_coefficients(queries, keys, kappa)))


def diagonal(kappa):
    def model(queries, keys):
        logits = (queries * kappa) @ keys.T
        return logits, lambda g: ((g @ keys) * kappa, (g.T @ queries) * kappa)

    return model


ASCENTS = [
    (n, r, kind, top)
    for n, r in [(2, 1), (3, 2), (5, 3), (12, 2), (12, 16), (40, 6), (64, 4)]
    for kind, top in [("flat", 3.0), ("decaying", 8.0), ("one large", 6.0)]
]


@pytest.mark.parametrize(("n", "r", "kind", "top"), ASCENTS)
def test_ascent_does_not_pass_the_ceilings(n, r, kind, top):
    rng = np.random.default_rng(n * r)
    kappa = spectrum(kind, r, top)
    for tied in (True, False):
        keys = in_ball(rng.standard_normal((n, r)), np.ones(n))
        queries = keys if tied else in_ball(rng.standard_normal((n, r)), np.ones(n))
        for solid in (True, False):
            found = climb(
                diagonal(kappa), queries, keys, steps=60, sharpness=(10.0, 300.0), solid=solid
            )
            assert all(np.linalg.norm(x, axis=1).max() <= 1 + 2.0**-50 for x in found)
            hold(n, kappa, float_coefficients(*found, kappa))


def test_ascent_through_jax_does_not_pass_the_ceilings(x64):
    """Plain gradient steps on the exact smallest coefficient, projected on both balls."""
    import jax
    import jax.numpy as jnp

    def least(pair, kappa, sharpness):
        logits = (pair[0] * kappa) @ pair[1].T
        logs = jnp.diag(logits) - jax.nn.logsumexp(logits, axis=1)
        return -jax.nn.logsumexp(-sharpness * logs) / sharpness

    @jax.jit
    def run(pair, kappa):
        def step(i, pair):
            slopes = jax.grad(least)(pair, kappa, 5.0 * 1.02**i)
            size = jnp.sqrt(sum(jnp.sum(g**2) for g in slopes)) + 1e-30
            moved = [x + 0.3 * 0.99**i * g / size for x, g in zip(pair, slopes, strict=True)]
            return tuple(
                x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1) for x in moved
            )

        return jax.lax.fori_loop(0, 300, step, pair)

    for kappa in (np.full(4, 4.0), np.array([6.0, 3.0, 1.0, 0.5])):
        rng = np.random.default_rng(1)
        pair = tuple(in_ball(rng.standard_normal((16, 4)), np.ones(16)) for _ in range(2))
        found = [np.asarray(x) for x in run(pair, kappa)]
        reached = hold(16, kappa, float_coefficients(*found, kappa))
        assert reached > 0.6  # the ascent does climb


# --- attained ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [0.2, 1.0, 5.0, 15.0])
def test_t12_is_attained_by_a_regular_simplex_only_with_enough_equal_values(kappa):
    for m in (2, 3, 7):
        points = simplex(m)
        reached = float(min(exact_coefficients(points, points, [kappa] * (m - 1))))
        assert reached == pytest.approx(capacity.simplex_ceiling(m, kappa), rel=1e-13)
    # With one dimension less there is no such simplex.
    reached = best_context(5, [kappa] * 3, steps=240).coefficient
    ceiling = rigor_capacity.simplex_ceiling(5, kappa).upper
    assert (1 - reached) / reached > 1.001 * (1 - ceiling) / ceiling


ORBITS = {
    "polygon": (polygon(7), 2),
    "cross-polytope": (cross_polytope(3), 3),
    "cube": (cube(4), 4),
    "simplex": (simplex(5), 4),
}


@pytest.mark.parametrize("name", ORBITS)
@pytest.mark.parametrize("kappa", [0.5, 2.0])
def test_an_orbit_attains_its_own_gaussian_energy(name, kappa):
    """On a group orbit all α_i are equal, and n/Σα_i^-1 is n over the energy of T13's proof.

    Only the last step, from the orbit's measure to the uniform one, is lost: the share of T13′ is
    the orbit's times mean_j e^(κ⟨u_1, u_j⟩)/M_d(κ), which tends to 1 as the orbit grows.
    """
    points, d = ORBITS[name]
    n = len(points)
    shares = exact_coefficients(points, points, [kappa] * d)
    assert float(max(shares) - min(shares)) < 1e-14
    gaps = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    energy = np.exp(-0.5 * kappa * gaps).sum() / n**2
    assert float(shares[0]) == pytest.approx(1 / (n * energy), rel=1e-13)
    bound = rigor_capacity.flat_log_capacity(d, kappa)
    mean = np.exp(kappa * points @ points[0]).mean()
    log_mean = kappa - bound.upper
    lost = mean / math.exp(log_mean)
    assert lost >= 1 - 1e-12
    assert float(shares[0]) * lost == pytest.approx(math.exp(bound.upper) / n, rel=1e-12)


def test_polygons_attain_t13_prime_but_for_a_bessel_function():
    for kappa in (0.5, 1.0, 2.0):
        for n in (4, 6, 8, 40):
            share = float(min(exact_coefficients(polygon(n), polygon(n), [kappa] * 2)))
            bound = math.exp(rigor_capacity.flat_log_capacity(2, kappa).upper) / n
            rest = sum(mp.besseli(k * n, kappa) for k in range(1, 5)) / mp.besseli(0, kappa)
            assert share == pytest.approx(float(bound / (1 + 2 * rest)), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "kappa"),
    [(12, 2, 2.0), (30, 3, 3.0), (48, 4, 4.0), (60, 3, 2.0), (80, 5, 5.0), (64, 4, 6.0)],
)
def test_flat_spectra_are_within_five_percent(n, d, kappa):
    reached = best_context(n, [kappa] * d, steps=240).coefficient
    ceiling = rigor_capacity.any_token_ceiling(n, [kappa] * d).upper
    assert 0.95 * ceiling <= reached <= ceiling


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_t13_second_is_attained_for_rank_one(n):
    for kappa in (0.1, 2.0, 30.0):
        ends = two_ends(n)
        reached = float(min(exact_coefficients(ends, ends, [kappa])))
        steep = rigor_capacity.steep_ceiling(n, 0.0, kappa).upper
        assert reached == pytest.approx(steep, rel=1e-13)
        assert reached <= rigor_capacity.steep_ceiling(n, 0.0).upper
    # Without κ_1 the bound is the limit of large κ_1.
    assert reached == pytest.approx(1 / math.ceil(n / 2), rel=1e-12)


# --- why the hypotheses are needed ------------------------------------------------------------


def test_counting_the_own_key_breaks_the_bound():
    """1-D, A = σ, C = −1: the own key lies opposite to the query, so it is no competitor."""
    sigma = 0.5
    common = np.array([1.0, -1.0])  # v = ∓1
    shares = []
    for u in (1.0, -1.0):
        logits = sigma * u * np.array([*common, -u])
        shares.append(np.exp(sigma) / np.exp(logits).sum())
    assert min(shares) == pytest.approx(0.5761, abs=5e-5)
    assert rigor_capacity.simplex_ceiling(3, sigma).upper == pytest.approx(0.5142, abs=5e-5)
    assert rigor_capacity.simplex_ceiling(3, sigma).upper < min(shares)
    # The keys common to all queries are two, and for those it holds.
    assert min(shares) <= rigor_capacity.any_token_ceiling(2, [sigma], steep=True).upper


def test_a_rotated_key_bias_breaks_the_bound_of_the_unrotated_matrix():
    """C = 0 and c = (10, 0) at three phases: κ = 0, and every key is retrieved."""
    keys = 10 * polygon(3)
    shares = float_coefficients(polygon(3), keys, np.ones(2))
    assert shares.min() == pytest.approx(0.9999994, abs=5e-8)
    assert rigor_capacity.any_token_ceiling(3, [0.0, 0.0]).upper == pytest.approx(1 / 3)
    # The cover T′ ⪰ c_rot c_rotᵀ that commutes with the rotations is 100·I.
    assert shares.min() <= rigor_capacity.any_token_ceiling(3, [10.0, 10.0]).upper


def test_a_query_bias_breaks_t13_second_but_not_t13():
    """With a ≠ 0 the logits have a term in the key alone, and the median key may stand out.

    One key at 0, the rest at ±1 in one dimension: no query of the ball prefers the middle. A bias
    along a second dimension that the query ball does not span lifts it.
    """
    kappa, lift = 3.0, 3.0
    keys = np.array([[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    queries = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    # A = κ e_1 e_1ᵀ, a = lift·e_2, C = I: AᵀC has the one singular value κ.
    logits = (queries * [kappa, 0.0] + [0.0, lift]) @ keys.T
    plain = (queries * [kappa, 0.0]) @ keys.T
    for levels, beaten in ((logits, True), (plain, False)):
        shares = 1 / np.exp(levels - np.diag(levels)[:, None]).sum(axis=1)
        middle = shares[1]
        assert (middle > rigor_capacity.steep_ceiling(3, 0.0).upper) == beaten
    assert shares.min() <= rigor_capacity.any_token_ceiling(3, [kappa], steep=True).upper


@pytest.mark.parametrize(("r", "top", "cap"), [(1, 3.0, 1.0), (2, 8.0, 3.0), (3, 3.0, 10.0)])
@pytest.mark.parametrize("level", [0.0, 1.0, -2.0])
def test_a_soft_cap_keeps_min_alpha_below_half_or_the_uncapped_ceiling(r, top, cap, level):
    def model(queries, keys):
        logits = cap * np.tanh((top * queries @ keys.T + level * cap) / cap)

        def pull(slope):
            slope = slope * (1 - (logits / cap) ** 2) * top
            return slope @ keys, slope.T @ queries

        return logits, pull

    rng = np.random.default_rng(r)
    keys = in_ball(rng.standard_normal((12, r)), np.ones(12))
    for queries in (keys, in_ball(rng.standard_normal((12, r)), np.ones(12))):
        logits = model(*climb(model, queries, keys, steps=60, sharpness=(10.0, 200.0)))[0]
        shares = 1 / np.exp(logits - np.diag(logits)[:, None]).sum(axis=1)
        uncapped = rigor_capacity.any_token_ceiling(12, [top] * r, steep=True).upper
        assert shares.min() <= max(0.5, uncapped) * (1 + ROUNDING)


# --- mutants ----------------------------------------------------------------------------------


def recomputed(term, *, level=lambda t: t, shift=0):
    """The array module with its own term, level and count; T12 untouched."""

    def log_capacity(values):
        kappa = np.asarray(values, float)
        if not kappa.max() > 0:
            return 0.0
        t = level(capacity.water_level(list(kappa)))
        over = kappa[kappa > t]
        return float(t + sum(term(over / t)))

    def any_token_ceiling(n, values):
        share = math.exp(min(0.0, log_capacity(values) - math.log(max(n + shift, 1))))
        return min(share, capacity.simplex_ceiling(n, max(values)))

    return SimpleNamespace(
        log_capacity=log_capacity,
        any_token_ceiling=any_token_ceiling,
        simplex_ceiling=capacity.simplex_ceiling,
    )


def term(x):
    return 0.5 * np.log1p((x - 1) * ((x - 1) / (2 * x - 1)))


def replaced(**functions):
    return SimpleNamespace(**{**vars(rigor_capacity), **functions})


def wrong_simplex(exponent):
    def ceiling(n, kappa):
        if n == 1:
            return 1.0
        return 1 / (1 + (n - 1) * math.exp(-exponent(n) * kappa))

    return replaced(simplex_ceiling=ceiling)


MUTANTS = {
    "κ/2 for κ": replaced(
        log_capacity=lambda k: rigor_capacity.log_capacity(np.asarray(k, float) / 2)
    ),
    "a missing square": recomputed(lambda x: 0.5 * np.log(x / (2 * x - 1))),
    "a level below the range": recomputed(term, level=lambda t: t / 4),
    "a level above the range": recomputed(term, level=lambda t: t * 4),
    "n − 1 for n": recomputed(term, shift=-1),
    "n + 1 for n": recomputed(term, shift=1),
    "a lost ½": recomputed(lambda x: 2 * term(x)),
    "a second ½": recomputed(lambda x: term(x) / 2),
    "no level in the sum": recomputed(term, level=lambda t: t * (1 - 1e-6)),
    "2σ for σ·n/(n−1)": wrong_simplex(lambda n: 2.0),
    "σ for σ·n/(n−1)": wrong_simplex(lambda n: 1.0),
    "(n−1)/n for n/(n−1)": wrong_simplex(lambda n: (n - 1) / n),
    "⌊n/2⌋ for ⌈n/2⌉−1": replaced(
        steep_ceiling=lambda n, two, one=0.0: 1 / (1 + n // 2 * math.exp(-2 * two))
    ),
    "κ_2 for 2κ_2": replaced(
        steep_ceiling=lambda n, two, one=0.0: rigor_capacity.steep_ceiling(n, two / 2, one)
    ),
    "M_d of another dimension": replaced(
        flat_log_capacity=lambda d, k: rigor_capacity.flat_log_capacity(max(1, d - 1), k)
    ),
    "e^κ lost from T13′": replaced(
        flat_log_capacity=lambda d, k: rigor_capacity.flat_log_capacity(d, k / 2)
    ),
}


def test_the_unchanged_modules_pass():
    check_capacity(capacity)
    check_capacity(rigor_capacity)
    check_capacity(recomputed(term))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mutant_is_caught(name):
    with pytest.raises(AssertionError):
        check_capacity(MUTANTS[name])


@pytest.mark.parametrize("name", ["κ/2 for κ", "a missing square", "a second ½"])
def test_a_mutant_on_the_unsafe_side_is_beaten_by_a_context(name):
    with pytest.raises(AssertionError):
        check_contexts(MUTANTS[name])
