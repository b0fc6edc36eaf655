"""One check that holds the three forms of a formula together: arrays, balls and SymPy.

Each formula is written once in `row`, `entropy` or `capacity`, once in `rigor` or `rigor_capacity`,
and once in `symbolic`. SymPy's form is evaluated to many digits at points over the whole range and,
at the edges, as a limit; the enclosure must contain that value and the array must come within a few
ulp of it. Checks raise AssertionError; planted mutants go through the same ones.
"""

import math
from functools import cache

import mpmath as mp
import numpy as np
import sympy as sp

from capacity_checks import spectra
from dispersion import capacity, entropy, rigor, rigor_capacity, row, symbolic
from truth import ARGUMENTS, Point, allowed_ulps, points, ulps

DIGITS = 160  # spreads of 1e-20 cancel down to 1e-60
SYMBOLS = {x: sp.Symbol(x) for x in "ndmplcb"}
INF = math.inf

# The turning point of T3 is there near 353, 17, 4e8, 2.3, 1.2 and 2.0 items: k is one or the other.
TURNS = [(1000, 3.0), (50, 1.0), (10**9, 0.009), (1000, 8.0), (500, 8.0), (845, 8.0)]

# Arguments at which a formula is a limit, or next to something that overflows or vanishes.
EDGES = {
    "max_coefficient": [(1, 3.0), (7, INF), (7, 0.0), (2**60, 700.0)],
    "min_coefficient": [(1, INF), (7, INF), (7, 0.0), (2, 700.0)],
    "loose_max_coefficient": [(1, 0.0), (7, INF), (7, 700.0)],
    "set_mass": [(0, 7, 3.0), (7, 7, 3.0), (3, 7, INF), (0, 7, INF), (7, 7, INF), (3, 7, 0.0)],
    "min_set_mass": [
        *[(0, 7, 3.0), (7, 7, 3.0), (3, 7, INF), (0, 7, INF), (7, 7, INF), (6, 7, 700.0)],
    ],
    "min_entropy": [(1, 3.0), (2, 0.0), (7, 0.0), (7, INF), (2, INF), *TURNS],
    "closed_min_entropy": [(7, 0.0), (7, INF), (7, 0.009)],
    "norm_max_coefficient": [(1, 3.0), (7, INF), (2, 0.0)],
    "norm_min_entropy": [(1, 3.0), (7, INF), (2, 0.0)],
    "required_spread": [(1, 0.5), (2, 0.5), (7, 0.1), (3, 0.4)],
    "reachable_length": [(INF, 0.5), (0.0, 0.5), (700.0, 0.5)],
    "length_scaled_max_coefficient": [(1, 3.0), (2, 3.0), (7, INF), (7, 0.0), (2**60, 1.0)],
    "max_coefficient_with_sink": [(1, 3.0, 0.0, -INF), (7, INF, 1.0, 2.0), (7, 0.0, 1.0, -INF)],
    "sink_share": [(7, 1.0, -INF), (1, 0.0, 0.0), (7, -700.0, 0.0)],
    "capped_spread": [(INF, 5.0), (0.0, 5.0), (1e-300, 5.0)],
}
OPTIONS = {
    "max_coefficient": {"temperature": 0.7},
    "min_coefficient": {"temperature": 0.7},
    "loose_max_coefficient": {"temperature": 0.7},
    "set_mass": {"temperature": 0.7},
    "min_set_mass": {"temperature": 0.7},
    "min_entropy": {"temperature": 0.7},
    "closed_min_entropy": {"temperature": 0.7},
    "required_spread": {"temperature": 0.7, "items": 3},
    "reachable_length": {"temperature": 0.7, "items": 3},
    "length_scaled_max_coefficient": {"scale": 0.7},
}
# Formulas that divide by n − 1, or take its logarithm.
ALONE = ("norm_max_coefficient", "norm_min_entropy", "required_spread")
# What a formula says outside the range in which it says anything.
CLIP = {"required_spread": lambda value: max(value, mp.mpf(0))}
ROW = tuple(ARGUMENTS)


