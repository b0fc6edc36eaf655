"""Text that comes from files: decoded strictly, shown on one line."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_SHOWN = 160


def shown(text: object) -> str:
    """The text fit for a one-line message: control characters escaped, length limited."""
    line = str(text)
    if not line.isprintable():
        line = ascii(line)[1:-1]
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"


def reason(error: Exception) -> str:
    """Why the operating system or a parser failed, in words without paths or line breaks."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return shown(str(error) or type(error).__name__)


def read_bytes(path: Path) -> bytes:
    """All bytes of a small file.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        msg = (
            f"{shown(path)} cannot be read ({reason(error)}). Check that it exists and may be read."
        )
        raise CheckpointError(msg) from None


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

    hooks: dict[str, Any] = (
        {"object_pairs_hook": distinct, "parse_constant": refuse} if strict else {}
    )
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
        msg = f"{what} must be a JSON object. Got {type(value).__name__}."
        raise CheckpointError(msg)
    return value
