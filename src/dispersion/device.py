"""Gram matrices of many heads at once on an accelerator, by JAX (extra `jax`).

The device multiplies digits (digits.py): 8-bit integers, summed in 32 bits. Nothing is supposed of
its floats, so the Gram matrices are the same on every device to the last bit, and their error bound
does not know where they come from. One product of each batch is checked against the host, in
integers.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dispersion.digits import DIGITS, MOST_COLUMNS, Digits, agree, digits_of
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dispersion.head import BallImage, Gram, Head

Label = TypeVar("Label")

ENTRIES = 2**25
"""Weights of a batch: 256 MiB in float64, and as much again in digits."""
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
    """The Gram matrices of matrices of one shape; None for those that digits cannot hold.

    Raises:
        ArgumentError: the device fails, or does not multiply integers exactly.

    """
    found = [digits_of(matrix) for matrix in matrices]
    held = [digits for digits in found if digits is not None]
    if not held:
        return [None for _ in matrices]
    levels = iter(_levels(held, device))
    return [None if digits is None else digits.gram(next(levels)) for digits in found]


def _levels(held: list[Digits], device: Device) -> NDArray[np.int64]:
    """P_0 … P_6 of every matrix, shape (matrices, 7, rows, rows)."""
    import jax

    rows, width, _ = held[0].planes.shape
    total = np.zeros((len(held), DIGITS, rows, rows), dtype=np.int64)
    try:
        for first in range(0, width, MOST_COLUMNS):
            part = slice(first, first + MOST_COLUMNS)
            planes = np.stack([digits.planes[:, part] for digits in held])
            total += np.asarray(_multiply()(jax.device_put(planes, device.handle)))
    except RuntimeError as error:  # out of memory, lost, …
        words = " ".join(str(error).split())[:200]
        msg = f"device {device.name!r} failed: {words}. Leave out device, or name another."
        raise ArgumentError(msg) from None
    signs = np.random.default_rng(0).choice([-1.0, 1.0], rows)
    if not agree(held[0].planes, total[0], signs):
        msg = (
            f"device must multiply integers exactly. Got wrong products from {device.name!r} "
            f"({device.kind}); leave out device, or name another."
        )
        raise ArgumentError(msg)
    return total


@lru_cache(maxsize=1)
def _multiply() -> Any:
    """The compiled products: int8 (matrices, rows, width, 8) to int32 (matrices, 7, rows, rows)."""
    import jax
    from jax import numpy as jnp

    def multiply(planes: Any) -> Any:
        digits = jnp.moveaxis(planes[..., DIGITS - 1 :: -1], -1, 0)  # T_0 … T_6
        over = (((0, 3), (0, 3)), ((1,), (1,)))  # digits and columns; matrices side by side
        levels = [
            jax.lax.dot_general(
                digits[: k + 1], digits[k::-1], over, preferred_element_type=jnp.int32
            )
            for k in range(DIGITS)
        ]
        return jnp.stack(levels, axis=1)

    return jax.jit(multiply)
