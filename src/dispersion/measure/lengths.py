"""How a head's sharpness falls with length: the dispersion exponent, and what it predicts (T14).

Extrapolations of what was measured, with intervals; **estimates, never certificates**. They suppose
that log odds (or an entropy) go on falling (or rising) with log n much as they did over the longest
measured lengths. Check them against longer runs, beside the two baselines: a head that does not
disperse (exponent 0) and one that suffers the full theorem (exponent 1).
`figures/length_prediction.py` does that for two small models, and says where neither is beaten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dispersion.enclosure import Estimate
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

Quantity = Literal["log_odds", "entropy"]
RECENT = 4  # lengths, octaves as a rule, that a slope is taken from: shorter ones fall faster
# A part of the slope, since curves flatten: chosen on four documents of one model, where it does
# slightly better, and worse on another (figures/length_prediction.py).
DAMPED = {"log_odds": 0.5, "entropy": 0.7}


@dataclass(frozen=True)
class Exponent:
    """The dispersion exponent of one head with a confidence interval. An estimate.

    Attributes:
        value: γ = -d logit(p)/d log n, not clipped: 0 where the head keeps its sharpness, 1 where
            it disperses as equal logits would.
        lower, upper: ends of the interval, infinite where one run of two lengths gives none.
        level: its nominal confidence.
        units: "documents" where the interval is Student's over documents' own slopes; "lengths"
            where there was one document, and the interval takes its lengths for independent, which
            they are not quite: it is then too narrow.
    """

    value: Estimate
    lower: Estimate
    upper: Estimate
    level: float
    units: Literal["documents", "lengths"]

    def __str__(self) -> str:
        return f"{self.value} ({self.lower} to {self.upper}, {self.level:.0%} over {self.units})"


@dataclass(frozen=True)
class Prediction:
    """A statistic predicted at another length, for one more document of the same kind. Estimates.

    Attributes:
        length: n, in tokens.
        value: with the slope measured over the longest lengths, clipped to [0, 1].
        lower, upper: ends of an interval for one more document: Student's for how documents differ,
            widened to hold what no slope at all would give; the whole range of the statistic where
            there was one document.
        damped: with a part of that slope (`DAMPED`).
        constant: the baseline of exponent 0, the value at the longest measured length.
        dispersed: the baseline of exponent 1 from there.
    """

    length: int
    value: Estimate
    lower: Estimate
    upper: Estimate
    damped: Estimate
    constant: Estimate
    dispersed: Estimate


def dispersion_exponent(
    lengths: ArrayLike, log_odds: ArrayLike, *, level: float = 0.95
) -> Exponent:
    """Fit γ = -d logit(p)/d log n of one head to one run (T14).

    Args:
        lengths: shape (lengths,), n ≥ 2: numbers of unmasked keys.
        log_odds: shape (documents, lengths) or (lengths,): mean log(p/(1-p)) of the largest
            coefficient (or of a needle's) near that length, in each document; from
            `RowStatistics.log_odds`, never log odds of averaged coefficients.
        level: confidence of the interval.

    Raises:
        ArgumentError: fewer than two different lengths, shapes that do not fit, values not finite.
    """
    x, y = _table(lengths, log_odds, "log_odds")
    slopes = -_slopes(x, y)
    center = float(slopes.mean())
    _level(level)
    if len(y) > 1:
        half = _student(level, len(y) - 1) * float(slopes.std(ddof=1)) / math.sqrt(len(y))
        return _exponent(center, half, level, "documents")
    spare = len(x) - 2
    if spare < 1:
        return _exponent(center, math.inf, level, "lengths")
    left = y[0] - y[0].mean() + center * (x - x.mean())
    error = math.sqrt(float(left @ left) / spare / float(((x - x.mean()) ** 2).sum()))
    return _exponent(center, _student(level, spare) * error, level, "lengths")


def predict(
    lengths: ArrayLike,
    values: ArrayLike,
    length: int,
    *,
    quantity: Quantity = "log_odds",
    level: float = 0.95,
) -> Prediction:
    """Predict a statistic of one head at another length (T14). An estimate.

    From the value at the longest measured length, by the slope over the last `RECENT` lengths: in
    log odds, -γ clipped to [-1, 0]; in nats, clipped to [0, 1].

    Args:
        lengths: as for `dispersion_exponent`.
        values: shape (documents, lengths) or (lengths,): log odds of a coefficient or of a mass (of
            a sink, of a needle), or entropies in nats. Log odds of the *mean* share where the mean
            share is what is asked for.
        length: n of the prediction.
        quantity: "log_odds" gives a share, 1/(1+e^-value), falling as n^-γ in odds; "entropy"
            gives nats, rising by a slope in [0, 1] times log n.
        level: of the interval.

    Raises:
        ArgumentError: as `dispersion_exponent`, a length below 2, an unknown quantity.
    """
    if quantity not in ("log_odds", "entropy"):
        msg = f"quantity must be 'log_odds' or 'entropy'. Got {quantity!r}."
        raise ArgumentError(msg)
    if isinstance(length, bool) or int(length) != length or length < 2:
        msg = f"length must be a whole number of at least 2 tokens. Got {length}."
        raise ArgumentError(msg)
    x, y = _table(lengths, values, "values")
    _level(level)
    order = np.argsort(x)
    x, y = x[order], y[:, order]
    sign = -1.0 if quantity == "log_odds" else 1.0
    recent = slice(max(0, len(x) - RECENT), len(x))
    own = sign * _slopes(x[recent], y[:, recent])
    whole = float(np.clip(own.mean(), 0.0, 1.0))
    ahead = math.log(length)
    step = ahead - float(x[-1])
    last = float(y[:, -1].mean())
    center = last + sign * whole * step
    low = high = math.inf
    if len(y) > 1:
        wide = _student(level, len(y) - 1) * math.sqrt(1 + 1 / len(y))
        half = wide * float((y[:, -1] + sign * np.clip(own, -1.0, 2.0) * step).std(ddof=1))
        level_half = wide * float(y[:, -1].std(ddof=1))
        ends = [last + sign * slope * step for slope in (0.0, whole)]
        low = center - min(center - half, *(end - level_half for end in ends))
        high = max(center + half, *(end + level_half for end in ends)) - center

    def shown(value: float) -> Estimate:
        if quantity == "log_odds":
            return Estimate(_share(value))
        return Estimate(min(max(value, 0.0), ahead))

    return Prediction(
        length=int(length),
        value=shown(center),
        lower=shown(center - low),
        upper=shown(center + high),
        damped=shown(last + sign * DAMPED[quantity] * whole * step),
        constant=shown(last),
        dispersed=shown(last + sign * step),
    )


def _table(lengths: ArrayLike, values: ArrayLike, name: str) -> tuple[Floats, Floats]:
    n = np.asarray(lengths, dtype=np.float64)
    y = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if n.ndim != 1 or not (n >= 2).all() or np.isinf(n).any() or len(np.unique(n)) < 2:
        msg = f"lengths must hold at least two different numbers of 2 or more. Got {lengths!r:.60}."
        raise ArgumentError(msg)
    if y.ndim != 2 or y.shape[1] != len(n) or not len(y):
        msg = f"{name} must have shape (documents, {len(n)}), as lengths. Got {y.shape}."
        raise ArgumentError(msg)
    if not np.isfinite(y).all():
        msg = f"{name} must be finite: leave out documents where they are not."
        raise ArgumentError(msg)
    return np.log(n), y


def _level(level: float) -> None:
    if not 0 < level < 1:
        msg = f"level must lie strictly between 0 and 1. Got {level}."
        raise ArgumentError(msg)


def _slopes(x: Floats, y: Floats) -> Floats:
    """Least-squares slope of every document."""
    centered = x - x.mean()
    slopes: Floats = y @ centered / float(centered @ centered)
    return slopes


def _student(level: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + 0.5 * level, freedom))


def _share(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-min(value, 800.0)))
    grown = math.exp(max(value, -800.0))
    return grown / (1 + grown)


def _exponent(
    center: float, half: float, level: float, units: Literal["documents", "lengths"]
) -> Exponent:
    ends = Estimate(center - half), Estimate(center + half)
    return Exponent(Estimate(center), *ends, level, units)
