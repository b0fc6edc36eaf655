"""`dispersion.training`: gradients, jit, vmap, agreement with the certificates, nothing nan."""

import importlib.util
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dispersion import ArgumentError, Enclosure, Head, _surrogate, capacity, rigor_capacity
from dispersion import training as tr
from dispersion._weights import read_heads
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.rotary import rotary
from dispersion.spectrum import spectrum
from dispersion.spread import spread_bound

WIDTH = 48
EPS32 = 2.0**-23


def weights(kind, head_dim=16, seed=0, heads=1):
    """Float64 arrays (heads, head_dim, WIDTH) that are exact in float32, for queries and keys."""
    rng = np.random.default_rng([seed, len(kind)])
    pair = []
    for _ in range(2):
        w = rng.normal(size=(heads, head_dim, WIDTH)) / 8
        if kind == "low rank":
            w = rng.normal(size=(heads, head_dim, 3)) @ rng.normal(size=(heads, 3, WIDTH)) / 8
        elif kind == "graded":
            w = w * np.exp(rng.normal(size=(heads, head_dim, 1)))
        elif kind == "correlated":
            w = w + rng.normal(size=(heads, head_dim, 2)) @ rng.normal(size=(heads, 2, WIDTH)) / 4
        pair.append(w.astype(np.float32).astype(np.float64))
    return pair


KINDS = ("random", "low rank", "graded", "correlated")


def turning(head_dim, rotated=None):
    count = (head_dim if rotated is None else rotated) // 2
    return rotary(100.0 ** -(np.arange(count) / count), head_dim, rotated=rotated)


def head_of(wq, wk, turn=None, gain=None, **sides):
    balls = [projection_ball(w, norm="rms", gain=gain) for w in (wq, wk)]
    query, key = sides.get("query", balls[0]), sides.get("key", balls[1])
    return Head(query, key, Enclosure.exact(1 / math.sqrt(len(wq))), rotary=turn)


@cache
def compiled(name, pairs=None):
    """Value and gradients in W_q, W_k and the gain; one compilation for many tests."""
    return jax.jit(
        jax.value_and_grad(
            lambda wq, wk, gain: getattr(tr, name)(wq, wk, gain=gain, rotary_pairs=pairs),
            argnums=(0, 1, 2),
        )
    )


# Agreement with the certificates


@pytest.mark.parametrize("kind", KINDS)
def test_without_rotation_both_equal_the_certificates(kind, x64):
    wq, wk = (w[0] for w in weights(kind))
    gain = 1 + np.arange(WIDTH) / 64
    values = spectrum(head_of(wq, wk, gain=gain)).values
    spread = spread_bound(head_of(wq, wk, gain=gain)).spread
    room = 1e-10  # the certificates' own slack; float64 rounds less
    assert float(tr.spread(wq, wk, gain=gain)) == pytest.approx(spread, rel=room)
    assert float(compiled("spread")(wq, wk, gain)[0]) == pytest.approx(spread, rel=room)
    log = rigor_capacity.log_capacity(values).upper
    assert float(compiled("log_capacity")(wq, wk, gain)[0]) == pytest.approx(log, rel=room)
    true = WIDTH / 4 * np.linalg.svd((wq * gain).T @ (wk * gain), compute_uv=False)[:16]
    found = np.sort(tr.singular_values(wq, wk, gain=gain))[::-1]
    # Values come from squares: they are good to the square root of the rounding.
    np.testing.assert_allclose(found, true, rtol=0, atol=2**-24 * true[0])


@pytest.mark.parametrize("kind", KINDS)
def test_without_rotation_float32_is_close_to_the_certificates(kind):
    wq, wk = (w[0] for w in weights(kind))
    values = spectrum(head_of(wq, wk)).values
    room = 64 * EPS32
    arguments = (jnp.float32(wq), jnp.float32(wk), jnp.ones(WIDTH))
    got, _ = compiled("spread")(*arguments)
    assert got.dtype == jnp.float32
    assert got.shape == ()
    assert float(got) == pytest.approx(spread_bound(head_of(wq, wk)).spread, rel=room)
    got, _ = compiled("log_capacity")(*arguments)
    assert float(got) == pytest.approx(rigor_capacity.log_capacity(values).upper, rel=room)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotated", [16, 8])
