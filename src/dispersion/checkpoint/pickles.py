"""Pickles: never opened, recognised by name or first bytes, answered with a conversion to run."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsafeFileError

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})


def is_pickle_name(path: Path) -> bool:
    """Whether the suffix is one that PyTorch and Python give to pickles."""
    return path.suffix.lower() in SUFFIXES


def is_pickle_start(start: bytes) -> bool:
    """Whether a file starts like a pickle (protocol 2 to 5) or a zip archive (PyTorch's)."""
    # The length that opens a safetensors file can start with the same bytes; its upper half is then
    # zero and its ninth byte opens JSON, which is neither a pickle opcode nor a zip field.
    if start[4:8] == bytes(4) and start[8:9] in (b"{", b" ", b"\n"):
        return False
    zipped = start.startswith(b"PK\x03\x04")
    return zipped or (len(start) > 2 and start[0] == 0x80 and 2 <= start[1] <= 5)


def refuse_pickle(path: Path, start: bytes) -> None:
    """Refuse a file by its first bytes.

    Raises:
        UnsafeFileError: it is a pickle or a zip archive.
    """
    if is_pickle_start(start):
        raise UnsafeFileError(unsafe(path))


def unsafe(path: Path) -> str:
    """The message that refuses a pickle and gives the command that converts it."""
    target = path.parent / "model.safetensors"
    return _message(path, f"[{json.dumps(str(path))}]", target)


def unsafe_folder(folder: Path, pickles: list[Path]) -> str:
    """The same for a folder whose weights are all pickles; its shards go into one file."""
    shards = any(path.name.startswith("pytorch_model") for path in pickles)
    pattern = str(folder / ("pytorch_model*.bin" if shards else f"*{pickles[0].suffix}"))
    return _message(
        folder, f'__import__("glob").glob({json.dumps(pattern)})', folder / "model.safetensors"
    )


def _message(path: Path, files: str, target: Path) -> str:
    code = (
        "import torch, safetensors.torch as s; "
        f"s.save_file({{k: v.contiguous().clone() for f in {files} for k, v in "
        'torch.load(f, map_location="cpu", weights_only=True).items()}, '
        f"{json.dumps(str(target))})"
    )
    return (
        f"{shown(path)} holds a pickle, which can run code when read, so it is not opened. "
        f"Convert it where you trust it: python -c {shlex.quote(code)}"
    )
