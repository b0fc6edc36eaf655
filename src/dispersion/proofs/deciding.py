"""Is an expression zero? Is it nonnegative? Each answer is yes, no, or not decided.

"Yes" comes from algebra alone. Numbers are only ever used to say no: a value that is clearly not
zero, or clearly negative, at one point refutes a claim and can never support one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.core.function import AppliedUndef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POINTS = 12
_DIGITS = 40
_CLEARLY = sp.Float("1e-25", 40)


def is_zero(expression: Any) -> bool | None:
    """True where algebra shows that the expression is 0, False where a point refutes it."""
    expression = _plain(expression)
    if any(tactic(expression) == 0 for tactic in _QUICK):
        return True
    if any(abs(v) > _CLEARLY for v in _values(expression)):
        return False  # before the slow ones, which have nothing to find then
    return True if any(tactic(expression) == 0 for tactic in _SLOW) else None


def is_nonnegative(expression: Any, *, strict: bool = False) -> bool | None:
    """True where every term shows its sign, False where a point refutes it.

    The numerator and the denominator over a common denominator must be products of factors of
    which each is an even power, or expands to a sum of terms that are not negative (and one of
    them positive, where it must not vanish). Which symbols are nonnegative they say themselves.
    """
    expression = _plain(expression)
    if _shows(expression, strict=strict):
        return True
    for form in _forms(expression):
        numerator, denominator = sp.fraction(form)
        for sign in (1, -1):  # a common sign of both does not matter
            if _shows(sign * denominator, strict=True) and _shows(sign * numerator, strict=strict):
                return True
    bad = [v for v in _values(expression) if v < -_CLEARLY]
    return False if bad else None


def is_nonnegative_by_slopes(expression: Any, variable: Any, order: int) -> bool | None:
    """Taylor's theorem from 0: the first `order` derivatives at 0 and the last beyond it.

    True where the expression and its first `order`−1 derivatives are nonnegative at variable = 0
    and the next derivative is nonnegative for every nonnegative value of the variable.
    """
    expression = current = _plain(expression)
    for _ in range(order):
        start = is_nonnegative(current.subs(variable, 0))
        if start is not True:
            return False if current is expression and start is False else None
        current = sp.diff(current, variable)
    if is_nonnegative(current) is True:
        return True
    return False if any(v < -_CLEARLY for v in _values(expression)) else None


def _plain(expression: Any) -> Any:
    """Evaluated, and with symbols in place of unknown functions and their derivatives."""
    expression = sp.sympify(expression).doit()
    unknown = sorted(expression.atoms(sp.Derivative), key=_order, reverse=True)
    unknown += sorted(expression.atoms(AppliedUndef), key=str)
    return expression.subs([(f, sp.Dummy(real=True)) for f in unknown])


def _order(derivative: Any) -> tuple[int, str]:
    return derivative.derivative_count, str(derivative)


def _logs(expression: Any) -> Any:
    return sp.simplify(sp.expand_log(sp.expand(expression)))


def _hyperbolic(expression: Any) -> Any:
    return sp.simplify(sp.expand(expression.rewrite(sp.exp)))


def _common(expression: Any) -> Any:
    numerator, _ = sp.fraction(sp.together(sp.powsimp(expression)))
    return sp.expand(sp.powsimp(sp.expand(numerator)))


_QUICK: tuple[Callable[[Any], Any], ...] = (
    lambda e: e,
    lambda e: sp.expand(e),
    _common,
    lambda e: sp.expand_log(sp.expand(e)).expand(),
)
_SLOW: tuple[Callable[[Any], Any], ...] = (
    lambda e: sp.simplify(e),
    _logs,
    _hyperbolic,
    lambda e: sp.trigsimp(sp.expand_trig(e)).expand(),
    lambda e: sp.gammasimp(e.rewrite(sp.gamma)),
)


def _forms(expression: Any) -> Iterator[Any]:
    together = sp.together(expression)
    yield together
    yield sp.factor(together)
    yield sp.together(sp.powsimp(sp.expand(expression)))
    yield sp.factor(sp.simplify(expression))


def _shows(expression: Any, *, strict: bool) -> bool:
    """Whether every factor of a product shows that it is nonnegative, or positive."""
    for form in (expression, sp.expand(expression), sp.powsimp(sp.expand(expression))):
        if all(_factor_shows(factor, strict) for factor in sp.Mul.make_args(form)):
            return True
    return False


def _factor_shows(factor: Any, strict: bool) -> bool:
    if factor.is_positive or (factor.is_nonnegative and not strict):
        return True
    if _is_square(factor) and not strict:
        return True
    if factor.is_Pow and factor.exp.is_integer:
        return _factor_shows(factor.base, strict or bool(factor.exp.is_negative))
    for form in (factor, sp.expand(factor)):
        terms = sp.Add.make_args(form)
        if all(_term_shows(term) for term in terms):
            return not strict or any(term.is_positive for term in terms)
    return False


def _term_shows(term: Any) -> bool:
    return term.is_nonnegative or all(
        part.is_nonnegative or _is_square(part) for part in sp.Mul.make_args(term)
    )


def _is_square(part: Any) -> bool:
    """An even power without a pole: a derivative of one sign says nothing across a pole."""
    return bool(part.is_Pow and part.exp.is_even and part.exp.is_nonnegative and part.base.is_real)


def _values(expression: Any) -> Iterator[Any]:
    """Values at points that respect what the symbols assume."""
    rng = random.Random(0)
    symbols = sorted(expression.free_symbols, key=str)
    if not all(isinstance(symbol, sp.Symbol) for symbol in symbols):
        return  # matrices have no values to try
    for _ in range(_POINTS if symbols else 1):
        point = {symbol: _sample(symbol, rng) for symbol in symbols}
        value = sp.N(expression.subs(point), _DIGITS)
        if value.is_number and value.is_finite and value.is_real:
            yield value


def _sample(symbol: Any, rng: random.Random) -> Any:
    if symbol.is_integer:
        low = 1 if symbol.is_positive else 0 if symbol.is_nonnegative else -6
        return sp.Integer(rng.randint(low, 7))
    size = sp.Rational(rng.randint(1, 400), 97)
    return size if symbol.is_nonnegative else size * rng.choice((-1, 1))
