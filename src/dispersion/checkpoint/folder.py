"""Which file of a path holds the weights, and the configuration beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.foreign import ctranslate2, foreign_folder
from dispersion.checkpoint.gguf_parts import one_model
from dispersion.checkpoint.pickles import is_pickle_name, unsafe_folder
from dispersion.checkpoint.regular import read_bytes
from dispersion.checkpoint.text import parse_object, reason, shown
from dispersion.errors import CheckpointError, UnsafeFileError

if TYPE_CHECKING:
    from pathlib import Path

INDEX = ".safetensors.index.json"
# Pickles that trainers leave beside the weights; they hold none.
NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")


def weights_file(folder: Path) -> Path:
    """The one weights file of a folder: .safetensors, its index, or .gguf (a part of one model).

    `model.safetensors` comes first and `model.safetensors.index.json` second, the order in which
    transformers looks for them; otherwise there must be just one candidate of a kind.

    Raises:
        UnsafeFileError: all weights are pickles.
        UnsupportedError: they are of a known format that is not read.
        CheckpointError: no weights, or several candidates; the message lists them.
    """
    try:
        # Pipes and broken links stay in: the one that is chosen is refused for what it is.
        every = sorted(folder.iterdir())
        files = [path for path in every if not path.is_dir()]
    except OSError as error:
        msg = f"{shown(folder)} cannot be listed ({reason(error)}). Check its permissions."
        raise CheckpointError(msg) from None
    by_name = {path.name: path for path in files}
    for name in ("model.safetensors", f"model{INDEX}"):
        if name in by_name:
            return by_name[name]
    for suffix in (INDEX, ".safetensors", ".gguf"):
        found = [path for path in files if path.name.endswith(suffix)]
        if len(found) == 1:
            return found[0]
        if suffix == ".gguf" and (part := one_model(found)):
            return part
        if found:
            names = shown(", ".join(path.name for path in found))
            lacking = " and no index" if suffix == ".safetensors" else ""
            msg = f"{shown(folder)} holds several {suffix} files{lacking} ({names}). Name one."
            raise CheckpointError(msg)
    pickles = [p for p in files if is_pickle_name(p) and not p.name.startswith(NOT_WEIGHTS)]
    if pickles:
        raise ctranslate2(pickles[0]) or UnsafeFileError(unsafe_folder(folder, pickles))
    if known := foreign_folder(folder, [path.name for path in every]):
        raise known
    holds = shown(", ".join(by_name)) if by_name else "nothing"
    msg = f"{shown(folder)} has no .safetensors or .gguf file; it holds {holds}. Is it complete?"
    raise CheckpointError(msg)


def read_config(weights: Path) -> dict[str, Any]:
    """The config.json beside a weights file.

    Raises:
        CheckpointError: missing, no regular file, too large, unreadable, or not a JSON object.
    """
    path = weights.parent / "config.json"
    missing = (
        "is missing; it says which architecture the tensors belong to. "
        "Put the model's config.json beside the weights."
    )
    return parse_object(read_bytes(path, missing=missing), shown(path))
