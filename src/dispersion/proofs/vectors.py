"""Vectors of any dimension; their inner products expand into symbols.

An identity between the symbols ⟨x, y⟩ holds for all vectors of every real inner-product space, so
nothing here has coordinates.
"""

from __future__ import annotations

from typing import Any

import sympy as sp


class VectorSymbol(sp.Symbol):  # type: ignore[misc]
    """A vector; sums and multiples of vectors are SymPy expressions linear in them."""

    __slots__ = ()


class Inner(sp.Expr):  # type: ignore[misc]
    """⟨x, y⟩ for linear combinations x and y; `doit` expands it by bilinearity."""

    is_commutative = True
    is_real = True

    def doit(self, **_hints: Any) -> Any:
        left, right = (_parts(side.doit()) for side in self.args)
        return sp.expand(
            sum(a * b * _product(u, v) for u, a in left.items() for v, b in right.items())
        )

    def _sympystr(self, printer: Any) -> str:
        left, right = (printer.doprint(side) for side in self.args)
        return f"‖{left}‖²" if left == right else f"⟨{left}, {right}⟩"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        left, right = (printer.doprint(side) for side in self.args)
        if left == right:
            text = rf"\left\|{left}\right\|^2"
        else:
            text = rf"\left\langle {left}, {right}\right\rangle"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


def vectors(names: str) -> list[Any]:
    """One vector for each name."""
    return [VectorSymbol(name) for name in names.split()]


def dot(x: Any, y: Any) -> Any:
    """⟨x, y⟩, bilinear and symmetric."""
    return Inner(x, y)


def square(x: Any) -> Any:
    """‖x‖² = ⟨x, x⟩."""
    return Inner(x, x)


def _parts(combination: Any) -> dict[Any, Any]:
    """The coefficient of each vector."""
    combination = sp.expand(combination)
    found = {v: combination.coeff(v) for v in combination.atoms(VectorSymbol)}
    if sp.expand(combination - sum(c * v for v, c in found.items())) != 0:
        msg = f"{combination} is not a linear combination of vectors"
        raise ValueError(msg)
    return found


def _product(first: Any, second: Any) -> sp.Symbol:
    names = sorted((first.name, second.name))
    if first == second:
        return sp.Symbol(f"‖{names[0]}‖²", nonnegative=True)
    return sp.Symbol(f"⟨{names[0]},{names[1]}⟩", real=True)
