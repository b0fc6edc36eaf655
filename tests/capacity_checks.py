"""High-precision capacity, contexts that come near the ceilings, and checks that use both.

Each check raises AssertionError. The real modules and the planted mutants go through the same ones.
"""

import math
from functools import cache

import mpmath as mp
import numpy as np

from dispersion.contexts import best_context

DIGITS = 50
FINE = 30  # digits of a context's coefficients

# From theory: flat dimension and κ, to the capacity; then n and spectrum, to the T13 share.
FLAT = [
    (64, 8.0, 1814.975),
    (128, math.sqrt(128), 49793.59),
    (128, 2.25 * math.sqrt(128), 9.47754e9),
]
SHARES = [
    (32, (6.0, 3.0, 1.0, 0.5), 0.205126, 0.1607),
    (200, (10.0, 6.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0), 0.0765930, 0.0575),
    (256, (6.0,) * 8, 0.245017, 0.2264),
    (64, (6.0,) * 4, 0.361458, 0.3064),
]


def objective(kappa, t):
    """T13 before the minimum, from the statement."""
    return t + mp.fsum(mp.log((k / t) ** 2 / (2 * k / t - 1)) for k in kappa if k > t) / 2


@cache
def true_log_capacity(values):
    """The minimum over t, by golden-section search on the objective itself."""
    with mp.workdps(DIGITS):
        kappa = [mp.mpf(float(x)) for x in values if x > 0]
        if not kappa:
            return mp.mpf(0)
        # Equal values count once.
        groups = {k: kappa.count(k) for k in set(kappa)}

        def f(t):
            logs = (c * mp.log((k / t) ** 2 / (2 * k / t - 1)) for k, c in groups.items() if k > t)
            return t + mp.fsum(logs) / 2

        # f falls, then rises; the value is as flat as a square at the minimum.
        low, high = mp.log(min(max(kappa), mp.mpf(1)) / 4), mp.log(max(kappa))
        part = (mp.sqrt(5) - 1) / 2
        a, b = high - part * (high - low), low + part * (high - low)
        at_a, at_b = f(mp.exp(a)), f(mp.exp(b))
        while high - low > mp.mpf(10) ** -13:
            if at_a < at_b:
                high, b, at_b = b, a, at_a
                a = high - part * (high - low)
                at_a = f(mp.exp(a))
            else:
                low, a, at_a = a, b, at_b
                b = low + part * (high - low)
                at_b = f(mp.exp(b))
        return min(at_a, at_b)


def true_simplex(n, kappa):
    with mp.workdps(DIGITS):
        if n == 1:
            return mp.mpf(1)
        return 1 / (1 + (n - 1) * mp.exp(-mp.mpf(kappa) * n / (n - 1)))


@cache
def spectra():
    """Spectra of every kind, 1 to 64 values from 1e-6 to 1e5."""
    rng = np.random.default_rng(0)
    found = [(8.0,) * 64, (1e5,) * 3, (1e-6,) * 5, (1e5, 1e-6), (0.0, 3.0, 0.0), (0.0, 0.0), (1e5,)]
    found += [values for _, values, _, _ in SHARES]
    for r in (1, 2, 7, 24):
        found.append(tuple(10 ** rng.uniform(-6, 5, r)))
        found.append(tuple(10 ** rng.uniform(-1, 2, r)))
        found.append(tuple(5 * np.exp(-np.arange(r) / 3)))
        found.append(tuple(rng.permutation(np.repeat(10 ** rng.uniform(-2, 2, 3), r))))
    return [tuple(map(float, x)) for x in found]


def exact_coefficients(queries, keys, kappa):
    """What query i puts on key i, for every i, in mpmath."""
    with mp.workdps(FINE):
        rows = []
        for i, u in enumerate(queries):
            logits = [
                mp.fsum(mp.mpf(a) * k * v for a, k, v in zip(u, map(mp.mpf, kappa), y, strict=True))
                for y in keys.tolist()
            ]
            rows.append(1 / mp.fsum(mp.exp(x - logits[i]) for x in logits))
        return rows


def float_coefficients(queries, keys, kappa):
    """The same in float64, to some 1e-14 for κ up to 20 and points in the unit ball."""
    logits = (queries * kappa) @ keys.T
    return 1 / np.exp(logits - np.diag(logits)[:, None]).sum(axis=1)


def simplex(m, r=None):
    """m unit vectors in m − 1 dimensions (of r) with equal products −1/(m−1)."""
    vectors = np.linalg.svd(np.eye(m) - 1 / m)[2][: m - 1].T
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.pad(vectors, ((0, 0), (0, (r or m - 1) - m + 1)))


def polygon(n):
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def cross_polytope(d):
    return np.concatenate([np.eye(d), -np.eye(d)])


def cube(d):
    grid = np.stack(np.meshgrid(*[[-1.0, 1.0]] * d, indexing="ij"), axis=-1)
    return grid.reshape(-1, d) / math.sqrt(d)


def two_ends(n, r=1):
    """Half of the keys at each end of the first axis."""
    points = np.zeros((n, r))
    points[:, 0] = 1.0 - 2.0 * (np.arange(n) % 2)
    return points


