"""Typed look-ups in GGUF metadata, and what the tensor directory adds to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST = 2**31 - 1
# What a model needs is far below; memory and time for lists by layer or by coordinate stay small.
MOST_LAYERS = 100_000
WIDEST_HEAD = 2**16


@dataclass(frozen=True)
class Contents:
    """What the tensor directory says beside the metadata.

    Attributes:
        shapes: row-major shapes by GGUF name.
        factors: the values of `rope_freqs`, `rope_factors_long` and `rope_factors_short`, where
            there are such tensors.
    """

    shapes: Mapping[str, tuple[int, ...]]
    factors: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def any(self, ending: str) -> bool:
        """Whether a layer has a tensor of this ending, such as `attn_q.bias`."""
        return any(name.startswith("blk.") and name.endswith(f".{ending}") for name in self.shapes)

    def rows(self, name: str) -> int | None:
        """Rows of a tensor outside the layers, or None without one."""
        shape = self.shapes.get(name)
        return shape[0] if shape else None


class Metadata:
    """Values under one architecture's prefix."""

    def __init__(self, values: Mapping[str, Any], architecture: str, file: str) -> None:
        self.values, self.prefix, self.file = values, architecture + ".", file

    def has(self, key: str) -> bool:
        return self.prefix + key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(self.prefix + key, default)

    def nonzero(self, key: str) -> bool:
        """Whether the file sets a value that is not nothing."""
        value = self.get(key)
        return value not in (None, "", []) and not (type(value) in (int, float) and value == 0)

    def integer(self, key: str, default: int | None = None, *, largest: int = LARGEST) -> int:
        """A positive integer, or a list that repeats one.

        Raises:
            CheckpointError: missing without a default, or something else.
            UnsupportedError: a list of different integers, one for each layer.
        """
        value = self.get(key, default)
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            if len(set(value)) > 1:
                msg = f"{shown(self.file)}: {self.prefix}{key} differs between layers."
                raise UnsupportedError(msg)
            value = value[0]
        if type(value) is not int or not 0 < value <= largest:
            limit = "" if largest == LARGEST else f", at most {largest}"
            raise self._wrong(key, f"a positive integer{limit}", value)
        return value

    def first(self, key: str) -> int:
        """A positive integer, or the first of a list of some.

        Raises:
            CheckpointError: missing, or something else.
        """
        value = self.get(key)
        listed = value if isinstance(value, list) and value else [value]
        if any(type(v) is not int or not 0 < v <= LARGEST for v in listed):
            raise self._wrong(key, "a positive integer, or a list of them", value)
        return int(listed[0])

    def counts(self, key: str, layers: int) -> list[int]:
        """An integer from 0 on for each layer, all positive ones the same.

        Raises:
            CheckpointError: no such list.
            UnsupportedError: different positive integers.
        """
        value = self.get(key)
        found = [v for v in value if type(v) is int and v >= 0] if isinstance(value, list) else []
        if len(found) < layers or found != value or not any(found[:layers]):
            rule = f"a list of integers from 0 on, not all 0, for {layers} layers"
            raise self._wrong(key, rule, value)
        if len(set(found[:layers]) - {0}) > 1:
            msg = f"{shown(self.file)}: {self.prefix}{key} differs between layers."
            raise UnsupportedError(msg)
        return found[:layers]

    def real(self, key: str, default: float | None = None) -> float:
        """A positive finite number.

        Raises:
            CheckpointError: missing without a default, or something else.
        """
        value: Any = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self._wrong(key, "a positive number", value)
        return float(value)

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """True or false.

        Raises:
            CheckpointError: missing without a default, or something else.
        """
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def refuse(self, key: str, why: str) -> NoReturn:
        """Refuse a setting by its key.

        Raises:
            UnsupportedError: always.
        """
        got, named = shown(self.get(key)), shown(self.prefix + key)  # the key may be the file's own
        msg = f"{shown(self.file)} sets {named} to {got}, {why}."
        raise UnsupportedError(msg)

    def _wrong(self, key: str, rule: str, value: Any) -> CheckpointError:
        msg = f"{shown(self.file)}: {self.prefix}{key} must be {rule}. Got {shown(value)}."
        return CheckpointError(msg)
