"""`dispersion.row` under JAX: jit, grad and vmap, both precisions, no nan anywhere."""

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from dispersion import ArgumentError, row
from truth import ARGUMENTS, DIGITS, TRUTH, points, ulps

# XLA's exp, log and tanh are good to a few ulp each, and a formula uses up to four of them.
XLA = 16

EDGES = {
    "n": [1.0, 2.0, 1e12],
    "m": [0.0, 1.0],
    "d": [0.0, 1e-30, 1e-2, 1.0, 700.0, 1e4, math.inf],
    "p": [1e-30, 0.5, 0.999],
    "l": [0.0, -1e4, 1e4],
    "b": [-math.inf, 0.0, 1e4],
    "c": [0.01, 50.0],
}


def positional(name):
    """The function with the sink logit last and positional, for grad and vmap."""
    function = getattr(row, name)
    if "b" not in ARGUMENTS[name]:
        return function
    return lambda *x: function(*x[:-1], sink=x[-1])


def table(name, dtype, count=60):
    """Points as columns, within what the accelerator does not flush to zero."""
    rows = [(*p.arguments, *p.keywords.values()) for p in points(name, count, seed=1)]
    columns = np.array(rows)
    if "p" in ARGUMENTS[name]:
        columns = columns[columns[:, ARGUMENTS[name].index("p")].astype(dtype) < 1]
    with mp.workdps(DIGITS):
        exact = [TRUTH[name](*map(mp.mpf, map(float, x))) for x in columns.astype(dtype)]
    info = np.finfo(dtype)
    keep = [info.tiny <= abs(x) <= info.max for x in exact]
    return columns[keep].astype(dtype).T, [x for x, k in zip(exact, keep, strict=True) if k]


@pytest.mark.parametrize("name", [x for x in ARGUMENTS if x != "closed_min_entropy"])
def test_jit_and_vmap_agree_with_high_precision(name, x64):
    columns, exact = table(name, np.float64)
    got = jax.jit(jax.vmap(positional(name)))(*columns)
    assert isinstance(got, jax.Array)
    assert got.dtype == jnp.float64
    for value, true, arguments in zip(np.asarray(got), exact, columns.T, strict=True):
        # A spread of a norm is rounded before it is exponentiated (norm_min_entropy).
        room = XLA * (1 + (2 * arguments[1] if name == "norm_min_entropy" else 0))
        assert ulps(float(value), true) <= room, (name, arguments, value, true)


@pytest.mark.parametrize("name", [x for x in ARGUMENTS if not x.startswith(("norm", "closed"))])
def test_float32_stays_float32_and_accurate(name):
    columns, exact = table(name, np.float32)
    arguments = [jnp.asarray(x) for x in columns]
    got = jax.jit(positional(name))(*arguments)
    assert got.dtype == jnp.float32
    relative = [abs(mp.mpf(float(v)) / t - 1) for v, t in zip(got, exact, strict=True)]
    worst = int(np.argmax(relative))
    # A sink logit near 1e4 less a level is exact to float32's last digit, as in float64.
    assert relative[worst] <= XLA * 2.0**-23, (name, columns.T[worst], got[worst])


@pytest.mark.parametrize("name", ARGUMENTS)
def test_no_nan_in_values_or_gradients_at_the_edges(name, x64):
    grid = np.meshgrid(*(EDGES[x] for x in ARGUMENTS[name]))
    columns = [jnp.asarray(x.ravel()) for x in grid]
    if ARGUMENTS[name].startswith("m"):
        keep = columns[0] <= columns[1]
        columns = [x[keep] for x in columns]
    function = positional(name)
    every = tuple(range(len(columns)))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(function, argnums=every)))(*columns)
    assert not np.isnan(values).any()
    for index, slope in enumerate(slopes):
        bad = np.isnan(slope)
        assert not bad.any(), (name, index, [np.asarray(x)[bad][:5] for x in columns])


