"""Output files that appear whole or not at all, and are known to be writable beforehand."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from dispersion.errors import OutputError

if TYPE_CHECKING:
    from types import TracebackType


class OutputFile:
    """A file to be written at the end of a long computation.

    Entering creates an empty temporary file in the target's folder, so that a folder that is
    missing, full or read-only shows before the computation. `write` replaces the target in one
    step. Leaving without `write` removes the temporary file and leaves the target as it was. A
    target that exists and is no regular file (a pipe, ``/dev/null``) is written to directly.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._target = self.path
        self._temporary: Path | None = None

    def __enter__(self) -> OutputFile:
        try:
            self._target = Path(os.path.realpath(self.path))
            if self._target.is_dir():
                msg = f"output {str(self.path)!r} is a folder; name a file in it."
                raise OutputError(msg)
            exists = self._target.exists()
            if exists and not os.access(self._target, os.W_OK):
                raise PermissionError(None, "the file is write-protected")
            if exists and not self._target.is_file():
                return self
            name = f".{self._target.name[:200]}.{secrets.token_hex(4)}.tmp"
            temporary = self._target.with_name(name)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            self._temporary = temporary
            if exists:
                temporary.chmod(self._target.stat().st_mode & 0o7777)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            self._remove()
            raise self._failure(error) from error
        return self

    def write(self, text: str) -> None:
        """Put `text` (UTF-8, line ends as given) in place of whatever the target held."""
        try:
            if self._temporary is None:
                with self._target.open("w", encoding="utf-8", newline="") as stream:
                    stream.write(text)
                return
            with self._temporary.open("w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            self._temporary.replace(self._target)
            self._temporary = None
        except OSError as error:
            raise self._failure(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()
            self._temporary = None

    def _failure(self, error: Exception) -> OutputError:
        reason = getattr(error, "strerror", None) or str(error)
        return OutputError(
            f"output {str(self.path)!r} cannot be written: {reason}; "
            "name a file in a folder that exists and can be written to."
        )
