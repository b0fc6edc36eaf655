"""Write tests/data/logits.json: logits of the real attention modules at a few hidden states.

    python tests/golden/logits.py [NAME ...]      # needs the dependency group `golden`

For every checkpoint in tests/data, layer and head: the logits of the last of six tokens at
POSITIONS against all six, before any mask. Hidden states come from `directions` through the
model's own norm. `make.py` runs it for the checkpoints that it makes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from real import Real, last_row

DATA = Path(__file__).resolve().parents[1] / "data"
POSITIONS = [0, 1, 5, 17, 29, 30]


def directions(width: int) -> np.ndarray:
    """Six fixed vectors of no particular structure, shape (6, width)."""
    return np.sin(1.0 + np.arange(len(POSITIONS) * width) ** 1.5).reshape(len(POSITIONS), width)


def logits(folder: Path) -> list[Any]:
    """Rows by layer and head."""
    torch.set_default_dtype(torch.float64)
    real = Real.open(folder)
    rows: list[Any] = []
    for layer in range(real.layers):
        if layer not in real.attending:
            rows.append([])
            continue
        states = real.states(layer, torch.from_numpy(directions(real.raw_width(layer)))).unsqueeze(
            0
        )
        rotation = real.rotation(layer, torch.tensor([POSITIONS]))
        with torch.no_grad():
            rows.append(last_row(real.call(layer, states, rotation))[0].tolist())
    return rows


def checkpoints(names: list[str]) -> list[Path]:
    """The folders of these names, or of all checkpoints."""
    every = sorted(p.parent.name for p in DATA.glob("*/config.json"))
    return [DATA / name for name in names or every]


def update(names: list[str]) -> None:
    """Record checkpoints anew, all where none is named, and leave the others as they are."""
    path = DATA / "logits.json"
    record = json.loads(path.read_text())["logits"] if names else {}
    record |= {folder.name: logits(folder) for folder in checkpoints(names)}
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(record[name])}" for name in sorted(record))
    path.write_text(f'{{"positions":{json.dumps(POSITIONS)},\n"logits":{{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    update(sys.argv[1:])
