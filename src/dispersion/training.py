"""Spread and capacity while a head is trained: differentiable stand-ins for the certificates.

Every function works on JAX arrays (under jit, grad and vmap), on torch tensors with autograd and on
NumPy arrays, in the dtype it is given (at least float32), and never forms a width × width matrix.

**Monitors and regularisers, not certificates.** Results are rounded and proved of nothing; an audit
of the trained weights is. Against `dispersion.spread.spread_bound` and the singular values of
`dispersion.spectrum`, over random, low-rank, graded and rotated heads of head_dim 16 to 128:

- Without rotation both are the quantities of T9 and T13 themselves: equal to the certificate up to
  rounding, on either side of it.
- QK norm on both sides has a closed form, with rotation too: the same.
- With rotation both are upper bounds on what the head can do, up to rounding, like the certificate,
  from scales that are merely good. Spreads lay 0.1 % below to 2.3 % above the certificate (up to
  head_dim^(1/257), about 2 %, belongs to a smooth norm). Log capacities lay up to 0.8 % above, and
  below where the audit settles for a looser cover of the keys: past 40 nats, and for partly
  rotated heads.

Gradients are first derivatives only; second ones would see frozen eigenvectors. They are exact
where singular values are simple or enter symmetrically (the capacity), subgradients where the
largest ones coincide, and 0 in directions that vanish: a head with W_q = 0 gets no push. With
rotation the scales are held fixed, which near their optimum changes little: slopes along the
gradient were 6 % off for spreads and 0.5 % for capacities. In float32, singular values below about
0.5 % of the largest are lost in rounding, and have no gradient.

For heads whose inputs pass an RMSNorm or another norm cap and whose projections and norms have no
biases. Weights have the layout [out, in]. Lengths are in logits, capacities in nats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion import _surrogate as smooth
from dispersion import capacity, row
from dispersion._weights import read_heads

if TYPE_CHECKING:
    from dispersion._arrays import Array
    from dispersion._weights import Heads

__all__ = ["capacity_shortfall", "log_capacity", "singular_values", "spread", "spread_excess"]


def spread(
    wq: Array | None,
    wk: Array | None,
    *,
    head_dim: int | None = None,
    gain: Array | None = None,
    query_gain: Array | None = None,
    key_gain: Array | None = None,
    scale: Array | None = None,
    rotary_pairs: Any = None,
    input_norm: float | None = None,
    soft_cap: Array | None = None,
) -> Any:
    """How far the logits of one row can spread, as a differentiable number per head (T8-T10).

    Args:
        wq, wk: projection weights, shape (rows, width): one head, or with `head_dim` heads stacked
            along the rows; or shape (heads, head_dim, width). Fewer key heads than query heads are
            shared by equal groups: query head h reads key head h // (heads // key heads). None
            where QK norm on that side makes weights irrelevant and no heads need counting.
        head_dim: rows per head of stacked weights.
        gain: shape (width,), the multiplier of the RMSNorm in front, 1 + weight where the model
            adds 1; ones by default.
        query_gain, key_gain: multiplier of an RMS QK norm, shape (head_dim,) for one per head, or
            (heads · head_dim,) for one norm over all heads of that side. None for no QK norm.
        scale: factor on the logits, a number or shape (heads,); 1/√head_dim by default.
        rotary_pairs: "half", "interleaved" or an array (pairs, 2) of the coordinates that positions
            turn together, as `dispersion.rotary.Rotary.pairs`; None for no rotation.
        input_norm: largest 2-norm of an input before `gain`; √width, the RMSNorm's, by default.
        soft_cap: c of l = c·tanh(z/c), or None.

    Returns:
        Shape (heads,), or () for one head given as a matrix. See the module for the side it errs.

    Raises:
        ArgumentError: shapes that do not fit.
    """
    head = read_heads(wq, wk, head_dim, gain, query_gain, key_gain, scale, rotary_pairs, input_norm)
    xp = head.xp
    if head.gains is not None:
        query, key = head.gains
        product = xp.max(head.pair_largest(query) * head.pair_largest(key), axis=-1)
    elif not len(head.pairs):
        product = xp.max(smooth.joint_values(xp, head.query, head.key), axis=-1)
    else:
        query, key, groups = head.balanced()
        scales = smooth.spread_scales(xp, query, key, groups)
        product = smooth.scaled_product(xp, query, key, scales)
    result = _finished(head, 2 * head.factor * product)
    return result if soft_cap is None else row.capped_spread(result, soft_cap)


def singular_values(
    wq: Array | None,
    wk: Array | None,
    *,
    head_dim: int | None = None,
    gain: Array | None = None,
    query_gain: Array | None = None,
    key_gain: Array | None = None,
    scale: Array | None = None,
    rotary_pairs: Any = None,
    input_norm: float | None = None,
) -> Any:
    """The κ of AᵀC that bound any-token retrieval (T12, T13), shape (heads, head_dim), unsorted.

    With rotation those of a cover of the keys at all positions, chosen for a small capacity, for
    queries at one position. For `capacity.any_token_ceiling`. Arguments and errors as `spread`.
    """
    head = read_heads(wq, wk, head_dim, gain, query_gain, key_gain, scale, rotary_pairs, input_norm)
    xp = head.xp
    if head.gains is not None:
        query, key = head.gains
        values = xp.abs(query) * head.pair_largest(key)
    elif not len(head.pairs):
        values = smooth.joint_values(xp, head.query, head.key)
    else:
        query, key, groups = head.balanced()
        scales = smooth.capacity_scales(xp, query, key, groups, head.factor)
        values = smooth.scaled_values(xp, query, key, scales)
    return _finished(head, head.factor[..., None] * values)


def log_capacity(
    wq: Array | None,
    wk: Array | None,
    *,
    head_dim: int | None = None,
    gain: Array | None = None,
    query_gain: Array | None = None,
    key_gain: Array | None = None,
    scale: Array | None = None,
    rotary_pairs: Any = None,
    input_norm: float | None = None,
) -> Any:
    """Log N of T13, in nats, as a differentiable number per head: at most N/p tokens get p each.

    An audit takes the smaller of T13 and T13′, which for flat spectra lies a little lower. A soft
    cap does not change it. Arguments, shape and errors as `spread`.
    """
    return capacity.log_capacity(
        singular_values(
            wq,
            wk,
            head_dim=head_dim,
            gain=gain,
            query_gain=query_gain,
            key_gain=key_gain,
            scale=scale,
            rotary_pairs=rotary_pairs,
            input_norm=input_norm,
        )
    )


def capacity_shortfall(log_capacity: Array, target: Array) -> Any:
    """What log N lacks of a target, in nats, and 0 where it lacks nothing: a loss term.

    Any-token retrieval of n tokens with coefficient p each needs log N ≥ log(n·p). Reaching that
    is necessary, not sufficient.
    """
    return _excess(target, log_capacity)


def spread_excess(spread: Array, limit: Array) -> Any:
    """By how much a spread exceeds a limit, in logits, and 0 where it does not: a loss term.

    One token among n with coefficient p needs `dispersion.required_spread(n, p)`, so a limit below
    it keeps a head from ever being that sharp.
    """
    return _excess(spread, limit)


def _excess(value: Array, limit: Array) -> Any:
    difference = value - limit
    if isinstance(difference, (int, float)):
        return max(0.0, float(difference))
    return difference * (difference > 0)


def _finished(head: Heads, result: Array) -> Array:
    return result[0] if head.single else result
