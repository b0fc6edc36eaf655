"""Reads of remote tensors: each is fetched whole, once, and kept while its layer is read.

An audit reads a tensor head by head. One request for the tensor serves them all; its bytes lie in
an unnamed temporary file, mapped as a local checkpoint would be, and go when the next layer comes.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import threading
import weakref
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.safetensors import located
from dispersion.checkpoint.text import reason, shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dispersion.checkpoint.remote.files import RemoteFile
    from dispersion.checkpoint.safetensors import Entry

    Place = tuple[str, int, int]  # name, first byte, bytes: some rows of a tensor

_LAYER = re.compile(r"^(?:.*\.)?\d+\.", re.ASCII)  # up to the last index of a name


class RemoteReader:
    """The `Reader` of a remote checkpoint.

    Tensors outside the layers (an embedding) stay until another layer is read, too.
    """

    def __init__(self, entries: Mapping[str, Entry], files: Mapping[str, RemoteFile]) -> None:
        self._entries, self._files = entries, files
        self._lock = threading.Lock()
        self._kept: dict[Place, IO[bytes]] = {}
        self._layer: str | None = None
        weakref.finalize(self, _close, self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process gets: where things lie, no bytes and no connections."""
        return RemoteReader, (self._entries, self._files)

    def __call__(self, name: str, rows: slice | None) -> NDArray[Any]:
        entry = self._entries[name]
        dtype, offset, shape = located(entry.info, rows)
        return self.mapped(entry, offset, shape, dtype)

    def mapped(
        self, entry: Entry, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """An array over a tensor's bytes from `offset` on."""
        count = math.prod(shape)
        if count == 0:
            flat: NDArray[Any] = np.empty(0, dtype)
            flat.flags.writeable = False
            return flat.reshape(shape)
        with self._lock:
            stored = self._fetched(entry)
            return np.asarray(np.memmap(stored, dtype, "r", offset, count)).reshape(shape)

    def _fetched(self, entry: Entry) -> IO[bytes]:
        found = _LAYER.search(entry.info.name)
        place = (entry.info.name, entry.offset, entry.info.nbytes)
        if found is not None and found[0] != self._layer:
            if self._layer is not None:
                _close(self._kept)
            self._layer = found[0]
        if place not in self._kept:
            self._kept[place] = self._fetch(entry)
        return self._kept[place]

    def _fetch(self, entry: Entry) -> IO[bytes]:
        name, start, size = entry.info.name, entry.offset, entry.info.nbytes

        def failed(error: OSError) -> CheckpointError:
            return CheckpointError(
                f"tensor {shown(name)} of {size} bytes cannot be kept in a temporary file "
                f"({reason(error)}). Free some space or set TMPDIR."
            )

        with contextlib.ExitStack() as stack:
            try:
                # Unbuffered, so that a full disk shows where it is written to.
                stored = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            except OSError as error:
                raise failed(error) from None

            def keep(chunk: bytes) -> None:
                try:
                    rest = memoryview(chunk)
                    while rest:
                        rest = rest[stored.write(rest) :]
                except OSError as error:
                    raise failed(error) from None

            self._files[entry.info.file].read(start, start + size, keep)
            stack.pop_all()
        return stored


def _close(kept: dict[Place, IO[bytes]]) -> None:
    for stored in kept.values():
        stored.close()
    kept.clear()
