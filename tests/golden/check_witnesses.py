"""Replay the package's own witnesses through the real attention modules.

    python tests/golden/check_witnesses.py [CHECKPOINT ...] [--lengths N ...]

For every head, `witness.inputs(n)` goes through the module of transformers that reads the same
file. The row must reach the claimed coefficient in float64 throughout, up to float64 rounding; in
the float64 and float32 modules up to what float32 moves a logit. It must also stay below the
certified ceiling, and the real norm in front of attention must be able to give those inputs.
Exits with 1 where any of this fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numbering import numbers
from real import Real, all_float64, last_row, probabilities, unit
from replay import visible

from dispersion import witness
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import open_checkpoint
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.head import Head
    from dispersion.reach import Reach

DATA = Path(__file__).resolve().parents[1] / "data"
MODULES = {  # name: (float64 throughout, dtype, the allowance's name in adversarial.json)
    "exact": (True, torch.float64, None),
    "float64": (False, torch.float64, "float32_casts"),
    "float32": (False, torch.float32, "float32_module"),
}
# `arithmetic` in adversarial.json was measured on the contexts of ascent; others differ a little.
CASTS_VARY = 8
# Roundings in a row of hidden state, projection, norm, rotation and logit.
ROUNDINGS = 64
OLMO_EPS = 1e-5  # written into the forward pass of its norm
MOST = 700.0  # of an exponent; float32 then says nothing about a coefficient
# Raw states this large beside ε; its share of the mean square is then lost to rounding.
FAR = 2.0**40
NORM_ROUNDING = 2.0**-36


@dataclass(frozen=True)
class Replayed:
    """One witness in the real module.

    Attributes:
        layer, head, length: which.
        claimed: the coefficient that the package certifies for the witness. **Lower.**
        ceiling: the certified ceiling at this length. **Upper.**
        reached: per module, the largest coefficient of a token other than the query token.
        allowed: per module, how far a logit may be off, in logits (see `allowances`).
        strange: how far the real norm stays from the inputs, relative to their size.

    """

    layer: int
    head: int
    length: int
    claimed: float
    ceiling: float
    reached: dict[str, float]
    allowed: dict[str, float]
    strange: float

    def failures(self) -> list[str]:
        """What does not hold, in words."""
        where = f"layer {self.layer} head {self.head} n={self.length}"
        wrong = []
        if self.strange > NORM_ROUNDING:
            wrong.append(f"{where}: the norm in front of attention misses by {self.strange:.3g}")
        exact = self.reached["exact"]
        for name, value in self.reached.items():
            # Logits off by at most a move a coefficient p by at most p·(e^{2a} − 1).
            slack = math.expm1(min(2 * self.allowed[name], MOST)) * value
            if value < self.claimed - slack:
                wrong.append(f"{where}: {name} reaches {value:.9g}, claimed {self.claimed:.9g}")
            if value > self.ceiling + slack:
                wrong.append(f"{where}: {name} reaches {value:.9g}, ceiling {self.ceiling:.9g}")
            if abs(value - exact) > slack:
                wrong.append(
                    f"{where}: {name} reaches {value:.9g}, in exact arithmetic {exact:.9g}"
                )
        return wrong


def heads(folder: Path) -> Iterator[tuple[int, int, Head]]:
    """Every head of a checkpoint that anything bounds, with its layer and index."""
    found = plan(open_checkpoint(folder)).layers
    number = numbers(found)
    for layer in found:
        for index, _, head in layer.heads():
            if head.bounded:
                yield number[layer.module, layer.layer], index, head


@lru_cache(maxsize=3)
def opened(folder: Path, name: str) -> Real:
    exact, dtype, _ = MODULES[name]
    torch.set_default_dtype(torch.float64)
    return Real.open(folder, exact=exact, dtype=dtype)


def row(
    folder: Path, name: str, layer: int, head: int, states: NDArray[np.float64]
) -> torch.Tensor:
    """The last query's coefficients in one of the modules, hidden keys at 0."""
    real = opened(folder, name)
    inputs = torch.as_tensor(states, dtype=real.dtype).unsqueeze(0)
    with torch.no_grad():
        rotation = real.rotation(layer, real.where_in(layer, len(states)).unsqueeze(0))
        call = real.call(layer, inputs, rotation)
        logits = last_row(call)[0, head]
        seen = visible(real, layer, real.keys(layer, states))
        return probabilities(logits.double().masked_fill(~seen, -torch.inf), call, head)


def missed(folder: Path, layer: int, head: Head, states: NDArray[np.float64]) -> float:
    """How far the module's own norm is from these inputs, fed raw states made for them."""
    real, reach = opened(folder, "exact"), head.reach
    assert reach is not None
    if (norm := real.norm(layer)) is None:
        return 0.0
    states = states / getattr(real.config, "attention_in_multiplier", 1.0)
    if (other := real.key_norm(layer)) is not None:
        # Any state makes keys where no norm stands in front of them.
        keys = 0.0 if other is unit else missed_by(other, reach.of_keys, states[:-1])
        return max(keys, missed_by(norm, reach, states[-1:]))
    return missed_by(norm, reach, states, real.through(layer))


