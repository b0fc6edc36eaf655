"""Write tests/data/logits.json: logits of the real attention modules at a few hidden states.

    python tests/golden/logits.py        # needs the dependency group `golden`

For every checkpoint in tests/data, layer and head: the logits of the last of six tokens at
POSITIONS against all six, before any mask. Hidden states come from `directions` through the
model's own norm. Run it again whenever the checkpoints are made anew.
"""

from __future__ import annotations

import json
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
    record = {}
    for folder in sorted(p for p in DATA.iterdir() if (p / "config.json").is_file()):
        real = Real.open(folder)
        rows = []
        for layer in range(real.layers):
            if layer not in real.attending:
                rows.append([])
                continue
            states = real.states(layer, torch.from_numpy(directions(real.width))).unsqueeze(0)
            rotation = real.rotation(layer, torch.tensor([POSITIONS]))
            with torch.no_grad():
                rows.append(last_row(real.call(layer, states, rotation))[0].tolist())
        record[folder.name] = rows
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(rows)}" for name, rows in record.items())
    (DATA / "logits.json").write_text(
        f'{{"positions":{json.dumps(POSITIONS)},\n"logits":{{\n{lines}\n}}}}\n'
    )
    print(f"{len(record)} checkpoints")


if __name__ == "__main__":
    main()