@pytest.mark.parametrize("name", ["max_coefficient", "min_entropy", "required_spread"])
@pytest.mark.parametrize("spread", [0.0, math.inf])
def test_the_gradient_in_the_temperature_is_no_nan(name, spread, x64):
    function = getattr(row, name)
    second = 0.5 if name == "required_spread" else spread
    slope = jax.grad(lambda t: function(5.0, second, temperature=t))(jnp.float64(1.5))
    assert math.isfinite(slope)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_gradients_are_the_derivatives_of_the_statements(name, x64):
    values = {"n": 40.5, "m": 3.0, "d": 2.5, "p": 0.5, "l": 1.0, "b": 2.0, "c": 30.0}
    arguments = [values[x] for x in ARGUMENTS[name]]
    every = tuple(range(len(arguments)))
    slopes = jax.grad(positional(name), argnums=every)(*map(jnp.float64, arguments))
    for index, slope in enumerate(slopes):
        if name == "min_entropy" and index == 0:
            continue  # the mean slope of a minimum over whole k; held below

        def along(x, index=index):
            return TRUTH[name](*(x if i == index else mp.mpf(a) for i, a in enumerate(arguments)))

        with mp.workdps(30):
            true = mp.diff(along, arguments[index])
        assert float(slope) == pytest.approx(float(true), rel=1e-12, abs=1e-15), (name, index)


def test_one_item_more_has_the_slope_of_the_ceiling_at_n_1(x64):
    slope = jax.grad(row.max_coefficient)(jnp.float64(1.0), 2.0)
    assert float(slope) == pytest.approx(-math.exp(-2.0), rel=1e-14)


def test_ascent_on_the_exact_row_does_not_pass_the_ceiling_with_sink(x64):
    """Gradient ascent through jax.grad on a row beside a sink logit (T7)."""
    n, low, high, sink = 9, -2.0, 1.0, 0.5

    def sharpness(logits):
        return jnp.exp(logits[0]) / (jnp.exp(logits).sum() + math.exp(sink))

    climb = jax.jit(
        lambda x: jax.lax.fori_loop(
            0, 300, lambda _, v: jnp.clip(v + 20 * jax.grad(sharpness)(v), low, high), x
        )
    )
    reached = float(sharpness(climb(jnp.zeros(n))))
    ceiling = row.max_coefficient_with_sink(n, high - low, high, sink=sink)
    assert reached == pytest.approx(ceiling, rel=n * 2.0**-52, abs=0)


def test_values_are_checked_where_they_can_be_read():
    with pytest.raises(ArgumentError, match=r"spread must be 0 or more.* Got -1\.0\."):
        row.max_coefficient(3, jnp.array([1.0, -1.0]))
    inside = jax.jit(lambda d: row.max_coefficient(jnp.array([3.0]), d))
    assert inside(2.0).shape == (1,)
    with pytest.raises(ArgumentError, match="n must be at least 1"):
        jax.jit(lambda d: row.max_coefficient(0.5, d))(2.0)


def test_python_and_numpy_numbers_join_a_jax_array():
    spread = jnp.array([1.0, 2.0])
    for n in (10**12, 1e12, np.float64(1e12), np.array([1e12, 1e12])):
        got = row.max_coefficient(n, spread)
        assert isinstance(got, jax.Array)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, row.max_coefficient(1e12, np.asarray(spread)), rtol=1e-6)


def test_half_precision_is_computed_in_float32():
    got = row.max_coefficient(32768, jnp.array(10.0, jnp.bfloat16))
    assert got.dtype == jnp.float32
    assert float(got) == pytest.approx(row.max_coefficient(32768, 10.0), rel=1e-6)


def test_the_package_leaves_the_precision_of_jax_alone():
    assert not jax.config.jax_enable_x64
    row.max_coefficient(10, jnp.float32(3.0))
    assert not jax.config.jax_enable_x64


def test_the_entropy_of_a_row_differentiates_to_its_slope(x64):
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6))).at[0, 2].set(-jnp.inf)

    def total(beta):
        return row.row_entropy(logits, inverse_temperature=beta).sum()

    slope = row.entropy_slope(logits, inverse_temperature=0.7).sum()
    assert float(jax.grad(total)(0.7)) == pytest.approx(float(slope), rel=1e-13)
    by_logit = jax.grad(lambda x: row.row_entropy(x).sum())(logits)
    assert np.isfinite(by_logit).all()
