"""`dispersion.contexts` and `head_contexts`: claims are reached, and come near the ceilings."""

import math
import sys
from subprocess import run

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capacity_checks import SHARES, cross_polytope, exact_coefficients, float_coefficients, simplex
from dispersion import ArgumentError, demo, rigor_capacity
from dispersion.architectures import plan
from dispersion.ascent import climb, least_log
from dispersion.checkpoint import open_checkpoint
from dispersion.contexts import best_context, coefficient, least_coefficient
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.head_contexts import evaluate, head_context
from dispersion.norms import qk_norm_ball
from dispersion.reach import QKNorm, Reach
from dispersion.rotary import rotary

ROUNDING = 2.0**-40


def inside(points):
    """Exact norms at most 1."""
    with mp.workdps(40):
        return all(mp.fsum(mp.mpf(x) ** 2 for x in row) <= 1 for row in points.tolist())


# --- spectra ----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    n=st.integers(1, 9),
    kappa=st.lists(st.just(0.0) | st.floats(0.01, 12.0), min_size=1, max_size=5),
    seed=st.integers(0, 9),
)
def test_the_coefficient_is_reached_and_below_the_ceiling(n, kappa, seed):
    found = best_context(n, kappa, seed=seed, steps=36)
    assert found.keys.shape == found.queries.shape == (n, len(kappa))
    assert inside(found.keys)
    assert inside(found.queries)
    exact = min(exact_coefficients(found.queries, found.keys, kappa))
    assert mp.mpf(found.coefficient) <= exact <= found.coefficient * (1 + 4 * ROUNDING)
    ceiling = rigor_capacity.any_token_ceiling(n, kappa, steep=True)
    assert 1 / n * (1 - 4 * ROUNDING) <= found.coefficient <= ceiling.upper


# Ascent values of theory, to be reached or passed; T12 to T13″ above.
@pytest.mark.parametrize(("n", "kappa", "value"), [(n, k, a) for n, k, _, a in SHARES if n < 256])
def test_reference_contexts(n, kappa, value):
    steps = 600 if n < 100 else 360
    assert best_context(n, kappa, steps=steps).coefficient >= value * (1 - 2e-3)


def test_contexts_known_to_be_best_are_found():
    for kappa in (0.5, 4.0, 40.0):
        for n in (2, 4, 7):
            found = best_context(n, [kappa] * (n - 1), steps=0).coefficient
            ceiling = rigor_capacity.simplex_ceiling(n, kappa).lower
            assert found == pytest.approx(ceiling, rel=100 * ROUNDING)
        for n in (3, 8):
            found = best_context(n, [kappa, 0.0], steps=0).coefficient
            ceiling = rigor_capacity.steep_ceiling(n, 0.0, kappa).lower
            assert found == pytest.approx(ceiling, rel=100 * ROUNDING)
    ends = cross_polytope(8)
    least = float_coefficients(ends, ends, np.full(8, 4.0)).min()
    assert best_context(16, [4.0] * 8, steps=60).coefficient >= least * (1 - 100 * ROUNDING)


def test_the_same_seed_gives_the_same_context():
    first, again, other = (best_context(9, [4.0, 2.0, 1.0], seed=s, steps=60) for s in (0, 0, 1))
    assert first.coefficient == again.coefficient
    assert np.array_equal(first.keys, again.keys)
    assert np.array_equal(first.queries, again.queries)
    assert not np.array_equal(first.keys, other.keys)


def test_ascent_only_improves():
    kappa = [6.0, 3.0, 1.0, 0.5]
    reached = [best_context(20, kappa, steps=s).coefficient for s in (0, 60, 600)]
    assert reached == sorted(reached)
    assert reached[0] < 0.9 * reached[2]


def test_edges_of_a_spectrum():
    assert best_context(1, [3.0]).coefficient == 1.0
    assert best_context(4, [0.0, 0.0]).coefficient == pytest.approx(0.25, rel=ROUNDING)
    assert best_context(5, [1e5] * 8, steps=60).coefficient >= 1 - 1e-9
    assert 0 < best_context(5, [1e5], steps=60).coefficient < 1 / 3
    assert best_context(3, np.array([1e-6]), steps=60).coefficient >= 1 / 3 * (1 - 4 * ROUNDING)


