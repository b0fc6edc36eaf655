"""Where weights come from: safetensors, shards, GGUF and NumPy files, never a pickle."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.dtypes import to_float64
from dispersion.checkpoint.float8 import with_scales
from dispersion.checkpoint.folder import INDEX, read_config, weights_file
from dispersion.checkpoint.foreign import ctranslate2, foreign_file
from dispersion.checkpoint.numpy_files import open_npy, open_npz
from dispersion.checkpoint.pickles import is_pickle_name, refuse_pickle, unsafe
from dispersion.checkpoint.regular import regular_size
from dispersion.checkpoint.safetensors import Entry, read_entry, read_header
from dispersion.checkpoint.sharded import read_index
from dispersion.checkpoint.tensors import Checkpoint, TensorInfo, Tensors, from_arrays
from dispersion.checkpoint.text import reason, shown
from dispersion.errors import ArgumentError, CheckpointError, UnsafeFileError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from dispersion.checkpoint.tensors import Reader

__all__ = [
    "Checkpoint",
    "TensorInfo",
    "Tensors",
    "from_arrays",
    "open_checkpoint",
    "open_tensors",
    "to_float64",
]

# model.bin.part1, model.gguf.part-01, model.safetensors.001
PIECE = re.compile(r"\.(part[-_.]?\d*|\d{2,})(of\d+)?$", re.IGNORECASE)


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Open a model: a folder, a .safetensors file, a .safetensors.index.json or a .gguf file.

    All may lie at an address (http://, https:// or hf://), see `remote`. Only headers and
    config.json are read. A folder holding both `model.safetensors` and an index is read through the
    former, as transformers does. A split GGUF model is named by any of its parts, or by a folder of
    them.

    Raises:
        UnsafeFileError: the weights are pickles; the message gives the conversion to run.
        CheckpointError: missing, unreadable, malformed, ambiguous, or without config.json.
        UnsupportedError: a GGUF file of an architecture that is not translated, or a known format
            that is not read.
        ArgumentError: an address that is malformed.
    """
    source = str(path)
    if is_remote(source):
        from dispersion.checkpoint.remote import open_remote

        return open_remote(source)
    file = _weights(path)
    if file.suffix.lower() == ".gguf":
        from dispersion.checkpoint.gguf import open_gguf

        return open_gguf(file, source)
    if file.suffix.lower() in (".npy", ".npz"):
        msg = (
            f"{shown(file)} holds bare arrays, not a model. Two weight files are needed, W_Q and "
            "W_K (as in `dispersion check W_Q.npy W_K.npy`), or a checkpoint."
        )
        raise CheckpointError(msg)
    entries = _entries(file, ", a folder or a .gguf file")
    config = read_config(file)
    found = Checkpoint(source, "safetensors", _infos(entries), _reader(entries), config)
    return with_scales(found, config)


def open_tensors(path: str | PathLike[str]) -> Tensors:
    """Open bare tensors, without any configuration: .npy, .npz, and all `open_checkpoint` takes.

    Raises:
        UnsafeFileError: a pickle, or a NumPy file with Python objects.
        CheckpointError: missing, unreadable or malformed.
        ArgumentError: an address.
    """
    source = str(path)
    if is_remote(source):
        msg = f"two weight files must be local. Got {shown(source.partition('?')[0])}; download it."
        raise ArgumentError(msg)
    file = _weights(path)
    match file.suffix.lower():
        case ".npy":
            return open_npy(file)
        case ".npz":
            return open_npz(file)
        case ".gguf":
            return open_checkpoint(file)
    entries = _entries(file, ", .npy, .npz or .gguf file")
    found = Tensors(source, "safetensors", _infos(entries), _reader(entries))
    return with_scales(found, None)


def is_remote(path: str) -> bool:
    """Whether a name is an address, with a scheme and ://, and no file."""
    return re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE | re.ASCII) is not None


def _weights(path: str | PathLike[str]) -> Path:
    given = Path(path)
    try:
        is_folder = given.is_dir()
    except OSError:  # told apart below
        is_folder = False
    if is_folder:
        given = weights_file(given)
    regular_size(given, "does not exist. Give a checkpoint folder or a weights file.")
    return given


def _entries(file: Path, also: str) -> dict[str, Entry]:
    if file.name.endswith(INDEX):
        return read_index(file)
    if file.suffix.lower() == ".safetensors":
        return read_header(file)
    if is_pickle_name(file):
        raise ctranslate2(file) or UnsafeFileError(unsafe(file))
    if known := foreign_file(file):
        raise known
    try:
        with file.open("rb") as opened:
            refuse_pickle(file, opened.read(16))
    except OSError as error:
        msg = f"{shown(file)} cannot be read ({reason(error)}). Check its permissions."
        raise CheckpointError(msg) from None
    if PIECE.search(file.name):
        msg = (
            f"{shown(file)} seems to be a piece of a file. Join the pieces into one file, in order "
            "(as with cat), and give that."
        )
        raise CheckpointError(msg)
    msg = f"{shown(file)} is of no known kind. Give a .safetensors, {INDEX}{also}."
    raise CheckpointError(msg)


def _infos(entries: dict[str, Entry]) -> dict[str, TensorInfo]:
    return {name: entry.info for name, entry in entries.items()}


def _reader(entries: dict[str, Entry]) -> Reader:
    return partial(_read, entries)


def _read(entries: dict[str, Entry], name: str, rows: slice | None) -> NDArray[Any]:
    return read_entry(entries[name], rows)
