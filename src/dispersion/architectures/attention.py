"""One attention layer described by tensor names, and the heads that come of it.

Families differ in names, layouts and norms. They say so in an `Attention`; turning it into heads
in normal form (theory.md, section 2) is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import ONE, Head

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
        own_bias: whether that tensor is of this side alone, head by head, where `weight` is fused.
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
    own_bias: bool = False


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
        key_width: coordinates of what keys read, where it is not `width`.
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
    key_width: int | None = None
    through: Through | None = None

    def __post_init__(self) -> None:
        # Contexts are built of states of one width.
        assert self.key_width in (None, self.width) or not self.known_inputs
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
        key_width = self.key_width or self.width
        for side, width in ((self.query, self.width), (self.key, key_width)):
            out = side.outputs or side.heads * self.head_dim
            shapes[side.weight] = (width, out) if side.transposed else (out, width)
            if side.bias is not None:
                shapes[side.bias] = (side.heads * self.head_dim if side.own_bias else out,)
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
        shapes |= _norm_shapes(self.input_norm, inner)
        shapes |= _norm_shapes(self.key_input, self.key_width or inner)
        return shapes

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """The layer's heads, as attention_heads.py yields them."""
        from dispersion.architectures.attention_heads import heads

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