def test_with_rotation_the_spread_is_at_most_three_percent_above(kind, rotated, precision):
    wq, wk = (w[0] for w in weights(kind))
    turn = turning(16, rotated)
    certified = spread_bound(head_of(wq, wk, turn)).spread
    got = float(tr.spread(wq.astype(precision), wk.astype(precision), rotary_pairs=turn.pairs))
    assert 0.998 * certified <= got <= 1.03 * certified


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotated", [16, 8])
def test_with_rotation_the_capacity_is_at_most_two_percent_above(kind, rotated):
    wq, wk = (w[0] for w in weights(kind))
    turn = turning(16, rotated)
    certified = rigor_capacity.log_capacity(spectrum(head_of(wq, wk, turn)).values).upper
    got = float(tr.log_capacity(wq, wk, rotary_pairs=turn.pairs))
    assert got <= 1.02 * certified
    if rotated == 16:  # a certificate may settle for a looser cover of partly rotated keys
        assert got >= 0.99 * certified


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotated", [16, 8])
def test_the_rotated_capacity_is_that_of_a_cover_of_keys_at_every_position(kind, rotated):
    """The cover T, rebuilt here: T ⪰ CCᵀ, and rotations of the pairs leave it as it is."""
    wq, wk = (w[0] for w in weights(kind))
    turn = turning(16, rotated)
    heads = read_heads(wq, wk, None, None, None, None, None, turn.pairs, None)
    query, key, groups = heads.balanced()
    forward = np.eye(16)
    if len(turn.unrotated):
        block = np.ix_([0], turn.unrotated, turn.unrotated)
        forward[block[1:]] = _surrogate.balance(np, heads.query[block], heads.key[block])[0][0]
    scales = _surrogate.capacity_scales(np, query, key, groups, heads.factor)[0]
    norm = np.linalg.eigvalsh(np.outer(scales, scales) * key[0])[-1]
    cover = forward.T @ np.diag(norm / scales**2) @ forward
    assert np.linalg.eigvalsh(cover - heads.key[0])[0] >= -1e-10 * norm
    turned = turn.rotate(turn.rotate(cover, 3).T, 3)
    np.testing.assert_allclose(turned, cover, rtol=0, atol=1e-9 * np.abs(cover).max())
    sizes, vectors = np.linalg.eigh(cover)
    half = vectors * np.sqrt(np.maximum(sizes, 0))
    squares = np.linalg.eigvalsh(half.T @ heads.query[0] @ half)
    values = heads.factor[0] * np.sqrt(np.maximum(squares, 0))
    log = float(capacity.log_capacity(values))
    got = float(tr.log_capacity(wq, wk, rotary_pairs=turn.pairs))
    # The smooth norm is above the true one by at most head_dim^(1/p) in the square, and
    # d log N/d log κ is at most the rank of what lies above the water level, and at most κ_1.
    assert log * (1 - 1e-6) <= got <= log + min(16, values[-1]) * math.log(16) / 257


def test_coordinates_that_all_stay_put_lose_nothing(x64):
    """One weak rotated pair: the rest has its exact spread and spectrum."""
    wq, wk = (w[0] for w in weights("correlated"))
    for w in (wq, wk):
        w[[0, 8]] *= 1e-9
    options = {"rotary_pairs": [[0, 8]]}
    # The smooth norms of both sides add up to head_dim^(1/p).
    assert 1 - 1e-6 <= float(tr.spread(wq, wk, **options) / tr.spread(wq, wk)) <= 16 ** (1 / 257)
    ratio = float(tr.log_capacity(wq, wk, **options) / tr.log_capacity(wq, wk))
    assert 1 - 1e-6 <= ratio <= 1.01


