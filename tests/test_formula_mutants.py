"""Changing a formula anywhere fails the one check that holds its forms together.

In memory, one at a time, two operators of every function of `row`, `entropy`, `capacity` and
`symbolic` are changed, and the check must notice. What no check can notice, because the change
leaves the value of the formula alone, is listed with the reason. Run as a program, this file
changes every operator, sign and number there is, one at a time, and prints what nothing notices;
that takes minutes.
"""

import numpy as np
import pytest

import formula_checks
from dispersion import capacity, entropy, row, symbolic, symbolic_capacity
from formula_mutants import mutant, reloaded, sites, with_names

MODULES = {m.__name__.split(".")[1]: m for m in (row, entropy, capacity)}
MODULES |= {"symbolic": symbolic, "symbolic_capacity": symbolic_capacity}

# Changes that leave the value alone, by module, and why.
SAME: dict[str, dict[str, str]] = {
    "row": {
        "float(xp.finfo(whole.dtype).smallest_normal) ** 0.5 became "
        "float(xp.finfo(whole.dtype).smallest_normal) ** (0.5 * 2)": "a guard of gradients",
        "0.5 * float(np.log(float(xp.finfo(spread.dtype).max))) became "
        "0.5 / float(np.log(float(xp.finfo(spread.dtype).max)))": "where two equal forms meet",
        "near + near * xp.where(above, -error, error) became "
        "near - near * xp.where(above, -error, error)": "a correction of the rounding alone",
    },
    "entropy": {
        "xp.ceil(n) - 1.0 became xp.ceil(n) + 1.0": "k is at most n/2 by T3, whatever its limit",
    },
}

# The check of another function, where a function has none of its own.
RESPONSIBLE = {
    "two_level_entropy": ("min_entropy",),
    "turning_point": ("min_entropy",),
    "norm_spread": ("norm_max_coefficient",),
}
CAPACITY = ("log_capacity",)  # one check for all


CHECKS_OF_ARGUMENTS = ("_spectrum", "_finished")


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
        if name in formula_checks.ROW:
            modules["count"] = 12
        try:
            with np.errstate(all="ignore"):
                formula_checks.everything(name, **modules)
        except Exception:  # a formula that cannot be evaluated any more is noticed too
            return True
    return False


def chosen(module):
    """The first and the last operator of each function, or a number where it has none."""
    by_function = {}
    for name, index, _, operator in sites(MODULES[module]):
        _, what = mutant(MODULES[module], name, index)
        if what not in SAME.get(module, {}) and name not in CHECKS_OF_ARGUMENTS:
            by_function.setdefault(name, ([], []))[0 if operator else 1].append((name, index, what))
    return [
        (module, *site)
        for operators, numbers in by_function.values()
        for site in dict.fromkeys((operators or numbers)[:: max(1, len(operators) - 1)])
        if operators or site == numbers[0]
    ]


CHOSEN = [site for module in MODULES for site in chosen(module)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "function", "index", "what"), CHOSEN, ids=[f"{c[0]}.{c[1]}-{c[2]}" for c in CHOSEN]
)
def test_a_changed_formula_is_noticed(module, function, index, what):
    changed, _ = mutant(MODULES[module], function, index)
    assert noticed(module, function, changed), what


def test_every_public_formula_is_among_the_changed_ones():
    public = {(name, f) for name, m in MODULES.items() for f in getattr(m, "__all__", ())}
    defined = {(name, site[0]) for name, m in MODULES.items() for site in sites(m)}
    assert public & defined <= {(module, function) for module, function, _, _ in CHOSEN}


@pytest.mark.parametrize("module", MODULES)
def test_without_a_change_nothing_is_noticed(module):
    same = reloaded(MODULES[module])
    functions = {function for name, function, _, _ in CHOSEN if name == module}
    assert not any(noticed(module, function, same) for function in sorted(functions)[:3])


if __name__ == "__main__":
    for module_name, module_object in MODULES.items():
        found = [site for site in sites(module_object) if site[0] not in CHECKS_OF_ARGUMENTS]
        print(module_name, len(found), "changes", flush=True)
        for function_name, place, line, _ in found:
            changed_module, change = mutant(module_object, function_name, place)
            if not noticed(module_name, function_name, changed_module):
                print(f"  not noticed: {function_name}, line {line}: {change}", flush=True)
