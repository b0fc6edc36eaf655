"""What an address means, and where redirects may lead."""

import pytest

from checkpoints import refused
from dispersion import ArgumentError
from dispersion.checkpoint import is_remote
from dispersion.checkpoint.remote.places import origin, parse_place
from dispersion.checkpoint.remote.redirects import kind

HUB = "https://huggingface.co"


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("hf://org/model", "/org/model/resolve/main/x", "hf://org/model@main/x"),
        ("hf://org/model@v1.0", "/org/model/resolve/v1.0/x", "hf://org/model@v1.0/x"),
        ("hf://gpt2", "/gpt2/resolve/main/x", "hf://gpt2@main/x"),
        ("hf://gpt2@v1/", "/gpt2/resolve/v1/x", "hf://gpt2@v1/x"),
        ("hf://o/m@refs/pr/7", "/o/m/resolve/refs%2Fpr%2F7/x", "hf://o/m@refs/pr/7/x"),
        ("hf://o/m@a%2Fb/sub", "/o/m/resolve/a%2Fb/sub/x", "hf://o/m@a/b/sub/x"),
        ("hf://o/m/sub/dir", "/o/m/resolve/main/sub/dir/x", "hf://o/m@main/sub/dir/x"),
        ("HF://o/m/m.safetensors", "/o/m/resolve/main/x", "hf://o/m@main/x"),
    ],
)
def test_models_on_the_hub(text, url, name):
    place = parse_place(text)
    assert (place.url("x"), place.shown("x")) == (HUB + url, name)
    assert place.hub == f"{HUB}:443"
    assert place.file == ("m.safetensors" if "safetensors" in text else None)


def test_a_commit_replaces_the_revision():
    place = parse_place("hf://o/m@main/sub").at("a" * 40)
    assert place.url("x") == f"{HUB}/o/m/resolve/{'a' * 40}/sub/x"
    assert place.at("main").url("x") == place.url("x")
    there = parse_place(f"{HUB}/o/m/resolve/main/sub/m.safetensors?download=true")
    assert there.at("b" * 40).url("x") == f"{HUB}/o/m/resolve/{'b' * 40}/sub/x"
    elsewhere = parse_place("https://example.org/resolve/main")
    assert elsewhere.at("a" * 40) == elsewhere


@pytest.mark.parametrize(
    ("text", "folder", "file"),
    [
        ("https://example.org/m", "https://example.org/m", None),
        ("https://example.org/m//", "https://example.org/m", None),
        ("https://example.org", "https://example.org", None),
        ("http://example.org:81/a/m.safetensors", "http://example.org:81/a", "m.safetensors"),
        ("https://h.org/m.safetensors.index.json", "https://h.org", "m.safetensors.index.json"),
        ("https://h.org/a%20b/c%20d.gguf", "https://h.org/a%20b", "c d.gguf"),
        ("https://h.org/m.v2", "https://h.org/m.v2", None),
    ],
)
def test_folders_and_files(text, folder, file):
    place = parse_place(text)
    assert (place.folder, place.file, place.hub) == (folder, file, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3://bucket/model", "must be at https://, http:// or hf://. Got s3://"),
        ("file:///etc/passwd", "Got file://"),
        ("https://me:secret@example.org/m", "must hold no name or password. Got one for example"),
        ("https://example.org/m?key=secret", "must have no query"),
        ("https://example.org/m#part", "proper http"),
        ("https://", "proper http"),
        ("https:///m", "proper http"),
        ("https://example.org:port/m", "proper URL"),
        ("https://example.org:99999/m", "proper URL"),
        ("https://exa mple.org/m", "proper http"),
        ("https://example.org/\n/m", "proper http"),
        ("https://[::1/m", "proper URL"),
        (f"{HUB}/org/model", "is a page about a model"),
        (f"{HUB}/org/model/blob/main/model.safetensors", "is a page about a model"),
        ("hf://", "must be named hf://ORG/MODEL"),
        ("hf://o/m@", "must be named hf://ORG/MODEL"),
        ("hf://o//m", "must be named hf://ORG/MODEL"),
        ("hf://o/../m", "must be named hf://ORG/MODEL"),
        ("hf://o/m@..", "must be named hf://ORG/MODEL"),
        ("hf://o/m@v/../..", "must be named hf://ORG/MODEL"),
        ("hf://o/m?x=1", "must be named hf://ORG/MODEL"),
        ("hf://o/m@a\nb", "must be named hf://ORG/MODEL"),
    ],
)
def test_addresses_that_are_refused(text, why):
    message = refused(ArgumentError, why, parse_place, text)
    assert "secret" not in message


def test_the_hub_may_be_elsewhere(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example.org:8443/hub/")
    place = parse_place("hf://o/m")
    assert place.url("x") == "https://mirror.example.org:8443/hub/o/m/resolve/main/x"
    assert place.hub == "https://mirror.example.org:8443"
    assert parse_place(f"{HUB}/o/m").hub is None
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example.org")
    refused(ArgumentError, "HF_ENDPOINT must be a proper", parse_place, "hf://o/m")


def test_origins_have_one_spelling():
    assert origin("https://Example.org/x") == origin("https://example.org:443")
    assert origin("http://example.org") != origin("https://example.org")
    assert origin("http://example.org:81") != origin("http://example.org")
    assert origin("http://[::1]/") == "http://[::1]:80"


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::1", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("224.0.0.1", "reserved"),
        ("240.0.0.1", "reserved"),
        ("nonsense", "unknown"),
        ("1.1.1.1", None),
        ("2606:4700::1111", None),
    ],
)
def test_kinds_of_addresses(address, word):
    assert kind(address) == word


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("https://a/b", True),
        ("HTTP://a", True),
        ("hf://o/m", True),
        ("s3://b/m", True),
        ("demo:plain", False),
        ("C://models/x", False),
        ("models/a://b", False),
        ("./https://x", False),
        ("", False),
    ],
)
def test_addresses_and_files_are_told_apart(text, remote):
    assert is_remote(text) is remote
