"""Several .safetensors files and the index that says which tensor lies in which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.pickles import is_pickle_name, unsafe_folder
from dispersion.checkpoint.regular import read_bytes, regular_size
from dispersion.checkpoint.safetensors import Entry, read_header
from dispersion.checkpoint.text import as_json, parse_object, shown
from dispersion.errors import CheckpointError, UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REMEDY = "Fetch index and shards of the same revision."


def read_index(index: Path) -> dict[str, Entry]:
    """The tensors of all shards, by name.

    The index and the shard headers must tell the same story: every tensor in exactly one shard,
    the one the index names.

    Raises:
        UnsafeFileError: the shards are pickles.
        CheckpointError: the index is malformed, names a file outside its folder or one that is
            missing, or disagrees with the shards.
    """
    weight_map = parse_weight_map(read_bytes(index), index)
    for shard in weight_map.values():
        if is_pickle_name(index.parent / shard):
            raise UnsafeFileError(unsafe_folder(index.parent, [index.parent / shard]))

    def read(shard: str) -> dict[str, Entry]:
        path = index.parent / shard
        regular_size(path, f"is missing, but {shown(index)} names it as a shard. Fetch it too.")
        return read_header(path)

    return join_shards(weight_map, index, lambda shard: str(index.parent / shard), read)


def join_shards(
    weight_map: dict[str, str],
    index: Path | str,
    place: Callable[[str], str],
    read: Callable[[str], dict[str, Entry]],
) -> dict[str, Entry]:
    """The tensors of all shards, if index and shards tell the same story.

    Args:
        weight_map: from tensor names to shards.
        index: how messages name the index.
        place: the `TensorInfo.file` of a shard's tensors.
        read: the tensors of a shard.

    Raises:
        CheckpointError: a tensor is not in exactly one shard, the one that the index names.
    """
    entries: dict[str, Entry] = {}
    for shard in sorted(set(weight_map.values())):
        path = place(shard)
        for name, entry in read(shard).items():
            if name in entries:
                first = shown(entries[name].info.file)
                msg = (
                    f"tensor {shown(name)} is in two shards, {first} and {shown(path)}. Remove one."
                )
                raise CheckpointError(msg)
            if name not in weight_map:
                msg = (
                    f"tensor {shown(name)} is in {shown(path)} but not in {shown(index)}. {REMEDY}"
                )
                raise CheckpointError(msg)
            entries[name] = entry
    for name, shard in weight_map.items():
        if name not in entries or entries[name].info.file != place(shard):
            msg = f"tensor {shown(name)} should be in the shard {shown(shard)} but is not. {REMEDY}"
            raise CheckpointError(msg)
    return entries


def parse_weight_map(raw: bytes, index: Path | str) -> dict[str, str]:
    """Which shard holds each tensor.

    Raises:
        CheckpointError: malformed, or a shard is no plain file name.
    """
    parsed = parse_object(raw, f"{shown(index)}", strict=True)
    weight_map: Any = parsed.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        msg = (
            f"{shown(index)} must hold a weight_map from tensor names to shard files. "
            f"Got {as_json(weight_map)}."
        )
        raise CheckpointError(msg)
    for name, shard in weight_map.items():
        # Plain names only: an index must not make us open files outside its folder.
        if not isinstance(shard, str) or shard in ("", ".", "..") or not _plain(shard):
            msg = (
                f"{shown(index)} maps {shown(name)} to {as_json(shard)}; a shard must be the plain "
                "name of a file in the index's own folder."
            )
            raise CheckpointError(msg)
    return weight_map


def _plain(name: str) -> bool:
    return name.isprintable() and not set(name) & set("/\\:")
