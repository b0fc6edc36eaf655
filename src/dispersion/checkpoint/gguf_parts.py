"""GGUF models split into several files, NAME-00001-of-00003.gguf and so on.

The first part holds the metadata of all; each part says which one it is (`split.no`, from 0 on),
of how many (`split.count`), and how many tensors they have together (`split.tensors.count`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from dispersion.checkpoint.gguf_file import Parsed, Stored

    Metadata = Mapping[str, Any]
    Read = Callable[[str, str], Parsed]

NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
OWN = (NUMBER, "general.alignment")  # what parts say of themselves
_PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\.gguf)", re.DOTALL | re.IGNORECASE)


def read_parts(name: str, shown_as: Callable[[str], str], read: Read) -> Parsed:
    """Metadata and tensors of a model, of which `name` may be any part.

    Args:
        name: the file that was asked for, without its folder.
        shown_as: how messages name a file of that folder.
        read: reads one file of the folder; the second argument says why it must be there.

    Raises:
        CheckpointError: a part is missing or of another model, or says of itself what is not so.
        UnsupportedError: what `read` raises.
    """
    asked = read(name, "")
    count = _whole_number(asked[0], COUNT, 0, shown_as(name))
    if count <= 1:  # merged files say 0
        metadata, tensors = asked
        _check_own(metadata, 0, max(count, 1), shown_as(name))
        if TENSORS in metadata:
            _check_total(metadata, tensors, shown_as(name))
        return asked
    number = _whole_number(asked[0], NUMBER, None, shown_as(name))
    stem, suffix = _check_name(name, number, count, shown_as)
    joined: dict[str, Stored] = {}
    first: Metadata = {}
    for index in range(count):
        part = part_name(stem, index, count, suffix)
        why = f"it is part {index + 1} of {count} of the model that {shown(name)} belongs to"
        metadata, tensors = asked if index == number else read(part, why)
        if index == 0:
            first = metadata
        _check_own(metadata, index, count, shown_as(part))
        _check_same(metadata, first, shown_as(part), shown_as(part_name(stem, 0, count, suffix)))
        for each in tensors.values():
            if each.name in joined:
                msg = (
                    f"tensor {shown(each.name)} is in two parts, {shown(joined[each.name].file)} "
                    f"and {shown(each.file)}. They are of different models; fetch them again."
                )
                raise CheckpointError(msg)
            joined[each.name] = each
    _check_total(first, joined, shown_as(part_name(stem, 0, count, suffix)))
    return dict(first), joined


def part_name(stem: str, index: int, count: int, suffix: str = ".gguf") -> str:
    """The file name of one part, of which there are `count`."""
    return f"{stem}-{index + 1:05}-of-{count:05}{suffix}"


def first_part(path: Path) -> Path:
    """The file that holds the metadata, by its name alone."""
    found = _PART.fullmatch(path.name)
    return path.with_name(part_name(found[1], 0, int(found[3]), found[4])) if found else path


def is_part(path: Path) -> bool:
    """Whether a file's name says that it is one of several parts."""
    found = _PART.fullmatch(path.name)
    return found is not None and int(found[3]) > 1


def one_model(files: Iterable[Path]) -> Path | None:
    """One of several files if their names say that they are all parts of one model."""
    matches = [(path, _PART.fullmatch(path.name)) for path in files]
    kinds = {match and (match[1], match[3], match[4]) for _, match in matches}
    return matches[0][0] if len(kinds) == 1 and None not in kinds else None


def _check_name(
    name: str, number: int, count: int, shown_as: Callable[[str], str]
) -> tuple[str, str]:
    found = _PART.fullmatch(name)
    if found is None or (int(found[2]), int(found[3])) != (number + 1, count):
        msg = (
            f"{shown(shown_as(name))} says that it is part {number + 1} of {count} ({NUMBER} is "
            f"{number}, {COUNT} is {count}); parts must be named as they are numbered, "
            f"{part_name('NAME', number, count)}. Give it that name or fetch the parts again."
        )
        raise CheckpointError(msg)
    return found[1], found[4]


def _whole_number(metadata: Metadata, key: str, default: int | None, file: str) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or value < 0:
        msg = f"{shown(file)}: {key} must be an integer from 0 on. Got {shown(value)}."
        raise CheckpointError(msg)
    return value


def _check_own(metadata: Metadata, index: int, count: int, file: str) -> None:
    """Whether a part says of itself what its name and its fellows say."""
    stated = metadata.get(COUNT, 0)
    if count > 1 and stated != count:
        msg = f"{shown(file)} must be one of {count} parts; its {COUNT} is {shown(stated)}."
    elif _whole_number(metadata, NUMBER, None if count > 1 else 0, file) != index:
        got = shown(metadata[NUMBER])
        msg = f"{shown(file)} is part {index + 1} of {count}; its {NUMBER} is {got}, not {index}."
    else:
        return
    msg = f"{msg} Fetch the parts again."
    raise CheckpointError(msg)


def _check_same(metadata: Metadata, first: Metadata, file: str, first_file: str) -> None:
    for key, value in metadata.items():
        if key in OWN or (key in first and (first[key] == value or first[key] is value)):
            continue
        got = f"{shown(first[key])}" if key in first else "no such key"
        msg = (
            f"{shown(file)} has {shown(key)} {shown(value)}, but {shown(first_file)} has {got}; "
            "they are parts of different models. Fetch them again."
        )
        raise CheckpointError(msg)


def _check_total(metadata: Metadata, tensors: Mapping[str, Stored], file: str) -> None:
    total = _whole_number(metadata, TENSORS, None, file)
    if total != len(tensors):
        msg = (
            f"{shown(file)} says that the model has {total} tensors ({TENSORS}), but "
            f"{len(tensors)} were found. Parts are missing or of another model; fetch them again."
        )
        raise CheckpointError(msg)
