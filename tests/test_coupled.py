"""Keys of latent attention whose two parts come of one state: cells, search, real offsets."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion import coupled, coupled_keys, coupled_search, scaling
from dispersion.coupled_forms import Forms, centred, halves
from dispersion.coupled_keys import Cell, CoupledKeys, States
from dispersion.coupled_offsets import CoupledPairs
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.lag_pairs import LagPairs
from dispersion.latent import best_share, joint_ball
from dispersion.norms import projection_ball
from dispersion.offsets import exact_spread
from dispersion.rotary import rotary_from_config
from dispersion.spread import spread_bound

ROUNDING = 1e-12  # sums of some tens of terms, each right to 2^-53


def keys_of(rng, *, still=3, turned=2, rank=4, width=6, bias=False, eps=1e-6, decay=0.0):
    """Random coupled keys; `decay` makes the latent's directions differ in size."""

    def ball(rows, columns, offset):
        weight = rng.standard_normal((rows, columns)) * np.exp(rng.normal())
        return projection_ball(
            weight * np.exp(-decay * np.arange(rows))[:, None],
            norm="rms",
            gain=rng.normal(1.0, 0.3, columns),
            bias=rng.standard_normal(rows) if offset else None,
        )

    states = States(ball(rank, width, bias), ball(turned, width, bias), eps)
    return CoupledKeys(ball(still, rank, False), states)


def points(keys, x):
    """Exact keys (n, head_dim) and σ (n,) of hidden states in the unit ball, shape (n, width)."""
    states = keys.states
    latent, turned, plain = (
        (b.matrix * b.radius.upper, 0.0 if b.offset is None else b.offset)
        for b in (states.latent, states.turned, keys.plain)
    )
    y = x @ latent[0].T + latent[1]
    sigma = np.sqrt((y**2).sum(axis=1) + y.shape[1] * states.eps)
    behind = x @ turned[0].T + turned[1]
    return np.concatenate([(y / sigma[:, None]) @ plain[0].T, behind], axis=1), sigma


