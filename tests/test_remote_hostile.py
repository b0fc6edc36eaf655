"""Servers that lie, stall, change their mind or lead astray: a clear refusal, in bounded time."""

import json
import shutil
import socket
import ssl
import subprocess
import time
from types import SimpleNamespace

import numpy as np
import pytest

from checkpoints import refused, safetensors_bytes, write_checkpoint
from dispersion import CheckpointError, audit, demo
from dispersion.checkpoint import open_checkpoint
from dispersion.checkpoint.remote import failures, files, transport
from range_server import redirect, serving

FILE = "/model/model.safetensors"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(files, "BACKOFF", 0.0)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site():
    with serving() as found:
        found.add_folder(demo.path("headwise"))
        yield found


def behaves(site, answer, file=FILE):
    site.odd[file] = answer


def partial(handler, body, *, first=None, last=None, size=None, **more):
    """A 206 that may say anything of itself."""
    data = handler.server.site.files[FILE]
    a, b = handler.wanted
    b = min(b, len(data) - 1)
    span = f"bytes {a if first is None else first}-{b if last is None else last}"
    span += f"/{len(data) if size is None else size}"
    handler.answer(
        206, body, {"Content-Range": span, "ETag": '"one"'} | more.pop("headers", {}), **more
    )


def asked_bytes(handler):
    data = handler.server.site.files[FILE]
    return data[handler.wanted[0] : handler.wanted[1] + 1]


def test_a_server_without_ranges_is_refused_before_the_file_is_read(site):
    site.ranges = False
    site.files[FILE] += bytes(50_000_000)
    message = refused(CheckpointError, "sends whole files only", audit, f"{site.url}/model")
    assert message.endswith("Download the checkpoint and give its folder.")
    assert site.sent < 30_000_000  # what the sockets between us took


@pytest.mark.parametrize(
    "lie",
    [{"first": 1}, {"last": 5}, {"last": 64}, {"size": "*"}, {"size": 10**20}, {"size": 30}],
)
def test_a_content_range_that_was_not_asked_for(site, lie):
    behaves(site, lambda handler: partial(handler, asked_bytes(handler), **lie))
    refused(CheckpointError, "must answer with the bytes 0 to 63", audit, f"{site.url}/model")


def test_a_partial_answer_that_does_not_say_which_part(site):
    behaves(site, lambda h: partial(h, asked_bytes(h), headers={"Content-Range": None}))
    refused(CheckpointError, "Got Content-Range none", audit, f"{site.url}/model")


@pytest.mark.parametrize("cut", [0, 10])
def test_a_body_that_is_always_too_short(site, cut):
    def short(handler):
        partial(handler, asked_bytes(handler), only=cut)

    behaves(site, short)
    message = refused(CheckpointError, "tries. Try again later", audit, f"{site.url}/model")
    assert FILE in message
    assert len(site.asked) == 1 + files.TRIES


@pytest.mark.parametrize("cut", [0, 10])
def test_a_configuration_that_is_cut_off(site, cut):
    file = "/model/config.json"
    answers = [lambda h: h.answer(200, site.files[file], only=cut)] * (files.TRIES - 1)
    behaves(site, lambda h: answers.pop()(h) if answers else False, file)
    assert open_checkpoint(f"{site.url}/model").config["model_type"] == "qwen3"
    behaves(site, lambda h: h.answer(200, site.files[file], only=cut), file)
    refused(CheckpointError, "broke the connection off", audit, f"{site.url}/model")


def test_an_honest_but_short_length_is_noticed(site):
    behaves(site, lambda handler: partial(handler, asked_bytes(handler)[:-1]))
    refused(CheckpointError, "tries", audit, f"{site.url}/model")
    assert site.asked[2].range == (63, 63)  # only what is missing is asked for again


def test_a_body_longer_than_asked_is_not_taken(site):
    plain = open_checkpoint(f"{site.url}/model")
    behaves(site, lambda handler: partial(handler, asked_bytes(handler) + b"x" * 1000))
    found = open_checkpoint(f"{site.url}/model")
    assert found.infos == plain.infos


@pytest.mark.parametrize("what", ["etag", "size", "none"])
def test_a_file_that_changes_between_reads(site, what):
    count = 0

    def changes(handler):
        nonlocal count
        count += 1
        if count == 3:
            if what == "size":
                site.files[FILE] += b"more"
            site.etags[FILE] = {"etag": '"two"', "size": '"one"', "none": None}[what]
        return False

    behaves(site, changes)
    refused(CheckpointError, "changed while it was read", audit, f"{site.url}/model")


def test_without_an_etag_the_date_tells(site):
    site.etags[FILE] = None
    site.headers = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    found = open_checkpoint(f"{site.url}/model")
    site.headers = {"Last-Modified": "Tue, 02 Jan 2024 00:00:00 GMT"}
    name = "model.layers.0.self_attn.q_proj.weight"
    refused(CheckpointError, "changed while it was read", found.read, name)


