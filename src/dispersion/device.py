"""Gram matrices of many heads at once on an accelerator, by JAX (extra `jax`).

The device gets the bits of the weights, makes digits of them by shifts and sums, and multiplies
those (digits.py): 8-bit integers, summed in 32 bits. Nothing is supposed of its floats, so the Gram
matrices are the same on every device to the last bit, and their error bound does not know where
they come from. One product of each batch is checked on this machine, in integers.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dispersion.digits import DIGITS, HALVES, MOST_COLUMNS, ZERO, agree, digits_of, gram_of
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dispersion.head import BallImage, Gram, Head

Label = TypeVar("Label")

ENTRIES = 2**23
"""Weights of a batch: 64 MiB in float64, and with all their digits some twelve times that."""
_SHARED = ("cpu", "gpu")  # platforms whose devices several processes can use at once


@dataclass(frozen=True)
class Device:
    """A device that JAX found.

    Attributes:
        name: as it was asked for.
        kind: what it is, in its maker's words.
        platform: "cpu", "gpu", "tpu" or what else JAX calls it.
        handle: the JAX device.

    """

    name: str
    kind: str
    platform: str
    handle: Any = field(repr=False, compare=False)

    @property
    def shared(self) -> bool:
        """Whether several processes can use it at once."""
        return self.platform in _SHARED

    @property
    def provenance(self) -> dict[str, str]:
        """What a report says about it."""
        from importlib.metadata import version

        return {
            "name": self.name,
            "kind": self.kind,
            "platform": self.platform,
            "products": "int8, summed in int32: exact",
            "jax": version("jax"),
        }


@lru_cache(maxsize=8)
def open_device(name: str) -> Device:
    """The device of a name: cpu, gpu, tpu, one of them with an index (gpu:1), or JAX's own.

    Where JAX is not loaded yet, it is told not to take the whole memory of a GPU beforehand, which
    several processes could not share.

    Raises:
        ArgumentError: JAX is not installed, or has no such device.

    """
    if "jax" not in sys.modules:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        msg = (
            "device needs the package jax. Install it: pip install 'jax>=0.5' "
            "(for an NVIDIA GPU: pip install 'jax[cuda12]>=0.5')."
        )
        raise ArgumentError(msg) from None
    platform, colon, index = name.partition(":")
    devices: list[Any] = []
    if platform and (index.isascii() and index.isdigit()) == bool(colon):
        try:
            devices = jax.local_devices(backend=platform.lower())
        except RuntimeError:  # JAX's word for a platform that is not there
            devices = []
    at = int(index[:9]) if index.isascii() and index.isdigit() else 0
    handle = devices[at] if at < len(devices) else None
    if handle is None:
        handle = next((d for d in jax.local_devices() if str(d) == name), None)
    if handle is None:
        seen = ", ".join(f"{d.platform}:{i}" for i, d in enumerate(jax.local_devices()))
        msg = (
            "device must be cpu, gpu or tpu, with an index or without, as in gpu:1, and one that "
            f"JAX finds here: {seen}. Got {name[:40]!r}."
        )
        raise ArgumentError(msg)
    return Device(name, str(handle.device_kind), str(handle.platform), handle)


def with_grams(
    heads: Iterable[tuple[Label, Head]], device: Device, *, entries: int = ENTRIES
) -> Iterator[tuple[Label, Head]]:
    """The same heads in the same order, with the Gram matrices of their projections.

    Heads are taken in batches of about `entries` weights. What a QK norm alone makes (a diagonal)
    has no large product and is left as it is, as are matrices of extreme size.

    Raises:
        ArgumentError: the device fails, or does not multiply integers exactly.

    """
    batch: list[tuple[Label, Head]] = []
    balls: dict[int, BallImage] = {}
    for label, head in heads:
        batch.append((label, head))
        for ball in (head.query, head.key):
            if ball is not None and not ball.is_diagonal:
                balls[id(ball)] = ball
        if sum(ball.matrix.size for ball in balls.values()) >= entries:
            yield from _finished(batch, balls, device)
            batch, balls = [], {}
    yield from _finished(batch, balls, device)


def _finished(
    batch: list[tuple[Label, Head]], balls: dict[int, BallImage], device: Device
) -> Iterator[tuple[Label, Head]]:
    shapes = dict.fromkeys(ball.matrix.shape for ball in balls.values())
    for shape in shapes:
        alike = {key: ball for key, ball in balls.items() if ball.matrix.shape == shape}
        found = grams([ball.matrix for ball in alike.values()], device)
        for (key, ball), gram in zip(alike.items(), found, strict=True):
            balls[key] = ball if gram is None else replace(ball, given=gram)
    for label, head in batch:
        sides = [side and balls.get(id(side), side) for side in (head.query, head.key)]
        yield label, replace(head, query=sides[0], key=sides[1])


def grams(matrices: Sequence[NDArray[np.float64]], device: Device) -> list[Gram | None]:
    """The Gram matrices of matrices of one shape; None for those of extreme size.

    Raises:
        ArgumentError: the device fails, or does not multiply integers exactly.

    """
    import jax

    try:
        words = np.stack(matrices).astype("<f8", copy=False).view("<u4")
        outcome = _multiply()(jax.device_put(words, device.handle))
        parts, exponents = (np.asarray(x) for x in outcome)
    except RuntimeError as error:  # out of memory, lost, …
        said = " ".join(str(error).split())[:200]
        msg = f"device {device.name!r} failed: {said}. Leave out device, or name another."
        raise ArgumentError(msg) from None
    levels = parts.sum(axis=0, dtype=np.int64)
    found = [gram_of(*one) for one in zip(matrices, levels, exponents, strict=True)]
    for matrix, gram, level, exponent in zip(matrices, found, levels, exponents, strict=True):
        if gram is not None:
            if not _right(matrix, level, exponent):
                msg = (
                    "device must compute with integers exactly. Got wrong ones from "
                    f"{device.name!r} ({device.kind}); leave out device, or name another."
                )
                raise ArgumentError(msg)
            break
    return found


def _right(
    matrix: NDArray[np.float64], level: NDArray[np.int64], exponents: NDArray[np.int32]
) -> bool:
    """Whether this machine comes to the same, for one vector of signs."""
    parts, expected = digits_of(matrix)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(matrix))
    return np.array_equal(exponents, expected) and agree(parts, level, signs)


@lru_cache(maxsize=1)
def _multiply() -> Any:
    """The compiled products, from the bits of float64 matrices to P_0 … P_6 and exponents.

    The bits are uint32, shape (matrices, rows, 2·width), low words first. Products come as int32,
    shape (parts of the columns, matrices, 7, rows, rows), exponents as int32, (matrices, rows).
    """
    import jax
    from jax import numpy as jnp

    def multiply(words: Any) -> Any:
        digits, exponents = _digits(jnp, words[..., 0::2], words[..., 1::2])
        over = (((0, 3), (0, 3)), ((1,), (1,)))  # digits and columns; matrices side by side
        parts = []
        for first in range(0, digits.shape[-1], MOST_COLUMNS):
            part = digits[..., first : first + MOST_COLUMNS]
            levels = [
                jax.lax.dot_general(
                    part[: k + 1], part[k::-1], over, preferred_element_type=jnp.int32
                )
                for k in range(DIGITS)
            ]
            parts.append(jnp.stack(levels, axis=1))
        return jnp.stack(parts), exponents

    return jax.jit(multiply)


def _digits(jnp: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """T_0 … T_6 as int8, (7, …), and exponents, from the two words of float64 numbers.

    Subnormal numbers count as zero; a row of nothing else gets an exponent that is not taken.
    """

    def word(value: int) -> Any:
        return jnp.uint32(value)

    biased = (high >> 20) & word(0x7FF)
    top = biased.max(axis=-1)
    empty = ~jnp.any(((high << 1) | low) != 0, axis=-1)
    exponents = jnp.where(empty, ZERO, top.astype(jnp.int32) - 1022)
    # The 53 bits of the significand and one more, then shifted down to the row's exponent.
    upper = ((((high & word(0xFFFFF)) | word(0x100000)) << 1) | (low >> 31)) * (biased != 0)
    lower = (low << 1) * (biased != 0)
    shift = top[..., None] - biased
    near = jnp.minimum(shift, word(31))
    carried = jnp.where(near == 0, word(0), upper << ((word(32) - near) & word(31)))
    far = jnp.clip(shift, word(32), word(63)) - word(32)
    # XLA does not say what a shift by 32 or more gives, so that none is asked for.
    lower = jnp.where(shift < 32, (lower >> near) | carried, upper >> far)
    upper = jnp.where(shift < 32, upper >> near, word(0))
    negative = (high >> 31) != 0
    upper = jnp.where(negative, ~upper + (lower == 0), upper)
    lower = jnp.where(negative, word(0) - lower, lower)
    # Adding 128 to every digit makes bytes of them.
    halves = word(int(HALVES) & 0xFFFFFFFF)
    lower = lower + halves
    upper = upper + word(int(HALVES) >> 32) + (lower < halves)
    taken = [(upper, 16), (upper, 8), (upper, 0), (lower, 24), (lower, 16), (lower, 8), (lower, 0)]
    found = [((w >> step) & word(255)).astype(jnp.int32) - 128 for w, step in taken]
    return jnp.stack(found).astype(jnp.int8), exponents