@pytest.mark.parametrize("rotated", [0, 16, 8])
def test_gain_only_qk_norm_has_the_closed_form(rotated):
    gains = [np.linspace(0.5, 2, 16), np.linspace(2, 0.25, 16)]
    balls = [qk_norm_ball(g, kind="rms", head_dim=16) for g in gains]
    turn = turning(16, rotated) if rotated else None
    head = Head(*balls, scale=Enclosure.exact(0.25), rotary=turn)
    options = dict(zip(("query_gain", "key_gain"), map(jnp.asarray, gains), strict=True))
    options["rotary_pairs"] = turn.pairs if rotated else None
    assert float(tr.spread(None, None, **options)) == pytest.approx(
        spread_bound(head).spread, rel=8 * EPS32
    )
    paired = gains[1].copy()
    if rotated:
        paired[turn.pairs] = gains[1][turn.pairs].max(axis=1, keepdims=True)
    values = 4 * gains[0] * paired  # √d, as the theory states it for one query position
    np.testing.assert_allclose(tr.singular_values(None, None, **options), values, rtol=8 * EPS32)


def test_unit_gains_give_the_reference_capacities():
    for head_dim, log in ((64, math.log(1814.975)), (128, math.log(49793.59))):
        one = np.ones(head_dim)
        assert float(tr.log_capacity(None, None, query_gain=one, key_gain=one)) == pytest.approx(
            log, rel=1e-7
        )


def test_layerwise_qk_norm_may_give_one_head_the_whole_norm():
    got = tr.spread(None, None, query_gain=np.ones(64), key_gain=np.ones(32), head_dim=16)
    np.testing.assert_allclose(got, np.full(4, 2 * math.sqrt(4 * 2 * 16)), rtol=1e-12)


def test_one_side_may_have_qk_norm(x64):
    _, wk = (w[0] for w in weights("graded"))
    gain = np.linspace(0.5, 2, 16)
    query = qk_norm_ball(gain, kind="rms", head_dim=16)
    for turn in (None, turning(16)):
        certified = spread_bound(head_of(wk, wk, turn, query=query)).spread
        pairs = None if turn is None else turn.pairs
        got = float(tr.spread(None, wk, query_gain=gain, rotary_pairs=pairs))
        assert 0.999 * certified <= got <= (1.02 if turn else 1 + 1e-10) * certified


