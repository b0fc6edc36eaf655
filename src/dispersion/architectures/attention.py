"""One attention layer described by tensor names, and the heads that come of it.

Families differ in names, layouts and norms. They say so in an `Attention`; turning it into heads
in normal form (theory.md, section 2) is the same for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.clipping import clipped_head
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import ONE, BallImage, Head
from dispersion.mapped import mapped_ball
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.reach import QKNorm, Reach
from dispersion.rows import scaled_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.embedding import EmbeddingInput
    from dispersion.enclosure import Enclosure
    from dispersion.growth import Growth
    from dispersion.position_bias import Bias
    from dispersion.rotary import Rotary

    Vector = NDArray[np.float64]
    Vectors = tuple[Vector | None, Vector | None]


@dataclass(frozen=True)
class Norm:
    """A norm's tensors: `gain` and `bias` are names or None; the factor is weight + gain_offset.

    `stacked` says that a QK norm's gain and bias have one row for each head, `listed` that they are
    one tensor for each head, whose index stands for `{head}` in the names.
    """

    kind: Literal["rms", "layer"]
    gain: str | None
    bias: str | None = None
    gain_offset: float = 0.0
    stacked: bool = False
    listed: bool = False

    def of_head(self, head: int) -> Norm:
        """This norm with the tensors of one head."""
        if not self.listed:
            return self
        gain, bias = (n and n.replace("{head}", str(head)) for n in (self.gain, self.bias))
        return replace(self, gain=gain, bias=bias, listed=False)


@dataclass(frozen=True)
class Projection:
    """Where one side's rows lie.

    Attributes:
        weight: tensor of shape [out, in], or [in, out] where `transposed`.
        bias: tensor of shape [out], or None.
        heads: number of heads of this side.
        first: the side's first output within the tensor (fused projections).
        outputs: all outputs of the tensor; heads·head_dim where it is not fused.
        stride: outputs from one head's first to the next one's; None for head_dim.
        starts: each head's first output where no `first` and `stride` say it, or None.
        transposed: whether outputs are columns.
        norm: the QK norm behind the projection, or None.
    """

    weight: str
    bias: str | None
    heads: int
    first: int = 0
    outputs: int | None = None
    stride: int | None = None
    starts: tuple[int, ...] | None = None
    transposed: bool = False
    norm: Norm | None = None


@dataclass(frozen=True)
class Through:
    """A linear map between the input norm and the projections.

    Attributes:
        weight: tensor of shape [width, inner].
        bias: tensor of shape [width], or None.
        inner: coordinates of the norm.
    """

    weight: str
    bias: str | None
    inner: int


@dataclass(frozen=True)
class Attention:
    """One layer's attention.

    Attributes:
        module: the attention's tensor-name prefix in the file.
        input_norm: the norm whose output the projections read, or None.
        layerwise: whether a QK norm treats all heads together.
        eps: the ε of the QK norms.
        input_factor: factor between the norm and the projections; its square is in `scale`.
        sinks: tensor of one learned sink logit for each query head, or None.
        rotated_factor: encloses the factor of the rotated coordinates' share of a logit, where
            other coordinates do not turn and `scale` cannot hold it.
        clip: to which size coordinates of queries and keys are clamped before they turn, or None.
        known_inputs: whether the ways from hidden states to points of the balls are those of
            `Reach`; else nothing is witnessed.
        position_bias: from a query head's index to what positions add to its logits, or None.
        embedding: the token embedding that enters this layer, or None for layers after the first.
        key_input: the norm whose output keys read where they come from another stack
            (cross-attention, which `causal` then has nothing to say about) or from another layer;
            None for `input_norm`.
        shares_keys: whether `key_input` is another layer's, whose keys stand at the same positions.
        through: the map between `input_norm` and the projections, or None.
        The other fields are those of `Head`.
    """

    module: str
    layer: int
    width: int
    head_dim: int
    query: Projection
    key: Projection
    input_norm: Norm | None
    scale: Enclosure
    rotary: Rotary | None = None
    layerwise: bool = False
    eps: float = 0.0
    input_factor: float = 1.0
    soft_cap: float | None = None
    window: int | None = None
    causal: bool = True
    sinks: str | None = None
    rotated_factor: Enclosure = ONE
    position_bias: Callable[[int], Bias] | None = None
    growth: Growth | None = None
    clip: float | None = None
    chunked: bool = False
    known_inputs: bool = True
    embedding: EmbeddingInput | None = None
    key_input: Norm | None = None
    shares_keys: bool = False
    through: Through | None = None

    def __post_init__(self) -> None:
        if self.through is not None:
            plain = self.key_input is None and self.input_factor == 1
            normed = self.query.norm or self.key.norm or self.input_norm is None
            assert plain
            assert not normed
        if self.clip is not None and self.rotated_factor != ONE:
            # The factor would come before the clamp, which models apply first.
            msg = (
                f"clip_qkv={self.clip:g} and a factor on cos and sin of partly rotated heads are "
                "not supported together."
            )
            raise UnsupportedError(msg)

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the logits depend on, and the shape it must have."""
        shapes: dict[str, tuple[int, ...]] = {}
        for side in (self.query, self.key):
            out = side.outputs or side.heads * self.head_dim
            shapes[side.weight] = (self.width, out) if side.transposed else (out, self.width)
            if side.bias is not None:
                shapes[side.bias] = (out,)
            size = side.heads * self.head_dim if self.layerwise else self.head_dim
            if side.norm is None:
                continue
            for head in range(side.heads if side.norm.listed else 1):
                found = _norm_shapes(side.norm.of_head(head), size)
                if side.norm.stacked:
                    found = {name: (side.heads, *shape) for name, shape in found.items()}
                shapes |= found
        if self.sinks is not None:
            shapes[self.sinks] = (self.query.heads,)
        if self.through is not None:
            shapes[self.through.weight] = (self.width, self.through.inner)
            if self.through.bias is not None:
                shapes[self.through.bias] = (self.width,)
        inner = self.width if self.through is None else self.through.inner
        for norm in (self.input_norm, self.key_input):
            shapes |= _norm_shapes(norm, inner)
        return shapes

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """The layer's heads, as the function `heads` yields them."""
        return heads(checkpoint, self)