@cache
def bank():
    """Contexts as (queries, keys, κ, smallest coefficient): orbits, simplices, ascended ones."""
    made = []

    def add(points, kappa, keys=None):
        kappa = np.broadcast_to(np.asarray(kappa, float), points.shape[1:])
        keys = points if keys is None else keys
        # Within the unit ball in spite of rounding.
        points, keys = points * (1 - 2.0**-50), keys * (1 - 2.0**-50)
        reached = mp.mpf(float_coefficients(points, keys, kappa).min())
        made.append((points, keys, kappa, reached))

    for kappa in (0.3, 1.0, 3.0, 6.0, 20.0):
        for n in (2, 3, 6):
            add(simplex(n), kappa)
        add(polygon(24), kappa)
        add(cross_polytope(4), kappa)
        add(cube(3), kappa)
        for n in (2, 3, 8, 9):
            add(two_ends(n, 2), (kappa, kappa / 50))
    for n, kappa in [(24, (6, 3, 1, 0.5)), (32, (3,) * 3), (12, (8, 0.2)), (40, (5,) * 16)]:
        found = best_context(n, list(map(float, kappa)), steps=240)
        add(found.queries, kappa, found.keys)
    return made


def _end(bound, end):
    return mp.mpf(float(getattr(bound, end, bound)))


def check_values(module):
    """log_capacity and the T12 ceiling agree with high precision, any_token_ceiling with both."""
    for values in spectra():
        true = true_log_capacity(values)
        got = module.log_capacity(values)
        # One rounding for each term and a few for the whole, relative to a sum of positive terms.
        room = (len(values) + 32) * mp.mpf(2) ** -53
        low, high = _end(got, "lower"), _end(got, "upper")
        if low == high:
            assert abs(low - true) <= room * true, (values, float(low), float(true))
        else:
            assert low * (1 - mp.mpf(10) ** -25) <= true <= high, (values, got)
            assert high - low <= mp.mpf(2) ** -36 * high, (values, got)
        for n in (1, 2, 3, 50, 10**6, 10**12):
            got = module.any_token_ceiling(n, list(values))
            single = true_simplex(n, max(values))
            known = min(1, mp.exp(true) / n, single)
            # log N is subtracted and exponentiated: its own ulps become relative ones.
            room_n = room * (8 + true + mp.log(n))
            assert _end(got, "upper") <= known * (1 + max(room_n, mp.mpf(2) ** -36 * (1 + true)))
            if low == high:  # the array function has T12 and T13 only
                assert abs(_end(got, "upper") / known - 1) <= room_n, (n, values, got)
            ceiling = module.simplex_ceiling(n, max(values))
            room_s = (16 + 4 * mp.mpf(max(values))) * mp.mpf(2) ** -53
            assert abs(_end(ceiling, "upper") / single - 1) <= room_s, (n, values, ceiling)


def check_contexts(module, *, slack=2.0**-40):
    """No context of the bank exceeds any ceiling."""
    for _, keys, kappa, reached in bank():
        n, case = len(keys), (len(keys), kappa.tolist(), float(reached))
        low = reached * (1 - mp.mpf(slack))
        extra = {}
        if hasattr(module, "steep_ceiling"):
            extra["steep"] = True
            ordered = [*np.sort(kappa)[::-1].tolist(), 0.0]
            steep = module.steep_ceiling(n, ordered[1], ordered[0])
            assert low <= _end(steep, "upper"), ("T13″", case)
            assert low <= _end(module.steep_ceiling(n, ordered[1]), "upper"), ("T13″", case)
            flat = module.flat_log_capacity(len(kappa), max(kappa))
            assert low <= mp.exp(_end(flat, "upper")) / n, ("T13′", case)
        assert low <= _end(module.any_token_ceiling(n, list(kappa), **extra), "upper"), case
        assert low <= _end(module.simplex_ceiling(n, max(kappa)), "upper"), ("T12", case)
        assert low <= mp.exp(_end(module.log_capacity(list(kappa)), "upper")) / n, ("T13", case)


def check_attained(module, *, room=2.0**-40):
    """Ceilings called tight are reached by the contexts their docstrings name."""

    def close(bound, reached, case):
        assert abs(_end(bound, "upper") / reached - 1) <= room, (case, bound, float(reached))

    for kappa in (0.3, 1.0, 4.0, 12.0):
        for n in (2, 3, 5, 9):
            points = simplex(n)
            reached = min(exact_coefficients(points, points, [kappa] * (n - 1)))
            close(module.simplex_ceiling(n, kappa), reached, ("simplex", n, kappa))
            if not hasattr(module, "steep_ceiling"):
                continue
            ends = two_ends(n)
            reached = min(exact_coefficients(ends, ends, [kappa]))
            close(module.steep_ceiling(n, 0.0, kappa), reached, ("two ends", n, kappa))
        if hasattr(module, "flat_log_capacity") and kappa <= 2:
            points = polygon(40)  # I_40(2)/I_0(2) < 1e-48
            reached = min(exact_coefficients(points, points, [kappa] * 2))
            log = module.flat_log_capacity(2, kappa)
            assert abs(mp.exp(_end(log, "upper")) / 40 / reached - 1) <= room, ("polygon", kappa)


def check_capacity(module):
    check_values(module)
    check_attained(module)
    check_contexts(module)
