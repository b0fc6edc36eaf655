"""Write tests/data/logits.json: logits of the real attention modules at a few hidden states.

    python tests/golden/logits.py [NAME ...]       # needs the dependency group `golden`

For every checkpoint in tests/data, layer and head: the logits of the last of six tokens at
POSITIONS against all six, before any mask. Hidden states come from `directions` through the
model's own norm. Run it again whenever checkpoints are made anew; names keep all other lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from real import Real, last_row

DATA = Path(__file__).resolve().parents[1] / "data"
POSITIONS = [0, 1, 5, 17, 29, 30]


def directions(width: int) -> np.ndarray:
    """Six fixed vectors of no particular structure, shape (6, width)."""
    return np.sin(1.0 + np.arange(len(POSITIONS) * width) ** 1.5).reshape(len(POSITIONS), width)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    names = sys.argv[1:]
    record = json.loads((DATA / "logits.json").read_text())["logits"] if names else {}
    for folder in sorted(p for p in DATA.iterdir() if (p / "config.json").is_file()):
        if names and folder.name not in names:
            continue
        real = Real.open(folder)
        rows = []
        for layer in range(real.layers):
            states = real.states(layer, torch.from_numpy(directions(real.width))).unsqueeze(0)
            rotation = real.rotation(layer, torch.tensor([POSITIONS]))
            with torch.no_grad():
                rows.append(last_row(real.call(layer, states, rotation))[0].tolist())
        record[folder.name] = rows
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(rows)}" for name, rows in sorted(record.items())
    )
    (DATA / "logits.json").write_text(
        f'{{"positions":{json.dumps(POSITIONS)},\n"logits":{{\n{lines}\n}}}}\n'
    )
    print(f"{len(names or record)} checkpoints")


if __name__ == "__main__":
    main()
