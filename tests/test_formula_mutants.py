"""Changing a formula anywhere fails the one check that holds its forms together.

In memory, one at a time: every `+`, `-`, `*`, `/`, power, sign and number of every function of
`row`, `entropy`, `capacity` and `symbolic` is changed, and the check must notice. What it cannot
notice, because the change does not change the value of a formula, is listed with the reason.
"""

import numpy as np
import pytest

import formula_checks
from dispersion import capacity, entropy, row, symbolic, symbolic_capacity
from formula_mutants import edited, mutant, sites, with_names

MODULES = {m.__name__.split(".")[1]: m for m in (row, entropy, capacity)}
MODULES |= {"symbolic": symbolic, "symbolic_capacity": symbolic_capacity}

SAFE = "stands where its branch is not taken"
# Changes that leave the value alone: function to the changed code and the reason.
SAME = {}

# The check of another function, where a function has none of its own.
RESPONSIBLE = {
    "two_level_entropy": ("min_entropy",),
    "turning_point": ("min_entropy",),
    "norm_spread": ("norm_max_coefficient",),
}
CAPACITY = ("log_capacity",)  # one check for all


def responsible(module, function):
    if function in RESPONSIBLE and "symbolic" in module:
        return RESPONSIBLE[function]
    if module in ("capacity", "symbolic_capacity"):
        return CAPACITY
    public = MODULES[module].__all__ if hasattr(MODULES[module], "__all__") else ()
    if function in formula_checks.ROW or function in public:
        return (function,)
    names = (*formula_checks.ROW, "row_entropy")  # a helper of several formulas
    return tuple(name for name in names if hasattr(MODULES[module], name))


def noticed(module, function, changed):
    """Whether a check fails, or cannot even run, with the changed module."""
    if module == "symbolic_capacity":
        changed = with_names(symbolic, changed)
    for name in responsible(module, function):
        modules = {"arrays": changed, "balls": None}
        if "symbolic" in module:
            modules = {"arrays": None, "symbols": changed}
            if name in ("row_entropy", "entropy_slope"):
                modules = {"symbols": changed}
        if name in CAPACITY or name in symbolic_capacity.__dict__:
            modules["step"] = 5
        try:
            with np.errstate(all="ignore"):
                formula_checks.everything(name, **modules)
        except Exception:  # a formula that cannot be evaluated any more is noticed too
            return True
    return False


FUNCTIONS = [
    (name, function)
    for name, module in MODULES.items()
    for function in dict.fromkeys(site[0] for site in sites(module))
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_no_change_of_a_formula_goes_unnoticed(module, function):
    unnoticed = []
    for name, index, where in sites(MODULES[module]):
        if name == function:
            changed, what = mutant(MODULES[module], name, index)
            if not noticed(module, function, changed):
                unnoticed.append((where, what))
    assert {what for _, what in unnoticed} <= set(SAME.get((module, function), {})), unnoticed
