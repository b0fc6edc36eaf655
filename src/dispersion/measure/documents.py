"""Documents to measure: text or token ids, cut to a length, with needles at depths."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Encode = Callable[[str], list[int]]

SUFFIXES = (".txt", ".md", ".json", ".jsonl")


@dataclass(frozen=True)
class Document:
    """One context.

    Attributes:
        name: file, line, length and depth; what a resumed run goes by.
        tokens: ids.
        needle: (start, stop) of the needle's tokens, or None.
        answer: (start, stop) of the part of the needle that is to be retrieved: all of it by
            default.
    """

    name: str
    tokens: tuple[int, ...]
    needle: tuple[int, int] | None = None
    answer: tuple[int, int] | None = None


@dataclass(frozen=True)
class Needle:
    """Text that is put into documents, and what is asked about it.

    Attributes:
        text: of the needle.
        depths: where it goes, from 0 (the beginning) to 1 (the end); a document for each.
        question: text behind the document, or "".
        answer: the part of `text` that answers it; all of it where "".
    """

    text: str
    depths: Sequence[float]
    question: str = ""
    answer: str = ""

    def __post_init__(self) -> None:
        for depth in self.depths:
            if not 0 <= depth <= 1:
                msg = f"depths must lie between 0 and 1. Got {depth}."
                raise ArgumentError(msg)
        if not self.depths:
            msg = "needle and depths go together: give both or neither."
            raise ArgumentError(msg)
        if self.answer not in self.text:
            msg = f"answer must be part of the needle, word for word. Got {self.answer!r}."
            raise ArgumentError(msg)


def read_documents(
    paths: Sequence[str | Path],
    encode: Encode | None,
    *,
    length: int | None = None,
    needle: Needle | None = None,
    encode_needle: Encode | None = None,
    left_out: list[str] | None = None,
) -> Iterator[Document]:
    """Documents in order; with a needle one for each depth.

    A text file is one document. A .json file is a list of token ids; every line of a .jsonl file is
    such a list, or an object with "tokens" (ids) or "text".

    Args:
        paths: files.
        encode: text to ids, or None where the checkpoint has no tokenizer.
        length: tokens to keep of each document, needle and question included; shorter documents
            are left out. Whole documents by default.
        needle: what is put into every document.
        encode_needle: text to ids without special tokens; `encode` by default.
        left_out: takes the names of documents that are too short.

    Raises:
        ArgumentError: files that are none of these or empty, text without a tokenizer, a needle
            that does not leave room for the document.
    """
    parts = None if needle is None else _parts(needle, encode_needle or encode)
    extra = 0 if parts is None else len(parts.inner) + len(parts.question)
    if length is not None and needle is not None and length <= extra:
        msg = (
            f"needle and question must be shorter than the document. "
            f"Got {extra} tokens for a length of {length}."
        )
        raise ArgumentError(msg)
    for path in paths:
        for source, tokens in _read(Path(path), encode):
            room = len(tokens) if length is None else length - extra
            if room < 1 or len(tokens) < room:
                if left_out is not None:
                    left_out.append(source)
                continue
            name = source if length is None else f"{source}[:{length}]"
            if parts is None or needle is None:
                yield Document(name, tokens[:room])
                continue
            for depth in needle.depths:
                yield parts.put(f"{name}@{depth:g}", tokens[:room], depth)


def put_needle(document: Document, needle: Needle, depth: float, encode: Encode) -> Document:
    """The document, as long as before, with a needle in it and its question behind it.

    Raises:
        ArgumentError: a needle that does not leave room for the document.
    """
    parts = _parts(needle, encode)
    room = len(document.tokens) - len(parts.inner) - len(parts.question)
    if room < 1:
        msg = (
            f"needle and question must be shorter than the document. "
            f"Got {len(document.tokens) - room} tokens for a length of {len(document.tokens)}."
        )
        raise ArgumentError(msg)
    return parts.put(f"{document.name}@{depth:g}", document.tokens[:room], depth)


@dataclass(frozen=True)
class _Parts:
    """A needle in tokens."""

    inner: tuple[int, ...]
    answer: tuple[int, int]
    question: tuple[int, ...]

    def put(self, name: str, kept: tuple[int, ...], depth: float) -> Document:
        at = max(round(depth * len(kept)), 1)  # behind the first token, which may be special
        return Document(
            name,
            (*kept[:at], *self.inner, *kept[at:], *self.question),
            (at, at + len(self.inner)),
            (at + self.answer[0], at + self.answer[1]),
        )


def _parts(needle: Needle, encode: Encode | None) -> _Parts:
    """The answer is encoded by itself, with the space before it, so that its tokens are known."""
    at = needle.text.index(needle.answer) if needle.answer else 0
    if needle.answer and at and needle.text[at - 1] == " ":
        at -= 1
    end = needle.text.index(needle.answer) + len(needle.answer) if needle.answer else None
    texts = needle.text[:at], needle.text[at:end], "" if end is None else needle.text[end:]
    before, answer, after = (
        tuple(_encoded(text, encode, "needle")) if text else () for text in texts
    )
    question = tuple(_encoded(needle.question, encode, "question")) if needle.question else ()
    inner = (*before, *answer, *after)
    if not inner:
        msg = f"needle must be at least one token long. Got {needle.text!r}."
        raise ArgumentError(msg)
    return _Parts(inner, (len(before), len(before) + len(answer)), question)


def _encoded(text: str, encode: Encode | None, name: str) -> list[int]:
    if encode is None:
        msg = (
            f"{name} is text, and the checkpoint has no tokenizer: give token ids (.json, .jsonl)."
        )
        raise ArgumentError(msg)
    return encode(text)


def _read(path: Path, encode: Encode | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    if path.suffix not in SUFFIXES:
        msg = f"documents must be {', '.join(SUFFIXES)} files. Got {str(path)!r}."
        raise ArgumentError(msg)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"document {str(path)!r} cannot be read ({error})."
        raise ArgumentError(msg) from None
    if not text.strip():
        msg = f"document {str(path)!r} must not be empty."
        raise ArgumentError(msg)
    if path.suffix in (".txt", ".md"):
        yield str(path), tuple(_encoded(text, encode, str(path)))
        return
    lines = [text] if path.suffix == ".json" else text.splitlines()
    for number, line in enumerate(lines, start=1):
        name = str(path) if path.suffix == ".json" else f"{path}:{number}"
        if line.strip():
            yield name, _ids(line, encode, name)


def _ids(line: str, encode: Encode | None, name: str) -> tuple[int, ...]:
    try:
        value: Any = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        msg = f"document {name!r} must be JSON."
        raise ArgumentError(msg) from None
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return tuple(_encoded(value["text"], encode, name))
    if isinstance(value, dict):
        value = value.get("tokens")
    good = isinstance(value, list) and all(type(x) is int and x >= 0 for x in value)
    if not good or not value:
        msg = (
            f'document {name!r} must be a list of token ids, or an object with "tokens" or "text".'
        )
        raise ArgumentError(msg)
    return tuple(value)
