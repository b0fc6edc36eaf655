"""A web server of a test's own: byte ranges, a log of what was asked, and planted misbehaviour."""

import contextlib
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 1 << 20


@dataclass
class Asked:
    """One request."""

    path: str
    range: tuple[int, int] | None
    headers: object


@dataclass
class Site:
    """What a server serves, and what it was asked.

    Attributes:
        files: bytes, or the file that holds them, by path; a path that is not there is 404.
        odd: by path, a function of the handler that answers in place of the server; it returns
            False to let the server answer after all.
        etags: by path; by default one that never changes.
        ranges: whether Range headers are understood.
        sent: bytes of bodies written, or about to be.
    """

    files: dict = field(default_factory=dict)
    odd: dict = field(default_factory=dict)
    etags: dict = field(default_factory=dict)
    headers: dict = field(default_factory=dict)
    ranges: bool = True
    asked: list = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def add_folder(self, folder, at="/model"):
        for path in folder.iterdir():
            self.files[f"{at}/{path.name}"] = path.read_bytes()
        return f"{self.url}{at}"

    def paths(self):
        return [each.path for each in self.asked]


class OnDisk:
    """The bytes of a file that is too large to hold, as far as answers need them."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return self.path.stat().st_size

    def __getitem__(self, part):
        with self.path.open("rb") as file:
            file.seek(part.start)
            return file.read(min(part.stop, len(self)) - part.start)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        site = self.server.site
        # As a proxy the server is asked for whole addresses, which it serves as its own.
        self.path_only = re.sub(r"^http://[^/]+", "", self.path).partition("?")[0]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.wanted = (int(wanted[1]), int(wanted[2])) if wanted else None
        site.asked.append(Asked(self.path_only, self.wanted, self.headers))
        if self.path_only in site.odd and site.odd[self.path_only](self) is not False:
            return
        if self.path_only not in site.files:
            self.answer(404, b"no such file")
            return
        data = site.files[self.path_only]
        if not isinstance(data, bytes):
            data = OnDisk(data)
        more = {"ETag": site.etags.get(self.path_only, '"one"'), **site.headers}
        if self.wanted is None or not site.ranges:
            self.answer(200, data, more)
        elif self.wanted[0] >= len(data):
            self.answer(416, b"", {**more, "Content-Range": f"bytes */{len(data)}"})
        else:
            self.part(*self.wanted, data, more)

    def part(self, first, last, data, more):
        body = data[first : last + 1]
        span = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        self.answer(206, body, {"Content-Range": span, **more})

    def answer(self, status, body, headers=None, *, length=None, only=None):
        """A response; `length` lies about the body, `only` cuts it off."""
        headers = {"Content-Length": str(len(body) if length is None else length)} | (headers or {})
        self.send_response(status)
        for key, value in headers.items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        body = body if only is None else body[:only]
        with contextlib.suppress(OSError):
            for start in range(0, len(body), PIECE):
                piece = body[start : start + PIECE]
                # Counted first: whoever has the last byte may look at the sum.
                self.server.site.sent += len(piece)
                self.wfile.write(piece)
        if only is not None or length is not None:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that went away is no error of a test."""


@contextlib.contextmanager
def serving(wrap=None):
    """A site on a free port of this machine; `wrap` turns its socket into a TLS one."""
    with Server(("127.0.0.1", 0), Handler) as server:
        if wrap is not None:
            server.socket = wrap(server.socket)
        site = Site()
        scheme = "http" if wrap is None else "https"
        site.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        server.site = site
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def redirect(to, status=302):
    """An answer that leads elsewhere."""

    def answer(handler):
        target = to if isinstance(to, str) else to(handler)
        handler.answer(status, b"", {"Location": target})

    return answer


def once(answer):
    """Misbehave at the first request that comes with a range, then no more."""
    left = [1]

    def maybe(handler):
        if not left[0]:
            return False
        left[0] -= 1
        return answer(handler)

    return maybe
