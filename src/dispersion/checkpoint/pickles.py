"""Pickles: never opened, recognised by name or first bytes, answered with a conversion to run."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsafeFileError

if TYPE_CHECKING:
    from pathlib import Path

SHARD = re.compile(r"pytorch_model-\d+-of-\d+\.bin")
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
    """The same for a folder whose weights are all pickles; its shards go into one file.

    Other files than shards of one model are never put together: two models, or the halves of
    split tensors, would overwrite each other under the same names.
    """
    whole = [path for path in pickles if path.name == "pytorch_model.bin"] or pickles
    if len(whole) == 1:
        files = f"[{json.dumps(str(whole[0]))}]"
    elif all(SHARD.fullmatch(path.name) for path in pickles):
        pattern = json.dumps(str(folder / "pytorch_model-*-of-*.bin"))
        files = f'__import__("glob").glob({pattern})'
    else:
        names = shown(", ".join(path.name for path in pickles))
        return (
            f"{shown(folder)} holds several pickles ({names}), which can run code when read, so "
            "none is opened. Name one to be given the command that converts it."
        )
    return _message(folder, files, folder / "model.safetensors")


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
