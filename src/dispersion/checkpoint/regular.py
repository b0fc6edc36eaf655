"""Only regular files are opened: a pipe waits for a writer for ever, a device may never end."""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import reason, shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
LARGEST_TEXT = 100_000_000  # bytes of a configuration or index; real ones stay below 10 MB


def regular_size(path: Path, missing: str = "is missing. Fetch it too.") -> int:
    """Bytes of a regular file, found without opening it; symbolic links are followed.

    Args:
        path: the file.
        missing: how the message goes on after the path when nothing is there.

    Raises:
        CheckpointError: missing, a link that leads nowhere or in a circle, or no regular file.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            target = shown(path.readlink())
            missing = f"is a symbolic link to {target}, which is missing. Fetch the file itself."
        msg = f"{shown(path)} {missing}"
        raise CheckpointError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{shown(path)} cannot be read ({reason(error)}). Check its permissions."
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            msg = (
                f"{shown(path)} is a symbolic link that leads round in a circle. "
                "Put the file itself there."
            )
        raise CheckpointError(msg) from None
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in KINDS if test(found.st_mode)), "something else")
        msg = f"{shown(path)} is {kind}, not a regular file. Put the file itself there."
        raise CheckpointError(msg)
    return found.st_size


def read_bytes(path: Path, *, largest: int = LARGEST_TEXT, missing: str = "is missing.") -> bytes:
    """All bytes of a regular file of moderate size.

    Raises:
        CheckpointError: missing, not a regular file, larger than `largest` bytes, or unreadable.
    """
    size = regular_size(path, missing)
    if size > largest:
        msg = (
            f"{shown(path)} has {size} bytes, more than the {largest} that are read of such a "
            "file. Is it the right one?"
        )
        raise CheckpointError(msg)
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        msg = (
            f"{shown(path)} cannot be read ({reason(error)}). Check that it exists and may be read."
        )
        raise CheckpointError(msg) from None
