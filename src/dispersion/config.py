"""Values of a ``config.json``, each checked where it is read.

Every reader raises `CheckpointError` in one line that names the key, the rule and what came.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUIRED: Any = object()
LARGEST = 2**31 - 1  # as a size of anything in a model; keeps sums and loops within reason


def _missing(key: str, where: str) -> CheckpointError:
    return CheckpointError(f"{where} must have {key}. Got no such key; add it.")


def _wrong(key: str, rule: str, value: object, where: str) -> CheckpointError:
    return CheckpointError(f"{key} in {where} must be {rule}. Got {shown(repr(value))}.")


def integer(
    config: Mapping[str, Any],
    key: str,
    default: Any = _REQUIRED,
    *,
    minimum: int = 1,
    maximum: int = LARGEST,
    where: str = "config.json",
) -> int:
    """A whole number from `minimum` to `maximum`; a missing or null key takes `default`."""
    value = config.get(key)
    if value is None:
        if default is _REQUIRED:
            raise _missing(key, where)
        return int(default)
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    if not whole or not minimum <= value <= maximum:
        raise _wrong(key, f"a whole number from {minimum} to {maximum}", value, where)
    return int(value)


def positive(
    config: Mapping[str, Any],
    key: str,
    default: Any = _REQUIRED,
    *,
    where: str = "config.json",
) -> float:
    """A finite number above zero; a missing or null key takes `default`."""
    value = config.get(key)
    if value is None:
        if default is _REQUIRED:
            raise _missing(key, where)
        return float(default)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:
        raise _wrong(key, "a finite number above 0", value, where)
    return float(value)


def flag(config: Mapping[str, Any], key: str, default: bool, *, where: str = "config.json") -> bool:
    """True or false; a missing or null key takes `default`."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(key, "true or false", value, where)
    return value


def positives(
    config: Mapping[str, Any], key: str, length: int, *, where: str = "config.json"
) -> list[float]:
    """A list of `length` finite numbers above zero."""
    value = config.get(key)
    if value is None:
        raise _missing(key, where)
    if not isinstance(value, list) or len(value) != length:
        got = f"{len(value)} entries" if isinstance(value, list) else shown(repr(value))
        msg = f"{key} in {where} must be a list of {length} numbers. Got {got}."
        raise CheckpointError(msg)
    return [positive({key: entry}, key, where=where) for entry in value]


def check_epsilons(config: Mapping[str, Any], *, where: str = "config.json") -> None:
    """Hold every ε of a norm, nested ones too, to what bounds suppose of them, read or not.

    A norm with a negative ε caps nothing.

    Raises:
        CheckpointError: one is no finite number of at least 0.
    """
    for key, value in config.items():
        if isinstance(value, dict):
            check_epsilons(value, where=where)
        elif value is not None and isinstance(key, str) and key.endswith(("_eps", "_epsilon")):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value <= sys.float_info.max:
                raise _wrong(key, "a finite number, 0 or more", value, where)
