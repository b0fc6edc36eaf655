"""Schedules: factors on a head's logits that depend on the length n.

A schedule multiplies the logits before the soft cap, as factors on queries do. Its functions take
numbers or arrays of any array-API library; `Schedule.enclose` is the certified form.

| text | factor at length n | met in |
|---|---|---|
| ``constant:C`` | C | a fixed logit scale |
| ``log:C`` | C·log n | scalable softmax, https://arxiv.org/abs/2501.19399 |
| ``sqrt-log`` | √(2 log n) | the maximum of n Gaussian logits |
| ``yarn:L`` | (0.1·log(n/L) + 1)², and 1 up to n = L | https://arxiv.org/abs/2309.00071 |
| ``llama4:A,L`` | 1 + A·log(1 + ⌊n/L⌋) | Llama 4, layers without rotation |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flint import arb

from dispersion._arrays import Array, prepare
from dispersion._enclosing import count_of
from dispersion.balls import from_arb, in_precision
from dispersion.errors import ArgumentError
from dispersion.lengths import parse_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.enclosure import Enclosure

__all__ = [
    "CONSTANT",
    "Schedule",
    "constant",
    "llama4",
    "log_length",
    "parse_schedule",
    "sqrt_log",
    "yarn",
]

_YARN_SLOPE = "0.1"  # a decimal: arb encloses the tenth that a float misses


def constant(n: Array, factor: float = 1.0) -> Any:
    """The same factor at every length. Raises ArgumentError for n < 1."""
    xp, (n,), finish = prepare(n=n)
    return finish(xp.full_like(n, factor))


def log_length(n: Array, factor: float = 1.0) -> Any:
    """factor·log n, for which T6 tells what becomes of the ceiling. Raises as `constant`."""
    xp, (n,), finish = prepare(n=n)
    return finish(factor * xp.log(n))


def sqrt_log(n: Array) -> Any:
    """√(2 log n); its derivative at n = 1 is infinite and given as 0. Raises as `constant`."""
    xp, (n,), finish = prepare(n=n)
    inner = n > 1.0
    root = xp.sqrt(2.0 * xp.log(xp.where(inner, n, 2.0)))
    return finish(xp.where(inner, root, 0.0 * root))


def yarn(n: Array, trained: float) -> Any:
    """The square of YaRN's attention factor 0.1·log(n/trained) + 1; 1 up to n = trained.

    It multiplies the logits of rotated dimensions. Raises as `constant`.
    """
    xp, (n,), finish = prepare(n=n)
    stretch = xp.where(n > trained, n / trained, xp.ones_like(n))
    return finish((float(_YARN_SLOPE) * xp.log(stretch) + 1.0) ** 2)


def llama4(n: Array, slope: float, step: float) -> Any:
    """1 + slope·log(1 + ⌊n/step⌋), Llama 4's temperature of the query at position n − 1.

    Constant between steps, so its derivative is 0. Raises as `constant`.
    """
    xp, (n,), finish = prepare(n=n)
    return finish(1.0 + slope * xp.log1p(xp.floor(n / step)))


@dataclass(frozen=True)
class Schedule:
    """A schedule with its numbers; `parse_schedule` reads one and `str` writes it.

    Attributes:
        kind: ``constant``, ``log``, ``sqrt-log``, ``yarn`` or ``llama4``.
        numbers: factors, finite and 0 or more; lengths, whole and 1 or more; in the order of the
            text form.
    """

    kind: str = "constant"
    numbers: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            msg = f"schedule must be one of {', '.join(_forms())}. Got {self.kind[:40]!r}."
            raise ArgumentError(msg)
        names = _KINDS[self.kind].names
        if len(self.numbers) != len(names):
            msg = f"schedule must look like {_form(self.kind)}. Got {len(self.numbers)} numbers."
            raise ArgumentError(msg)
        for name, value in zip(names, self.numbers, strict=True):
            if name == "L" and not (value >= 1 and float(value).is_integer()):
                msg = f"L of {_form(self.kind)} must be a whole number of tokens. Got {value}."
                raise ArgumentError(msg)
            if not 0 <= value < math.inf:
                msg = f"{name} of {_form(self.kind)} must be finite and 0 or more. Got {value}."
                raise ArgumentError(msg)

    def __call__(self, n: Array) -> Any:
        """The factor at each length, elementwise; rounded. Raises ArgumentError for n < 1."""
        return _KINDS[self.kind].rounded(n, *self.numbers)

    @in_precision
    def enclose(self, n: int) -> Enclosure:
        """The factor at a whole length n ≥ 1, enclosed. Raises ArgumentError otherwise."""
        return from_arb(_KINDS[self.kind].ball(count_of("n", n), *self.numbers))

    def __str__(self) -> str:
        numbers = ",".join(repr(float(value)).removesuffix(".0") for value in self.numbers)
        return f"{self.kind}:{numbers}" if numbers else self.kind

    @property
    def varies(self) -> bool:
        """Whether the factor depends on the length."""
        return self.kind != "constant"


def parse_schedule(text: str) -> Schedule:
    """Read ``constant:1``, ``log:0.5``, ``yarn:8K``, ``llama4:0.1,8192`` or ``sqrt-log``.

    Raises:
        ArgumentError: no such schedule, or its numbers are missing, surplus or out of range.
    """
    kind, _, rest = text.strip().lower().partition(":")
    parts = rest.split(",") if rest else []
    if kind not in _KINDS or len(parts) != len(_KINDS[kind].names):
        msg = f"schedule must be one of {', '.join(_forms())}. Got {text[:40]!r}."
        raise ArgumentError(msg)
    numbers = []
    for name, part in zip(_KINDS[kind].names, parts, strict=True):
        try:
            numbers.append(float(parse_length(part) if name == "L" else part))
        except ValueError as error:
            what = "a length such as 8K" if name == "L" else "a number"
            msg = f"{name} of {_form(kind)} must be {what}. Got {part[:40]!r}."
            raise ArgumentError(msg) from error
    return Schedule(kind, tuple(numbers))


@dataclass(frozen=True)
class _Kind:
    names: tuple[str, ...]  # L is a length, every other letter a factor
    rounded: Callable[..., Any]
    ball: Callable[..., Any]


def _yarn_ball(n: int, trained: float) -> Any:
    return arb(1) if n <= trained else (arb(_YARN_SLOPE) * (arb(n) / arb(trained)).log() + 1) ** 2


_KINDS = {
    "constant": _Kind(("C",), constant, lambda _n, c: arb(c)),
    "log": _Kind(("C",), log_length, lambda n, c: arb(c) * arb(n).log()),
    "sqrt-log": _Kind((), sqrt_log, lambda n: (2 * arb(n).log()).sqrt()),
    "yarn": _Kind(("L",), yarn, _yarn_ball),
    "llama4": _Kind(
        ("A", "L"), llama4, lambda n, a, step: 1 + arb(a) * arb(1 + n // int(step)).log()
    ),
}

CONSTANT = Schedule()
"""No schedule: the factor 1 at every length."""


def _form(kind: str) -> str:
    names = ",".join(_KINDS[kind].names)
    return f"{kind}:{names}" if names else kind


def _forms() -> list[str]:
    return [_form(kind) for kind in _KINDS]