@pytest.mark.parametrize(
    ("n", "kappa", "message"),
    [
        (0, [1.0], "n must be a whole number of at least 1"),
        (2000, [1.0], "n must not exceed 1024"),
        (3, [], "singular_values must be a list of at least 1"),
        (3, [-1.0], "singular_values must be finite and 0 or more"),
        (3, [[1.0]], "singular_values must be a list"),
    ],
)
def test_a_broken_rule_of_a_spectrum_is_named(n, kappa, message):
    with pytest.raises(ArgumentError, match=message):
        best_context(n, kappa)


# --- the evaluation ---------------------------------------------------------------------------


@given(seed=st.integers(0, 2**16), top=st.sampled_from([0.1, 5.0, 1e3, 1e5]))
def test_evaluation_is_below_the_exact_coefficient(seed, top):
    rng = np.random.default_rng(seed)
    keys = rng.uniform(-1, 1, (4, 3)) / 2
    queries = keys + rng.uniform(-1, 1, (4, 3)) * 10.0 ** rng.integers(-8, -1)
    kappa = top * rng.uniform(0.5, 1.0, 3)
    exact = min(exact_coefficients(queries, keys, kappa))
    found = coefficient(keys, queries, kappa)
    assert mp.mpf(found) <= exact
    # Below the smallest normal number a float has no relative accuracy left.
    assert exact <= found * (1 + 2 * ROUNDING + 64 * top * 2.0**-52) + 2.0**-1022


def test_evaluation_takes_the_bad_end_of_every_logit():
    low, high = np.zeros((2, 2)), np.full((2, 2), math.log(3.0))
    # The target at its low end, the other key and the extra column at their high ends.
    assert least_coefficient(low, high) == pytest.approx(1 / 4, rel=4 * ROUNDING)
    assert least_coefficient(low, high) < 1 / 4
    extra = np.array([[math.log(2.0)], [-np.inf]])
    assert least_coefficient(low, high, extra=extra) == pytest.approx(1 / 6, rel=4 * ROUNDING)
    assert least_coefficient(low[:1, :1], high[:1, :1]) == 1.0
    assert least_coefficient(low, np.full((2, 2), 1e4)) == 0.0


def test_the_gradient_of_the_ascent_is_right(x64):
    """One step along the soft minimum's gradient, against JAX."""
    import jax
    import jax.numpy as jnp

    from dispersion.ascent import _soft_least

    logits = np.random.default_rng(0).normal(size=(5, 7)) * 3

    def soft(x):
        logs = jnp.diagonal(jax.nn.log_softmax(x, axis=1))
        return -jax.nn.logsumexp(-20.0 * logs) / 20.0 + jnp.log(5.0) / 20.0

    value, slope = _soft_least(logits, 20.0)
    assert value == pytest.approx(float(soft(logits)), rel=1e-12)
    np.testing.assert_allclose(slope, jax.grad(soft)(logits), atol=1e-14)


def test_ascent_keeps_points_where_they_may_be():
    kappa = np.array([4.0, 1.0])

    def model(x, y):
        return (x * kappa) @ y.T, lambda g: ((g @ y) * kappa, (g.T @ x) * kappa)

    start = simplex(3)[np.arange(6) % 3] * 0.7
    for solid in (True, False):
        used = start if solid else start / 0.7
        x, y = climb(model, used, used, steps=40, sharpness=(10.0,), solid=solid)
        sizes = np.linalg.norm(np.concatenate([x, y]), axis=1)
        assert sizes.max() <= 1 + 2.0**-50
        assert solid or sizes.min() >= 1 - 2.0**-50
        assert least_log(model(x, y)[0]) >= least_log(model(used, used)[0])


SPLIT = [(0, np.array([[1.0], [1.0], [0.0], [0.0]])), (2, np.array([[0.0], [0.0], [1.0], [1.0]]))]

# --- heads ------------------------------------------------------------------------------------


def made_head(seed, *, dim=4, width=12, size=4.0, rotated=False, biased=False, **more):
    rng = np.random.default_rng(seed)

    def side():
        offset = 0.5 * rng.standard_normal(dim) if biased else None
        return BallImage(rng.standard_normal((dim, width)) / math.sqrt(width), offset=offset)

    turn = rotary([1.0, 0.1], dim) if rotated else None
    return Head(
        query=side(),
        key=side(),
        scale=Enclosure.exact(size),
        rotary=turn,
        reach=Reach(width=width, radius=1.0),
        **more,
    )


