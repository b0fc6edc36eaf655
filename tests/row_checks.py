"""Checks of an implementation of `row` or `rigor`; each raises AssertionError where it fails.

The real modules and the planted mutants go through the same ones.
"""

import math

import mpmath as mp
import numpy as np

from dispersion.testing import adversarial_rows
from truth import ARGUMENTS, allowed_ulps, points, ulps

# Exact sums of a few dozen exponentials; far finer than the bounds' own rounding.
FINE = 40


def check_truth(module, *, count=200):
    """Array functions agree with high precision to a few ulp; all bad points are printed."""
    bad = []
    for name in ARGUMENTS:
        for point in points(name, count):
            got = getattr(module, name)(*point.arguments, **point.keywords)
            true = point.true(name)
            error = ulps(got, true)
            if not error <= allowed_ulps(name, point, true):
                bad.append((name, point.arguments, point.keywords, got, float(true), error))
    assert not bad, "\n".join(map(str, bad[:20]))


def check_enclosures(module, *, count=80):
    """Ball functions contain the truth and are at most two ulp wide."""
    bad = []
    for name in ARGUMENTS:
        for point in points(name, count, whole=True, longest=18.9):
            got = getattr(module, name)(*point.arguments, **point.keywords)
            true = point.true(name)
            if name == "reachable_length":
                true = mp.floor(true)
            inside = mp.mpf(got.lower) <= true <= mp.mpf(got.upper)
            unit = math.ulp(min(float(true), np.finfo(float).max))
            if not inside or (got.upper < math.inf and got.upper - got.lower > 2 * unit):
                bad.append((name, point.arguments, point.keywords, got, float(true)))
    assert not bad, "\n".join(map(str, bad[:20]))


def exact_row(row):
    """Coefficients, entropy and spread of a row of logits, in mpmath."""
    logits = sorted((mp.mpf(float(x)) for x in row), reverse=True)
    gaps = [logits[0] - x for x in logits]
    weights = [mp.e**-gap for gap in gaps]
    rest = mp.fsum(weights[1:])
    shares = [mp.e ** (mp.mpf(float(x)) - logits[0]) / (1 + rest) for x in row]
    # log1p, for an entropy below the last of FINE digits.
    entropy = mp.log1p(rest) + mp.fsum(w * g for w, g in zip(weights, gaps, strict=True)) / (
        1 + rest
    )
    return shares, entropy, gaps[-1]


def check_row(module, row, *, ceiling="upper", floor="lower", slack=8 * 2.0**-53):
    """No bound of the module is exceeded by this row (T1, T2, T3, T3′, T7).

    `slack` is the relative rounding allowed of an array function, and the smallest float its
    underflow; a ball function gets neither, only what FINE digits leave open.
    """
    tiny = mp.mpf(5e-324) if slack else 0
    slack = mp.mpf(max(slack, 10.0 ** (5 - FINE)))

    def value(bound, end):
        return getattr(bound, end, bound)

    def at_most(what, got, bound):
        limit = mp.mpf(float(value(bound, ceiling)))
        assert got <= limit * (1 + slack) + tiny, (what, row.tolist(), float(got), bound)

    def at_least(what, got, bound):
        limit = mp.mpf(float(value(bound, floor)))
        assert got >= limit * (1 - slack) - tiny, (what, row.tolist(), float(got), bound)

    n = len(row)
    with mp.workdps(FINE):
        shares, entropy, spread = exact_row(row)
        shares.sort(reverse=True)
        # The bounds take a float: the next one above the exact spread or norm is sound.
        wide = math.nextafter(float(spread), math.inf) if spread else 0.0
        at_most("T1", shares[0], module.max_coefficient(n, wide))
        at_most("T1 loose", shares[0], module.loose_max_coefficient(n, wide))
        at_least("T1", shares[-1], module.min_coefficient(n, wide))
        for m in range(n + 1):
            at_most("T2", mp.fsum(shares[:m]), module.set_mass(m, n, wide))
            at_least("T2", mp.fsum(shares[n - m :]), module.min_set_mass(m, n, wide))
        at_least("T3", entropy, module.min_entropy(n, wide))
        mean = mp.fsum(mp.mpf(float(x)) for x in row) / n
        norm = mp.sqrt(mp.fsum((mp.mpf(float(x)) - mean) ** 2 for x in row))
        ball = math.nextafter(float(norm), math.inf) if norm else 0.0
        at_most("T3′", shares[0], module.norm_max_coefficient(n, ball))
        # A spread at which the floor is e^-700 loses digits to the square root (see its docstring).
        limit = value(module.norm_min_entropy(n, ball), floor)
        assert entropy >= mp.mpf(float(limit)) * (1 - slack * (1 + 2 * ball)) - tiny, (row, limit)
        top = float(np.max(row))
        for sink in (0.0, top + 2.0, top - wide):
            extra = mp.e ** (sink - mp.mpf(top))
            weights = [mp.e ** (mp.mpf(float(x)) - mp.mpf(top)) for x in row]
            total = mp.fsum(weights) + extra
            most = module.max_coefficient_with_sink(n, wide, top, sink=sink)
            at_most("T7", 1 / total, most)
            at_most("T7 sink", extra / total, module.sink_share(n, float(np.min(row)), sink=sink))
            at_least("T7 sink", extra / total, module.sink_share(n, top, sink=sink))


