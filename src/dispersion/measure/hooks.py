"""A transformers model whose own forward pass feeds the statistics, layer by layer.

The model runs as it is; its attention function is replaced, through transformers' interface for
that, by one that measures the queries and keys it is handed and then calls the model's own eager
function, a block of queries at a time. The eager weights of the last query check the measurement: a
layer whose statistics do not describe them is refused by name.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface

from dispersion.errors import UnsupportedError
from dispersion.measure.layer import layer_statistics
from dispersion.measure.masks import make_mask, rows_of, what_is_seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.measure.results import LayerStatistics

NAME = "dispersion_measure"
BLOCK = 512  # queries whose eager weights exist at one time, at most
WEIGHTS = 2**24  # eager weights that exist at one time
PLAIN = {"position_ids", "cache_position", "s_aux", "position_embeddings", "input_ids"}
AGREE = {4: 1e-3, 8: 1e-3, 2: 0.05}  # of coefficients, by bytes of the model's numbers


@dataclass
class Recorder:
    """What one forward pass collects.

    Attributes:
        options: arguments of `layer_statistics` for every layer (spans, first, positions …).
        layers: statistics by layer index, in the order in which the layers ran.
        whole_masks: hand the model masks of all queries by all keys, for models that compute with
            their masks; otherwise they are made a block of queries at a time.
        masks: what was found out of every mask, by its id; the mask is kept, so that its id stays
            its own.
    """

    options: dict[str, Any] = field(default_factory=dict)
    layers: dict[int, LayerStatistics] = field(default_factory=dict)
    whole_masks: bool = False
    masks: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)


_active: list[Recorder] = []


@contextlib.contextmanager
def recording(model: Any, recorder: Recorder) -> Iterator[None]:
    """Measure every attention layer that the model runs inside this context.

    Raises:
        UnsupportedError: the model does not take its attention function from transformers'
            interface, or a layer does what these statistics do not describe.
    """
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(NAME)
    except (ValueError, AttributeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200]
        msg = f"model {model.config.model_type!r} takes no other attention function: {reason}"
        raise UnsupportedError(msg) from None
    _active.append(recorder)
    try:
        with torch.no_grad():
            yield
    finally:
        _active.pop()
        model.set_attn_implementation(before)


def _measure(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, Any]:
    """In the place of an attention function: measure, then do what the model's eager one does."""
    kind = type(module).__name__
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    index = getattr(module, "layer_idx", None)
    recorder = _active[-1]
    index = len(recorder.layers) if index is None else int(index)
    if eager is None:
        _refuse(kind, index, "has no eager attention function to compare with")
    if hasattr(getattr(module, "experts", None), "router"):
        _refuse(kind, index, "has queries of whichever expert a router picks for a token")
    unknown = [n for n, v in options.items() if isinstance(v, torch.Tensor) and n not in PLAIN]
    if unknown:
        _refuse(kind, index, f"adds {unknown[0]} to its logits or weights")
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        _refuse(kind, index, "was not handed one whole context")
    if index in recorder.layers:
        _refuse(kind, index, "attends more than once in a forward pass")
    if id(attention_mask) not in recorder.masks:
        found = what_is_seen(attention_mask, query.shape[2])
        if isinstance(found, str):
            _refuse(kind, index, found)
        recorder.masks[id(attention_mask)] = attention_mask, found
    seen = recorder.masks[id(attention_mask)][1]
    scale = options.get("scaling")
    sinks = options.get("s_aux")
    measured = layer_statistics(
        _numpy(query[0]),
        _numpy(key[0]),
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        soft_cap=options.get("softcap"),
        sinks=None if sinks is None else _numpy(sinks.reshape(-1)),
        **seen,
        **recorder.options,
    )
    recorder.layers[index] = measured
    run = _Eager(module, eager, query, key, value, attention_mask, seen, options)
    outputs, weights = run.all()
    _compare(measured, weights, query.element_size(), kind, index)
    return outputs, None


def attend(
    module: Any, eager: Any, query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]
) -> tuple[Any, Any]:
    """A model's own attention of a whole context in blocks: outputs, and the last ones' weights."""
    seen = what_is_seen(mask, query.shape[2])
    if isinstance(seen, str):
        msg = f"{type(module).__name__} {seen}"
        raise ValueError(msg)
    return _Eager(module, eager, query, key, value, mask, seen, options).all()


@dataclass
class _Eager:
    """The model's own attention function over blocks of queries."""

    module: Any
    function: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    seen: dict[str, Any]
    options: dict[str, Any]

    def all(self) -> tuple[Any, Any]:
        """Outputs of all queries, and the weights of the last ones."""
        n, heads = self.query.shape[2], self.query.shape[1]
        block = max(1, min(BLOCK, WEIGHTS // (heads * self.key.shape[2])))
        starts = range(0, n, block)
        last, weights = self.rows(starts[-1], n)
        if (fused := self.fused(len(starts))) is not None:
            # A long causal context: what torch's fused kernel says, if the eager function agrees.
            size = self.query.element_size()
            if torch.allclose(fused[:, starts[-1] :], last, rtol=AGREE[size], atol=AGREE[size]):
                return fused, weights
        outputs = [self.rows(start, start + block)[0] for start in starts[:-1]]
        return torch.cat([*outputs, last], dim=1), weights

    def rows(self, start: int, stop: int) -> tuple[Any, Any]:
        """One block, without the keys that a recognised mask hides from all of it."""
        end = stop if self.seen["causal"] else self.key.shape[2]
        keys = slice(max(0, start - self.seen.get("window", end) + 1), end)
        output, weights = self.function(
            self.module,
            self.query[:, :, start:stop],
            self.key[:, :, keys],
            self.value[:, :, keys],
            rows_of(self.mask, start, stop, keys),
            **self.options,
        )
        return output, weights

    def fused(self, blocks: int) -> Any:
        """Outputs of transformers' fused attention; None where it would not do or not pay."""
        plain = not any(self.options.get(name) is not None for name in ("softcap", "s_aux"))
        if blocks < 3 or self.seen != {"causal": True} or not plain:
            return None
        options = {name: self.options[name] for name in ("scaling",) if name in self.options}
        parts = self.module, self.query, self.key, self.value, None
        return sdpa_attention_forward(*parts, is_causal=True, **options)[0]


def _refuse(kind: str, index: int, reason: str) -> NoReturn:
    msg = f"layer {index} ({kind}) {reason}, so it cannot be measured."
    raise UnsupportedError(msg)


def _numpy(tensor: Any) -> NDArray[np.float32]:
    """Float32 holds bfloat16 and float16 exactly; float64 is rounded."""
    array: NDArray[np.float32] = tensor.detach().to(torch.float32).cpu().numpy()
    return array


def _compare(measured: LayerStatistics, weights: Any, size: int, kind: str, index: int) -> None:
    """Hold the last query's largest coefficients against the model's own."""
    if weights is None:  # some eager functions return them only when asked
        _refuse(kind, index, "returns no eager weights to compare with")
    own = _numpy(weights[0, :, -1].amax(-1))
    last = int(np.argmax(measured.positions))
    difference = float(np.max(np.abs(measured.chosen.coefficient[:, last] - own)))
    if not difference <= AGREE[size]:
        _refuse(
            kind,
            index,
            f"has eager weights that its queries and keys do not explain (the last query's largest "
            f"coefficient differs by {difference:.3g})",
        )


def _make_mask(**options: Any) -> Any:
    """In the place of a function that makes masks."""
    return make_mask(whole=_active[-1].whole_masks, **options)


AttentionInterface.register(NAME, _measure)
AttentionMaskInterface.register(NAME, _make_mask)
