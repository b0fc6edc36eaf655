"""Derivations of the theorems, one file each, whose steps SymPy decides: ``dispersion prove``.

This table of contents loads nothing heavy; the files themselves need SymPy (the extra ``proofs``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dispersion.proofs.steps import Theorem

FILES = {
    "T1": ("t01_dispersion", "the largest and the smallest coefficient of a row"),
    "T2": ("t02_set_mass", "what several items hold together"),
    "T3": ("t03_entropy", "the least entropy of a row"),
    "T3′": ("t03_norm", "rows whose centred logits are bounded in 2-norm"),
    "T4": ("t04_inverses", "the spread a coefficient needs, the length a spread reaches"),
    "T5": ("t05_temperature", "entropy falls as logits are sharpened"),
    "T6": ("t06_length_scaling", "logits multiplied by c·log n"),
    "T7": ("t07_sink", "a sink in the denominator"),
    "T8": ("t08_soft_cap", "a soft cap on the logits"),
    "T9": ("t09_spread", "the spread of a head without rotation"),
    "T10": ("t10_rotation", "the spread of a head with rotation"),
    "T11": ("t11_budget", "what layerwise QK norm leaves to all heads together"),
    "T12": ("t12_simplex", "any-token retrieval: the simplex"),
    "T13": ("t13_capacity", "any-token retrieval: the capacity of a spectrum"),
    "T13′": ("t13_flat", "the capacity of a flat spectrum"),
    "T13″": ("t13_steep", "a ceiling from the second singular value"),
    "T14": ("t14_effective_spread", "what a measured coefficient is worth"),
    "T15": ("t15_finite_inputs", "inputs that are token ids"),
    "T16": ("t16_order_statistics", "distribution-free ceilings from measured maxima"),
    "cover": ("cover", "biases and rotation in any-token retrieval"),
    "witness": ("witness_inputs", "inputs that reach a spread and a coefficient"),
}
"""Name to file and subject, in the order of the lecture."""

_REMEDY = "SymPy is needed to prove theorems and is not installed: pip install 'dispersion[proofs]'"


def find(names: Iterable[str]) -> list[str]:
    """The names as in `FILES`, each once; all of them where none is given. T3' stands for T3′.

    Raises:
        ArgumentError: no theorem has that name.
    """
    known = {name.lower(): name for name in FILES}
    found: dict[str, None] = {}
    for name in names:
        plain = name.strip().lower().replace("''", "″").replace('"', "″").replace("'", "′")
        if plain not in known:
            msg = f"no theorem is called {name!r}. There are {', '.join(FILES)}."
            raise ArgumentError(msg)
        found[known[plain]] = None
    return list(found or FILES)


def theorem(name: str) -> Theorem:
    """The theorem of that name in `FILES`.

    Raises:
        ArgumentError: SymPy is not installed.
    """
    try:
        import sympy  # noqa: F401 - only to say clearly that it is missing
    except ImportError:  # SymPy itself, or the mpmath it stands on
        raise ArgumentError(_REMEDY) from None
    module = import_module(f"dispersion.proofs.{FILES[name][0]}")
    found: Theorem = module.THEOREM
    return found