def normed_head(seed, *, dim=4, width=12, eps=1e-6):
    """Headwise QK norm behind an RMSNorm, with its projections."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((dim, width)).astype(np.float32) for _ in range(2)]
    ball = qk_norm_ball(None, kind="rms", head_dim=dim)
    norms = [QKNorm(weight=w, bias=None, start=0, eps=eps) for w in weights]
    reach = Reach(width=width, radius=math.sqrt(width), query_norm=norms[0], key_norm=norms[1])
    return Head(
        query=ball,
        key=ball,
        scale=Enclosure.exact(0.5),
        rotary=rotary([1.0, 0.05], dim),
        reach=reach,
    )


def projected(states, ball, norm, reach):
    if norm is None:
        points = states / reach.radius @ ball.matrix.T
    else:
        points = states @ np.asarray(norm.weight, np.float64).T
        mean_square = np.mean(points**2, axis=1, keepdims=True)
        points = points / np.sqrt(mean_square + norm.eps)
    return points if ball.offset is None else points + ball.offset


def row_of(head, states):
    """Coefficients of the last token's row in floats, from inputs of the layer."""
    q = projected(states[-1:], head.query, head.reach.query_norm, head.reach)
    k = projected(states, head.key, head.reach.key_norm, head.reach)
    if head.rotary is not None:
        places = np.arange(len(states))
        q = head.rotary.rotate(q, places[-1:], length=len(states))
        k = head.rotary.rotate(k, places, length=len(states))
    logits = head.scale.upper * (k @ q[0])
    if head.soft_cap is not None:
        logits = head.soft_cap * np.tanh(logits / head.soft_cap)
    if not head.self_attention:
        logits = logits[:-1]
    weights = np.exp(logits)
    return weights / (weights.sum() + (0.0 if head.sink is None else math.exp(head.sink)))


KINDS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "size": st.sampled_from([0.5, 4.0, 30.0]),
        "rotated": st.booleans(),
        "biased": st.booleans(),
        "soft_cap": st.none() | st.sampled_from([1.0, 10.0]),
        "sink": st.none() | st.sampled_from([-4.0, 2.0]),
        "self_attention": st.booleans(),
    }
)


def reproduces(head, n, found):
    radius = head.reach.radius
    least = 1.0
    for index in range(n):
        states = found.inputs(index)
        assert states.shape == (n + 1, head.reach.width)
        assert np.linalg.norm(states, axis=1).max() <= radius * (1 + ROUNDING)
        least = min(least, row_of(head, states)[n - 1 - index])
    assert least >= found.coefficient * (1 - ROUNDING)
    assert least <= found.coefficient * (1 + 1e-6)


@settings(max_examples=40)
@given(kind=KINDS, n=st.sampled_from([1, 2, 5, 12]))
def test_the_inputs_of_a_context_reach_what_it_claims(kind, n):
    head = made_head(**kind)
    found = head_context(head, n, steps=20)
    assert found.keys.shape == found.queries.shape == (n, 4)
    reproduces(head, n, found)


@settings(max_examples=15)
@given(seed=st.integers(0, 99), n=st.sampled_from([2, 7]), eps=st.sampled_from([0.0, 1e-6, 1e-2]))
def test_contexts_behind_qk_norm_are_reached(seed, n, eps):
    head = normed_head(seed, eps=eps)
    found = head_context(head, n, steps=20)
    for index in range(n):
        states = found.inputs(index)
        assert np.linalg.norm(states, axis=1).max() <= head.reach.radius * (1 + ROUNDING)
        share = row_of(head, states)[n - 1 - index]
        assert share >= found.coefficient * (1 - 1e-9)


@settings(max_examples=20)
@given(kind=KINDS, n=st.sampled_from([2, 5, 12]))
def test_a_context_stays_below_the_ceiling_of_its_spectrum(kind, n):
    head = made_head(**{**kind, "rotated": False, "soft_cap": None})
    found = head_context(head, n, steps=30)
    product = head.scale.upper * head.query.matrix.T @ head.key.matrix
    kappa = np.linalg.svd(product, compute_uv=False)[:4] * (1 + ROUNDING)
    plain = head.query.offset is None
    assert found.coefficient <= rigor_capacity.any_token_ceiling(n, kappa, steep=plain).upper