def test_a_header_that_does_not_fit_the_size(site):
    site.files[FILE] = site.files[FILE][:-4]
    refused(CheckpointError, "is truncated: its tensors need", audit, f"{site.url}/model")
    site.files[FILE] += b"\0" * 8
    refused(CheckpointError, "after its last tensor", audit, f"{site.url}/model")


def test_a_header_that_claims_to_be_huge_is_not_read(site):
    header = {"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
    site.files[FILE] = safetensors_bytes(header, length=2**40)
    refused(CheckpointError, "its header length asks for", audit, f"{site.url}/model")
    behaves(site, lambda h: partial(h, (2**30).to_bytes(8, "little") + b"{" * 56, size=2**31))
    refused(CheckpointError, "may have at most 100000000 bytes", audit, f"{site.url}/model")
    assert site.sent < 3000


@pytest.mark.parametrize(
    ("size", "match"), [(0, "is empty, so it is truncated"), (3, "truncated or not safetensors")]
)
def test_a_file_of_next_to_nothing(site, size, match):
    site.files[FILE] = bytes(size)
    refused(CheckpointError, match, audit, f"{site.url}/model")


@pytest.mark.parametrize("length", [None, 10**12])
def test_a_configuration_without_end(site, monkeypatch, length):
    from dispersion.checkpoint import remote

    monkeypatch.setattr(remote, "LARGEST_TEXT", 100_000)

    def endless(handler):
        handler.send_response(200)
        if length is None:
            handler.send_header("Transfer-Encoding", "chunked")
        else:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        try:
            for _ in range(4000):
                handler.wfile.write(
                    (b"2710\r\n" if length is None else b"") + b" " * 10_000 + b"\r\n"
                )
        except OSError:
            return
        site.sent += 10**9  # it was all taken

    behaves(site, endless, "/model/config.json")
    refused(CheckpointError, "must have at most 100000 bytes", audit, f"{site.url}/model")
    assert site.sent == 0


@pytest.mark.parametrize(
    "line", ["X: " + "y" * 70_000 + "\r\n", "".join(f"X-{i}: y\r\n" for i in range(500))]
)
def test_http_headers_that_are_too_many_or_too_long(site, line):
    def headers(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + line.encode())
        handler.close_connection = True

    behaves(site, headers, "/model/config.json")
    refused(CheckpointError, "broke the connection off", audit, f"{site.url}/model")


def test_a_server_that_says_nothing(site, monkeypatch):
    monkeypatch.setattr(failures, "SILENCE", 0.1)
    behaves(site, lambda handler: time.sleep(5.0), "/model/config.json")
    started = time.monotonic()
    refused(CheckpointError, "sent nothing for 0.1 s", audit, f"{site.url}/model")
    assert time.monotonic() - started < 10


def test_http_headers_that_drip(site, monkeypatch):
    monkeypatch.setattr(transport, "ANSWER", 0.2)

    def drips(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        try:
            for _ in range(100):
                handler.wfile.write(b"y")
                time.sleep(0.05)
        except OSError:
            return
        handler.close_connection = True

    behaves(site, drips, "/model/config.json")
    started = time.monotonic()
    refused(CheckpointError, "sent nothing for", audit, f"{site.url}/model")
    assert time.monotonic() - started < 10  # four tries of 0.2 s, not of 5


def test_a_body_that_drips(site, monkeypatch):
    monkeypatch.setattr(files, "WINDOW", 0.2)

    def drips(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" ")
                time.sleep(0.05)
        except OSError:
            return
        handler.close_connection = True

    behaves(site, drips, "/model/config.json")
    started = time.monotonic()
    refused(CheckpointError, "bytes came in 0.2 s", audit, f"{site.url}/model")
    assert time.monotonic() - started < 10


def test_reads_that_get_nowhere_end(site, monkeypatch):
    """One byte a try is progress, but none that earns more tries."""
    behaves(site, lambda handler: partial(handler, asked_bytes(handler), only=1))
    refused(CheckpointError, "tries", audit, f"{site.url}/model")
    assert len(site.asked) == 1 + files.TRIES


def test_waits_grow_and_heed_the_server_within_reason(site, monkeypatch):
    waits = []
    monkeypatch.setattr(files, "BACKOFF", 0.5)
    # Not the module's own sleep, which servers of other tests may still be at.
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    monkeypatch.setattr(files, "time", clock)
    behaves(site, lambda h: h.answer(503, b""), "/model/config.json")
    refused(CheckpointError, "HTTP 503", audit, f"{site.url}/model")
    assert waits == [0.5, 1.0, 2.0]
    behaves(site, lambda h: h.answer(429, b"", {"Retry-After": "7000"}), "/model/config.json")
    refused(CheckpointError, "HTTP 429", audit, f"{site.url}/model")
    assert waits[3:] == [files.LONGEST_WAIT] * 3


@pytest.mark.parametrize("status", [400, 405, 418, 204])
def test_other_answers_are_named_and_not_asked_for_again(site, status):
    behaves(site, lambda h: h.answer(status, b""), "/model/config.json")
    refused(CheckpointError, f"the server answered HTTP {status}", audit, f"{site.url}/model")
    assert len(site.asked) == 1


def test_a_compressed_answer_is_refused(site):
    behaves(site, lambda h: partial(h, asked_bytes(h), headers={"Content-Encoding": "gzip"}))
    refused(CheckpointError, "compresses it (gzip)", audit, f"{site.url}/model")
    assert all(asked.headers["Accept-Encoding"] == "identity" for asked in site.asked)


def test_redirects_in_a_circle(site):
    behaves(site, redirect("/model/config.json"), "/model/config.json")
    refused(CheckpointError, "redirects more than 5 times", audit, f"{site.url}/model")
    assert len(site.asked) == 6


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("file:///etc/passwd", "no proper http or https URL"),
        ("ftp://127.0.0.1/x", "no proper http or https URL"),
        ("http://user:word@127.0.0.1/x", "no proper http or https URL"),
        ("http://[::1/x", "no proper http or https URL"),
        ("http://localhost:1/x", "only https is followed"),
        ("http://169.254.169.254/latest", "only https is followed"),
        ("https://169.254.169.254/latest", "a link-local address"),
        ("https://10.0.0.1/x", "a private address"),
    ],
)
def test_redirects_that_lead_astray(site, target, why):
    """The site's own address is a loopback one, so that only these are allowed."""
    behaves(site, redirect(target), "/model/config.json")
    message = refused(CheckpointError, why, audit, f"{site.url}/model")
    assert "word" not in message
    assert len(site.asked) == 1


