"""Where a remote checkpoint lies: web addresses, and hf:// for models on the hub."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from dispersion.checkpoint.text import shown
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

HUB = "https://huggingface.co"
FILES = re.compile(r"\.(safetensors|safetensors\.index\.json|gguf|npy|npz|bin|pt|pth|ckpt|pkl)$")
_ON_HUB = re.compile(
    r"(?P<repo>[^/@]+(?:/[^/@]+)?)(?:@(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+))?"
    r"(?P<inside>(?:/[^/@]+)*)"
)
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A folder of a web server or of the hub, and perhaps one file in it.

    Attributes:
        folder: its address, without a slash at the end.
        name: the same as people write it, for messages.
        file: the weights file, or None where it has to be looked for.
        hub: origin of the hub where the place is there: the only one that ever gets the token.
        repo, inside: on the hub, what comes before and behind the revision in `folder`.
    """

    folder: str
    name: str
    file: str | None = None
    hub: str | None = None
    repo: str = ""
    inside: str = ""

    def url(self, file: str) -> str:
        return f"{self.folder}/{quote(file, safe='')}"

    def shown(self, file: str) -> str:
        return f"{self.name}/{file}"

    def at(self, commit: str | None) -> Place:
        """The place at the commit that a revision stood for, so that all files are of one."""
        if not self.repo or commit is None or not _COMMIT.fullmatch(commit):
            return self
        return replace(self, folder=f"{self.repo}/resolve/{commit}{self.inside}")


def parse_place(text: str) -> Place:
    """What an address means.

    Args:
        text: http://, https:// or hf://; the environment's HF_ENDPOINT moves the hub.

    Raises:
        ArgumentError: another scheme, credentials, a query, or no proper address.
    """
    endpoint = _endpoint()
    scheme = text.partition("://")[0].lower()
    if scheme == "hf":
        return _hub_place(text, endpoint)
    if scheme not in ("http", "https"):
        msg = f"a remote checkpoint must be at https://, http:// or hf://. Got {scheme}://."
        raise ArgumentError(msg)
    parts = check_url(text, "the address of a checkpoint")
    if parts.query not in ("", "download=true"):
        msg = (
            "the address of a checkpoint must have no query (?…), since config.json and shards "
            f"have addresses of their own. Got one for {shown(parts.path)}; leave it out."
        )
        raise ArgumentError(msg)
    path = re.sub(r"/+$", "", parts.path)
    folder, file = path, None
    if FILES.search(path.lower()):
        folder, _, last = path.rpartition("/")
        file = unquote(last)
    base = f"{scheme}://{parts.netloc}"
    if origin(base) == origin(endpoint):
        if "/resolve/" not in path:
            msg = (
                f"{shown(base + path)} is a page about a model, not its folder. "
                "Give hf://ORG/MODEL or hf://ORG/MODEL@REVISION."
            )
            raise ArgumentError(msg)
        repo, _, rest = folder.partition("/resolve/")
        _, slash, inside = rest.partition("/")
        hub = origin(endpoint)
        return Place(base + folder, base + folder, file, hub, base + repo, slash + inside)
    return Place(base + folder, base + folder, file)


def _hub_place(text: str, endpoint: str) -> Place:
    wrong = (
        "a model on the hub must be named hf://ORG/MODEL, hf://ORG/MODEL@REVISION or one of these "
        f"and /FILE. Got {shown(text)}."
    )
    match = _ON_HUB.fullmatch(text[len("hf://") :].rstrip("/"))
    if match is None:
        raise ArgumentError(wrong)
    revision = "main" if match["revision"] is None else unquote(match["revision"])
    named, inner = match["repo"].split("/"), match["inside"].split("/")[1:]
    plain = all(_REPO.fullmatch(each) for each in named) and text.isprintable()
    if not plain or not revision.isprintable() or {".", ".."} & {revision, *inner}:
        raise ArgumentError(wrong)
    file = inner.pop() if inner and FILES.search(inner[-1].lower()) else None
    repo = f"{endpoint}/{match['repo']}"
    inside = "".join(f"/{quote(each, safe='')}" for each in inner)
    folder = f"{repo}/resolve/{quote(revision, safe='')}{inside}"
    name = f"hf://{match['repo']}@{revision}" + "".join(f"/{each}" for each in inner)
    return Place(folder, name, file, origin(endpoint), repo, inside)


def check_url(text: str, what: str) -> SplitResult:
    """The parts of a web address of hosts and ports that exist.

    Raises:
        ArgumentError: malformed, or with a name and password, which would end up in reports.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        msg = f"{what} must be a proper URL. Got {shown(text.partition('@')[0])}."
        raise ArgumentError(msg) from None
    if "@" in parts.netloc:
        msg = f"{what} must hold no name or password. Got one for {shown(parts.hostname)}."
        raise ArgumentError(msg)
    odd = not text.isascii() or not text.isprintable() or " " in text or "\\" in text
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or odd or parts.fragment:
        msg = f"{what} must be a proper http:// or https:// URL. Got {shown(text)}."
        raise ArgumentError(msg)
    return parts


def origin(url: str) -> str:
    """Scheme, host and port in one spelling."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = (parts.hostname or "").rstrip(".")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _endpoint() -> str:
    given = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/")
    if not given:
        return HUB
    parts = check_url(given, "HF_ENDPOINT")
    if parts.query:
        msg = "HF_ENDPOINT must have no query (?…). Leave it out."
        raise ArgumentError(msg)
    return given