def _norm_shapes(norm: Norm | None, width: int) -> dict[str, tuple[int, ...]]:
    names = [] if norm is None else [norm.gain, norm.bias]
    return {name: (width,) for name in names if name is not None}


def check_shapes(checkpoint: Checkpoint, attention: Attention) -> None:
    """Compare the file's header with what the config asks for; reads no values.

    Raises:
        CheckpointError: a tensor is missing or has another shape; the message names it.
        UnsupportedError: a tensor is stored in integers or in floats that need a scale.
    """
    for name, shape in attention.tensors.items():
        info = checkpoint.info(name)
        checkpoint.check(name)
        got = info.shape
        if got != shape:
            msg = (
                f"tensor {shown(name)} must have shape {shape} to fit config.json. Got {got}; "
                "the file and its config.json do not belong together."
            )
            raise CheckpointError(msg)


def heads(checkpoint: Checkpoint, attention: Attention) -> Iterator[tuple[int, int, Head]]:
    """Yield (head, kv_head, Head), reading one head's rows at a time.

    Raises:
        CheckpointError: a weight is not finite; the message names the tensor and the index.
    """
    norm = _vectors(checkpoint, attention.input_norm)
    before_keys = attention.key_input or attention.input_norm
    key_side = norm if attention.key_input is None else _vectors(checkpoint, before_keys)
    sinks = (
        None
        if attention.sinks is None
        else to_float64(checkpoint.read(attention.sinks), tensor=attention.sinks)
    )
    group = attention.query.heads // attention.key.heads
    for kv_head in range(attention.key.heads):
        key = _ball(checkpoint, attention, attention.key, kv_head, before_keys, key_side)
        key_norm = _qk_norm(checkpoint, attention, attention.key, kv_head)
        for head in range(kv_head * group, (kv_head + 1) * group):
            built = Head(
                query=_query(checkpoint, attention, head, norm),
                key=key,
                scale=attention.scale,
                rotary=attention.rotary,
                soft_cap=attention.soft_cap,
                sink=None if sinks is None else float(sinks[head]),
                window=attention.window,
                chunked=attention.chunked,
                causal=attention.causal,
                self_attention=attention.key_input is None or attention.shares_keys,
                bias=None if attention.position_bias is None else attention.position_bias(head),
                growth=attention.growth,
                reach=_reach(
                    checkpoint,
                    attention,
                    (norm, key_side),
                    _qk_norm(checkpoint, attention, attention.query, head),
                    key_norm,
                )
                if attention.known_inputs
                else None,
            )
            if attention.clip is not None:
                built = clipped_head(built, attention.clip)
            yield head, kv_head, built
        del key


def _vectors(checkpoint: Checkpoint, norm: Norm | None) -> Vectors:
    """A norm's stored gain and bias."""
    names = (None, None) if norm is None else (norm.gain, norm.bias)
    gain, bias = (
        None if name is None else to_float64(checkpoint.read(name), tensor=name) for name in names
    )
    return gain, bias


def _outputs(attention: Attention, side: Projection, head: int) -> slice:
    start = side.first + head * (side.stride or attention.head_dim)
    if side.starts is not None:
        start = side.starts[head]
    return slice(start, start + attention.head_dim)


