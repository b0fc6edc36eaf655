"""Branching over cells: covers, attacks on its bounds, planted mutants, tightness and rigor."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dispersion import barrier, cells, refine, scaling
from dispersion.cells import Covered, Cut, certified, wedges
from dispersion.covers import factor
from dispersion.ellipsoid import cover
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.leading import frame_at
from dispersion.rotary import rotary
from dispersion.spread import spread_bound

WIDTH = 512


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1, user_api="blas"):
        yield


def low_rank(seed, rank, noise, size=128):
    """Query and key matrices of a low-rank head with noise."""
    rng = np.random.default_rng(seed)

    def one():
        signal = rng.standard_normal((size, rank)) @ rng.standard_normal((rank, WIDTH))
        return signal / math.sqrt(rank * WIDTH) + noise * rng.standard_normal(
            (size, WIDTH)
        ) / math.sqrt(WIDTH)

    return one(), one()


def pairs_of(size):
    first = np.arange(size // 2)
    return np.stack([first, first + size // 2], axis=1)


def started(query, key):
    """Both ellipsoids, the scales to start from and the pairs."""
    size = len(query)
    queries, keys = cover(BallImage(query)), cover(BallImage(key))
    groups = np.arange(size) % (size // 2)
    found = scaling.minimise(queries.gram, keys.gram, None, None, groups, rough=True)
    return queries, keys, found.scales, pairs_of(size)


def sizes(x):
    half = len(x) // 2
    return np.hypot(x[:half], x[half:])


def ascent(query, key, *, starts=64, steps=200, offset=None, seed=0):
    """The largest Σ‖(Au + a)_i‖·‖(Cv)_i‖ that alternating ascent finds, and its u and v."""
    rng = np.random.default_rng(seed)
    offset = np.zeros(len(query)) if offset is None else offset
    tiny = 1e-150
    u = rng.standard_normal((query.shape[1], starts))
    v = rng.standard_normal((key.shape[1], starts))
    u /= np.linalg.norm(u, axis=0)
    v /= np.linalg.norm(v, axis=0)
    for _ in range(steps):
        x, y = query @ u + offset[:, None], key @ v
        w = np.tile(sizes(y) / np.maximum(sizes(x), tiny), (2, 1))
        u = query.T @ (w * x)
        u /= np.maximum(np.linalg.norm(u, axis=0), tiny)
        x = query @ u + offset[:, None]
        w = np.tile(sizes(x) / np.maximum(sizes(y), tiny), (2, 1))
        v = key.T @ (w * y)
        v /= np.maximum(np.linalg.norm(v, axis=0), tiny)
    values = (sizes(query @ u + offset[:, None]) * sizes(key @ v)).sum(axis=0)
    best = int(np.argmax(values))
    return float(values[best]), u[:, best], v[:, best]


def branched(query, key):
    """The covers, the cells of a head and the value they aim at."""
    queries, keys, scales, pairs = started(query, key)
    frame = frame_at((queries, keys), scales, pairs.T.ravel(), 12)
    reached = ascent(query, key)[0]
    tree = refine._Tree(frame, refine.GOAL * reached / frame.value)
    return frame.covers((queries, keys)), tree.grow(refine.NODES), reached


def inside(cell, points):
    """Which of the columns of u of both sides lie in a cell."""
    out = np.ones(points[0].shape[1], dtype=bool)
    for u, cuts in zip(points, cell.cuts, strict=True):
        for cut in cuts:
            few = u[-len(cut.first) :]
            out &= (cut.first @ few) * (cut.second @ few) <= 0
    return out


@pytest.fixture(scope="module")
def loose():
    """A head whose plain bound is 3 % loose, cut into cells."""
    with threadpool_limits(1, user_api="blas"):
        query, key = low_rank(10, 2, 0.1, size=32)
        return query, key, *branched(query, key)


# --- covers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_wedges_of_any_vectors_cover_every_direction(count):
    rng = np.random.default_rng(count)
    for size in (2, 3, 16):
        boundaries = rng.standard_normal((count, size)) * (rng.random((count, 1)) < 0.9)
        z = rng.standard_normal((size, 500))
        inside = [(c.first @ z) * (c.second @ z) <= 0 for c in wedges(boundaries)]
        assert np.all(np.any(inside, axis=0))
        if count > 1 and np.all(np.any(boundaries, axis=1)):
            assert not np.all(inside)  # the wedges do cut
            # A ring that closes with +f_0 loses what lies on one side of all boundaries.
            wrong = [Cut(f, g) for f, g in pairwise([*boundaries, boundaries[0]])]
            held = [(c.first @ z) * (c.second @ z) <= 0 for c in wrong]
            assert size == 2 or not np.all(np.any(held, axis=0))


def test_the_cells_of_a_head_cover_all_pairs_of_directions(loose):
    *_, covers, found, _ = loose
    assert len(found) > 5
    rng = np.random.default_rng(0)
    points = [rng.standard_normal((c.leading.shape[1], 4000)) for c in covers]
    assert np.all(np.any([inside(cell, points) for cell in found], axis=0))


# --- attacks ----------------------------------------------------------------------------------


def heads():
    """Random, low-rank and degenerate matrices, from head_dim 4 to 128."""
    rng = np.random.default_rng(1)
    for size in (4, 6, 8, 16, 32, 64):
        for width in (1, 2, size // 2, 2 * size):
            yield rng.standard_normal((size, width)), rng.standard_normal((size, width))
        yield low_rank(size, 2, 0.1, size)
        graded = np.exp(rng.uniform(-12, 12, (size, 1)))
        yield rng.standard_normal((size, size)) * graded, rng.standard_normal((size, size))
        query, key = rng.standard_normal((2, size, size))
        query[: size // 4], key[-size // 4 :] = 0, 0
        yield query, key
        yield query, np.zeros((size, 1))
        yield query, query.copy()
    yield low_rank(0, 8, 0.2)


def test_no_bound_is_below_what_ascent_reaches():
    for query, key in heads():
        queries, keys, scales, pairs = started(query, key)
        found = refine.rotated_norm(queries, keys, scales, pairs)
        reached = ascent(query, key)[0]
        # The ascent adds and multiplies some 4·head_dim rounded terms.
        assert found >= reached * (1 - 16 * len(query) * 2.0**-53)
        assert found <= refine.plain_norm(queries, keys, scales)


@pytest.mark.parametrize("seed", range(4))
def test_no_spread_of_a_biased_head_is_below_what_ascent_reaches(seed):
    size = (16, 32)[seed % 2]
    query, key = low_rank(seed, 3, 0.1, size)
    offset = 0.3 * np.random.default_rng(seed).standard_normal(size)
    head = Head(
        BallImage(query, offset),
        BallImage(key),
        Enclosure(1.0, 1.0),
        rotary(np.linspace(1, 0.1, size // 2), size),
    )
    reached = ascent(query, key, offset=offset)[0]
    assert spread_bound(head).spread >= 2 * reached * (1 - 16 * size * 2.0**-53)


def test_each_cell_bounds_the_points_inside_it(loose):
    _, _, covers, found, _ = loose
    queries, keys, scales, _ = started(*loose[:2])
    roots = [np.linalg.cholesky(e.gram) for e in (queries, keys)]
    images = [s[:, None] * r for s, r in zip((1 / scales, scales), roots, strict=True)]
    rng = np.random.default_rng(3)
    tested = 0
    for cell in found:
        # Points near the best one, and those of every sign of the cuts' own directions.
        u = [rng.standard_normal((c.leading.shape[1], 20000)) for c in covers]
        for points, cuts in zip(u, cell.cuts, strict=True):
            for cut in cuts:
                line = np.outer(cut.first - cut.second, 10 * rng.standard_normal(20000))
                points[-len(line) :] += line
        here = inside(cell, u)
        if not here.any():
            continue
        norms = []
        for cover_, image, points in zip(covers, images, u, strict=True):
            # z = V u + something outside the leading directions.
            axes = np.linalg.pinv(image) @ cover_.leading
            z = axes @ points[:, here]
            z += 0.1 * rng.standard_normal(z.shape)
            z -= axes @ (axes.T @ z - points[:, here])
            norms.append(sizes(image @ (z / np.linalg.norm(z, axis=0))))
        reached = float((norms[0] * norms[1]).sum(axis=0).max())
        assert certified(*covers, [cell]) >= reached
        tested += 1
    assert tested >= len(found) // 2


# --- planted mutants --------------------------------------------------------------------------


def round_the_middle_missing(boundaries):
    return wedges(boundaries)[2:5]


def half_missing(boundaries):
    return wedges(boundaries)[:4]


@pytest.mark.parametrize("mutant", [wedges, round_the_middle_missing, half_missing])
def test_covers_with_a_hole_are_caught(monkeypatch, mutant):
    """With a goal out of reach, cells shrink until a hole brings the bound below the truth."""
    monkeypatch.setattr(refine, "GOAL", 0.99)
    monkeypatch.setattr(refine, "NODES", 420)
    monkeypatch.setattr(refine, "wedges", mutant)
    found = []
    for seed in (16, 19):
        query, key = low_rank(seed, 4, 0.1, size=16)
        found.append(refine.rotated_norm(*started(query, key)) / ascent(query, key)[0])
    if mutant is wedges:
        assert 1 <= min(found) <= max(found) < 1.002
    else:
        assert min(found) < 0.999


def test_only_positive_multipliers_count(loose):
    *_, covers, found, _ = loose
    for cell in found:
        none = replace(cell, multipliers=tuple(0 * m for m in cell.multipliers))
        for bad in (-1.0, math.nan, -math.inf, math.inf):
            strange = replace(cell, multipliers=tuple(0 * m + bad for m in cell.multipliers))
            assert certified(*covers, [strange]) == certified(*covers, [none])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, 1e-320, -math.inf, -1.0])
def test_strange_weights_give_no_bound(loose, bad):
    *_, covers, found, _ = loose
    with np.errstate(all="ignore"):
        weights = found[0].weights.copy()
        weights[0] = bad
        assert certified(*covers, [replace(found[0], weights=weights)]) == math.inf


# --- tightness --------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "seed"), [(4, 1), (8, 4), (16, 2)])
def test_low_rank_heads_are_within_two_percent_of_ascent(rank, seed):
    query, key = low_rank(seed, rank, 0.1)
    queries, keys, scales, pairs = started(query, key)
    reached = ascent(query, key)[0]
    assert refine.plain_norm(queries, keys, scales) > 1.03 * reached  # there is a gap to close
    assert refine.rotated_norm(queries, keys, scales, pairs) < 1.02 * reached


def test_spreads_of_heads_are_refined():
    query, key = low_rank(4, 4, 0.1)  # 5 % loose without
    head = Head(
        BallImage(query), BallImage(key), Enclosure(0.5, 0.5), rotary(np.linspace(1, 0.1, 64), 128)
    )
    assert spread_bound(head).spread < 1.02 * ascent(query, key)[0]


def test_a_pure_optimum_is_met_without_branching(monkeypatch):
    monkeypatch.setattr(refine, "NODES", 0)
    query, key = np.zeros((2, 16, 4))
    query[[0, 8, 3]], key[[0, 8, 3]] = np.eye(4)[:3] * [[3], [2], [1]], np.eye(4)[:3]
    queries, keys, scales, pairs = started(query, key)
    assert refine.rotated_norm(queries, keys, scales, pairs) == pytest.approx(
        ascent(query, key)[0], rel=4e-3
    )


def test_no_budget_leaves_the_plain_bound(monkeypatch):
    query, key = low_rank(10, 2, 0.1, size=32)
    queries, keys, scales, pairs = started(query, key)
    full = refine.rotated_norm(queries, keys, scales, pairs)
    monkeypatch.setattr(refine, "NODES", 0)
    without = refine.rotated_norm(queries, keys, scales, pairs)
    assert full < without <= refine.plain_norm(queries, keys, scales)


def test_a_failing_search_leaves_the_plain_bound(monkeypatch):
    def fail(*arguments, **more):
        raise np.linalg.LinAlgError

    queries, keys, scales, pairs = started(*low_rank(10, 2, 0.1, size=32))
    monkeypatch.setattr(barrier, "solve", fail)
    plain = refine.plain_norm(queries, keys, scales)
    assert refine.rotated_norm(queries, keys, scales, pairs) == plain


def test_bounds_are_the_same_in_threads():
    given = [started(*low_rank(seed, 2, 0.1, size=32)) for seed in (10, 12, 14, 18)]
    alone = [refine.rotated_norm(*g) for g in given]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda g: refine.rotated_norm(*g), given)) == alone


# --- rigor ------------------------------------------------------------------------------------


def is_semidefinite(matrix):
    """Exactly, by elimination in rational numbers."""
    rows = [list(r) for r in matrix]
    for i in range(len(rows)):
        pivot = rows[i][i]
        if pivot < 0 or (pivot == 0 and any(rows[i][i:])):
            return False
        for j in range(i + 1, len(rows)):
            if pivot:
                share = rows[j][i] / pivot
                rows[j] = [x - share * y for x, y in zip(rows[j], rows[i], strict=True)]
    return True


def exact_form(covered, weights, cuts, multipliers, level):
    """The matrix of cells.py between uᵀ and u in rational numbers."""
    rational = [[Fraction(float(x)) for x in row] for row in covered.leading]
    half, size = len(weights), covered.leading.shape[1]
    w = [Fraction(float(x)) for x in weights] * 2
    assert len(w) == len(rational) == 2 * half

    def gram(factors):
        return [
            [sum(f * row[i] * row[j] for f, row in zip(factors, rational, strict=True))
             for j in range(size)]
            for i in range(size)
        ]  # fmt: skip

    form, moved = gram(w), gram([(x - 1) ** 2 for x in w])
    rest, overlap = Fraction(covered.rest) ** 2, Fraction(covered.overlap) ** 2
    room = level - max(w) * rest
    beta = Fraction(1, 2**20)
    for i in range(size):
        for j in range(size):
            form[i][j] += (1 + beta) * rest * moved[i][j] / room
        form[i][i] += (1 + 1 / beta) * overlap / room
    for cut, multiplier in zip(cuts, multipliers, strict=True):
        f, g = ([Fraction(float(x)) for x in v] for v in (cut.first, cut.second))
        scaled = Fraction(float(multiplier)) / 2
        skip = size - len(f)
        for i in range(len(f)):
            for j in range(len(f)):
                form[skip + i][skip + j] -= scaled * (f[i] * g[j] + f[j] * g[i])
    return form


@pytest.mark.parametrize("seed", range(6))
def test_squares_of_cells_hold_in_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    size, half = 5, 4
    leading = rng.standard_normal((2 * half, size)) * np.exp(rng.uniform(-3, 3, size))
    covered = Covered(leading, (0.3, 0.0)[seed % 2], (1e-14, 0.0)[seed % 2], 1.0, 0.0)
    weights = np.exp(rng.uniform(-1, 1, half))
    cuts = tuple(Cut(*rng.standard_normal((2, size - seed % 2))) for _ in range(seed % 3 + 1))
    multipliers = rng.uniform(0, 5, len(cuts))

    def top_at(level):
        form = exact_form(covered, weights, cuts, multipliers, Fraction(level))
        return float(np.linalg.eigvalsh(np.array(form, dtype=np.float64))[-1])

    top = 1e6
    for _ in range(30):  # the level that equals the largest eigenvalue of its own matrix
        top = top_at(top)
    for level in (top * (1 - 1e-6), top * (1 - 1e-15), top, top * (1 + 1e-15), top * (1 + 1e-6)):
        cell = cells.Cell(((cuts), ()), weights, (multipliers, np.zeros(0)), (level, 1.0))
        norm = cells._side_norms(covered, weights[None], 0, [cell], 0.0)[0]
        # `norm` is √level rounded up a few times.
        square = Fraction(norm) ** 2 / (1 + Fraction(1, 2**48))
        form = exact_form(covered, weights, cuts, multipliers, square)
        shifted = [[square * (i == j) - form[i][j] for j in range(size)] for i in range(size)]
        assert is_semidefinite(shifted)
        assert norm**2 <= max(level, top) * (1 + 4e-6)


def test_levels_are_proved_and_not_believed(loose):
    *_, covers, found, _ = loose
    for cell in found:
        tight = certified(*covers, [cell])
        for levels in ((0.0, 0.0), (1e-30, 1e-30), (-1.0, 1.0), (math.nan, 1.0)):
            # Whatever is claimed, nothing below the plain eigenvalue is proved.
            assert certified(*covers, [replace(cell, levels=levels)]) >= tight * (1 - 0.05)


def test_no_bound_is_given_without_a_proof(monkeypatch, loose):
    *_, covers, found, _ = loose
    assert certified(*covers, found) < math.inf

    monkeypatch.setattr(
        cells, "are_positive_semidefinite", lambda stack, errors: np.zeros(len(stack), dtype=bool)
    )
    assert certified(*covers, found) == math.inf


def whole_side(covered, weights, level):
    """The bound of a side without cuts."""
    none = np.zeros(0)
    cell = cells.Cell(((), ()), weights, (none, none), (level, 1.0))
    return cells._side_norms(covered, weights[None], 0, [cell], 0.0)[0]


def some_sides(trials):
    """Small sides with leading directions that are eigenvectors, nearly so, orthonormal, or any."""
    rng = np.random.default_rng(0)
    for trial in range(trials):
        size, count, kind = 8, (1, 2, 4, 7, 8)[trial % 5], trial % 4
        ellipsoid = cover(BallImage(rng.standard_normal((size, size))))
        scales = np.exp(rng.uniform(-1, 1, size))
        order = rng.permutation(size)
        image = (scales[:, None] * factor(ellipsoid)[0])[order]
        vectors = rng.standard_normal((size, count))
        if kind < 2:
            vectors *= 1e-3 * kind
            vectors += np.linalg.eigh(image @ image.T)[1][:, -count:]
        elif kind == 2:
            vectors = np.linalg.inv(image.T) @ np.linalg.qr(vectors)[0]
        weights = np.exp(rng.uniform(-1, 1, size // 2)) if trial % 3 else np.ones(size // 2)
        yield Covered.by(ellipsoid, scales, order, vectors), image, vectors, weights


def test_any_directions_make_a_cover_and_every_part_of_it_is_needed():
    tight, short = 0.0, {"rest": 0, "overlap": 0}
    for covered, image, _, weights in some_sides(80):
        true = np.linalg.norm(np.sqrt(np.tile(weights, 2))[:, None] * image, 2)
        found = whole_side(covered, weights, true**2)
        assert found >= true * (1 - 64 * len(image) * 2.0**-53)
        tight = max(tight, true / found)
        for name in short:
            less = replace(covered, **{name: 0.0})
            short[name] += whole_side(less, weights, 0.9 * true**2) < true * (1 - 1e-9)
    assert tight > 1 - 1e-5
    assert all(short.values()), short


def test_points_of_a_side_are_where_its_cover_says():
    rng = np.random.default_rng(1)
    excess = slack = 0.0
    for covered, image, vectors, _ in some_sides(80):
        axes = image.T @ vectors
        axes /= np.linalg.norm(axes, axis=0)
        outside = np.eye(len(image)) - axes @ axes.T
        # The z of largest ‖u‖² + ‖r‖², and others.
        z = np.linalg.eigh(axes @ axes.T + outside @ outside)[1]
        z = np.concatenate([z, rng.standard_normal(z.shape)], axis=1)
        z /= np.linalg.norm(z, axis=0)
        u = axes.T @ z
        r = z - axes @ u
        lengths = (u**2).sum(axis=0) + (r**2).sum(axis=0)
        gap = image @ z - covered.leading @ u - (image - covered.leading @ axes.T) @ r
        assert np.all(lengths <= covered.excess)
        assert np.all(np.linalg.norm(gap, axis=0) <= covered.slack)
        excess, slack = max(excess, lengths.max() - 1), max(slack, np.abs(gap).max())
    assert excess > 1
    assert slack > 1


def test_errors_of_the_stored_rows_are_counted(loose):
    """Rows off by their stated error reach more than the stored ones, and the bound covers it."""
    query, key, covers, found, _ = loose
    _, u, v = ascent(query, key)
    error = 0.05 * np.linalg.norm(query, axis=1)
    queries, keys, scales, pairs = started(query, key)
    frame = frame_at((queries, keys), scales, pairs.T.ravel(), 12)
    erring = frame.covers((replace(queries, row_error=error), keys))
    along = np.sign(query @ u)[:, None] * u
    moved = query + error[:, None] * along  # each row moves by its error, towards the maximiser
    reached = float((sizes(moved @ u) * sizes(key @ v)).sum())
    assert reached > certified(*covers, found)
    assert certified(*erring, found) >= reached


# --- the optimiser ----------------------------------------------------------------------------


def test_values_of_the_optimiser_are_those_of_its_scales():
    rng = np.random.default_rng(0)
    rows = tuple(rng.standard_normal((16, 6)) / 4 for _ in range(2))
    empty = np.zeros((1, 0, 6))
    cuts, none = barrier.Cuts(empty, empty), np.zeros((1, 0))
    found = barrier.solve(rows, (cuts, cuts), np.zeros((1, 8)), (none, none), gap=1e-4)
    scales = np.exp(np.tile(found.logs[0], 2))
    tops = [
        np.linalg.eigvalsh(r.T @ (s[:, None] * r))[-1]
        for r, s in zip(rows, (scales, 1 / scales), strict=True)
    ]
    assert math.sqrt(tops[0] * tops[1]) == pytest.approx(found.value[0], rel=1e-4)
    assert found.floor[0] <= math.sqrt(tops[0] * tops[1])
    assert ascent(*rows)[0] <= found.value[0]


def test_cuts_lower_the_optimum_and_a_batch_is_its_cells():
    rng = np.random.default_rng(1)
    rows = tuple(rng.standard_normal((16, 6)) / 4 for _ in range(2))
    first, second = rng.standard_normal((2, 3, 2, 6))
    first[0] = second[0] = 0  # a cell without cuts
    start = np.zeros((3, 8))
    keys = barrier.Cuts(np.zeros((3, 0, 6)), np.zeros((3, 0, 6)))
    nothing = (np.zeros((3, 2)), np.zeros((3, 0)))
    found = barrier.solve(rows, (barrier.Cuts(first, second), keys), start, nothing, gap=1e-4)
    assert np.all(found.value[1:] < found.value[0])
    for i in range(3):
        one = barrier.Cuts(first[i : i + 1], second[i : i + 1])
        none = barrier.Cuts(np.zeros((1, 0, 6)), np.zeros((1, 0, 6)))
        unknown = (nothing[0][:1], nothing[1][:1])
        alone = barrier.solve(rows, (one, none), start[:1], unknown, gap=1e-4)
        assert alone.value[0] == pytest.approx(found.value[i], rel=3e-4)
        assert np.all(found.multipliers[0][i] > 0)


def test_pairs_that_are_zero_on_one_side_change_nothing():
    query, key = low_rank(10, 2, 0.1, size=32)
    wide_query, wide_key = (np.zeros((64, x.shape[1])) for x in (query, key))
    places = np.concatenate([np.arange(0, 32, 2), 32 + np.arange(0, 32, 2)])
    wide_query[places], wide_key[places] = query, key
    wide_key[1] = 7.0  # nothing meets it on the other side
    few = refine.rotated_norm(*started(query, key))
    many = refine.rotated_norm(*started(wide_query, wide_key))
    assert many == pytest.approx(few, rel=0.02)
    assert many >= ascent(query, key)[0]


def test_no_common_pair_leaves_no_logit():
    query, key = np.zeros((2, 16, 4))
    query[[0, 8]], key[[1, 9]] = 1.0, 1.0
    queries, keys = cover(BallImage(query)), cover(BallImage(key))
    assert refine.rotated_norm(queries, keys, np.ones(16), pairs_of(16)) == 0.0
    erring = replace(keys, row_error=np.full(16, 1e-3))
    assert refine.rotated_norm(queries, erring, np.ones(16), pairs_of(16)) > 0