def check_row_formula(name, *, arrays=row, balls=rigor, symbols=symbolic, count=24):
    """Three forms of a formula of one row agree."""
    value = values(symbols, name, {})
    for point in points(name, count, whole=True, longest=18.9):
        numbers = (*point.arguments, *point.keywords.values())
        if not _removable(name, numbers):
            _agree(name, point, value(numbers), arrays, balls)
    for numbers in EDGES[name]:
        _agree(name, _point(name, numbers), edge(symbols, name, numbers), arrays, balls)
    if "b" in ARGUMENTS[name]:  # the default of an option is a number of the formula too
        numbers = (7, 1.0, 2.0)[: len(ARGUMENTS[name]) - 1]
        default = getattr(symbols, name)(*map(sp.Rational, numbers))
        _agree(name, Point(numbers, {}), _number(default), arrays, balls)
    options = OPTIONS.get(name)
    if options:
        scaled = values(symbols, name, options)
        for point in points(name, 8, seed=1, whole=True, longest=9.0):
            short = "n" in ARGUMENTS[name] and point.arguments[0] <= options.get("items", 0)
            if short or _removable(name, point.arguments):
                continue
            given = Point(point.arguments, options)
            _agree(name, given, scaled(point.arguments), arrays, balls)


def _point(name, numbers):
    if "b" in ARGUMENTS[name]:
        return Point(numbers[:-1], {"sink": numbers[-1]})
    return Point(numbers, {})


def _call(module, name, point):
    return getattr(module, name)(*point.arguments, **point.keywords)


def _agree(name, point, true, arrays, balls):
    with mp.workdps(DIGITS):
        true = +CLIP.get(name, lambda value: value)(true)
        case = (name, point.arguments, point.keywords, mp.nstr(true, 20))
        if arrays is not None:
            got = _call(arrays, name, point)
            same = got == float(true)
            assert same or ulps(got, true) <= _room(name, point, true), ("array", *case, got)
        if balls is not None:
            ball = _call(balls, name, point)
            whole = mp.floor(true) if name == "reachable_length" and mp.isfinite(true) else true
            assert mp.mpf(ball.lower) <= whole <= mp.mpf(ball.upper), ("ball", *case, ball)
            unit = math.ulp(min(abs(float(true)), np.finfo(float).max))
            narrow = ball.upper == INF or ball.lower == -INF or ball.upper - ball.lower <= 2 * unit
            assert narrow, ("ball", *case, ball)


def _room(name, point, true):
    if name == "closed_min_entropy":
        n, d = (mp.mpf(x) for x in point.arguments)
        size = mp.log(n) + d / mp.mpf(point.keywords.get("temperature", 1.0)) + 1
        return 4 * math.ulp(float(size)) / math.ulp(float(true))
    if not point.keywords or "sink" in point.keywords:
        return allowed_ulps(name, point, true)
    # A temperature or scale rounds the exponent once: relative 2⁻⁵³ of it in the result.
    exponent = max((float(x) for x in point.arguments), default=0.0)
    if name in ("required_spread", "reachable_length") or "n" in ARGUMENTS[name]:
        exponent = (
            float(point.arguments[ARGUMENTS[name].find("d")]) if "d" in ARGUMENTS[name] else 1
        )
    return 8 + 4 * exponent * (math.log(point.arguments[0]) if "scale" in point.keywords else 2)


def values(symbols, name, options):
    """SymPy's form of a formula as a function of a tuple of numbers, to DIGITS digits."""
    return _values(symbols, name, tuple(sorted(options.items())))


@cache  # dozens of mutants are held to the same values
def _values(symbols, name, options):
    letters = ARGUMENTS[name]
    free = [SYMBOLS[x] for x in letters]
    keywords = {key: sp.Rational(value) for key, value in options}
    if "b" in letters:
        keywords["sink"] = free[-1]
    formula = getattr(symbols, name)(*(x for x in free if x.name != "b"), **keywords)
    function = sp.lambdify(free, formula, "mpmath")

    @cache
    def value(numbers):
        # log(1 + e^-d) takes as many digits as e^-d has zeros.
        small = numbers[-1] if name in ("min_entropy", "norm_min_entropy") else 0
        with mp.workdps(DIGITS + int(small / 2)):
            return function(*(mp.mpf(x) for x in numbers)) + mp.mpf(0)

    return value


def _removable(name, numbers):
    """Whether the formula has to be read as a limit there: those points are among EDGES."""
    given = dict(zip(ARGUMENTS[name], numbers, strict=True))
    level = name in ("min_entropy", "closed_min_entropy") and given["d"] == 0
    return level or (name in ALONE and given["n"] == 1)


@cache
def edge(symbols, name, numbers):
    """The value or limit of SymPy's form where an argument is at the end of its range."""
    letters = ARGUMENTS[name]
    if numbers in TURNS:
        return values(symbols, name, {})(numbers)
    if name == "min_entropy":
        # From the statement: the least over all k, each at its limit.
        n, d = int(numbers[0]), numbers[1]
        count = range(1, 2 if d == 0 else max(n, 2))
        return min(_limit(symbols.two_level_entropy(k, n, SYMBOLS["d"]), {"d": d}) for k in count)
    free = [SYMBOLS[x] for x in letters]
    keywords = {"sink": free[-1]} if "b" in letters else {}
    formula = getattr(symbols, name)(*(x for x in free if x.name != "b"), **keywords)
    return _limit(formula, dict(zip(letters, numbers, strict=True)), alone=name in ALONE)


