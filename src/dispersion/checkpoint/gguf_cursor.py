"""Reads a GGUF header forward: numbers, texts and values, never past the end of the file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
LONGEST_KEPT = 4096  # entries; vocabularies are longer and of no use here
LEAST_TEXT, LEAST_VALUE, LEAST_TENSOR = 8, 13, 32  # bytes that one takes at least


class Malformed(Exception):
    """What is wrong with a file, as the end of a sentence that begins with its name."""


class Cursor:
    """Reads forward through bytes and never past their end.

    Attributes:
        data: the file, or its beginning where `more` brings the rest.
        size: bytes of the whole file.
        at: the next byte.
        owed: bytes that the header still has at least, behind what is read next.
    """

    def __init__(
        self,
        data: mmap.mmap | bytearray,
        size: int,
        more: Callable[[int, int], None] | None = None,
    ) -> None:
        """A cursor at the first byte.

        Args:
            data: the file, or an array that `more` makes longer.
            size: bytes of the whole file.
            more: brings the bytes up to the first argument, and `owed` further ones if it likes.
        """
        self.data, self.size, self.at, self.owed = data, size, 0, 0
        self._more = more

    def skip(self, count: int) -> int:
        """Where the next `count` bytes start, which are there then."""
        if count + self.owed > self.size - self.at:
            msg = f"ends at byte {self.size}, inside its header"
            raise Malformed(msg)
        start, self.at = self.at, self.at + count
        if self._more is not None and self.at > len(self.data):
            self._more(self.at, self.owed)
        return start

    def number(self, code: str) -> Any:
        return struct.unpack_from(code, self.data, self.skip(struct.calcsize(code)))[0]

    def raw_text(self) -> bytes:
        length = self.number("<Q")
        start = self.skip(length)
        return bytes(self.data[start : start + length])

    def text(self) -> str:
        start = self.at + 8
        try:
            return self.raw_text().decode("utf-8")
        except UnicodeDecodeError:
            msg = f"holds text at byte {start} that is not UTF-8"
            raise Malformed(msg) from None

    def raw_texts(self, count: int) -> list[bytes]:
        """So many texts, whether or not they are UTF-8; what they take at least is known before."""
        behind, found = self.owed, []
        for left in range(count - 1, -1, -1):
            self.owed = behind + left * LEAST_TEXT
            found.append(self.raw_text())
        return found

    def value(self, kind: int) -> Any:
        """A metadata value; None for arrays that are too long to matter."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            msg = f"holds a metadata value of unknown type {kind}"
            raise Malformed(msg)
        kind, count = self.number("<I"), self.number("<Q")
        if kind == STRING:
            behind = self.owed
            for left in range(count - 1, -1, -1) if count > LONGEST_KEPT else ():
                self.owed = behind + left * LEAST_TEXT
                self.skip(self.number("<Q"))
            return None if count > LONGEST_KEPT else [self.text() for _ in range(count)]
        if kind not in SCALARS:
            msg = f"holds a metadata array of type {kind}, neither numbers nor text"
            raise Malformed(msg)
        start = self.skip(count * struct.calcsize(SCALARS[kind]))
        if count > LONGEST_KEPT:
            return None
        return list(struct.unpack_from(f"<{count}{SCALARS[kind][1]}", self.data, start))

    def metadata(self, values: int, tensors: int) -> dict[str, Any]:
        """So many values by key, in front of `tensors` entries of a directory."""
        found: dict[str, Any] = {}
        for left in range(values - 1, -1, -1):
            self.owed = left * LEAST_VALUE + tensors * LEAST_TENSOR
            key = self.text()
            if key in found:
                msg = f"holds the metadata key {shown(key)} twice"
                raise Malformed(msg)
            found[key] = self.value(self.number("<I"))
        return found