def missed_by(
    norm: torch.nn.Module,
    reach: Reach,
    states: NDArray[np.float64],
    through: torch.nn.Module | None = None,
) -> float:
    gain = 1.0 if reach.gain is None else reach.gain
    shift = 0.0 if reach.bias is None else reach.bias
    raw = states - shift
    if reach.through is not None:
        raw = np.linalg.lstsq(reach.through, raw.T)[0].T
    raw = raw / gain
    named = (getattr(norm, key, None) for key in ("eps", "variance_epsilon"))
    eps = next((value for value in named if value is not None), OLMO_EPS)
    # A norm turns mean square m into m / (m + ε).
    share = np.minimum((raw**2).mean(axis=1, keepdims=True), 1 - 1 / FAR)
    raw *= np.sqrt(eps / (1 - share))
    with torch.no_grad(), all_float64():
        given = norm(torch.as_tensor(raw))
        given = (given if through is None else through(given)).numpy()
    return float(np.abs(given - states).max() / np.abs(states).max())


def lengths_of(folder: Path) -> list[int]:
    """The recorded lengths, and three tokens."""
    record = json.loads((folder / "adversarial.json").read_text())
    return [3, *(int(n) for n in record["lengths"])]


def amplification(head: Head, states: NDArray[np.float64]) -> float:
    """How much a QK norm enlarges relative rounding errors, at most.

    A projection that is small against ‖W‖‖h‖ has lost digits when the norm enlarges it.
    """
    assert head.reach is not None
    worst = 1.0
    for norm, rows in ((head.reach.query_norm, states[-1:]), (head.reach.key_norm, states)):
        if norm is None:
            continue
        weight = np.asarray(norm.weight, dtype=np.float64)
        projected = rows @ weight.T
        if norm.bias is not None:
            projected = projected + np.asarray(norm.bias, dtype=np.float64)
        sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(weight, 2)
        divisors = np.sqrt((projected**2).sum(axis=1) + len(weight) * norm.eps)
        worst = max(worst, float(np.max(sizes / divisors)))
    return worst


def allowances(
    head: Head, states: NDArray[np.float64], spread: float, arithmetic: dict[str, float]
) -> dict[str, float]:
    """Per module, how far its arithmetic may move a logit, in logits."""
    worst = amplification(head, states)
    casts = {
        name: CASTS_VARY * arithmetic[key] if key else 0 for name, (*_, key) in MODULES.items()
    }
    eps = {"exact": 2.0**-53, "float64": 2.0**-53, "float32": 2.0**-24}
    return {name: spread * (casts[name] + ROUNDINGS * worst * eps[name]) for name in MODULES}


def replayed(folder: Path, lengths: list[int] | None = None) -> list[Replayed]:
    """Every head's witness at every length, in all three modules."""
    arithmetic = json.loads((folder / "adversarial.json").read_text())["arithmetic"]
    lengths = lengths or lengths_of(folder)
    out = []
    for layer, index, head in heads(folder):
        answers = check_head(head, [Target(n) for n in lengths])
        spread = answers.spread.upper
        for n, answer in zip(lengths, answers.results, strict=True):
            found = witness.build(head.witnessed.at(n), n)
            if found is None:
                continue
            states = found.inputs(n)
            others = slice(None, -1 if head.self_attention else None)
            reached = {
                name: float(row(folder, name, layer, index, states)[others].max())
                for name in MODULES
            }
            out.append(
                Replayed(
                    layer,
                    index,
                    n,
                    found.coefficient(n),
                    answer.ceiling.upper,
                    reached,
                    allowances(head.witnessed, states, spread, arithmetic),
                    missed(folder, layer, head.witnessed, states),
                )
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="*", type=Path, help="folders (default: all)")
    parser.add_argument("--lengths", nargs="*", type=int)
    args = parser.parse_args()
    folders = args.checkpoints or sorted(p.parent for p in DATA.glob("*/adversarial.json"))
    failed = 0
    for folder in folders:
        results = replayed(folder, args.lengths)
        if not results:
            print(f"{folder.name:28} no witnesses", flush=True)
            continue
        wrong = [line for r in results for line in r.failures()]
        failed += len(wrong)
        below = max(r.claimed - r.reached["exact"] for r in results)
        single = max(abs(r.reached["float32"] - r.reached["exact"]) for r in results)
        print(
            f"{folder.name:28} {len(results):3} witnesses  claimed − exact ≤ {below:9.2e}  "
            f"|float32 − exact| ≤ {single:.2e}  {'FAILED' if wrong else 'ok'}",
            flush=True,
        )
        for line in wrong:
            print("   ", line)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