@pytest.mark.parametrize("pairs", [None, "half"])
def test_stacked_heads_share_keys_in_groups(pairs, x64):
    wq, wk = weights("random", heads=4)[0], weights("random", heads=2, seed=1)[1]
    for function in (tr.spread, tr.log_capacity):
        options = {"rotary_pairs": pairs, "scale": np.array([1.0, 2.0, 0.5, 1.0])}
        got = function(wq.reshape(-1, WIDTH), wk.reshape(-1, WIDTH), head_dim=16, **options)
        assert got.shape == (4,)
        np.testing.assert_array_equal(got, function(wq, wk, **options))
        for h in range(4):
            options["scale"] = [1.0, 2.0, 0.5, 1.0][h]
            one = function(wq[h], wk[h // 2], **options)
            assert float(got[h]) == pytest.approx(float(one), rel=1e-10)


def test_interleaved_pairs_are_half_split_ones_in_another_order(x64):
    wq, wk = (w[0] for w in weights("graded"))
    order = np.arange(16).reshape(2, 8).T.ravel()
    for function in (tr.spread, tr.log_capacity):
        a = float(function(wq, wk, rotary_pairs="half"))
        b = float(function(wq[order], wk[order], rotary_pairs="interleaved"))
        assert a == pytest.approx(b, rel=1e-9)


def test_an_input_norm_a_soft_cap_and_the_scale_enter_as_in_the_bounds(x64):
    wq, wk = (w[0] for w in weights("random"))
    plain = float(tr.spread(wq, wk))
    assert float(tr.spread(wq, wk, input_norm=1.0)) == pytest.approx(plain / WIDTH, rel=1e-12)
    assert float(tr.spread(wq, wk, scale=1.0)) == pytest.approx(4 * plain, rel=1e-12)
    capped = float(tr.spread(wq, wk, soft_cap=3.0))
    assert capped == pytest.approx(6 * math.tanh(plain / 6), rel=1e-12)


# Gradients


def along(function, point, direction, step):
    return float(function(point + step * direction) - function(point - step * direction)) / step / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["spread", "log_capacity"])
def test_gradients_without_rotation_are_finite_differences(name, kind, x64):
    point = [*(w[0] for w in weights(kind)), np.linspace(0.5, 1.5, WIDTH)]
    _, slopes = compiled(name)(*point)
    rng = np.random.default_rng(3)
    for index, slope in enumerate(slopes):

        def moved(x, index=index):
            wq, wk, gain = (x if i == index else p for i, p in enumerate(point))
            return getattr(tr, name)(wq, wk, gain=gain)

        for _ in range(3):
            direction = rng.normal(size=slope.shape)
            size = np.linalg.norm(slope) * np.linalg.norm(direction)
            true = along(moved, point[index], direction, 1e-6)
            assert float((slope * direction).sum()) == pytest.approx(true, abs=1e-6 * size)


def test_gradients_in_qk_gain_and_scale_are_finite_differences(x64):
    wk = weights("graded")[1][0]

    def value(scale, query_gain):
        options = {"scale": scale, "query_gain": query_gain}
        return tr.spread(None, wk, **options) + tr.log_capacity(None, wk, **options)

    scale, gain = np.float64(0.3), np.linspace(0.5, 1.5, 16)
    by_scale, by_gain = jax.jit(jax.grad(value, argnums=(0, 1)))(scale, gain)
    true = along(lambda s: value(s, gain), scale, np.float64(1.0), 1e-6)
    assert float(by_scale) == pytest.approx(true, rel=1e-6)
    direction = np.cos(np.arange(16.0))
    true = along(lambda g: value(scale, g), gain, direction, 1e-6)
    size = np.linalg.norm(by_gain) * np.linalg.norm(direction)
    assert float((by_gain * direction).sum()) == pytest.approx(true, abs=1e-6 * size)


FIXED = np.exp(np.random.default_rng(0).normal(size=(1, 16)) / 4)


def fixed_spread(wq, wk, xp=np):
    return _surrogate.scaled_product(xp, wq @ wq.mT, wk @ wk.mT, xp.asarray(FIXED))[0]


def fixed_capacity(wq, wk, xp=np):
    values = _surrogate.scaled_values(xp, wq @ wq.mT, wk @ wk.mT, xp.asarray(FIXED))
    return capacity.log_capacity(values)[0]


@pytest.mark.parametrize("function", [fixed_spread, fixed_capacity])
def test_gradients_at_fixed_scales_are_finite_differences(function, x64):
    gradient = jax.jit(jax.grad(lambda a, b: function(a, b, jnp)))
    for kind in KINDS:
        wq, wk = weights(kind)
        direction = np.random.default_rng(1).normal(size=wq.shape)
        slope = np.asarray(gradient(wq, wk))
        size = np.linalg.norm(slope) * np.linalg.norm(direction)
        moved = along(lambda x, wk=wk: function(x, wk), wq, direction, 1e-6)
        assert float((slope * direction).sum()) == pytest.approx(moved, abs=1e-6 * size), kind


@pytest.mark.parametrize(("name", "room"), [("spread", 0.1), ("log_capacity", 0.02)])
def test_with_rotation_a_step_along_the_gradient_does_what_it_says(name, room, x64):
    """Scales are near their optimum, so holding them fixed hardly changes the slope."""
    for kind in KINDS:
        wq, wk = (w[0] for w in weights(kind))
        slope = np.asarray(compiled(name, "half")(wq, wk, np.ones(WIDTH))[1][0])
        size = np.linalg.norm(slope)
        moved = along(
            lambda x, wk=wk: getattr(tr, name)(x, wk, rotary_pairs="half"), wq, slope / size, 1e-5
        )
        assert moved == pytest.approx(size, rel=room), kind


def test_equal_singular_values_give_the_exact_gradient_of_the_capacity(x64):
    """W_q = W_k = I/√d: every κ is 1·factor; the derivative is that of the flat formula."""
    eye = jnp.eye(16) / 4
    slope = jax.jit(jax.grad(lambda s: tr.log_capacity(s * eye, eye, scale=1.0)))(1.0)
    flat = jax.jit(jax.grad(lambda s: capacity.log_capacity(s * jnp.ones(16))))(1.0)
    assert float(slope) == pytest.approx(float(flat), rel=1e-12)
    spread = jax.grad(lambda s: tr.spread(s * eye, eye, scale=1.0))(1.0)
    assert float(spread) == pytest.approx(2.0, rel=1e-12)


# Nothing is nan


def degenerate():
    rng = np.random.default_rng(0)
    zero, init = np.zeros((16, WIDTH)), 0.02 * rng.normal(size=(16, WIDTH))
    one_row = np.where(np.arange(16)[:, None] == 3, init, 0.0)
    return {
        "init": (init, init[::-1]),
        "zeros": (zero, zero),
        "zero keys": (init, zero),
        "zero queries": (zero, init),
        "identity": (np.eye(16, WIDTH), np.eye(16, WIDTH)),
        "one row each, apart": (one_row, one_row[::-1]),
        "orthogonal": (np.eye(16, WIDTH), np.eye(16, WIDTH, 20)),
        "rank one": (init[:1] * np.ones((16, 1)), init[:1] * np.ones((16, 1))),
        "tiny": (init * 1e-18, init * 1e-18),
        "huge": (init * 1e6, init * 1e6),
    }


@pytest.mark.parametrize("pairs", [None, "half", ((0, 4), (1, 5))])
@pytest.mark.parametrize("name", ["spread", "log_capacity"])
def test_no_nan_in_values_or_gradients(name, pairs):
    for case, (wq, wk) in degenerate().items():
        arguments = (jnp.float32(wq), jnp.float32(wk), jnp.ones(WIDTH))
        value, slopes = compiled(name, pairs)(*arguments)
        assert math.isfinite(float(value)), case
        assert float(value) >= 0, case
        if case.startswith("zero"):
            assert float(value) == 0, case
        for slope in slopes:
            assert np.isfinite(np.asarray(slope)).all(), case


def test_zero_gains_are_no_nan():
    gain = jnp.zeros(16)
    for name in ("spread", "log_capacity"):
        slope = jax.jit(
            jax.grad(lambda g, f=name: getattr(tr, f)(None, None, query_gain=g, key_gain=g))
        )(gain)
        assert np.isfinite(np.asarray(slope)).all()


# Transformations and libraries


@pytest.mark.parametrize("pairs", [None, "half"])
@pytest.mark.parametrize("name", ["spread", "log_capacity"])
def test_vmap_over_layers_is_a_loop(name, pairs, x64):
    layers = [[w[0] for w in weights("graded", seed=s)] for s in range(3)]
    wq, wk = (np.stack(x) for x in zip(*layers, strict=True))
    gain = np.ones(WIDTH)
    values, slopes = jax.vmap(compiled(name, pairs), in_axes=(0, 0, None))(wq, wk, gain)
    for layer in range(3):
        value, slope = compiled(name, pairs)(wq[layer], wk[layer], gain)
        assert float(values[layer]) == pytest.approx(float(value), rel=1e-10)
        room = 1e-8 * float(np.abs(slope[0]).max())
        np.testing.assert_allclose(slopes[0][layer], slope[0], rtol=0, atol=room)


@pytest.mark.parametrize("pairs", [None, "half"])
@pytest.mark.parametrize("name", ["spread", "log_capacity"])
def test_numpy_arrays_stay_numpy_arrays_and_give_what_jax_does(name, pairs):
    wq, wk = weights("random", heads=2)
    got = getattr(tr, name)(wq, wk, rotary_pairs=pairs)
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float64
    there, _ = compiled(name, pairs)(*(jnp.float32(w[0]) for w in (wq, wk)), jnp.ones(WIDTH))
    assert float(there) == pytest.approx(float(got[0]), rel=2e-5)


def test_half_precision_is_computed_in_float32():
    wq, wk = (jnp.asarray(w[0], jnp.bfloat16) for w in weights("random"))
    value, slope = jax.jit(jax.value_and_grad(tr.spread))(wq, wk)
    assert value.dtype == jnp.float32
    assert slope.dtype == jnp.bfloat16


def test_nothing_as_large_as_width_times_width_is_formed():
    wide = jnp.zeros((8, 4096))
    for pairs in (None, "half"):
        for function in (tr.spread, tr.log_capacity):
            gradient = jax.grad(lambda a, b, f=function, p=pairs: f(a, b, rotary_pairs=p))
            sizes = str(jax.make_jaxpr(gradient)(wide, wide))
            assert "8,4096" in sizes
            assert "4096,4096" not in sizes


def test_importing_the_module_does_not_load_jax():
    code = "import sys, dispersion.training; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Losses


def test_the_losses_count_only_what_is_missing_or_too_much():
    assert tr.capacity_shortfall(3.0, 5.0) == 2.0
    assert tr.capacity_shortfall(6.0, 5.0) == 0.0
    assert tr.spread_excess(6.0, 5.0) == 1.0
    got = tr.spread_excess(jnp.array([4.0, 7.0]), 5.0)
    np.testing.assert_array_equal(got, [0.0, 2.0])
    slope = jax.grad(lambda x: tr.capacity_shortfall(x, 5.0).sum())(jnp.array([4.0, 7.0]))
    np.testing.assert_array_equal(slope, [-1.0, 0.0])


# Errors

FINE = np.ones((16, WIDTH))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FINE[0], FINE), {}, r"wq must have shape .* Got \(48,\) and head_dim=None"),
        ((FINE, FINE), {"head_dim": 5}, r"wq must have shape .* Got \(16, 48\) and head_dim=5"),
        ((FINE, FINE[:8]), {}, r"wq and wk must have one head_dim\. Got 16 and 8"),
        (
            (FINE, np.ones((32, WIDTH))),
            {"head_dim": 16},
            r"key heads must divide query heads\. Got 1 and 2",
        ),
        (
            (FINE, FINE),
            {"gain": np.ones(3)},
            r"gain must have shape \(width,\)=\(48,\)\. Got \(3,\)",
        ),
        ((FINE, FINE), {"key_gain": np.ones(3)}, r"key_gain must have shape .*Got \(3,\)"),
        ((None, FINE), {}, r"wq must be given where there is no query_gain\. Got None"),
        ((None, None), {}, r"wq or query_gain must be an array\. Got neither"),
        ((FINE, FINE), {"rotary_pairs": "all"}, r"rotary_pairs must be .* Got 'all'"),
        ((FINE, FINE), {"rotary_pairs": [[0, 16]]}, r"rotary_pairs must be .* Got \[\[0, 16\]\]"),
        ((FINE, FINE), {"rotary_pairs": [[0, 1], [1, 2]]}, r"at most once"),
    ],
)
def test_what_does_not_fit_is_named(arguments, options, message):
    for function in (tr.spread, tr.log_capacity):
        with pytest.raises(ArgumentError, match=message):
            function(*arguments, **options)


# The example


def test_the_example_trains_to_its_target_and_agrees_with_the_certificates(capsys):
    path = Path(__file__).parents[1] / "examples" / "train_to_capacity.py"
    spec = importlib.util.spec_from_file_location("train_to_capacity", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rng = np.random.default_rng(0)
    start = example.make_parameters(rng)
    trained = example.train(start, 500, rng, example.TARGET)
    assert np.all(example.certificates(start)[1] < 0.5 * example.TARGET)
    assert np.all(example.certificates(trained)[1] > 0.98 * example.TARGET)
    assert example.report("smoke", trained) < 64 * EPS32
    assert "surrogate" in capsys.readouterr().out
