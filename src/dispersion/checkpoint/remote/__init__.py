"""Checkpoints where people keep them: web servers and the hub, read by byte ranges.

Fetched are config.json, the index, the headers, and the tensors that are read; of a GGUF file its
header and those tensors. Nothing else is, least of all code or pickles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.float8 import with_scales
from dispersion.checkpoint.pickles import SUFFIXES, is_pickle_start
from dispersion.checkpoint.regular import LARGEST_TEXT
from dispersion.checkpoint.remote.files import Missing, RemoteFiles
from dispersion.checkpoint.remote.places import parse_place
from dispersion.checkpoint.remote.tensors import RemoteReader
from dispersion.checkpoint.safetensors import Entry, check_start, parse_header
from dispersion.checkpoint.sharded import join_shards, parse_weight_map
from dispersion.checkpoint.tensors import Checkpoint
from dispersion.checkpoint.text import parse_object, shown
from dispersion.errors import CheckpointError, UnsafeFileError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.remote.places import Place

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def open_remote(source: str) -> Checkpoint:
    """Open a model at http://, https:// or hf://: a folder, .safetensors file, index or .gguf file.

    All files come from one commit where the place is on the hub. A file that changes between two
    reads is an error.

    Raises:
        UnsupportedError: a NumPy file, or a GGUF file that is not read locally either.
        UnsafeFileError: the weights are pickles.
        CheckpointError: missing, forbidden, malformed, a server without byte ranges, or no package
            for remote reads.
        ArgumentError: the address is malformed.
    """
    place = parse_place(source)
    if place.file is not None:
        _check_kind(place, place.file)
    files = RemoteFiles(place)
    if place.file is not None and place.file.lower().endswith(".gguf"):
        from dispersion.checkpoint.remote.gguf import open_remote_gguf

        return open_remote_gguf(files, place.file, source)
    config_file = files.open("config.json")
    try:
        raw = config_file.text(LARGEST_TEXT)
    except Missing:
        msg = (
            f"{shown(config_file.name)} is missing; it says which architecture the tensors belong "
            "to (a .gguf file, which says so itself, must be named). "
        )
        if place.hub is None:
            msg += "Give the address of a folder that holds it beside the weights."
        else:
            msg += "Check the model's name, the revision and the folder."
        raise CheckpointError(msg) from None
    config = parse_object(raw, shown(config_file.name))
    files.place = place.at(config_file.commit)
    entries = _entries(files, place.file)
    infos = {name: entry.info for name, entry in entries.items()}
    reader = RemoteReader(entries, files.opened)
    origin: dict[str, Any] = {} if config_file.commit is None else {"commit": config_file.commit}
    found = Checkpoint(source, "safetensors", infos, reader, config, origin=origin)
    return with_scales(found, config)


def _check_kind(place: Place, file: str) -> None:
    suffix = file[file.rfind(".") :].lower()
    if suffix in SUFFIXES:
        raise UnsafeFileError(_unsafe(place.shown(file)))
    if suffix in (".npy", ".npz"):
        msg = (
            f"{shown(place.shown(file))}: only safetensors and GGUF files are read from remote "
            "places. Download the file and give its path."
        )
        raise UnsupportedError(msg)


def _unsafe(name: str) -> str:
    return (
        f"{shown(name)} is a pickle, which can run code when read, so it is not opened. "
        "Download it and convert it to safetensors where you trust it."
    )


def _entries(files: RemoteFiles, file: str | None) -> dict[str, Entry]:
    if file is not None:
        read = _shards if file.lower().endswith(".json") else _header
        try:
            return read(files, file)
        except Missing as error:
            raise CheckpointError(str(error)) from None
    try:
        return _header(files, SINGLE)
    except Missing:
        pass
    try:
        return _shards(files, INDEX)
    except Missing:
        msg = (
            f"{shown(files.place.name)} must hold {SINGLE} or {INDEX}. Got neither; give the "
            "address of the weights file itself."
        )
        raise CheckpointError(msg) from None


def _header(files: RemoteFiles, file: str) -> dict[str, Entry]:
    opened = files.open(file)
    ahead = opened.start(64)
    size = opened.size or 0
    if is_pickle_start(ahead):
        raise UnsafeFileError(_unsafe(opened.name))
    length = check_start(ahead, size, opened.name)
    raw = bytearray(ahead[8 : 8 + length])
    opened.read(8 + len(raw), 8 + length, raw.extend)
    return parse_header(bytes(raw), size, opened.name)


def _shards(files: RemoteFiles, index: str) -> dict[str, Entry]:
    opened = files.open(index)
    weight_map = parse_weight_map(opened.text(LARGEST_TEXT), opened.name)
    for shard in weight_map.values():
        _check_kind(files.place, shard)

    def read(shard: str) -> dict[str, Entry]:
        try:
            return _header(files, shard)
        except Missing:
            msg = f"{shown(files.name(shard))} is missing, but {shown(opened.name)} names it."
            raise CheckpointError(msg) from None

    return join_shards(weight_map, opened.name, files.name, read)