def _limit(formula, numbers, *, alone=False):
    exact = {x: sp.oo if v == INF else -sp.oo if v == -INF else sp.Rational(v) for x, v in
             numbers.items()}  # fmt: skip
    inner = {x: v for x, v in exact.items() if v.is_finite and v != 0 and not (alone and v == 1)}
    formula = formula.subs({SYMBOLS[x]: v for x, v in inner.items()})
    for x, v in exact.items():
        if x not in inner:
            formula = sp.limit(formula, SYMBOLS[x], v)
    with mp.workdps(DIGITS):
        found = sp.N(formula, DIGITS)
        return mp.mpf(str(found).replace("oo", "inf"))


def check_row_entropy(*, arrays=entropy, symbols=symbolic):
    """Entropy and its slope of explicit rows (arrays and SymPy; no certificate needs a ball)."""
    rng = np.random.default_rng(5)
    for n in (1, 2, 3, 5):
        for beta in (0.0, 0.5, 1.0, 3.0):
            logits = rng.uniform(-4, 4, n)
            exact = [sp.Rational(x) for x in logits]
            for name in ("row_entropy", "entropy_slope"):
                given = {} if beta == 1 else {"inverse_temperature": beta}
                options = {key: sp.Rational(value) for key, value in given.items()}
                true = float(sp.N(getattr(symbols, name)(exact, **options), 40))
                # Two rows at once, with a masked item that is as good as absent.
                rows = np.stack([[*logits, -np.inf], [-np.inf, *logits]])
                found = getattr(arrays, name)(rows, **given)
                got = max(found.tolist(), key=lambda value, true=true: abs(value - true))
                # Sums of at most five terms of size below 64, a few roundings each.
                assert abs(got - true) <= 64 * 32 * 2.0**-53, (name, logits, beta, got, true)


def check_ball_only(*, balls=rigor, symbols=symbolic):
    """Formulas that only certificates use: balls and SymPy."""
    for slope in (1.0, 0.9, 0.25, 1e-6):
        for cap in (0.5, 30.0):
            true = _number(symbols.capped_intercept(sp.Rational(slope), sp.Rational(cap)))
            _inside(true, balls.capped_intercept(slope, cap), ("capped_intercept", slope, cap))
    others = [(0.5, 3), (-2.0, 1000), (1.25, 0)]
    exact = [(sp.Rational(x), count) for x, count in others]
    for target in (-30.0, 0.0, 1.5, 30.0):
        true = _number(symbols.softmax_coefficient(sp.Rational(target), exact))
        _inside(true, balls.softmax_coefficient(target, others), ("softmax_coefficient", target))


def _number(expression):
    with mp.workdps(DIGITS):
        return mp.mpf(str(sp.N(expression, DIGITS)))


def _inside(true, ball, case):
    low, high = mp.mpf(ball.lower), mp.mpf(ball.upper)
    room = 4 * math.ulp(abs(float(true)))
    assert low <= true <= high, (case, ball, float(true))
    assert ball.upper - ball.lower <= room, (case, ball)


@cache
def _known(symbols, values_):
    return _number(symbols.log_capacity(values_))


