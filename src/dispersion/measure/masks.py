"""A model's masks without the square of the length: made, read and recognised in blocks of queries.

transformers makes a mask by a function of its own choosing and hands the result to every layer. A
`LazyMask` stands in for it: it keeps how the mask is made, and makes the rows that are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.masking_utils import eager_mask

BLOCK = 512  # queries whose rows of a mask exist at one time
HIDES = -1e4  # additive masks at or below this hide a key


@dataclass(eq=False)
class LazyMask:
    """The mask of all queries, as transformers' function for it would make it.

    Attributes:
        options: arguments of that function.
        shape, dtype: those of the mask that is not made, for models that look.
    """

    options: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        sizes = self.options
        return sizes["batch_size"], 1, sizes["q_length"], sizes["kv_length"]

    @property
    def dtype(self) -> Any:
        return self.options.get("dtype", torch.float32)

    def rows(self, start: int, stop: int) -> Any:
        """Shape (batch, 1, stop - start, keys), additive."""
        begin = self.options.get("q_offset", 0) + start
        return eager_mask(**{**self.options, "q_length": stop - start, "q_offset": begin})


def make_mask(*, whole: bool, **options: Any) -> Any:
    """What transformers is given for its mask: None where it would skip it.

    Args:
        whole: make it at once.
        options: as transformers passes them.
    """
    if whole:
        return eager_mask(**options)
    lazy = LazyMask(options)
    # A bidirectional mask that hides nothing is skipped, whatever the rows.
    return None if lazy.rows(0, 1) is None else lazy


def rows_of(mask: Any, start: int, stop: int, keys: slice) -> Any:
    """A part of a mask, of either kind, for the model's own attention function."""
    if mask is None:
        return None
    if isinstance(mask, LazyMask):
        return mask.rows(start, stop)[..., keys]
    return mask[:, :, start:stop, keys]


def what_is_seen(mask: Any, n: int) -> dict[str, Any] | str:
    """The mask as arguments of `layer_statistics`, or why it is not one.

    Causal masks and windows are recognised, being faster; any other takes a boolean table of
    queries by keys.
    """
    if mask is None:
        return {"causal": False}
    if tuple(mask.shape[:3]) != (1, 1, n) or mask.dtype == torch.bool:
        return f"has a {mask.dtype} mask of shape {tuple(mask.shape)}"
    first, last, count = (np.zeros(n, np.int64) for _ in range(3))
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        seen = _seen(mask, rows.start, rows.stop, n)
        if seen is None:
            return "adds a bias to its logits through the mask"
        first[rows] = seen.argmax(1)
        last[rows] = n - 1 - seen[:, ::-1].argmax(1)
        count[rows] = seen.sum(1)
    places = np.arange(n)
    if (count == last - first + 1).all():  # without gaps
        width = int(count[-1])
        causal = (last == places).all()
        if causal and (first == 0).all():
            return {"causal": True}
        if causal and (first == np.maximum(places - width + 1, 0)).all():
            return {"causal": True, "window": width}
        if (count == n).all():
            return {"causal": False}
        ends = np.minimum(places + width, n), np.maximum(places - width + 1, 0)
        if (last + 1 == ends[0]).all() and (first == ends[1]).all():
            return {"causal": False, "window": width}
    table = [_seen(mask, at, min(at + BLOCK, n), n) for at in range(0, n, BLOCK)]
    return {"causal": False, "mask": np.concatenate(table)}


def _seen(mask: Any, start: int, stop: int, n: int) -> Any:
    """Boolean rows of the mask; None where it adds something else."""
    table = rows_of(mask, start, stop, slice(0, n))[0, 0].detach().to(torch.float32).cpu().numpy()
    hidden = table <= HIDES
    return None if table[~hidden].any() else ~hidden
