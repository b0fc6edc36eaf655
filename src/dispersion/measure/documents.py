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
    """

    name: str
    tokens: tuple[int, ...]
    needle: tuple[int, int] | None = None


def read_documents(
    paths: Sequence[str | Path],
    encode: Encode | None,
    *,
    length: int | None = None,
    needle: str | None = None,
    encode_needle: Encode | None = None,
    depths: Sequence[float] = (),
) -> Iterator[Document]:
    """Documents in order; with a needle one for each depth.

    A text file is one document. A .json file is a list of token ids; every line of a .jsonl file is
    such a list, or an object with "tokens" (ids) or "text".

    Args:
        paths: files.
        encode: text to ids, or None where the checkpoint has no tokenizer.
        length: tokens to keep of each document, the needle included; shorter documents are left
            out. Whole documents by default.
        needle: text that is put into every document.
        encode_needle: text to ids without special tokens; `encode` by default.
        depths: where, from 0 (the beginning) to 1 (the end).

    Raises:
        ArgumentError: files that are none of these, text without a tokenizer, too short documents,
            depths outside [0, 1].
    """
    for depth in depths:
        if not 0 <= depth <= 1:
            msg = f"depths must lie between 0 and 1. Got {depth}."
            raise ArgumentError(msg)
    if (needle is None) != (not depths):
        msg = "needle and depths go together: give both or neither."
        raise ArgumentError(msg)
    inner = () if needle is None else tuple(_encoded(needle, encode_needle or encode, "needle"))
    if needle is not None and not inner:
        msg = f"needle must be at least one token long. Got {needle!r}."
        raise ArgumentError(msg)
    for path in paths:
        for source, tokens in _read(Path(path), encode):
            room = len(tokens) if length is None else length - len(inner)
            if room < 1 or len(tokens) < room:
                continue
            kept = tokens[:room]
            name = source if length is None else f"{source}[:{length}]"
            if not inner:
                yield Document(name, kept)
            for depth in depths:
                at = max(
                    round(depth * len(kept)), 1
                )  # behind the first token, which may be special
                whole = (*kept[:at], *inner, *kept[at:])
                yield Document(f"{name}@{depth:g}", whole, (at, at + len(inner)))


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
