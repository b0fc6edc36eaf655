"""Formulas on one line of plain text."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.printing.str import StrPrinter

_RELATIONS = {sp.Eq: "=", sp.Le: "≤", sp.Lt: "<", sp.Ge: "≥"}


class _Printer(StrPrinter):  # type: ignore[misc]
    """SymPy's one-line form with the signs of this project's texts."""

    # SymPy finds these by the name of the class to be printed.

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:  # noqa: ARG002
        if expr.exp == sp.Rational(1, 2):
            return f"√({self._print(expr.base)})"
        return str(super()._print_Pow(expr, rational=True)).replace("**", "^")

    def _print_ExpBase(self, expr: Any) -> str:
        exponent = self._print(expr.exp)
        return f"e^{exponent}" if expr.exp.is_Symbol else f"e^({exponent})"

    def _print_Mul(self, expr: Any) -> str:
        return str(super()._print_Mul(expr)).replace("*", "·")

    def _print_Derivative(self, expr: Any) -> str:
        order = {1: "", 2: "²"}[expr.derivative_count]
        return f"d{order}/d{expr.variables[0]}{order} [{self._print(expr.expr)}]"

    def _print_Sum(self, expr: Any) -> str:
        ((index, low, high),) = expr.limits
        return f"Σ_({index}={low}..{self._print(high)}) {self._print(expr.function)}"

    def _print_Integral(self, expr: Any) -> str:
        return f"∫ {self._print(expr.function)} d{expr.variables[0]}"

    def _print_Limit(self, expr: Any) -> str:
        body, variable, to, _ = expr.args
        return f"lim_({variable}→{'∞' if to == sp.oo else to}) {self._print(body)}"

    def _print_Subs(self, expr: Any) -> str:
        body, (variable,), (point,) = expr.args
        return f"{self._print(body)} at {variable} = {self._print(point)}"

    def _print_Infinity(self, expr: Any) -> str:  # noqa: ARG002
        return "∞"


class Named(sp.Expr):  # type: ignore[misc]
    """An expression that is shown by a name, such as a function of the toolkit; `doit` opens it."""

    is_commutative = True

    def __new__(cls, name: str, value: Any) -> Named:
        named: Named = sp.Expr.__new__(cls, sp.Symbol(name), value)
        return named

    def doit(self, **_hints: Any) -> Any:
        return self.args[1].doit()

    def _sympystr(self, _printer: Any) -> str:
        return str(self.args[0].name)

    def _latex(self, printer: Any) -> str:
        return str(printer.doprint(self.args[0]))


def plain(expression: Any) -> str:
    """An expression on one line."""
    return str(_Printer().doprint(expression)).replace("**", "^")


def one_line(shown: Any) -> str:
    """A relation on one line."""
    if isinstance(shown, sp.And):
        return ", ".join(one_line(part) for part in shown.args)
    sign = _RELATIONS[type(shown)]
    left, right = (plain(side) for side in shown.args)
    return f"{left} {sign} {right}"
