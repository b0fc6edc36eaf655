"""Text that comes from files: decoded strictly, shown on one line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from dispersion.errors import CheckpointError

LONGEST_SHOWN = 160
MOST_DIGITS = 1000  # of an integer in JSON; float64 itself ends at 309


def shown(text: object) -> str:
    """The text fit for a one-line message: control characters escaped, length limited."""
    try:
        line = str(text)
    except ValueError:  # Python prints no integer of several thousand digits
        line = "a number of thousands of digits"
    if not line.isprintable():
        line = ascii(line)[1:-1]
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"


def reason(error: Exception) -> str:
    """Why the operating system or a parser failed, in words without paths or line breaks."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return shown(str(error) or type(error).__name__)


def as_json(value: object) -> str:
    """A parsed JSON value in JSON's own words (null, true, [1, 2]), but text without quotes."""
    if isinstance(value, str):
        return shown(value)
    try:
        return shown(json.dumps(value, ensure_ascii=False))
    except (RecursionError, ValueError):
        return "a value too deep or too long to show"


def parse_object(raw: bytes, what: str, *, strict: bool = False) -> dict[str, Any]:
    """A JSON object from UTF-8 bytes.

    Args:
        raw: the bytes.
        what: how messages name their origin.
        strict: also refuse duplicate keys and NaN or Infinity, which JSON does not have.

    Raises:
        CheckpointError: not UTF-8, not JSON, or not an object.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            msg = f"the key {shown(twice)} occurs twice in one object"
            raise ValueError(msg)
        return result

    def refuse(constant: str) -> Any:
        msg = f"{constant} is not JSON"
        raise ValueError(msg)

    def whole(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            msg = f"it holds an integer of {len(digits.lstrip('-'))} digits"
            raise ValueError(msg)
        return int(digits)

    hooks: dict[str, Any] = {"parse_int": whole}
    if strict:
        hooks |= {"object_pairs_hook": distinct, "parse_constant": refuse}
    try:
        value = json.loads(raw.decode("utf-8"), **hooks)
    except UnicodeDecodeError as error:
        msg = f"{what} must be UTF-8. Byte {error.start} is not; the file is damaged."
        raise CheckpointError(msg) from None
    except RecursionError:
        msg = f"{what} is nested too deeply to be a real file of its kind."
        raise CheckpointError(msg) from None
    except ValueError as error:
        msg = f"{what} must be valid JSON ({reason(error)}). Fetch the file again."
        raise CheckpointError(msg) from None
    if not isinstance(value, dict):
        msg = f"{what} must be a JSON object. Got {_kind(value)}."
        raise CheckpointError(msg)
    return value


def _kind(value: object) -> str:
    match value:
        case list():
            return "a list"
        case str():
            return "text"
    return as_json(value)
