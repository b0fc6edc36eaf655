"""Values of a ``config.json``, each checked where it is read.

Every reader raises `CheckpointError` in one line that names the key, the rule and what came.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUIRED: Any = object()


def _missing(key: str, where: str) -> CheckpointError:
    return CheckpointError(f"{where} must have {key}. Got no such key; add it.")


def _wrong(key: str, rule: str, value: object, where: str) -> CheckpointError:
    return CheckpointError(f"{key} in {where} must be {rule}. Got {value!r}.")


def integer(
    config: Mapping[str, Any],
    key: str,
    default: Any = _REQUIRED,
    *,
    minimum: int = 1,
    where: str = "config.json",
) -> int:
    """A whole number of at least `minimum`; a missing or null key takes `default`."""
    value = config.get(key)
    if value is None:
        if default is _REQUIRED:
            raise _missing(key, where)
        return int(default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise _wrong(key, f"a whole number of at least {minimum}", value, where)
    if value < minimum:
        raise _wrong(key, f"at least {minimum}", value, where)
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
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(key, "a number above 0", value, where)
    if not 0 < value < math.inf:
        raise _wrong(key, "a number above 0", value, where)
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
        got = f"{len(value)} entries" if isinstance(value, list) else repr(value)
        msg = f"{key} in {where} must be a list of {length} numbers. Got {got}."
        raise CheckpointError(msg)
    return [positive({key: entry}, key, where=where) for entry in value]
