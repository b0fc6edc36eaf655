"""What token ids stand for, where a tokenizer file beside the weights says so.

Only tables are read: tokenizer.json, vocab.json, vocab.txt or a GGUF file's own list. Texts come
as the file spells them, so a byte-level vocabulary shows Ġ for a space.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint import is_remote
from dispersion.checkpoint.gguf_file import read_texts
from dispersion.checkpoint.gguf_parts import first_part
from dispersion.checkpoint.regular import read_bytes
from dispersion.checkpoint.text import parse_object
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.tensors import TensorInfo

LARGEST = 2**28  # bytes of a tokenizer file that is read at all
GGUF_TOKENS = "tokenizer.ggml.tokens"


def token_texts(embedding: TensorInfo) -> dict[int, str]:
    """Texts by token id, as far as known; empty where no file tells.

    A missing, oversized or malformed tokenizer file is no error: names are a courtesy. None is
    fetched from remote places.

    Args:
        embedding: the embedding table, whose file says where to look.

    """
    if is_remote(embedding.file):
        return {}
    file = Path(embedding.file)
    if file.suffix.lower() == ".gguf":
        try:
            return dict(enumerate(read_texts(first_part(file), GGUF_TOKENS) or []))
        except (CheckpointError, UnsupportedError):
            return {}
    for name, read in (
        ("tokenizer.json", _tokenizer_json),
        ("vocab.json", _vocab_json),
        ("vocab.txt", _vocab_txt),
    ):
        path = file.parent / name
        try:
            if path.is_file():
                return read(path)
        except (CheckpointError, OSError, ValueError, TypeError, AttributeError, KeyError):
            continue
    return {}


def _tokenizer_json(path: Path) -> dict[int, str]:
    whole = parse_object(read_bytes(path, largest=LARGEST), str(path))
    vocabulary: Any = whole["model"]["vocab"]
    if isinstance(vocabulary, dict):
        found = _inverted(vocabulary)
    else:  # Unigram: a list of [text, score]
        found = {index: str(entry[0]) for index, entry in enumerate(vocabulary)}
    for entry in whole.get("added_tokens") or []:
        found[int(entry["id"])] = str(entry["content"])
    return found


def _vocab_json(path: Path) -> dict[int, str]:
    return _inverted(parse_object(read_bytes(path, largest=LARGEST), str(path)))


def _vocab_txt(path: Path) -> dict[int, str]:
    return dict(enumerate(read_bytes(path, largest=LARGEST).decode("utf-8").splitlines()))


def _inverted(vocabulary: dict[str, Any]) -> dict[int, str]:
    return {int(index): text for text, index in vocabulary.items()}
