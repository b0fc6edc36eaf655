"""One remote file: its text, or ranges of its bytes that are known to be of one version."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, TypeVar

from dispersion.checkpoint.remote.failures import Interrupted
from dispersion.checkpoint.remote.transport import Transport
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.checkpoint.remote.places import Place
    from dispersion.checkpoint.remote.transport import Answer

T = TypeVar("T")

TRIES = 4
BACKOFF = 0.5  # seconds before the second try, doubled before each further one
LONGEST_WAIT = 30.0  # seconds, whatever Retry-After says
PROGRESS = 1 << 26  # bytes that earn one more try, so that long reads survive several breaks
CHUNK = 1 << 18
WINDOW, LEAST = 60.0, 1 << 16  # seconds in which so many bytes must arrive
MOST_EXPIRED = 2
BUSY = (408, 425, 429, 500, 502, 503, 504)
GONE = (401, 403, 404, 410)
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.ASCII)


class Missing(CheckpointError):
    """The server has no such file."""


class RemoteFile:
    """A file on a server.

    Attributes:
        name: how messages name it.
        size: its bytes, known once a range was read.
        commit: the hub's commit, where it named one.
    """

    def __init__(self, transport: Transport, url: str, name: str, *, hub: bool) -> None:
        self.name = name
        self.size: int | None = None
        self.commit: str | None = None
        self._transport, self._url, self._hub = transport, url, hub
        self._direct: str | None = None  # where redirects led last time
        self._expired = 0
        self._version: str | None = None
        self._seen = False

    def text(self, largest: int) -> bytes:
        """All bytes of a file of moderate size.

        Raises:
            CheckpointError: missing, forbidden, larger than `largest` bytes, or unreadable.
        """

        def get() -> bytes:
            taken = bytearray()
            with self._transport.get(self._url, self.name) as answer:
                self._check_status(answer, (200,))
                length = answer.response.length_remaining
                if length is not None and length > largest:
                    raise CheckpointError(self._too_large(f"{length} bytes", largest))
                self._copy(answer, largest + 1, taken.extend)
                self.commit = answer.commit
            if len(taken) > largest:
                raise CheckpointError(self._too_large("more", largest))
            return bytes(taken)

        return self._persist(get, lambda: 0)

    def start(self, count: int) -> bytes:
        """The first bytes, at most `count`; finds out the file's size.

        Raises:
            CheckpointError: missing, forbidden, unreadable, or a server that serves no ranges.
        """
        taken = bytearray()
        self.read(0, count, taken.extend)
        return bytes(taken)

    def read(self, start: int, stop: int, write: Callable[[bytes], object]) -> None:
        """Hand the bytes from `start` to `stop` to `write`, in order and each once.

        Broken reads go on where they stopped.

        Raises:
            CheckpointError: the server fails several times, changes the file meanwhile, or answers
                with other bytes than asked for.
        """
        reached = start

        def get() -> None:
            nonlocal reached

            def passed(chunk: bytes) -> None:
                nonlocal reached
                write(chunk)
                reached += len(chunk)

            end = stop if self.size is None else min(stop, self.size)
            if reached >= end:
                return
            wanted = f"bytes={reached}-{end - 1}"
            with self._transport.get(self._direct or self._url, self.name, wanted) as answer:
                count = self._check_range(answer, reached, end)
                self._copy(answer, count, passed)
                if reached < min(end, self.size or 0):
                    reason = f"it ended at byte {reached}, before {end}"
                    raise Interrupted(reason)

        self._persist(get, lambda: reached - start)

    def _persist(self, get: Callable[[], T], done: Callable[[], int]) -> T:
        failures = 0
        while True:
            try:
                return get()
            except Interrupted as error:
                failures += 1
                if failures >= TRIES + done() // PROGRESS:
                    msg = (
                        f"{shown(self.name)} cannot be read: {error.reason}, the last of "
                        f"{failures} tries. Try again later."
                    )
                    raise CheckpointError(msg) from None
                pause = BACKOFF * 2 ** (min(failures, TRIES) - 1)
                time.sleep(min(LONGEST_WAIT, max(pause, error.wait)))

    def _copy(self, answer: Answer, count: int, write: Callable[[bytes], object]) -> None:
        """At most `count` bytes of an answer's body, as long as they come fast enough."""
        left, since, arrived = count, time.monotonic(), 0
        while left:
            chunk = answer.response.read1(min(CHUNK, left), decode_content=False)
            if not chunk:
                return
            write(chunk)
            left -= len(chunk)
            arrived += len(chunk)
            now = time.monotonic()
            if now - since >= WINDOW:
                if arrived < LEAST:
                    reason = f"only {arrived} bytes came in {WINDOW:g} s"
                    raise Interrupted(reason)
                since, arrived = now, 0

    def _check_range(self, answer: Answer, start: int, end: int) -> int:
        """Bytes that an answer holds, which must be those that were asked for."""
        if answer.response.status == 416 and self.size is None:
            msg = f"{shown(self.name)} is empty, so it is truncated. Is the address right?"
            raise CheckpointError(msg)
        self._check_status(answer, (200, 206))
        if answer.response.status == 200:
            msg = (
                f"{shown(self.name)}: the server sends whole files only (no byte ranges). "
                "Download the checkpoint and give its folder."
            )
            raise CheckpointError(msg)
        given = answer.header("Content-Range") or "none"
        match = _RANGE.fullmatch(given.strip())
        first, last, size = (int(word) for word in match.groups()) if match else (0, -1, 0)
        expected = min(end, size) - 1 if self.size is None else end - 1
        if match is None or first != start or last != expected:
            msg = (
                f"{shown(self.name)}: the server must answer with the bytes {start} to {end - 1} "
                f"that it was asked for. Got Content-Range {shown(given)}; download the checkpoint."
            )
            raise CheckpointError(msg)
        self._check_version(answer, size)
        if self._expired < MOST_EXPIRED:  # some are good for one range only
            self._direct = answer.url
        self.commit = self.commit or answer.commit
        return last - first + 1

    def _check_version(self, answer: Answer, size: int) -> None:
        version = answer.header("ETag") or answer.header("Last-Modified")
        if self._seen and (version != self._version or size != self.size):
            what = f"{self.size} bytes, then {size}" if size != self.size else "another ETag"
            msg = f"{shown(self.name)} changed while it was read ({what}). Start again."
            raise CheckpointError(msg)
        self._seen, self._version, self.size = True, version, size

    def _check_status(self, answer: Answer, good: tuple[int, ...]) -> None:
        status = answer.response.status
        if status in good:
            encoding = (answer.header("Content-Encoding") or "identity").strip().lower()
            if encoding != "identity":
                msg = (
                    f"{shown(self.name)}: the server compresses it ({shown(encoding)}), which was "
                    "not asked for. Download the checkpoint and give its folder."
                )
                raise CheckpointError(msg)
            return
        if status in GONE and self._direct not in (None, self._url):
            self._direct, self._expired = None, self._expired + 1
            reason = f"the address that the server redirected to has expired (HTTP {status})"
            raise Interrupted(reason)
        if status in BUSY:
            wait = (answer.header("Retry-After") or "").strip()
            seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 9 else 0.0
            reason = f"the server answered HTTP {status}"
            raise Interrupted(reason, seconds)
        if status in (404, 410):
            msg = f"{shown(self.name)} does not exist (HTTP {status}). Check the address."
            raise Missing(msg)
        if status in (401, 403):
            raise CheckpointError(self._forbidden(status))
        msg = f"{shown(self.name)} cannot be read: the server answered HTTP {status}."
        raise CheckpointError(msg)

    def _forbidden(self, status: int) -> str:
        if not self._hub:
            remedy = "Download the checkpoint and give its folder."
        elif self._transport.has_token:
            remedy = "HF_TOKEN was sent but gives no access: accept the model's terms on its page."
        else:
            remedy = "It is gated, private or misspelt: set HF_TOKEN to a token that may read it."
        return f"{shown(self.name)} may not be read (HTTP {status}). {remedy}"

    def _too_large(self, got: str, largest: int) -> str:
        return (
            f"{shown(self.name)} must have at most {largest} bytes, as such files do. Got {got}; "
            "is it the right one?"
        )


class RemoteFiles:
    """The files of a place, all through one transport.

    Attributes:
        opened: by the names that messages have for them.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.opened: dict[str, RemoteFile] = {}
        self._transport = Transport(place.url("config.json"), place.hub)

    def name(self, file: str) -> str:
        return self.place.shown(file)

    def open(self, file: str) -> RemoteFile:
        name, url = self.name(file), self.place.url(file)
        found = RemoteFile(self._transport, url, name, hub=self.place.hub is not None)
        self.opened[name] = found
        return found
