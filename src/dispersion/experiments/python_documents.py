"""Documents that every machine with Python has: its reference manual and its standard library.

The topics of `help()` are prose (some versions of Python carry them), the library's modules are
source code. Nothing of either is kept here; another version of Python has other texts.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from dispersion.errors import UnsupportedError
from dispersion.measure.documents import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROSE, CODE = 4.5, 5.5  # characters of text that a token takes at most, about


def python_documents(encode: Callable[[str], list[int]], length: int) -> Iterator[Document]:
    """Prose and code in turns, cut to `length` tokens; what turns out shorter is left out.

    Raises:
        UnsupportedError: this Python carries neither its manual's topics nor its sources.
    """
    prose, code = _prose(int(length * PROSE)), _code(int(length * CODE))
    if not prose or not code:
        msg = "documents come from pydoc_data.topics and the standard library, which are missing."
        raise UnsupportedError(msg)
    for place in range(max(len(prose), len(code))):
        for texts in (prose, code):
            if place < len(texts):
                name, text = texts[place]
                tokens = encode(text)[:length]
                if len(tokens) == length:
                    yield Document(name, tuple(tokens))


def _prose(size: int) -> list[tuple[str, str]]:
    """Topics of the manual, joined in the order of their names until they are long enough."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    found, text = [], ""
    for name in sorted(topics):
        text += topics[name] + "\n\n"
        if len(text) > size:
            found.append((f"prose:{name}", text))
            text = ""
    return found


def _code(size: int) -> list[tuple[str, str]]:
    """The library's large modules, without the generated ones."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return [
        (f"code:{path.name}", path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.py"))
        if path.stat().st_size > size and not path.name.startswith("_sysconfig")
    ]
