"""Every statement of `row` at high precision in mpmath, and points to compare at.

Written from the statements, not from the code: the entropy floor tries every k where n is small.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 80

# Printed by a loop over every k at 50 digits.
REFERENCE = [
    ("max_coefficient", (32768, 10.0), 0.401990738773351482),
    ("loose_max_coefficient", (32768, 10.0), 0.672194390710654191),
    ("min_entropy", (1000, 8.0), 1.99506296641613279),
    ("min_entropy", (1000, 3.0), 5.90024967275984842),
    ("min_entropy", (50, 1.0), 3.78872244372371511),
    ("required_spread", (32768, 0.5), 10.3971771903553839),
]


def two_level(k, n, spread):
    """Entropy of k items at the top and n-k at the bottom, -Σ share·log(share)."""
    top = 1 / (k + (n - k) * mp.e**-spread)
    bottom = top * mp.e**-spread
    # The logarithm of `top` would need as many digits as e^-spread is small.
    log_top = -mp.log(k) - mp.log1p((n - k) * mp.e**-spread / k)
    return -k * top * log_top + (n - k) * bottom * (spread - log_top)


def min_entropy(n, spread):
    last = int(mp.ceil(n)) - 1
    if n == 1 or spread == mp.inf:
        return mp.mpf(0)
    if spread == 0:
        return mp.log(n)
    if last <= 64:
        return min(two_level(k, n, spread) for k in range(1, last + 1))
    with mp.extradps(2 * max(0, int(-mp.log10(spread)))):
        share = spread / (1 - mp.e**-spread)
        turn = n * (share - 1) / (mp.e**spread - 1)
        around = {min(max(1, int(mp.floor(turn)) + j), last) for j in range(-1, 3)}
        return min(two_level(k, n, spread) for k in around)


def closed_min_entropy(n, spread):
    if spread == 0:
        return mp.log(n)
    share = spread / (1 - mp.e**-spread)
    return mp.log(n) - (share - 1 - mp.log(share))


def stretched(n, norm):
    return norm * mp.sqrt(n / (n - 1))


def mass(m, n, exponent):
    return mp.mpf(1) if m == n else m / (m + (n - m) * mp.e**exponent)


TRUTH = {
    "max_coefficient": lambda n, d: mass(1, n, -d),
    "min_coefficient": lambda n, d: mass(1, n, d),
    "loose_max_coefficient": lambda n, d: mp.e**d / n,
    "set_mass": lambda m, n, d: mass(m, n, -d),
    "min_set_mass": lambda m, n, d: mass(m, n, d),
    "min_entropy": min_entropy,
    "closed_min_entropy": closed_min_entropy,
    "norm_max_coefficient": lambda n, s: mp.mpf(1) if n == 1 else mass(1, n, -stretched(n, s)),
    "norm_min_entropy": lambda n, s: mp.mpf(0) if n == 1 else two_level(1, n, stretched(n, s)),
    "required_spread": lambda n, p: (
        mp.mpf(0) if n == 1 else max(mp.mpf(0), mp.log((n - 1) * p / (1 - p)))
    ),
    "reachable_length": lambda d, p: 1 + mp.e**d * (1 - p) / p,
    "length_scaled_max_coefficient": lambda n, d: 1 / (1 + (n - 1) * n**-d),
    "max_coefficient_with_sink": lambda n, d, top, b: (
        1 / (1 + (n - 1) * mp.e**-d + mp.e ** (b - top))
    ),
    "sink_share": lambda n, level, b: 1 / (1 + n * mp.e ** (level - b)),
    "capped_spread": lambda d, cap: 2 * cap * mp.tanh(d / (2 * cap)),
}

ARGUMENTS = {
    "max_coefficient": "nd",
    "min_coefficient": "nd",
    "loose_max_coefficient": "nd",
    "set_mass": "mnd",
    "min_set_mass": "mnd",
    "min_entropy": "nd",
    "closed_min_entropy": "nd",
    "norm_max_coefficient": "nd",
    "norm_min_entropy": "nd",
    "required_spread": "np",
    "reachable_length": "dp",
    "length_scaled_max_coefficient": "nd",
    "max_coefficient_with_sink": "ndlb",
    "sink_share": "nlb",
    "capped_spread": "dc",
}


@dataclass(eq=False)
class Point:
    """Arguments in a function's own order; a sink logit goes in by keyword."""

    arguments: tuple
    keywords: dict
    known: Any = None

    def true(self, name):
        if self.known is None:
            with mp.workdps(DIGITS):
                values = [mp.mpf(x) for x in (*self.arguments, *self.keywords.values())]
                self.known = TRUTH[name](*values)
        return self.known


@cache  # dozens of mutants are checked at the same points
def points(name, count, *, seed=0, whole=False, longest=12.0):
    """Arguments over the whole range: n to 10^longest, spreads 1e-20 to 1e4, p to 1-1e-15."""
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    made = []
    for index in range(count):
        n = float(round(10 ** rng.uniform(0, longest)))
        if index % 5 == 1:
            n = float(rng.integers(1, 9))
        elif index % 5 == 2 and not whole:
            n = 1 + 10 ** rng.uniform(-15, 1)
        if whole:
            n = int(n)
        d = [10 ** rng.uniform(-20, 4), rng.uniform(0, 40), rng.uniform(0, 1500), 0.0][index % 4]
        p = [rng.uniform(0.01, 1), 10 ** rng.uniform(-12, -1), 1 - 10 ** rng.uniform(-15, -1)]
        p = p[index % 3]
        if index % 7 == 3 and n > 1:
            p = 1 / n  # the required spread is then a rounding error, exactly
        m = rng.integers(1, min(int(n), 10**9) + 1)
        level = rng.uniform(-100, 100)
        values = {
            "n": n,
            "m": int(m) if whole else float(m),
            "d": float(d),
            "p": float(p),
            "l": float(level),
            "c": float(10 ** rng.uniform(-1, 3)),
        }
        keywords = {}
        if "b" in ARGUMENTS[name]:
            keywords["sink"] = float(level + rng.uniform(-1, 1) * 10 ** rng.uniform(-1, 3))
        made.append(Point(tuple(values[x] for x in ARGUMENTS[name] if x != "b"), keywords))
    return made


def ulps(got, true):
    """The error of a float64 in units in the last place of the true value."""
    if math.isinf(got) or math.isnan(got):
        return 0.0 if got > 0 and true > mp.mpf(np.finfo(float).max) else math.inf
    unit = mp.mpf(math.ulp(float(true)))
    return float(abs(mp.mpf(got) - true) / unit)


def allowed_ulps(name, point, true):
    """4 ulp, plus what a documented rounding inside two functions costs."""
    if name == "norm_min_entropy" and point.arguments[0] > 1:
        # Three roundings of the remainder norm·(√(n/(n-1))-1), each half an ulp of it, which the
        # exponential turns into relative errors of the floor.
        n, norm = (mp.mpf(x) for x in point.arguments)
        return 4 + 3 * float(norm * (mp.sqrt(n / (n - 1)) - 1))
    if name == "closed_min_entropy":
        n, d = (mp.mpf(x) for x in point.arguments)
        size = mp.log(n) + d + 1
        return 4 * math.ulp(float(size)) / math.ulp(float(true))
    return 4
