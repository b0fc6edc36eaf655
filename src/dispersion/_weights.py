"""From weights and gains, stacked or not, to the Gram matrices that `training` works on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat
import numpy as np

from dispersion import _surrogate as smooth
from dispersion._arrays import Array, _floating
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Heads(NamedTuple):
    """Heads in normal form: logits are factor · ⟨A u, C v⟩ for unit u, v, and rotations."""

    xp: Any
    query: Array  # Gram matrices, shape (heads, head_dim, head_dim)
    key: Array
    gains: tuple[Array, Array] | None  # the diagonals of A and C where both are diagonal
    factor: Array  # shape (heads,)
    pairs: NDArray[np.intp]
    single: bool

    def pair_largest(self, gains: Array) -> Array:
        """|gains|, or the larger one of each rotated pair."""
        size = self.xp.abs(gains)
        partner = np.arange(gains.shape[-1])
        partner[self.pairs[:, 0]], partner[self.pairs[:, 1]] = self.pairs[:, 1], self.pairs[:, 0]
        return self.xp.maximum(size, _taken(self.xp, size, partner, -1))

    def balanced(self) -> tuple[Array, Array, Array]:
        """Gram matrices in a basis where scales are a good choice, and which scales are one.

        Rotated pairs share a scale. On coordinates that no position turns any positive definite
        block is allowed; there the basis makes both sides diagonal and equal.
        """
        xp, size = self.xp, int(self.query.shape[-1])
        groups = np.eye(size)
        groups[self.pairs[:, 0], self.pairs[:, 1]] = 1.0
        groups[self.pairs[:, 1], self.pairs[:, 0]] = 1.0
        shared = _like(xp, groups, self.query)
        rest = np.setdiff1d(np.arange(size), self.pairs)
        if not len(rest):
            return self.query, self.key, shared
        place = np.eye(size)[rest]
        down, up = _like(xp, place, self.query), _like(xp, place.T, self.query)
        turned = _like(xp, np.eye(size) - place.T @ place, self.query)
        blocks = (_between(xp, down, m, up) for m in (self.query, self.key))
        forward, backward = (
            turned + _between(xp, up, m, down) for m in smooth.balance(xp, *blocks)
        )
        return (
            _between(xp, forward, self.query, xp.matrix_transpose(forward)),
            _between(xp, backward, self.key, xp.matrix_transpose(backward)),
            shared,
        )


def read_heads(
    wq: Array | None,
    wk: Array | None,
    head_dim: int | None,
    gain: Array | None,
    query_gain: Array | None,
    key_gain: Array | None,
    scale: Array | None,
    rotary_pairs: Any,
    input_norm: float | None,
) -> Heads:
    """Normal form of the heads that the arguments of `training.spread` describe."""
    xp, arrays = _arrays(
        wq=wq, wk=wk, gain=gain, query_gain=query_gain, key_gain=key_gain, scale=scale
    )
    single = head_dim is None and not any(w is not None and w.ndim == 3 for w in (wq, wk))
    queries = _side(xp, "wq", "query_gain", arrays, head_dim, input_norm)
    keys = _side(xp, "wk", "key_gain", arrays, head_dim, input_norm)
    size = queries.head_dim
    if keys.head_dim != size:
        msg = f"wq and wk must have one head_dim. Got {size} and {keys.head_dim}."
        raise ArgumentError(msg)
    if queries.heads % keys.heads:
        msg = f"key heads must divide query heads. Got {queries.heads} and {keys.heads}."
        raise ArgumentError(msg)
    group = np.arange(queries.heads) // (queries.heads // keys.heads)

    def shared(value: Array) -> Array:
        return _taken(xp, value, group, 0)

    scales = 1 / math.sqrt(size) if scale is None else xp.abs(arrays["scale"])
    gains = None
    if queries.gains is not None and keys.gains is not None:
        gains = (queries.gains, shared(keys.gains))
    return Heads(
        xp,
        queries.gram,
        shared(keys.gram),
        gains,
        queries.size * shared(keys.size) * scales,
        _pairs(rotary_pairs, size),
        single,
    )


class _Side(NamedTuple):
    heads: int
    head_dim: int
    gram: Array
    gains: Array | None
    size: Array  # shape (heads,), the factor taken out of the Gram matrices and gains


def _side(
    xp: Any,
    weight_name: str,
    gain_name: str,
    arrays: dict[str, Array],
    head_dim: int | None,
    input_norm: float | None,
) -> _Side:
    weight, gain, outer = arrays[weight_name], arrays["gain"], arrays[gain_name]
    heads = 1
    if weight is not None:
        weight = _stacked(xp, weight_name, weight, head_dim)
        heads, head_dim = int(weight.shape[0]), int(weight.shape[1])
    if outer is not None:
        return _gain_side(xp, gain_name, outer, heads, head_dim, weight is None)
    if weight is None:
        msg = f"{weight_name} must be given where there is no {gain_name}. Got None."
        raise ArgumentError(msg)
    width = int(weight.shape[-1])
    if gain is not None:
        if gain.shape != (width,):
            msg = f"gain must have shape (width,)=({width},). Got {tuple(gain.shape)}."
            raise ArgumentError(msg)
        weight = weight * gain
    gram, size = smooth.gram(xp, weight)
    radius = math.sqrt(width) if input_norm is None else input_norm
    return _Side(heads, int(weight.shape[1]), gram, None, size * radius)


def _gain_side(
    xp: Any, name: str, gain: Array, heads: int, head_dim: int | None, alone: bool
) -> _Side:
    """A side whose QK norm makes every direction reachable: A = √norm_width · diag(gain)."""
    length = math.prod(gain.shape)
    head_dim = length if head_dim is None else head_dim
    if alone and length % head_dim == 0:
        heads = length // head_dim
    if gain.ndim != 1 or length not in (head_dim, heads * head_dim):
        msg = (
            f"{name} must have shape (head_dim,)=({head_dim},) or (heads · head_dim,)="
            f"({heads * head_dim},). Got {tuple(gain.shape)}."
        )
        raise ArgumentError(msg)
    if length == head_dim:
        gain = xp.broadcast_to(gain, (heads, head_dim))
    else:
        gain = xp.reshape(gain, (heads, head_dim))
    gram = _like(xp, np.eye(head_dim), gain) * (gain * gain)[..., None, :]
    return _Side(heads, head_dim, gram, gain, xp.ones_like(gain[:, 0]) * math.sqrt(length))


def _stacked(xp: Any, name: str, weight: Array, head_dim: int | None) -> Array:
    shape = tuple(int(x) for x in weight.shape)
    if len(shape) == 2:
        size = shape[0] if head_dim is None else head_dim
        if size > 0 and shape[0] % size == 0 and 0 not in shape:
            return xp.reshape(weight, (shape[0] // size, size, shape[1]))
    elif len(shape) == 3 and 0 not in shape and head_dim in (None, shape[1]):
        return weight
    msg = (
        f"{name} must have shape (heads · head_dim, width) or (heads, head_dim, width). "
        f"Got {shape} and head_dim={head_dim}."
    )
    raise ArgumentError(msg)


def _arrays(**values: Array | None) -> tuple[Any, dict[str, Array]]:
    """Bring what is given to one library and one floating dtype."""
    given = [x for x in values.values() if array_api_compat.is_array_api_obj(x)]
    foreign = [x for x in given if not array_api_compat.is_numpy_array(x)]
    if not given:
        msg = "wq or query_gain must be an array. Got neither."
        raise ArgumentError(msg)
    xp = array_api_compat.array_namespace(*(foreign or given))
    dtype = _floating(xp, foreign or given)
    like = xp.astype((foreign or given)[0], dtype)

    def convert(value: Array | None) -> Array | None:
        if value is None:
            return None
        if array_api_compat.is_array_api_obj(value) and type(value) is not np.ndarray:
            return xp.astype(value, dtype)  # asarray would drop torch's gradient
        return _like(xp, np.asarray(value), like)

    return xp, {name: convert(value) for name, value in values.items()}


def _like(xp: Any, values: NDArray[Any], array: Array) -> Array:
    """Constants in the dtype and on the device of an array."""
    if array_api_compat.is_jax_array(array) or array_api_compat.is_numpy_array(array):
        return xp.asarray(values, dtype=array.dtype)
    return xp.asarray(values, dtype=array.dtype, device=array_api_compat.device(array))


def _taken(xp: Any, array: Array, indices: NDArray[np.intp], axis: int) -> Array:
    if array_api_compat.is_torch_array(array):
        place = xp.asarray(indices, device=array_api_compat.device(array))
        return xp.take(array, place, axis=axis)
    return xp.take(array, xp.asarray(indices), axis=axis)


def _between(xp: Any, left: Array, matrix: Array, right: Array) -> Array:
    return smooth.matmul(xp, left, smooth.matmul(xp, matrix, right))


def _pairs(rotary_pairs: Any, head_dim: int) -> NDArray[np.intp]:
    if rotary_pairs is None:
        return np.zeros((0, 2), dtype=np.intp)
    j = np.arange(head_dim // 2, dtype=np.intp)
    if isinstance(rotary_pairs, str) and rotary_pairs == "half":
        return np.stack([j, j + head_dim // 2], axis=1)
    if isinstance(rotary_pairs, str) and rotary_pairs == "interleaved":
        return np.stack([2 * j, 2 * j + 1], axis=1)
    pairs = np.asarray(rotary_pairs)
    flat = pairs.ravel()
    if (
        pairs.ndim != 2
        or pairs.shape[1] != 2
        or pairs.dtype.kind not in "iu"
        or len(set(flat.tolist())) != len(flat)
        or (len(flat) and not 0 <= flat.min() <= flat.max() < head_dim)
    ):
        msg = (
            'rotary_pairs must be "half", "interleaved" or an array (pairs, 2) that names each '
            f"coordinate below head_dim={head_dim} at most once. Got {rotary_pairs!r}."
        )
        raise ArgumentError(msg)
    return pairs.astype(np.intp)
