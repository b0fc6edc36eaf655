"""What an audit would read: from headers and the configuration alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dispersion.architectures import plan
from dispersion.auditing import _ask, _check_heads, _check_inputs, _open, _targets
from dispersion.token_inputs import skipped_for_tokens

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from dispersion.architectures import LayerPlan
    from dispersion.checkpoint import Checkpoint
    from dispersion.results import Refused, Skipped
    from dispersion.verdict import Retrieval, Target


@dataclass(frozen=True)
class TensorRead:
    """A tensor that an audit would read.

    Attributes:
        name, dtype, shape, file: as the file's header has them.
        nbytes: bytes it takes in the file.
        layer, module: the attention that it belongs to; of several, the first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str
    layer: int
    module: str


@dataclass(frozen=True)
class LayerRead:
    """An attention layer that an audit would check: `heads` of its `query_heads` heads."""

    layer: int
    module: str
    query_heads: int
    key_heads: int
    head_dim: int
    heads: int


@dataclass(frozen=True)
class DryRun:
    """What `audit` with the same arguments would read and check.

    Attributes:
        source, model, targets, skipped, refused, left_out: as in `Audit`.
        layers: the attention layers, in order.
        tensors: what would be read, each tensor once, in the order of the layers.
        checkpoint_bytes: bytes of all tensors of the checkpoint.
        provenance: version, format, inputs and, on the hub, commit.
    """

    source: str
    model: dict[str, Any]
    targets: tuple[Target, ...]
    layers: tuple[LayerRead, ...]
    tensors: tuple[TensorRead, ...]
    checkpoint_bytes: int
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Refused, ...] = ()
    left_out: tuple[tuple[int, str], ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Bytes of the tensors that would be read."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def heads(self) -> int:
        """Heads that would be checked."""
        return sum(layer.heads for layer in self.layers)

    @property
    def complete(self) -> bool:
        """Whether there is a head to check and nothing asked for is refused."""
        return self.heads > 0 and not self.refused


def dry_run(
    source: str | os.PathLike[str] | Mapping[str, Any],
    targets: Sequence[Target] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    coefficient: float = 0.5,
    retrieval: Retrieval = "one",
    sink_tokens: int = 0,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    offsets: str = "free",
    inputs: str = "ball",
) -> DryRun:
    """What `audit` would read and check; reads headers and the configuration, no weights.

    An audit may still fail or find heads unbounded where this tells nothing, since that takes the
    weights. Tensors count whole, also where only some heads are asked for.

    Args:
        source, targets, config, coefficient, retrieval, sink_tokens, layers, heads, offsets,
            inputs: as `audit` takes them.

    Raises:
        CheckpointError, UnsafeFileError: the checkpoint cannot be read or lies about itself.
        UnsupportedError: its family is not covered.
        ArgumentError: an argument breaks its rule.

    """
    _check_inputs(inputs, offsets)
    checkpoint, name = _open(source, config)
    found = plan(checkpoint, layers=None if layers is None else frozenset(layers))
    asked, left_out = _targets(targets, found, partial(_ask, coefficient, retrieval, sink_tokens))
    only = None if heads is None else frozenset(heads)
    _check_heads(only, found)
    read, skipped = found.layers, found.skipped
    if inputs == "vocabulary":
        read = tuple(layer for layer in read if layer.embedding is not None)
        skipped = skipped_for_tokens(found)
        for layer in read:
            assert layer.embedding is not None
            layer.embedding.check()
    return DryRun(
        source=name,
        model={"family": found.family, **found.model},
        targets=asked,
        layers=tuple(_layer(layer, only) for layer in read),
        tensors=tuple(_tensors(checkpoint, read, tables=inputs == "vocabulary")),
        checkpoint_bytes=sum(checkpoint.info(each).nbytes for each in checkpoint.names),
        skipped=skipped,
        refused=found.refused,
        left_out=left_out,
        provenance={
            "version": version("dispersion"),
            "format": checkpoint.format,
            "inputs": inputs,
            **checkpoint.origin,
        },
    )


def _layer(layer: LayerPlan, only: frozenset[int] | None) -> LayerRead:
    return LayerRead(
        layer=layer.layer,
        module=layer.module,
        query_heads=layer.query_heads,
        key_heads=layer.key_heads,
        head_dim=layer.head_dim,
        heads=sum(only is None or head in only for head in range(layer.query_heads)),
    )


def _tensors(
    checkpoint: Checkpoint, layers: Iterable[LayerPlan], *, tables: bool
) -> Iterable[TensorRead]:
    seen: set[str] = set()
    for layer in layers:
        names = layer.tensors
        if tables and layer.embedding is not None:
            names += layer.embedding.tables
        for name in names:
            if name in seen:
                continue
            seen.add(name)
            info = checkpoint.info(name)
            yield TensorRead(
                name, info.dtype, info.shape, info.nbytes, info.file, layer.layer, layer.module
            )
