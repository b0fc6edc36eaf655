"""Certified answers to: can this attention head be sharp at this length?

The table of contents. Names are imported when first used, so that `import dispersion` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispersion.auditing import audit as audit
    from dispersion.checking import check as check
    from dispersion.enclosure import Enclosure as Enclosure
    from dispersion.enclosure import Estimate as Estimate
    from dispersion.entropy import min_entropy as min_entropy
    from dispersion.errors import ArgumentError as ArgumentError
    from dispersion.errors import CheckpointError as CheckpointError
    from dispersion.errors import DispersionError as DispersionError
    from dispersion.errors import OutputError as OutputError
    from dispersion.errors import UnsafeFileError as UnsafeFileError
    from dispersion.errors import UnsupportedError as UnsupportedError
    from dispersion.head import BallImage as BallImage
    from dispersion.head import Head as Head
    from dispersion.planned import PlannedHead as PlannedHead
    from dispersion.planning import plan_head as plan_head
    from dispersion.previewing import dry_run as dry_run
    from dispersion.row import capped_spread as capped_spread
    from dispersion.row import loose_max_coefficient as loose_max_coefficient
    from dispersion.row import max_coefficient as max_coefficient
    from dispersion.row import max_coefficient_with_sink as max_coefficient_with_sink
    from dispersion.row import min_coefficient as min_coefficient
    from dispersion.row import reachable_length as reachable_length
    from dispersion.row import required_spread as required_spread
    from dispersion.row import set_mass as set_mass
    from dispersion.verdict import Target as Target
    from dispersion.verdict import Verdict as Verdict

    __version__: str

# No submodule may bear the name of a function listed here: importing the submodule would put the
# module in the function's place. Hence auditing.py and checking.py.
_HOMES = {
    "ArgumentError": "errors",
    "BallImage": "head",
    "CheckpointError": "errors",
    "DispersionError": "errors",
    "Enclosure": "enclosure",
    "Estimate": "enclosure",
    "Head": "head",
    "OutputError": "errors",
    "PlannedHead": "planned",
    "Target": "verdict",
    "UnsafeFileError": "errors",
    "UnsupportedError": "errors",
    "Verdict": "verdict",
    "audit": "auditing",
    "capped_spread": "row",
    "check": "checking",
    "dry_run": "previewing",
    "loose_max_coefficient": "row",
    "max_coefficient": "row",
    "max_coefficient_with_sink": "row",
    "min_coefficient": "row",
    "min_entropy": "entropy",
    "plan_head": "planning",
    "reachable_length": "row",
    "required_spread": "row",
    "set_mass": "row",
}

__all__ = [
    "ArgumentError",
    "BallImage",
    "CheckpointError",
    "DispersionError",
    "Enclosure",
    "Estimate",
    "Head",
    "OutputError",
    "PlannedHead",
    "Target",
    "UnsafeFileError",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "audit",
    "capped_spread",
    "check",
    "dry_run",
    "loose_max_coefficient",
    "max_coefficient",
    "max_coefficient_with_sink",
    "min_coefficient",
    "min_entropy",
    "plan_head",
    "reachable_length",
    "required_spread",
    "set_mass",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("dispersion")
    elif name in _HOMES:
        value = getattr(import_module(f"dispersion.{_HOMES[name]}"), name)
    else:
        msg = f"module 'dispersion' has no attribute {name!r}"
        raise AttributeError(msg)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
