"""Formats that are known but not read: named, with the reason and a way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsafeFileError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from dispersion.errors import DispersionError

ARRAYS = "or load it where you trust it and give dispersion.audit the arrays and a config"


@dataclass(frozen=True)
class Format:
    """A format by the files that betray it.

    Attributes:
        name: what people call it.
        suffixes: endings of file names.
        files: whole names of files or folders within a checkpoint's folder.
        reason: why it is not read.
        remedy: what to do instead.
        unsafe: whether reading it can run code.
    """

    name: str
    suffixes: tuple[str, ...]
    files: tuple[str, ...]
    reason: str
    remedy: str
    unsafe: bool = False


FORMATS = (
    Format(
        "a Flax checkpoint (msgpack)",
        (".msgpack",),
        (),
        "is one object that must be unpacked whole into memory, with Flax's own names and layouts",
        "Convert it with transformers before 5.0 (from_pretrained(..., from_flax=True), then "
        f"save_pretrained), {ARRAYS}.",
    ),
    Format(
        "an Orbax checkpoint",
        (".ocdbt",),
        ("_CHECKPOINT_METADATA", "manifest.ocdbt", "_METADATA"),
        "is a tree of arrays of the training program's own shape, without a model's configuration",
        "Restore it with orbax-checkpoint and write a safetensors file under the names of its "
        f"Hugging Face model, {ARRAYS}.",
    ),
    Format(
        "a distributed PyTorch checkpoint",
        (".distcp",),
        (),
        "keeps its directory as a pickle, which can run code when read",
        "Convert it where you trust it with torch.distributed.checkpoint.format_utils."
        "dcp_to_torch_save, then write a safetensors file.",
        unsafe=True,
    ),
    Format(
        "a Keras or TensorFlow model",
        (".h5", ".hdf5", ".keras", ".pb"),
        (),
        "can hold code that runs when the model is opened",
        "Convert it where you trust it with transformers before 5.0 (from_pretrained(..., "
        f"from_tf=True), then save_pretrained), {ARRAYS}.",
        unsafe=True,
    ),
    Format(
        "an ONNX graph",
        (".onnx",),
        (),
        "names no attention heads: its matrices are anonymous inputs of a graph",
        "Give the checkpoint that it was exported from.",
    ),
)


CTRANSLATE2 = Format(
    "a CTranslate2 model",
    (),
    (),
    "fuses and quantises projections in a layout of its own",
    "Give the checkpoint that it was converted from.",
)


def ctranslate2(path: Path) -> DispersionError | None:
    """The error that refuses a CTranslate2 model.bin, which is told by its first bytes, or None.

    They are a version and the name of a model specification with its length, such as WhisperSpec.
    """
    try:
        if not path.is_file():  # a pipe would wait for a writer
            return None
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:
        return None
    if len(start) < 8 or not 1 <= int.from_bytes(start[:4], "little") <= 32:
        return None
    name = start[6 : 6 + int.from_bytes(start[4:6], "little")]
    if name.endswith(b"Spec\0") and name[:-1].isalnum():
        return _error(path, CTRANSLATE2)
    return None


def foreign_file(path: Path) -> DispersionError | None:
    """The error that refuses a single file of a known format, or None."""
    for known in FORMATS:
        if path.name.lower().endswith(known.suffixes) or path.name in known.files:
            return _error(path, known)
    return None


def foreign_folder(folder: Path, names: Collection[str]) -> DispersionError | None:
    """The same for a folder, given the names of what it holds."""
    for known in FORMATS:
        for name in names:
            if name.lower().endswith(known.suffixes) or name in known.files:
                return _error(folder / name, known)
    return None


def _error(path: Path, known: Format) -> DispersionError:
    message = f"{shown(path)} is {known.name}, which {known.reason}. {known.remedy}"
    return UnsafeFileError(message) if known.unsafe else UnsupportedError(message)