def in_ball(rng, n, width):
    x = rng.standard_normal((n, width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    # Small states too, down to where ε counts.
    return x * 10.0 ** (-6 * rng.random((n, 1)) ** 3)


def excess(keys, cell, x, matrix=None):
    """How far keys of a cell stick out of its image (or of `matrix`), relative to its size."""
    found, sigma = points(keys, x)
    inside = np.abs(sigma - cell.middle) <= cell.half_width
    if not inside.any():
        return 0.0
    image = keys.image(cell)
    matrix = image.matrix if matrix is None else matrix
    gram = matrix @ matrix.T
    offset = np.zeros(keys.head_dim) if image.offset is None else image.offset
    away = found[inside] - offset
    # k lies in the ellipsoid of a regular G exactly where kᵀ G⁻¹ k ≤ 1.
    gram = gram + 1e-13 * np.trace(gram) * np.eye(len(gram))
    return float(np.sqrt(np.einsum("ij,ij->i", away, np.linalg.solve(gram, away.T).T)).max()) - 1


def random_cell(rng, keys):
    shares = rng.dirichlet(np.ones(4 if keys.biased and rng.random() < 0.7 else 3))
    combination = rng.standard_normal((keys.head_dim, keys.plain.matrix.shape[1]))
    combination *= 10.0 ** rng.uniform(-2, 1)
    low, high = np.sort(keys.states.largest * 10.0 ** (-3 * rng.random(2)))
    low = 0.0 if rng.random() < 0.3 else float(low)
    return Cell(*centred(low, float(high)), combination, (*map(float, shares), 0.0)[:4])


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
def test_every_cell_holds_the_keys_of_its_interval(seed, bias, eps):
    rng = np.random.default_rng(seed)
    keys = keys_of(rng, bias=bias, eps=eps)
    x = in_ball(rng, 300, 6)
    for _ in range(4):
        assert excess(keys, random_cell(rng, keys), x) <= 1e-6  # the ridge of 1e-13, squared root


def third_block_with_the_other_sign(blocks, keys, cell):
    size = keys.head_dim
    behind = np.zeros((size, 3))
    turned = keys.states.turned
    behind[-2:] = turned.matrix * turned.radius.upper
    return [*blocks[:2], 2 * behind / math.sqrt(cell.shares[2]) - blocks[2]]


@pytest.mark.parametrize(
    "mutate",
    [
        lambda blocks, *_: [blocks[0], blocks[1] / 2, blocks[2]],
        lambda blocks, *_: [blocks[0], 0 * blocks[1], blocks[2]],
        lambda blocks, *_: [0.9 * blocks[0], *blocks[1:]],
        lambda blocks, *_: [block / math.sqrt(1.5) for block in blocks],
        third_block_with_the_other_sign,
    ],
    ids=["half the width", "no width", "first block", "shares that add up to 1.5", "sign of L"],
)
def test_the_check_of_cells_notices_what_is_lost(mutate):
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(60):
        keys = keys_of(rng, still=2, turned=2, rank=2, width=3)
        forms = Forms(keys)
        low = float(keys.states.largest * rng.uniform(0.02, 0.16))
        cell = forms.cell(forms.at(centred(low, 6 * low), forms.start))
        x = in_ball(rng, 4000, 3)
        assert excess(keys, cell, x) <= 1e-6
        matrix = keys.image(cell).matrix
        blocks = mutate(np.split(matrix, [2, 4], axis=1), keys, cell)
        worst = max(worst, excess(keys, cell, x, np.concatenate(blocks, axis=1)))
    assert worst > 1e-3


def test_sigma_has_its_epsilon():
    rng = np.random.default_rng(0)
    keys = keys_of(rng, eps=10.0)
    x = in_ball(rng, 4000, 6)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    _, sigma = points(keys, x)
    assert sigma.max() <= keys.states.largest
    assert sigma.max() > keys.states.latent.norm_upper  # without ε it would be too small


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rank", [4, 60])
def test_forms_are_those_of_the_image(rank, bias):
    rng = np.random.default_rng(rank)
    keys = keys_of(rng, still=3, turned=4, rank=rank, width=rank + 5, bias=bias, decay=0.1)
    through = np.zeros((7, 7))
    through[:3, :3], through[3:, 3:] = rng.standard_normal((3, 3)), np.diag(rng.uniform(1, 2, 4))
    for centre in (False, True):
        forms = Forms(keys, through, centred=centre)
        point = forms.at((2.0, 0.5), forms.start + rng.normal(0, 0.3, len(forms.start)))
        image = keys.image(forms.cell(point))
        wanted = through @ image.matrix @ image.matrix.T @ through.T
        # Eigenvalues of a bin count alike: at most a few per cent between them.
        limit = 1e-9 if rank <= 48 else 0.05
        assert np.abs(forms.gram(point) - wanted).max() <= limit * np.abs(wanted).max()
        if bias and not centre:
            assert through @ image.offset == pytest.approx(forms.constant(point), rel=1e-9)
        elif not bias:
            assert image.offset is None


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("what", ["gram", "gram without constants", "constant"])
def test_slopes_are_those_of_the_forms(what, bias):
    rng = np.random.default_rng(1)
    forms = Forms(keys_of(rng, bias=bias), centred=what == "gram")
    weight = rng.standard_normal((5, 5))
    weight = weight @ weight.T
    logs = forms.start + rng.normal(0, 0.5, len(forms.start))
    ends = (1.5, 0.4)

    def value(x):
        point = forms.at(ends, x)
        if what == "constant":
            return float(weight[0] @ forms.constant(point))
        return float(np.sum(weight * forms.gram(point)))

    point = forms.at(ends, logs)
    if what == "constant":
        found = forms.constant_slopes(weight[0], point)
    else:
        found = forms.slopes(weight, point)
    eye = np.eye(len(logs)) * 1e-6
    wanted = [(value(logs + e) - value(logs - e)) / 2e-6 for e in eye]
    assert found == pytest.approx(wanted, abs=1e-7 * (abs(value(logs)) + 1))


def test_halves_meet():
    assert halves(1.0, 4.0) == ((1.0, 2.0), (2.0, 4.0))
    (low, middle), (again, high) = halves(0.0, 1.0)
    assert low == 0
    assert middle == again
    assert high == 1


def head_of(rng, *, turned=4, bias=False, rotates=True, rank=5, width=7, still=4):
    keys = keys_of(rng, still=still, turned=turned, rank=rank, width=width, bias=bias)
    query = projection_ball(rng.standard_normal((still + turned, 6)), norm="rms")
    rotary, pairs = None, np.empty((0, 2), dtype=np.intp)
    if rotates:
        config = {"rope_theta": 50.0, "max_position_embeddings": 64}
        rotary = rotary_from_config(config, None, turned)
        pairs = rotary.pairs
        rotary = replace(rotary, head_dim=still + turned, pairs=pairs + still)
    both = keys.plain, keys.states.turned
    return Head(
        query=query,
        key=joint_ball(*both, best_share(query, *both, pairs), cap="x"),
        scale=Enclosure.exact(0.25),
        rotary=rotary,
        coupled=keys,
    )


def ascended(head, rng, lags=None, starts=48, steps=400):
    """The largest spread that climbing reaches: two keys' states and the query's, real or free.

    With `lags` the two lags are those that do best of them; else all rotated pairs are aligned.
    """
    keys, still = head.coupled, head.coupled.plain.head_dim
    query = head.query.matrix * head.query.radius.upper
    width = keys.states.latent.matrix.shape[1]

    def one(u, x, sign, lag):
        found, _ = points(keys, x)
        q = u @ query.T
        if head.rotary is None:
            return sign * np.sum(q * found, axis=1)
        if lag is None:
            out = sign * np.sum(q[:, :still] * found[:, :still], axis=1)
            for pair in head.rotary.pairs:
                sizes = [np.linalg.norm(x[:, pair], axis=1) for x in (q, found)]
                out = out + sizes[0] * sizes[1]
            return out
        turned = head.rotary.rotate(found, np.full(len(found), -lag))
        return sign * np.sum(q * turned, axis=1)

    pairs = [(None, None)]
    if lags is not None:
        pairs = [(a, b) for a in lags for b in lags if a != b]
    best = 0.0
    for pair in pairs:
        parts = [rng.standard_normal((starts, n)) for n in (6, width, width)]
        parts = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in parts]

        def value(parts, pair=pair):
            u, top, bottom = parts
            return one(u, top, 1.0, pair[0]) + one(u, bottom, -1.0, pair[1])

        step, now = np.full(starts, 0.5), value(parts)
        for _ in range(steps):
            moved = [p + step[:, None] * rng.standard_normal(p.shape) for p in parts]
            moved = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in moved]
            then = value(moved)
            better = then > now
            now = np.where(better, then, now)
            parts = [np.where(better[:, None], m, p) for m, p in zip(moved, parts, strict=True)]
            step = np.where(better, step * 1.5, np.maximum(step * 0.85, 1e-4))
        best = max(best, float(now.max()))
    return best * head.scale.upper


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_above_what_climbing_reaches_and_near_it(seed, rotates, bias):
    rng = np.random.default_rng(seed)
    head = head_of(rng, bias=bias, rotates=rotates)
    plain = spread_bound(replace(head, coupled=None)).spread
    found = spread_bound(head).spread
    reached = ascended(head, rng)
    assert reached <= found <= plain
    if not bias:  # constants of biases count with both signs
        assert found <= reached * 1.06


