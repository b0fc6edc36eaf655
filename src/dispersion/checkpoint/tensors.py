"""Named tensors behind one small interface, whatever file they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.dtypes import readable
from dispersion.checkpoint.text import shown
from dispersion.errors import ArgumentError, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Reader = Callable[[str, slice | None], NDArray[Any]]
    Checker = Callable[[str], None]


@dataclass(frozen=True)
class TensorInfo:
    """What a file says about one tensor, before any of its values are read.

    Attributes:
        name: the tensor's name.
        dtype: the file format's own word ("BF16", "F32", "Q4_1", …).
        shape: as stored; projections are [out, in].
        file: the file that holds the bytes.
        nbytes: bytes the tensor takes in that file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    nbytes: int


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors of one or several files; can be sent to another process.

    Attributes:
        source: the path given by the caller.
        format: "safetensors", "gguf", "npy", "npz" or "arrays".
        names: the tensor names, sorted.
        checker: says what is wrong with a tensor before it is read; None for the usual check.
    """

    source: str
    format: str
    infos: Mapping[str, TensorInfo] = field(repr=False)
    reader: Reader = field(repr=False)
    checker: Checker | None = field(default=None, repr=False, kw_only=True)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.infos))

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and file of a tensor; reads no values.

        Raises:
            CheckpointError: there is no such tensor; the message offers the nearest name.
        """
        if name not in self.infos:
            near = get_close_matches(name, list(self.infos), n=1)
            hint = f" Did you mean {shown(near[0])}?" if near else ""
            msg = f"{shown(self.source)} has no tensor {shown(name)}.{hint}"
            raise CheckpointError(msg)
        return self.infos[name]

    def check(self, name: str) -> None:
        """Whether the values can be read, as far as headers tell; reads none of them.

        Raises:
            UnsupportedError: the dtype holds no plain real numbers, or lacks its scale.
            CheckpointError: no such tensor, or its scale does not fit it.
        """
        info = self.info(name)
        if self.checker is not None:
            self.checker(name)
        elif self.format == "safetensors":
            readable(info.dtype, name)

    def read(self, name: str, rows: slice | None = None) -> NDArray[Any]:
        """Values of a tensor, or of some of its rows (first axis), in the stored dtype.

        8-bit floats come multiplied by their scale, exactly, in float64.

        Every call makes its own read-only memory map, which is undone when the array dies: pages
        of tensors already dealt with do not pile up. Only the asked rows are read.

        Raises:
            ArgumentError: `rows` has a step other than 1, or the tensor has no axes.
            UnsupportedError: the dtype holds no plain real numbers (integers, fp4, …).
            CheckpointError: no such tensor, or the file changed since it was opened.
        """
        self.check(name)
        if rows is not None:
            rows = normal_rows(rows, self.infos[name])
        return self.reader(name, rows)


@dataclass(frozen=True, eq=False)
class Checkpoint(Tensors):
    """Tensors together with the model's configuration in the Hugging Face dialect.

    Attributes:
        config: the parsed config.json, or its translation.
        gain_is_multiplier: True where norm weights are the factor itself even for families whose
            Hugging Face files store factor - 1 (Gemma in GGUF files).
        origin: what else says where it came from, for a report's provenance ("commit" on the hub).
    """

    config: dict[str, Any] = field(default_factory=dict)
    gain_is_multiplier: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)


def normal_rows(rows: slice, info: TensorInfo) -> slice:
    """The slice with explicit bounds 0 ≤ start ≤ stop ≤ shape[0].

    Raises:
        ArgumentError: a step other than 1, or a tensor without axes.
    """
    if not info.shape:
        msg = f"rows needs a tensor with at least one axis. {shown(info.name)} is a scalar."
        raise ArgumentError(msg)
    start, stop, step = rows.indices(info.shape[0])
    if step != 1:
        msg = f"rows must be consecutive (step 1) for {shown(info.name)}. Got {rows}."
        raise ArgumentError(msg)
    return slice(start, max(start, stop))


def from_arrays(
    arrays: Mapping[str, Any],
    config: dict[str, Any] | None = None,
    *,
    source: str = "arrays",
    gain_is_multiplier: bool = False,
) -> Checkpoint:
    """A Checkpoint over arrays already in memory (anything `numpy.asarray` accepts)."""
    held = {name: np.asarray(array) for name, array in arrays.items()}
    infos = {
        name: TensorInfo(name, str(a.dtype), tuple(a.shape), source, int(a.nbytes))
        for name, a in held.items()
    }

    reader = partial(_read, held)
    return Checkpoint(source, "arrays", infos, reader, dict(config or {}), gain_is_multiplier)


def _read(held: dict[str, NDArray[Any]], name: str, rows: slice | None) -> NDArray[Any]:
    return held[name] if rows is None else held[name][rows]
