"""A checkpoint under other tensor names: some files have no module around their attention."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint


def renamed(checkpoint: Checkpoint, pattern: str, replacement: str) -> Checkpoint:
    """The same tensors, each name with the first match of `pattern` replaced.

    Two names must not become one; the pattern matches what no other name holds.
    """
    names = {re.sub(pattern, replacement, name, count=1): name for name in checkpoint.names}
    infos = {new: replace(checkpoint.infos[old], name=new) for new, old in names.items()}

    def read(name: str, rows: slice | None) -> NDArray[Any]:
        return checkpoint.read(names[name], rows)

    def check(name: str) -> None:
        checkpoint.check(names[name])

    return replace(checkpoint, infos=infos, reader=read, checker=check)