def _rows(checkpoint: Checkpoint, attention: Attention, side: Projection, head: int) -> Vector:
    """One head's rows in float64, shape (head_dim, width)."""
    part = _outputs(attention, side, head)
    if side.transposed:
        columns = checkpoint.read(side.weight)[:, part].T
        return to_float64(columns, tensor=f"{side.weight} (transposed)", first_row=part.start)
    rows = checkpoint.read(side.weight, part)
    return to_float64(rows, tensor=side.weight, first_row=part.start)


def _ball(
    checkpoint: Checkpoint,
    attention: Attention,
    side: Projection,
    head: int,
    before: Norm | None,
    vectors: Vectors,
) -> BallImage | None:
    # Read even where a QK norm makes the rows immaterial, so that a nan in them is found.
    weight = _rows(checkpoint, attention, side, head)
    part = _outputs(attention, side, head)
    bias = None
    if side.bias is not None:
        bias = to_float64(checkpoint.read(side.bias, part), tensor=side.bias, first_row=part.start)
    if side.norm is not None:
        gain, norm_bias = _vectors(checkpoint, side.norm.of_head(head))
        if side.norm.stacked:
            gain = None if gain is None else gain[head]
            norm_bias = None if norm_bias is None else norm_bias[head]
        start = head * attention.head_dim if attention.layerwise else 0
        return qk_norm_ball(
            gain,
            kind=side.norm.kind,
            head_dim=attention.head_dim,
            norm_width=side.heads * attention.head_dim if attention.layerwise else None,
            start=start,
            gain_offset=side.norm.gain_offset,
            bias=norm_bias,
        )
    if before is None:
        return None
    if attention.through is not None:
        return mapped_ball(
            weight,
            *_map(checkpoint, attention.through),
            norm=before.kind,
            gain=vectors[0],
            norm_bias=vectors[1],
            bias=bias,
        )
    return projection_ball(
        weight,
        norm=before.kind,
        gain=vectors[0],
        gain_offset=before.gain_offset,
        norm_bias=vectors[1],
        bias=bias,
    )


def _map(checkpoint: Checkpoint, through: Through) -> tuple[Vector, Vector | None]:
    """The map's stored matrix and bias."""
    shift = None
    if through.bias is not None:
        shift = to_float64(checkpoint.read(through.bias), tensor=through.bias)
    return to_float64(checkpoint.read(through.weight), tensor=through.weight), shift


def _query(
    checkpoint: Checkpoint,
    attention: Attention,
    head: int,
    norm: Vectors,
) -> BallImage | None:
    """One head's queries, the factor of the rotated coordinates included."""
    ball = _ball(checkpoint, attention, attention.query, head, attention.input_norm, norm)
    if ball is None or attention.rotary is None:
        return ball
    return scaled_rows(ball, attention.rotary.pairs.ravel(), attention.rotated_factor)


def _qk_norm(
    checkpoint: Checkpoint, attention: Attention, side: Projection, head: int
) -> QKNorm | None:
    if side.norm is None:
        return None
    part = _outputs(attention, side, head)
    if attention.layerwise:
        part = slice(side.first, side.first + side.heads * attention.head_dim)
    bias: NDArray[Any] | None = None if side.bias is None else checkpoint.read(side.bias, part)
    return QKNorm(
        weight=checkpoint.read(side.weight, part),
        bias=bias,
        start=head * attention.head_dim if attention.layerwise else 0,
        eps=attention.eps,
        centred=side.norm.kind == "layer",
    )


def _reach(
    checkpoint: Checkpoint,
    attention: Attention,
    vectors: tuple[Vectors, Vectors],
    query_norm: QKNorm | None,
    key_norm: QKNorm | None,
) -> Reach:
    factor = attention.input_factor
    reach = _states(attention.width, attention.input_norm, vectors[0], factor)
    if attention.through is not None:
        reach = _mapped(checkpoint, attention, reach)
    if attention.key_input is None:
        return replace(reach, query_norm=query_norm, key_norm=key_norm)
    keys = _states(attention.width, attention.key_input, vectors[1], factor)
    return replace(reach, query_norm=query_norm, keys=replace(keys, key_norm=key_norm))


def _mapped(checkpoint: Checkpoint, attention: Attention, reach: Reach) -> Reach:
    """The states behind the map, from those behind the norm."""
    assert attention.through is not None
    matrix, shift = _map(checkpoint, attention.through)
    bias = shift if reach.bias is None else matrix @ reach.bias + (0.0 if shift is None else shift)
    radius = math.sqrt(attention.through.inner)
    return replace(reach, through=matrix, bias=bias, radius=radius)


def _states(width: int, norm: Norm | None, vectors: Vectors, factor: float) -> Reach:
    """The hidden states behind a norm, times a factor, or any where there is none."""
    if norm is None:
        return Reach(width, math.inf)
    gain, bias = vectors
    return Reach(
        width=width,
        radius=math.sqrt(width) * factor,
        gain=None if gain is None else gain + norm.gain_offset,
        bias=bias,
        centred=norm.kind == "layer",
    )
