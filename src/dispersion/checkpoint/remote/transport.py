"""One GET at a time: connections, redirects, the token, and time limits.

Bytes that come back are data to be checked. Nothing is decompressed, cached or run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dispersion.checkpoint.remote import failures
from dispersion.checkpoint.remote.failures import Interrupted, told
from dispersion.checkpoint.remote.places import origin
from dispersion.checkpoint.remote.redirects import kind, kinds, next_url
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse

ANSWER = 60.0  # seconds until the last byte of the answer's HTTP headers
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
PIP = "pip install 'urllib3>=2.2'"


@dataclass
class Answer:
    """A response whose body has not been read, the address it came from, and the hub's commit."""

    response: BaseHTTPResponse
    url: str
    commit: str | None

    def header(self, name: str) -> str | None:
        return self.response.headers.get(name)


class Transport:
    """Sends requests for one checkpoint.

    Args:
        first: the address that the user gave: only what it names itself may be no public address.
        hub: origin that gets the token (the environment's HF_TOKEN), or None.

    Raises:
        CheckpointError: urllib3 is missing; the message gives the command that installs it.
    """

    def __init__(self, first: str, hub: str | None) -> None:
        try:
            import urllib3
        except ImportError:
            msg = f"remote checkpoints need the extra remote of dispersion, urllib3. Run: {PIP}"
            raise CheckpointError(msg) from None
        self._urllib3 = urllib3
        self._first, self._hub = first, hub
        self._token = os.environ.get("HF_TOKEN", "").strip()
        self._pools: dict[str, tuple[Any, bool]] = {}
        self._allowed: frozenset[str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process gets: no connections, and no token, which it has itself."""
        return Transport, (self._first, self._hub)

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    @contextlib.contextmanager
    def get(self, url: str, name: str, wanted: str | None = None) -> Iterator[Answer]:
        """Follow redirects to an answer that is none; closed or handed back at the end.

        Args:
            url: where to ask.
            name: how messages name it.
            wanted: the Range header, or None.

        Raises:
            Interrupted: no connection, or no answer in time.
            CheckpointError: a redirect or a host that is refused.
        """
        commit = None
        for _ in range(MOST_REDIRECTS + 1):
            with told(url, name):
                response = self._send(url, name, wanted)
            try:
                if self._hub == origin(url):
                    commit = commit or response.headers.get("X-Repo-Commit")
                location = response.headers.get("Location")
                if response.status not in REDIRECTS or location is None:
                    with told(url, name):
                        yield Answer(response, url, commit)
                    return
            finally:
                # What is left of a body is not worth reading; a drained connection is kept.
                with contextlib.suppress(Exception):
                    if response.length_remaining == 0:
                        response.drain_conn()
                        response.release_conn()
                    else:
                        response.close()
            url = next_url(url, location, self._first, name)
        msg = f"{shown(name)}: the server redirects more than {MOST_REDIRECTS} times."
        raise CheckpointError(msg)

    def _send(self, url: str, name: str, wanted: str | None) -> BaseHTTPResponse:
        headers = {"Accept-Encoding": "identity", "User-Agent": "dispersion"}
        if wanted is not None:
            headers["Range"] = wanted
        if self._token and self._hub == origin(url):
            headers["Authorization"] = f"Bearer {self._checked_token(url)}"
        pool, proxied = self._pool(url, name)
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target = url if proxied else path
        options: dict[str, Any] = {"retries": False, "redirect": False, "preload_content": False}
        found: BaseHTTPResponse = pool.urlopen(
            "GET", target, headers=headers, decode_content=False, **options
        )
        return found

    def _checked_token(self, url: str) -> str:
        parts = urlsplit(url)
        if not self._token.isascii() or not self._token.isprintable() or " " in self._token:
            msg = "HF_TOKEN must be one word of printable characters. Set it again."
            raise CheckpointError(msg)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            msg = (
                "HF_TOKEN is sent over https only. Give HF_ENDPOINT as https://, or unset HF_TOKEN."
            )
            raise CheckpointError(msg)
        return self._token

    def _pool(self, url: str, name: str) -> tuple[Any, bool]:
        """Connections for an address whose host may be connected to, and whether by a proxy."""
        parts, place = urlsplit(url), origin(url)
        if place in self._pools:
            return self._pools[place]
        host, port = str(parts.hostname), parts.port
        found: Any
        proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
        timeout = self._urllib3.Timeout(connect=failures.CONNECT, read=failures.SILENCE)
        if self._allowed is None:
            start = urlsplit(self._first)
            self._allowed = _kinds(str(start.hostname), start.port, lenient=proxy is not None)
        refused = _kinds(host, port, lenient=proxy is not None) - self._allowed
        if refused:
            raise CheckpointError(_private(name, host, min(refused)))
        if proxy is not None:
            found = _proxied(self._urllib3, proxy, timeout)
        else:
            secure, plain = self._urllib3.HTTPSConnectionPool, self._urllib3.HTTPConnectionPool
            found = (secure if parts.scheme == "https" else plain)(host, port, timeout=timeout)
            found.ConnectionCls = _careful(found.ConnectionCls, self._allowed, name)
        self._pools[place] = found, proxy is not None
        return self._pools[place]


def _kinds(host: str, port: int | None, *, lenient: bool) -> frozenset[str]:
    try:
        return kinds(host, port)
    except (OSError, UnicodeError):
        if lenient:  # behind a proxy, which resolves names itself
            return frozenset()
        reason = f"the name {shown(host)} cannot be resolved"
        raise Interrupted(reason) from None


def _private(name: str, host: str, word: str) -> str:
    return (
        f"{shown(name)}: the server redirects to {shown(host)}, a {word} address, which is not "
        "followed. Give that address itself if you trust it."
    )


def _proxied(urllib3: Any, proxy: str, timeout: Any) -> Any:
    parts = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https"):
        msg = f"a proxy must be at http:// or https://. The environment has {shown(parts.scheme)}."
        raise CheckpointError(msg)
    headers = urllib3.make_headers(proxy_basic_auth=parts.auth) if parts.auth else None
    address = parts._replace(auth=None).url
    return urllib3.ProxyManager(address, timeout=timeout, proxy_headers=headers)


def _careful(connection: Any, allowed: frozenset[str], name: str) -> Any:
    """A connection that looks at whom it reached, and waits for an answer only so long."""

    class Careful(connection):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            # The name may stand for another address than a moment ago.
            word = kind(str(self.sock.getpeername()[0]))
            if word is not None and word not in allowed:
                self.close()
                raise CheckpointError(_private(name, self.host, word))

        def getresponse(self) -> Any:
            late = threading.Event()
            watch = threading.Timer(ANSWER, self._hang_up, (late,))
            watch.daemon = True
            watch.start()
            try:
                found = super().getresponse()
            finally:
                watch.cancel()
            if late.is_set():  # what came so far can pass for an answer
                found.close()
                raise TimeoutError
            return found

        def _hang_up(self, late: threading.Event) -> None:
            late.set()
            sock = self.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    return Careful