def test_parts_that_are_tied_are_bounded_closer():
    ratios = []
    for seed in range(6):
        head = head_of(np.random.default_rng(seed), rank=6)
        ratios.append(spread_bound(head).spread / spread_bound(replace(head, coupled=None)).spread)
    assert min(ratios) < 0.9


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_real_offsets(seed, bias):
    rng = np.random.default_rng(seed)
    head = head_of(rng, bias=bias)
    free = spread_bound(head).spread
    found = exact_spread(head, 4, free).spread
    reached = ascended(head, rng, lags=range(4), starts=16, steps=200)
    assert reached <= found <= free
    assert found <= reached * (1.25 if bias else 1.06)
    plain = replace(head, coupled=None)
    assert found <= exact_spread(plain, 4, spread_bound(plain).spread).spread


def test_time_that_is_up_leaves_what_was_allowed():
    head = head_of(np.random.default_rng(0))
    pairs = CoupledPairs(head, LagPairs(head, 4))
    assert pairs.spread(np.arange(4), 123.0, 0.0) == 123.0


def test_a_capped_head():
    head = replace(head_of(np.random.default_rng(2)), soft_cap=3.0)
    free = spread_bound(head).spread
    found = exact_spread(head, 4, free).spread
    assert 0 < found <= free < 6.0