def test_the_own_key_and_the_sink_only_lower_a_context():
    alone = made_head(3, self_attention=False)
    found = head_context(alone, 6, steps=40)
    sides = [b.matrix for b in (alone.query, alone.key)]
    directions = [
        np.linalg.solve(m @ m.T, points.T).T
        for m, points in zip(sides, (found.queries, found.keys), strict=True)
    ]
    again = evaluate(alone, *directions, 1.0).coefficient
    assert again == pytest.approx(found.coefficient, rel=1e-9)
    assert evaluate(made_head(3), *directions, 1.0).coefficient < again
    assert (
        evaluate(made_head(3, self_attention=False, sink=0.0), *directions, 1.0).coefficient < again
    )
    # The sink's term in the denominator: 1/α grows by e^(sink − target's logit).
    logits = np.sum(found.queries * found.keys, axis=1) * alone.scale.upper
    shares = 1 / (1 / float_rows(alone, found) + np.exp(-logits))
    sunk = evaluate(made_head(3, self_attention=False, sink=0.0), *directions, 1.0).coefficient
    assert sunk == pytest.approx(shares.min(), rel=1e-9)
    assert sunk < again


def float_rows(head, found):
    logits = head.scale.upper * found.queries @ found.keys.T
    return 1 / np.exp(logits - np.diag(logits)[:, None]).sum(axis=1)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_ascent_improves_a_heads_context(rotated, cap):
    head = made_head(1, dim=8, width=40, rotated=False, biased=True, soft_cap=cap, sink=0.0)
    if rotated:
        head = Head(**{**vars_of(head), "rotary": rotary([1.0, 0.3, 0.1, 0.01], 8)})
    start, end = (head_context(head, 24, steps=s).coefficient for s in (0, 120))
    assert end > 1.2 * start


def vars_of(head):
    names = ("query", "key", "scale", "soft_cap", "sink", "window", "causal", "reach")
    return {name: getattr(head, name) for name in names}


def test_a_head_comes_near_what_its_spectrum_reaches():
    head = made_head(0, dim=16, width=64, size=4.0, self_attention=False)
    kappa = np.linalg.svd(4 * head.query.matrix.T @ head.key.matrix, compute_uv=False)[:16]
    ideal = best_context(24, kappa, steps=360).coefficient
    assert head_context(head, 24).coefficient >= 0.97 * ideal


def test_bundled_heads_come_near_their_ceiling():
    """Unit-gain QK norm, 16 wide: κ = 4 over all phases, and 15 keys."""
    (layer,) = plan(open_checkpoint(demo.path("headwise"))).layers
    ceiling = rigor_capacity.any_token_ceiling(15, [4.0] * 16).upper
    for _, _, head in layer.heads():
        found = head_context(head, 15)
        assert 0.97 * ceiling < found.coefficient <= ceiling
        assert found.inputs(3).shape == (16, 64)


def test_saturated_caps_and_orthogonal_balls_do_not_stop_the_search():
    stuck = made_head(1, size=300.0, biased=True, soft_cap=1.0)
    assert head_context(stuck, 3, steps=10).coefficient > 0
    apart = [BallImage(np.eye(4, 12, k=shift) * mask) for shift, mask in SPLIT]
    head = Head(*apart, Enclosure.exact(5.0), reach=Reach(width=12, radius=1.0))
    found = head_context(head, 3, steps=10).coefficient
    assert found == pytest.approx(0.25, rel=1e-9)  # every logit is 0, the own key's too


def test_heads_without_known_inputs_have_no_context():
    head = made_head(0)
    assert head_context(Head(head.query, head.key, head.scale), 3) is None
    assert head_context(Head(None, head.key, head.scale, reach=head.reach), 3) is None
    nothing = BallImage(np.zeros((4, 12)))
    assert head_context(Head(nothing, head.key, head.scale, reach=head.reach), 3) is None


def test_a_broken_rule_of_a_head_is_named():
    with pytest.raises(ArgumentError, match=r"n must not exceed 512 keys .* Got 513"):
        head_context(made_head(0), 513)
    with pytest.raises(ArgumentError, match=r"n must not exceed 6 keys .* Got 7"):
        head_context(made_head(0, window=7), 7)
    assert head_context(made_head(0, window=7), 6, steps=0) is not None
    assert head_context(made_head(0, window=7, self_attention=False), 7, steps=0) is not None


def test_contexts_load_no_jax():
    code = "import sys, dispersion.head_contexts; sys.exit('jax' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
