"""Replay hidden states through a real attention module and print its last row.

    python tests/golden/replay.py CHECKPOINT LAYER HEAD states.npz

states.npz (or .npy, .json) holds the inputs of the attention module, shape (n, width): what its
own projections read, after any norm in front of it. The row is the last query's, at positions
0..n-1 unless the file also holds integer `positions`, shape (n,). If these are 0..n-1 in another
order, the mask is that of the tokens in their own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from biases import DISTANCES, SHAW, WAVES
from real import Real, last_row, probabilities

WHOLE = 1024  # up to here the whole n×n attention runs too and must agree with the last row


def replay(
    folder: Path, layer: int, head: int, states: Any, positions: Any = None
) -> dict[str, Any]:
    """Logits and coefficients of the last query in float64 throughout, and in float32.

    Keys the mask hides have logit None and coefficient 0.
    """
    torch.set_default_dtype(torch.float64)
    states = torch.as_tensor(np.asarray(states, dtype=np.float64))
    out: dict[str, Any] = {}
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        real = Real.open(folder, exact=name == "float64", dtype=dtype)
        where = usual = real.where_in(layer, len(states))
        if positions is not None:
            where = torch.as_tensor(np.asarray(positions))
        moved = not where.equal(usual) and where.sort().values.equal(usual)
        rotation = real.rotation(layer, where.unsqueeze(0))
        inputs = states.to(dtype).unsqueeze(0)
        with torch.no_grad():
            n = real.keys(layer, states)
            call = real.call(layer, inputs, rotation)
            logits = last_row(call)[0, head]
            seen = real.everywhere(n)[layer] if moved else None
            seen = visible(real, layer, n) if seen is None else seen[where[-1], where]
            row = probabilities(logits.masked_fill(~seen, -torch.inf), call, head)
            if n <= WHOLE:
                mask = real.masks(n)[layer]
                if moved and mask is not None:
                    mask = mask[:, :, where][..., where]
                if moved and real.kind in (*DISTANCES, *SHAW, *WAVES, "umt5"):  # they ask for none
                    order = where.argsort()
                    rotation = real.rotation(layer, where[order].unsqueeze(0))
                    weights = real.call(layer, inputs[:, order], rotation, mask, "eager")
                    weights = weights[0, head, where[-1], where]
                else:
                    weights = real.call(layer, inputs, rotation, mask, "eager")[0, head, -1]
                if hasattr(real.attention(layer), "sinks") and "_swa" in real.config.model_type:
                    # Its sink scales the output and is not in the weights.
                    weights = weights * row.sum()
                torch.testing.assert_close(weights, row, rtol=0, atol=64 * torch.finfo(dtype).eps)
        out[name] = {
            "coefficients": row.tolist(),
            "logits": [float(x) if s else None for x, s in zip(logits, seen, strict=True)],
        }
    return {**out["float64"], "float32": out["float32"]}


def visible(real: Real, layer: int, n: int) -> torch.Tensor:
    """Keys the last query sees: the model's own mask, or past WHOLE its window's extent."""
    if n <= WHOLE:
        return real.visible(n)[layer]
    short = real.visible(WHOLE)[layer]
    seen = torch.ones(n, dtype=torch.bool)
    if not short.all():
        seen[: n - int(short.sum())] = False
    elif (window := getattr(real.attention(layer), "sliding_window", None)) and window < n:
        seen[: n - window] = False
    return seen


def read(path: Path) -> tuple[Any, Any]:
    if path.suffix == ".json":
        data = json.loads(path.read_text())
        return (data, None) if isinstance(data, list) else (data["states"], data.get("positions"))
    loaded = np.load(path)
    if isinstance(loaded, np.ndarray):
        return loaded, None
    key = "states" if "states" in loaded else next(k for k in loaded if k != "positions")
    return loaded[key], loaded.get("positions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("layer", type=int)
    parser.add_argument("head", type=int)
    parser.add_argument("states", type=Path)
    args = parser.parse_args()
    print(json.dumps(replay(args.checkpoint, args.layer, args.head, *read(args.states))))


if __name__ == "__main__":
    main()