def test_few_states_leave_nothing_to_win():
    """Where the rotated part does not read what the latent reads, the parts are independent."""
    rng = np.random.default_rng(0)
    head = head_of(rng)
    latent, turned = head.coupled.states.latent, head.coupled.states.turned
    apart = States(
        replace(latent, matrix=np.pad(latent.matrix, ((0, 0), (0, 7))), row_error=None),
        replace(turned, matrix=np.pad(turned.matrix, ((0, 0), (7, 0))), row_error=None),
        1e-6,
    )
    keys = CoupledKeys(head.coupled.plain, apart)
    head = replace(head, coupled=keys)
    _, cells = coupled.coupled_cells(head, spread_bound(replace(head, coupled=None)).spread * 2)
    assert cells == ()


def test_cells_reach_from_nothing_to_the_largest():
    head = head_of(np.random.default_rng(3))
    _, cells = coupled.coupled_cells(head)
    ends = sorted((cell.lower, cell.upper) for cell in cells)
    assert ends[0][0] == 0
    assert ends[-1][1] == head.coupled.states.largest
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    for cell in cells:
        assert cell.cell.middle - cell.cell.half_width <= cell.lower
        assert cell.cell.middle + cell.cell.half_width >= cell.upper


def test_searches_that_fail_leave_the_plain_bound(monkeypatch):
    def fails(*_, **__):
        raise np.linalg.LinAlgError

    head = head_of(np.random.default_rng(4))
    plain = spread_bound(replace(head, coupled=None)).spread
    monkeypatch.setattr(coupled_search.Search, "best", fails)
    assert spread_bound(head).spread == plain


def test_keys_far_smaller_than_queries_are_bounded():
    head = head_of(np.random.default_rng(0))
    keys = head.coupled
    latent, turned = (
        replace(b, matrix=b.matrix * 1e-150, row_error=None)
        for b in (keys.states.latent, keys.states.turned)
    )
    tiny = CoupledKeys(
        replace(keys.plain, matrix=0 * keys.plain.matrix, row_error=None),
        States(latent, turned, 0.0),
    )
    query = replace(head.query, matrix=head.query.matrix * 1e8)
    head = replace(head, query=query, coupled=tiny)
    plain = spread_bound(replace(head, coupled=None)).spread
    assert 0 < spread_bound(head).spread <= plain


def test_a_diagonal_that_rounds_below_0_starts_a_search():
    """As Gram matrices of rank 1 in a balanced basis do."""
    query, key = np.diag([1.0, -1e-8, 0.5]), np.diag([1.0, 0.5, 1e-18])
    found = scaling.minimise(query, key, None, None, np.arange(3))
    assert np.all(np.isfinite(found.scales))


def test_row_errors_cover_what_is_rounded():
    """Parts in float32 precision: the exact image is within the row errors of the stored one."""
    rng = np.random.default_rng(6)
    keys = keys_of(rng)
    cell = random_cell(rng, keys)
    image = keys.image(cell)
    exact = [
        np.asarray(b.matrix, dtype=np.longdouble) * np.longdouble(b.radius.upper)
        for b in (keys.plain, keys.states.turned, keys.states.latent)
    ]
    zeros = np.zeros((2, 4)), np.zeros((3, 6))
    first = np.concatenate([exact[0], zeros[0]])
    third = np.concatenate([zeros[1], exact[1]])
    roots = [0 if not a else 1 / math.sqrt(a) * coupled_keys._UP for a in cell.shares]
    combination = cell.combination.astype(np.longdouble)
    wanted = np.concatenate(
        [
            roots[0] * (first + cell.middle * combination),
            roots[1] * cell.half_width * combination,
            roots[2] * (third - combination @ exact[2]),
        ],
        axis=1,
    )
    away = np.linalg.norm((image.matrix - wanted).astype(np.float64), axis=1)
    assert np.all(away <= image.row_error)
    assert np.all(image.row_error <= ROUNDING * np.linalg.norm(image.matrix, axis=1).max() * 100)


def test_images_are_ball_images():
    keys = keys_of(np.random.default_rng(0))
    assert isinstance(keys.image(random_cell(np.random.default_rng(1), keys)), BallImage)


@pytest.mark.parametrize("width", [6, 30])
def test_queries_and_latents_of_few_directions_are_searched(width):
    """In the balanced basis of such, rounding leaves diagonals below 0, where a search starts."""
    rng = np.random.default_rng(0)
    head = head_of(rng, rank=4, width=8, still=12, turned=8)
    query = projection_ball(rng.standard_normal((20, width)), norm="rms")
    head = replace(head, query=query)
    plain = spread_bound(replace(head, coupled=None)).spread
    assert spread_bound(head).spread < 0.95 * plain
