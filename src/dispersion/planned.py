"""A head that does not exist yet, and what a plan says about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.schedules import CONSTANT, Schedule

if TYPE_CHECKING:
    from dispersion.enclosure import Estimate
    from dispersion.verdict import Retrieval, Target

Norm = Literal["headwise", "layerwise", "l2", "none"]
Quantity = Literal["gain", "sigma", "temperature", "log_factor", "head_dim"]

WIDEST = 2**14
RETRIEVALS: tuple[Retrieval, ...] = ("one", "any")


@dataclass(frozen=True)
class PlannedHead:
    """The numbers that decide how sharp a head can be.

    With z the product of a query and a key times `scale`, the softmax gets
    cap·tanh(schedule(n)·z/cap)/temperature, or schedule(n)·z/temperature without a cap, and the
    sink logit as it is. No biases are added to queries or keys.

    Attributes:
        head_dim: width of queries and keys.
        norm: QK norm. "headwise" and "layerwise" leave a root mean square of 1 over a head's
            queries (keys), or over those of all heads; "l2" leaves unit vectors; "none" nothing.
        gain: largest product of a query gain and the key gain of the same coordinate; with rotary
            positions, of the same rotated pair.
        heads, key_heads: heads of the layer, for layerwise norm and its comparison with headwise;
            key_heads is `heads` where left out, and must divide it.
        scale: factor on the logits; 1/√head_dim where left out, but 1 for "l2".
        sigma: norm "none" only: the largest singular value of the joint matrix of queries and
            keys, scale included, which is the largest logit and half the largest spread; with
            rotary positions that of its cover.
        soft_cap: the cap, or None.
        sink: logit of a learned sink, 0 for softmax-off-by-one, or None.
        window: sliding window in tokens, or None.
        schedule: factor on logits at each length.
        temperature: divides the logits, after the cap.
        rank: how many directions queries use, all alike; head_dim where left out.

    Raises:
        ArgumentError: a number is out of its range, missing, or without meaning for this norm.
    """

    head_dim: int
    norm: Norm = "headwise"
    gain: Enclosure | float = 1.0
    heads: int | None = None
    key_heads: int | None = None
    scale: float | None = None
    sigma: float | None = None
    soft_cap: float | None = None
    sink: float | None = None
    window: int | None = None
    schedule: Schedule = CONSTANT
    temperature: float = 1.0
    rank: int | None = None

    def __post_init__(self) -> None:
        _whole("head_dim", self.head_dim, WIDEST)
        if self.norm not in get_args(Norm):
            msg = f"norm must be one of {', '.join(get_args(Norm))}. Got {self.norm!r}."
            raise ArgumentError(msg)
        _whole("rank", self.rank, self.head_dim, "head_dim")
        _whole("window", self.window, 2**53)
        _whole("heads", self.heads, WIDEST)
        _positive("scale", self.scale)
        _positive("soft_cap", self.soft_cap)
        _positive("temperature", self.temperature)
        gain = self.gain
        ends = (gain.lower, gain.upper) if isinstance(gain, Enclosure) else (gain,)
        if not all(0 <= end < math.inf for end in ends):
            msg = f"gain must be finite and 0 or more: give absolute values. Got {self.gain}."
            raise ArgumentError(msg)
        if self.sink is not None and not math.isfinite(self.sink):
            msg = f"sink must be a finite logit; leave it out where there is none. Got {self.sink}."
            raise ArgumentError(msg)
        self._check_heads()
        self._check_sigma()

    def _check_heads(self) -> None:
        if self.norm == "layerwise" and self.heads is None:
            msg = "heads is needed with norm layerwise: all heads share one norm. Got none."
            raise ArgumentError(msg)
        if self.key_heads is not None:
            if self.heads is None:
                msg = f"key_heads goes with heads. Got key_heads={self.key_heads} alone."
                raise ArgumentError(msg)
            _whole("key_heads", self.key_heads, self.heads, "heads")
            if self.heads % self.key_heads:
                msg = f"key_heads must divide heads. Got {self.key_heads} of {self.heads}."
                raise ArgumentError(msg)
        if self.heads is not None and self.norm in ("l2", "none"):
            msg = f"heads matters only to norm headwise or layerwise. Got norm {self.norm}."
            raise ArgumentError(msg)

    def _check_sigma(self) -> None:
        if self.norm != "none":
            if self.sigma is not None:
                msg = f"sigma goes with norm none; a norm decides it. Got norm {self.norm}."
                raise ArgumentError(msg)
            return
        if self.sigma is None or not 0 <= self.sigma < math.inf:
            msg = (
                "sigma must be given with norm none, finite and 0 or more (or give the spread, "
                f"twice sigma): nothing else limits the logits. Got {self.sigma}."
            )
            raise ArgumentError(msg)
        if self.scale is not None or self.gain != 1.0:
            msg = "scale and gain are part of sigma with norm none; leave them out."
            raise ArgumentError(msg)

    @property
    def directions(self) -> int:
        """The rank, head_dim where none was given."""
        return self.head_dim if self.rank is None else self.rank

    @property
    def groups(self) -> int:
        """Key heads of the layer."""
        return self.key_heads or self.heads or 1


@dataclass(frozen=True)
class LengthPlan:
    """What a planned head can do at one length. Ceilings are proved upper bounds, rounded up.

    Attributes:
        target: the length and the coefficient asked for.
        multiplier: the schedule's factor.
        spread: the largest spread of a row as the softmax sees it, in logits (upper).
        one_ceiling: of the share of one token (T1; T7 with a sink; T8 with a cap).
        any_ceiling: of the share that every token of a context can get (T12, T13, T13′, and
            one_ceiling). With a soft cap it is at least ½.
        log_capacity: log N in nats, the least of T13 and T13′ where that is proved (upper). With a
            soft cap it counts only for coefficients of ½ or more.
        capacity: N itself (upper), inf where float64 cannot hold it.
        flat_estimate: T13′ where it is not proved; an upper bound on log N if it holds.
        retrievable: how many tokens of one context, however long, can get the coefficient, each by
            a query for it (upper; T12, T13, T13′); inf past 2^53, and with a soft cap below ½.
        entropy_floor: of a row in nats (lower, T3); None with a sink, which voids it.
        one_ruled_out, any_ruled_out: whether the coefficient is proved out of reach.
    """

    target: Target
    multiplier: Enclosure
    spread: float
    one_ceiling: float
    any_ceiling: float
    log_capacity: float
    capacity: float
    flat_estimate: Estimate | None
    retrievable: float
    entropy_floor: float | None
    one_ruled_out: bool
    any_ruled_out: bool


@dataclass(frozen=True)
class Need:
    """What one number of the head would have to be, all else as planned.

    Attributes:
        quantity: the number: gain, sigma (norm "none"), temperature, log_factor (C of the schedule
            ``log:C`` in place of the planned one) or head_dim.
        retrieval: for one token or any token.
        meets: the smallest value (for a temperature, the largest) found that is not ruled out;
            None where every value is.
        ruled_out: the value next to it that is proved not to do, and with it all beyond; None
            where no value is ruled out.
    """

    quantity: Quantity
    retrieval: Retrieval
    meets: float | None
    ruled_out: float | None


@dataclass(frozen=True)
class NormComparison:
    """Headwise and layerwise QK norm for the same layer (T11). All logits are upper bounds.

    Logits are before schedule, cap and temperature; every bound is attained with unit gains.

    Attributes:
        heads, key_heads: of the layer.
        headwise: largest |logit| of any head under headwise norm.
        layerwise: largest |logit| of one head under layerwise norm, alone in taking the norm.
        mean: largest mean of |logit| over heads, one query token and one key token: the same
            for both norms.
        layerwise_mean: the largest mean under layerwise norm where each head picks a key token.
        headwise_plan, layerwise_plan: one such head at the longest length.
    """

    heads: int
    key_heads: int
    headwise: float
    layerwise: float
    mean: float
    layerwise_mean: float
    headwise_plan: LengthPlan
    layerwise_plan: LengthPlan


@dataclass(frozen=True)
class HeadPlan:
    """The answers for a planned head.

    Attributes:
        head: the head asked about.
        largest_logit: largest |logit| before schedule, cap and temperature; all singular values of
            the joint matrix are at most this (upper).
        retrievals: what was asked for: one token, any token or both.
        lengths: one entry per length and coefficient, in rising order.
        longest: per retrieval, the largest length at which the longest target's coefficient is not
            ruled out, inf where none is; empty where the schedule depends on the length, since
            ceilings may then rise again.
        needs: what the longest length's target takes, one number changed at a time.
        norms: the comparison of norms, where heads are known.
    """

    head: PlannedHead
    largest_logit: float
    retrievals: tuple[Retrieval, ...]
    lengths: tuple[LengthPlan, ...]
    longest: dict[Retrieval, float]
    needs: tuple[Need, ...]
    norms: NormComparison | None


def _whole(name: str, value: int | None, most: int, most_name: str = "") -> None:
    if value is None:
        return
    if isinstance(value, bool) or not float(value).is_integer() or not 1 <= value <= most:
        limit = f"{most_name} ({most})" if most_name else f"{most}"
        msg = f"{name} must be a whole number from 1 to {limit}. Got {value}."
        raise ArgumentError(msg)


def _positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        msg = f"{name} must be positive and finite. Got {value}."
        raise ArgumentError(msg)