def check_adversarial(module, **keywords):
    """`check_row` on the rows that attain the bounds, where any mutant on the unsafe side falls."""
    for n in (1, 2, 3, 5, 12):
        for spread in (0.0, 0.3, 1.0, 3.0, 8.0, 40.0):
            for name, row in adversarial_rows(n, spread, top=1.5).items():
                if name != "huge":
                    check_row(module, row, **keywords)


def check_attained(module):
    """Bounds called tight are reached by the rows their docstrings name, to 8 roundings."""
    for n in (2, 3, 5, 50, 200):
        for spread in (0.25, 1.0, 3.0, 8.0, 20.0):
            rows = adversarial_rows(n, spread)
            with mp.workdps(FINE):
                top, _, _ = exact_row(rows["one at the top"])
                bottom, _, _ = exact_row(rows["one at the bottom"])
                low = min(exact_row(_top(k, n, spread))[1] for k in range(1, n))
                m = max(1, n // 3)
                held = mp.fsum(exact_row(_top(m, n, spread))[0][:m])
                # The row of T3′ with one logit up and the rest down, at norm spread·√((n-1)/n).
                norm = float(spread * mp.sqrt(mp.mpf(n - 1) / n))
                alone = exact_row(rows["one at the top"])
                for got, true in [
                    (module.max_coefficient(n, spread), max(top)),
                    (module.min_coefficient(n, spread), min(bottom)),
                    (module.set_mass(m, n, spread), held),
                    (module.min_entropy(n, spread), low),
                    (module.norm_max_coefficient(n, norm), max(alone[0])),
                    (module.norm_min_entropy(n, norm), alone[1]),
                ]:
                    # e^-spread multiplies a relative rounding of the norm by the spread.
                    room = (8 + 2 * spread) * 2.0**-53
                    assert abs(mp.mpf(got) / true - 1) <= room, (n, spread, got, float(true))


def _top(k, n, spread):
    row = np.full(n, -spread)
    row[:k] = 0.0
    return row


def check_inverses(module):
    """The required spread reaches p and a little less does not; the same for the length."""
    for n in (2, 3, 50, 32768, 10**9):
        for p in (1e-6, 0.1, 0.5, 0.9, 0.999):
            spread = module.required_spread(n, p)
            assert spread >= 0, (n, p, spread)
            # Both functions round: relative 8·2⁻⁵³ in p, and spread·2⁻⁵³ from the spread itself.
            room = (8 + 2 * spread) * 2.0**-53
            assert module.max_coefficient(n, spread) >= p * (1 - room), (n, p, spread)
            if spread > 0:
                assert module.max_coefficient(n, spread * (1 - 1e-9)) < p, (n, p, spread)
                length = module.reachable_length(spread, p)
                assert abs(length / n - 1) <= room * 2 / (1 - p), (n, p, length)
            else:
                assert n * p <= 1 + 1e-12, (n, p, spread)


def check_caps(module):
    """No pair of logits spreads further after the cap, and the symmetric pair reaches it (T8)."""
    for spread in (0.0, 0.5, 3.0, 40.0, 1e4):
        for cap in (0.5, 5.0, 50.0):
            bound = mp.mpf(float(module.capped_spread(spread, cap)))
            with mp.workdps(FINE):
                pairs = [
                    cap * (mp.tanh((mid + mp.mpf(spread) / 2) / cap))
                    - cap * mp.tanh((mid - mp.mpf(spread) / 2) / cap)
                    for mid in (-7.0, -0.5, 0.0, 0.1, 30.0)
                ]
            assert max(pairs) <= bound * (1 + 8 * 2.0**-53), (spread, cap)
            assert abs(pairs[2] - bound) <= bound * 8 * 2.0**-53, (spread, cap)