def check_capacity_formulas(*, arrays=capacity, balls=rigor_capacity, symbols=symbolic, step=2):
    """T12, T13, T13′ and T13″ in all their forms; every `step`-th spectrum."""
    for kappa in spectra()[::step]:
        true = _known(symbols, tuple(kappa))
        case = (kappa, mp.nstr(true, 20))
        room = (len(kappa) + 32) * 2.0**-53
        if arrays is not None:
            got = arrays.log_capacity(list(kappa))
            assert abs(mp.mpf(got) - true) <= room * true, ("array log_capacity", *case, got)
            whole = arrays.capacity(list(kappa))
            exact = mp.exp(true)
            same = whole == INF and true > 709
            assert same or abs(mp.mpf(whole) / exact - 1) <= room * (4 + true), (
                "array capacity",
                *case,
            )
            _check_level(arrays, symbols, kappa)
        if balls is not None:
            ball = balls.log_capacity(list(kappa))
            low, high = mp.mpf(ball.lower) * (1 - mp.mpf(10) ** -25), mp.mpf(ball.upper)
            assert low <= true <= high, ("ball log_capacity", *case, ball)
            assert ball.upper - ball.lower <= 2.0**-36 * ball.upper, ("ball wide", *case, ball)
            whole = balls.capacity(list(kappa))
            assert mp.mpf(whole.lower) * (1 - 1e-20) <= mp.exp(true) <= mp.mpf(whole.upper), case
        for n in (2, 3, 50, 10**9):
            single = _number(symbols.simplex_ceiling(sp.Integer(n), sp.Rational(max(kappa))))
            shared = min(mp.mpf(1), single, mp.exp(true) / n)
            size = (16 + 4 * mp.mpf(max(kappa)) + true) * 2.0**-50
            if arrays is not None:
                got = mp.mpf(arrays.simplex_ceiling(n, max(kappa)))
                assert abs(got / single - 1) <= size, ("array simplex", n, kappa, got)
                got = mp.mpf(arrays.any_token_ceiling(n, list(kappa)))
                assert abs(got / shared - 1) <= size * len(kappa), ("array any", n, kappa, got)
            if balls is not None:
                _inside(single, balls.simplex_ceiling(n, max(kappa)), ("ball simplex", n, kappa))
                bound = balls.any_token_ceiling(n, list(kappa)).upper
                assert bound <= shared * (1 + mp.mpf(2) ** -36 * (1 + true)), ("any", n, kappa)
    if arrays is not None:
        assert arrays.simplex_ceiling(1, 3.0) == 1.0
        between = _number(symbols.simplex_ceiling(sp.Rational(3, 2), sp.Integer(3)))
        assert abs(arrays.simplex_ceiling(1.5, 3.0) / between - 1) <= 2.0**-48
        limit = sp.limit(symbols.simplex_ceiling(SYMBOLS["n"], 3), SYMBOLS["n"], 1, "+")
        assert limit == 1
    if balls is not None:
        _check_steep_and_flat(balls, symbols)


def _check_level(arrays, symbols, kappa):
    level = float(arrays.water_level(list(kappa)))
    above = [sp.Rational(x) for x in kappa if x > level]
    if level > 0:
        pull = float(sp.N(symbols.water_pull(sp.Rational(level), above), 40))
        # Bisection ends within an ulp of κ_1 of the root; the pull has slopes up to 1/κ per term.
        room = len(kappa) * (16 + max(kappa) / min(above, default=1)) * 2.0**-52 * max(level, 1.0)
        assert abs(pull - level) <= room, ("water_level", kappa, level, pull)
        objective = symbols.log_capacity_at(sp.Rational(level), above)
        true = _known(symbols, tuple(kappa))
        assert abs(_number(objective) - true) <= true * 2.0**-46, ("log_capacity_at", kappa)


def _check_steep_and_flat(balls, symbols):
    for n in (2, 3, 10, 11, 10**6 + 1):
        for two, one in ((0.0, 3.0), (1.5, 4.0), (2.0, 2.0)):
            exact = [sp.Rational(x) for x in (two, one)]
            true = _number(symbols.steep_ceiling(sp.Integer(n), *exact))
            _inside(true, balls.steep_ceiling(n, two, one), ("steep", n, two, one))
            true = _number(symbols.steep_ceiling(sp.Integer(n), exact[0]))
            _inside(true, balls.steep_ceiling(n, two), ("steep without κ_1", n, two))
    for d, kappa in ((1, 0.5), (2, 2.0), (3, 1.25), (16, 16.0), (64, 8.0), (128, 128**0.5)):
        exact = sp.Rational(kappa)
        true = _number(symbols.flat_log_capacity(sp.Integer(d), exact))
        _inside(true, balls.flat_log_capacity(d, kappa), ("flat", d, kappa))
        mean = _number(symbols.log_sphere_mean(sp.Integer(d), exact))
        assert abs(mean + true - mp.mpf(kappa)) <= 1e-30, ("log_sphere_mean", d, kappa)
        beyond = balls.flat_log_capacity_estimate(d, kappa).value
        assert abs(beyond - true) <= 4 * math.ulp(float(true)), ("flat estimate", d, kappa)


def everything(name, **modules):
    """The check that is responsible for a public name."""
    if name in ROW:
        check_row_formula(name, **modules)
    elif name in ("row_entropy", "entropy_slope"):
        check_row_entropy(**{k: v for k, v in modules.items() if k != "balls"})
    elif name in ("capped_intercept", "softmax_coefficient"):
        check_ball_only(**{k: v for k, v in modules.items() if k != "arrays"})
    else:
        check_capacity_formulas(**modules)
