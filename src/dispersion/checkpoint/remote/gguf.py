"""GGUF files at addresses: the header as far as it goes, then the tensors that are read.

Nothing in front of a header says how long it is. It is fetched piece by piece, each as long as what
is known to be left of it (a list of n texts takes 8n bytes at least), so that few bytes of the
tensors behind it come along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf import from_header
from dispersion.checkpoint.gguf_cursor import Cursor, Malformed
from dispersion.checkpoint.gguf_file import malformed, parse_header
from dispersion.checkpoint.gguf_parts import read_parts
from dispersion.checkpoint.remote.files import Missing
from dispersion.checkpoint.remote.tensors import RemoteReader
from dispersion.checkpoint.safetensors import Entry
from dispersion.checkpoint.tensors import Checkpoint, TensorInfo
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dispersion.checkpoint.gguf_file import Parsed, Stored
    from dispersion.checkpoint.remote.files import RemoteFile, RemoteFiles

LEAST = 4096  # bytes of a request that may reach behind the header
SHARE = 64  # or one part in so many of what came before, if that is more
LONGEST = 100_000_000  # bytes of a header; vocabularies of real ones take a tenth


def open_remote_gguf(files: RemoteFiles, file: str, source: str) -> Checkpoint:
    """A GGUF file, or all parts of a split one, at an address.

    Raises:
        UnsupportedError: another architecture, version, byte order, or setting of attention.
        CheckpointError: missing, forbidden, malformed, or a server without byte ranges.
    """
    place, commit = files.place, None

    def read(name: str, why: str) -> Parsed:
        nonlocal commit
        opened = files.open(name)
        try:
            parsed = _header(opened)
        except Missing as error:
            msg = str(error) if not why else f"{shown(opened.name)} is missing; {why}."
            raise CheckpointError(msg) from None
        commit = commit or opened.commit
        files.place = place.at(commit)  # the other parts are of that commit, too
        return parsed

    parsed = read_parts(file, files.name, read)
    reader = RemoteReader({}, files.opened)
    origin: dict[str, Any] = {} if commit is None else {"commit": commit}
    return from_header(parsed, files.name(file), source, _Mapped(reader), origin)


class _Mapped:
    """Bytes of tensors that may be some rows of one in the file."""

    def __init__(self, reader: RemoteReader) -> None:
        self._reader = reader

    def __call__(
        self, stored: Stored, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        return self._reader.mapped(_entry(stored), start, shape, dtype)


def _entry(stored: Stored) -> Entry:
    info = TensorInfo(stored.name, stored.type, stored.shape, stored.file, stored.nbytes)
    return Entry(info, stored.offset)


def _header(opened: RemoteFile) -> Parsed:
    data = bytearray(opened.start(LEAST))
    size = opened.size or 0

    def more(stop: int, owed: int) -> None:
        wanted = min(stop + max(owed, LEAST, stop // SHARE), size)
        if stop + owed > LONGEST:
            msg = f"has a header of more than {LONGEST} bytes, the most that is fetched of one"
            raise malformed(opened.name, Malformed(msg))
        opened.read(len(data), min(wanted, LONGEST), data.extend)

    return parse_header(Cursor(data, size, more), opened.name)