def test_a_public_address_must_not_lead_to_this_machine(site, monkeypatch):
    """The name of the first server stands for a public address as far as anyone asks."""
    from dispersion.checkpoint.remote import transport as module

    original = module.kinds
    behaves(site, redirect(f"{site.url.replace('http', 'https')}/x"), "/model/config.json")
    monkeypatch.setattr(module, "kinds", lambda host, port: frozenset())
    # Even so the connection itself notices where it came out.
    refused(CheckpointError, "a loopback address", audit, f"{site.url}/model")
    assert site.asked == []
    assert original("127.0.0.1", 80) == {"loopback"}


@pytest.fixture
def certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, lambda sock: context.wrap_socket(sock, server_side=True)


def test_https_needs_a_certificate_that_verifies(certificate, monkeypatch):
    cert, wrap = certificate
    with serving(wrap) as site:
        site.add_folder(demo.path("headwise"))
        refused(CheckpointError, "certificate of 127.0.0.1", audit, f"{site.url}/model")
        assert site.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        found = audit(f"{site.url}/model")
        assert found.heads == audit(demo.path("headwise")).heads


def test_https_to_a_server_that_speaks_something_else(site):
    address = site.url.replace("http", "https")
    refused(CheckpointError, "the TLS connection to 127.0.0.1 failed", audit, f"{address}/model")


def test_https_is_followed_to_another_server_and_http_is_not(certificate, site, monkeypatch):
    cert, wrap = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    with serving(wrap) as secure:
        secure.add_folder(demo.path("headwise"))
        behaves(site, redirect(secure.url + FILE))
        found = audit(f"{site.url}/model")
        assert found.heads == audit(demo.path("headwise")).heads
        assert FILE in secure.paths()
        behaves(secure, redirect(site.url + FILE))
        refused(CheckpointError, "only https is followed", audit, f"{secure.url}/model")


def test_a_name_that_does_not_resolve(monkeypatch):
    def fails(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    refused(CheckpointError, "cannot be resolved", audit, "https://nowhere.invalid/model")


def test_a_full_disk_is_said_and_not_tried_again(site, monkeypatch):
    from dispersion.checkpoint.remote import tensors

    def full(**options):
        return open("/dev/full", "w+b", buffering=0)  # noqa: PTH123

    try:
        full().close()
    except OSError:
        pytest.skip("needs /dev/full")
    found = open_checkpoint(f"{site.url}/model")
    monkeypatch.setattr(tensors.tempfile, "TemporaryFile", full)
    before = len(site.asked)
    name = "model.layers.0.self_attn.q_proj.weight"
    refused(CheckpointError, "cannot be kept in a temporary file", found.read, name)
    assert len(site.asked) == before + 1


@pytest.mark.parametrize("shard", ["../secret.safetensors", "a/b.safetensors", "http://x/y", ".."])
def test_an_index_leads_nowhere_else(site, shard):
    del site.files[FILE]
    index = json.dumps({"weight_map": {"a": shard}}).encode()
    site.files["/model/model.safetensors.index.json"] = index
    refused(CheckpointError, "plain name of a file", audit, f"{site.url}/model")
    assert len(site.asked) == 3


def test_odd_shard_names_stay_in_their_folder(site, tmp_path):
    name = "a%2F..%2Fb?c#d.safetensors"
    folder = write_checkpoint(tmp_path / "m", {"a": np.zeros(2)}, shards=1)
    site.files["/model/model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"a": name}}
    ).encode()
    del site.files[FILE]
    site.files["/model/a%252F..%252Fb%3Fc%23d.safetensors"] = (
        folder / "model.safetensors"
    ).read_bytes()
    assert open_checkpoint(f"{site.url}/model").names == ("a",)
