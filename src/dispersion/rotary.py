"""Rotary position embeddings: which coordinates turn, and how fast.

A token at position m has its query and key rotated by R(mθ), R(φ) = [[cos φ, −sin φ],
[sin φ, cos φ]] on every pair of coordinates. The logit of a query at m and a key at n is then
qᵀ R((n−m)θ) k, so a key `lag` tokens *before* the query enters as ``rotate(k, -lag)``: with the
opposite sign a bound over real offsets can fall below an attained value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.text import shown
from dispersion.config import positive
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.frequencies import KINDS, ONE, Scaling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from dispersion.enclosure import Enclosure

LAYER_TYPES = ("full_attention", "sliding_attention")
WIDEST = 2**16  # coordinates of a head; real ones have at most some hundreds


@dataclass(frozen=True, eq=False)
class Rotary:
    """The rotation that positions apply to queries and keys.

    Attributes:
        head_dim: size of a head.
        frequencies: float64, shape (P,), radians per position of each rotated pair. Where they
            depend on the context length these are the ones within the trained length.
        pairs: shape (P, 2), the two coordinates of each rotated pair.
        attention_factor: encloses a, the factor of cos and sin (yarn, longrope). The logit of the
            rotated coordinates gets a²; `rotate` leaves it out.
        kind: the rope type, such as "default" or "llama3".
        rescale: for a context length, the frequencies in force there; None where it is no matter.
        placed: whether positions are places in an image, whose angles are no multiples of lags.
            Then bounds hold over any angles, and no context is built as a witness.
    """

    head_dim: int
    frequencies: NDArray[np.float64]
    pairs: NDArray[np.intp]
    attention_factor: Enclosure = ONE
    kind: str = "default"
    rescale: Callable[[int], NDArray[np.float64]] | None = field(default=None, repr=False)
    placed: bool = False

    def __post_init__(self) -> None:
        count = len(self.frequencies)
        if self.frequencies.ndim != 1 or self.pairs.shape != (count, 2):
            msg = (
                f"pairs must have shape (pairs, 2)=({count}, 2), one row per frequency. "
                f"Got {self.pairs.shape}."
            )
            raise ArgumentError(msg)
        flat = self.pairs.ravel()
        if len(set(flat.tolist())) != flat.size or flat.size > self.head_dim:
            msg = "pairs must name each coordinate at most once. Got a coordinate twice."
            raise ArgumentError(msg)
        if flat.size and not 0 <= flat.min() <= flat.max() < self.head_dim:
            msg = f"pairs must lie in 0..{self.head_dim - 1}. Got {flat.min()}..{flat.max()}."
            raise ArgumentError(msg)

    @property
    def length_dependent(self) -> bool:
        """Whether the frequencies change with the context length (dynamic, longrope)."""
        return self.rescale is not None

    @cached_property
    def unrotated(self) -> NDArray[np.intp]:
        """Indices of the coordinates that no position turns."""
        return np.setdiff1d(np.arange(self.head_dim), self.pairs)

    def reversed(self) -> Rotary:
        """The rotation by −mθ at position m."""
        rescale = self.rescale
        return replace(
            self,
            frequencies=-self.frequencies,
            rescale=None if rescale is None else lambda length: -rescale(length),
        )

    def frequencies_at(self, length: int) -> NDArray[np.float64]:
        """Frequencies in force in a context of `length` tokens, shape (P,)."""
        return self.frequencies if self.rescale is None else self.rescale(length)

    def angles(self, offsets: ArrayLike, *, length: int | None = None) -> NDArray[np.float64]:
        """offset·θ in radians, shape (*offsets.shape, P)."""
        theta = self.frequencies if length is None else self.frequencies_at(length)
        return np.asarray(np.asarray(offsets, dtype=np.float64)[..., None] * theta)

    def rotate(
        self, x: ArrayLike, offsets: ArrayLike, *, length: int | None = None
    ) -> NDArray[np.float64]:
        """R(offset·θ) x, without the attention factor; the inverse is ``rotate(x, -offsets)``.

        `x` has shape (..., head_dim); `offsets` broadcasts against the rest, so a vector and n
        offsets give (n, head_dim). For a key, `offsets` are key minus query positions: −lag.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape[-1:] != (self.head_dim,):
            msg = f"x must have shape (..., head_dim)=(..., {self.head_dim}). Got {x.shape}."
            raise ArgumentError(msg)
        return self.turn(x, *self.turns(offsets, length=length))

    def turns(
        self, offsets: ArrayLike, *, length: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cosines and sines of the offsets' angles, shape (*offsets.shape, P), for `turn`."""
        angle = self.angles(offsets, length=length)
        return np.cos(angle), np.sin(angle)

    def turn(
        self, x: NDArray[np.float64], cos: NDArray[np.float64], sin: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """`rotate` by angles whose cosines and sines are known; −sin turns back."""
        shape = np.broadcast_shapes(x.shape[:-1], cos.shape[:-1])
        out = np.array(np.broadcast_to(x, (*shape, self.head_dim)))
        first, second = self.pairs.T
        out[..., first] = cos * x[..., first] - sin * x[..., second]
        out[..., second] = sin * x[..., first] + cos * x[..., second]
        return out


def rotary(
    frequencies: ArrayLike,
    head_dim: int,
    *,
    interleaved: bool = False,
    rotated: int | None = None,
    attention_factor: Enclosure = ONE,
    kind: str = "default",
    rescale: Callable[[int], NDArray[np.float64]] | None = None,
) -> Rotary:
    """A `Rotary` over the first `rotated` coordinates (all by default).

    Half-split pairs are (j, j + rotated/2), interleaved ones (2j, 2j + 1). Fewer frequencies than
    pairs leave the last pairs unrotated.
    """
    theta = np.asarray(frequencies, dtype=np.float64)
    size = head_dim if rotated is None else rotated
    j = np.arange(len(theta), dtype=np.intp)
    pairs = np.stack([2 * j, 2 * j + 1] if interleaved else [j, j + size // 2], axis=1)
    return Rotary(head_dim, theta, pairs, attention_factor, kind, rescale)


@dataclass(frozen=True)
class RopeRule:
    """What a family's code does where its config is silent.

    Attributes:
        theta: base where the config states none.
        local_key: key of the base on sliding layers in configs without `rope_parameters`, whose
            scaling then holds on full layers only; None where all layers turn alike.
        local_theta: base on sliding layers where the config states none.
        interleaved: whether pairs are (2j, 2j+1).
        theta_within: base where `rope_parameters` is there without one, if another.
    """

    theta: float = 10000.0
    local_key: str | None = None
    local_theta: float = 10000.0
    interleaved: bool = False
    theta_within: float | None = None


PLAIN = RopeRule()


def rotary_from_config(
    config: Mapping[str, Any],
    layer_type: str | None,
    head_dim: int,
    rule: RopeRule = PLAIN,
) -> Rotary | None:
    """The rotation of a layer, or None where positions turn nothing.

    Reads `rope_parameters` (flat, or nested by layer type) and the older `rope_theta`,
    `rope_scaling`, `partial_rotary_factor` and `rope_local_base_freq`.

    Raises:
        CheckpointError: a value is missing or malformed; the message names the key.
        UnsupportedError: the rope type is unknown.
    """
    if head_dim > WIDEST:
        msg = f"head_dim in config.json must be at most {WIDEST} where heads turn. Got {head_dim}."
        raise CheckpointError(msg)
    parameters = _parameters(config, layer_type, rule)
    if parameters is None:
        return None
    kind = parameters["rope_type"]
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        msg = f"rope_type {shown(repr(kind))} is not supported. Supported: {known}."
        raise UnsupportedError(msg)
    where = Scaling.where
    theta = positive(parameters, "rope_theta", where=where)
    partial = positive(parameters, "partial_rotary_factor", 1.0, where=where)
    rotated = int(head_dim * min(partial, 1.0))
    if kind == "proportional":
        rotated = head_dim
    if partial > 1 or rotated % 2 or not rotated:
        msg = (
            "head_dim · partial_rotary_factor must be even and at most head_dim. "
            f"Got head_dim={head_dim}, partial_rotary_factor={partial:g}."
        )
        raise CheckpointError(msg)
    with np.errstate(all="ignore"):
        scaled = KINDS[kind](Scaling(config, parameters, theta, rotated))
    if not np.all(np.isfinite(scaled.frequencies)):
        msg = f"rope_theta in {where} must give finite frequencies. Got {theta}."
        raise CheckpointError(msg)
    found = rotary(
        scaled.frequencies,
        head_dim,
        interleaved=rule.interleaved,
        rotated=rotated,
        attention_factor=scaled.attention_factor,
        kind=kind,
        rescale=scaled.rescale,
    )
    if not scaled.still:
        return found
    turning = np.setdiff1d(np.arange(len(found.pairs)), scaled.still)
    return replace(found, frequencies=found.frequencies[turning], pairs=found.pairs[turning])


def _parameters(
    config: Mapping[str, Any], layer_type: str | None, rule: RopeRule
) -> dict[str, Any] | None:
    """One flat dictionary with rope_type and rope_theta; None where positions turn nothing."""
    stated = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    for key, value in (("rope_parameters", stated), ("rope_scaling", scaling)):
        if not isinstance(value, dict):
            msg = f"{key} in config.json must be an object. Got {shown(repr(value))}."
            raise CheckpointError(msg)
    if rule.local_key is not None and "type" in scaling and "rope_type" not in scaling:
        msg = (
            "rope_scaling in config.json must name its rope_type: whether type alone scales this "
            f"model depends on the version of its code. Got {shown(repr(scaling))}."
        )
        raise UnsupportedError(msg)
    local = rule.local_key is not None and layer_type == "sliding_attention"
    theta = rule.local_theta if local else rule.theta
    nested = any(key in stated for key in LAYER_TYPES)
    if nested:
        if layer_type is None or layer_type not in stated:
            msg = (
                f"rope_parameters in config.json is nested by layer type and must have "
                f"{layer_type or 'no layer types for this model'}. Got {shown(', '.join(stated))}."
            )
            raise CheckpointError(msg)
        entry = stated[layer_type]
        if not isinstance(entry, dict) and entry is not None:
            msg = (
                f"{layer_type} of rope_parameters in config.json must be an object or null. "
                f"Got {shown(repr(entry))}."
            )
            raise CheckpointError(msg)
        if entry is None and rule.local_key is None:
            return None
        found = dict(entry or {})
        if rule.local_key is not None:
            if not local:
                found.update(scaling)
            # A layer type without a base takes that beside the layer types, its own key's if local.
            beside = rule.local_key if local else "rope_theta"
            if config.get(beside) is not None and not (local and beside == "rope_theta"):
                theta = config[beside]
        # The modelling code looks this one key up beside the layer types, not inside them.
        found["truncate"] = stated.get("truncate")
    elif stated and rule.local_key is not None:
        msg = (
            "rope_parameters in config.json must be nested by layer type for this model. "
            f"Got {shown(', '.join(stated))}; move them under {' and '.join(LAYER_TYPES)}."
        )
        raise CheckpointError(msg)
    else:
        # Sliding layers of such families keep the plain rotation when full layers are scaled.
        found = {} if local else dict(scaling or stated)
        if config.get("rope_parameters") is not None and rule.theta_within is not None:
            theta = rule.theta_within
        stated_theta = config.get(rule.local_key or "rope_theta" if local else "rope_theta")
        theta = theta if stated_theta is None else stated_theta
        original = config.get("original_max_position_embeddings")
        if original is not None:
            found["original_max_position_embeddings"] = original
    kind = found.get("rope_type") or found.get("type") or "default"
    found["rope_type"] = "longrope" if kind == "su" else kind
    if found.get("rope_theta") is None:
        found["rope_theta"] = theta
    if found.get("partial_rotary_factor") is None:
        found["partial_rotary_factor"] = config.get("partial_rotary_factor")
    return found
