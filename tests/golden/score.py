"""Run the audit over a set of golden checkpoints and print how it compares with what was reached.

python tests/golden/score.py DIR [NAME ...]        # needs neither torch nor transformers

A line for each checkpoint, for what is refused, wrong or outside the limits, then a table. A bound
below what ascent reached is a wrong certificate; the exit code is 1 if there is one, or a crash.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numbering import numbers

from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import DispersionError
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.verdict import HeadResult

ROUNDING = 2.0**-40  # of the reached values, which are float64 sums of some hundred terms
# States recorded to 9 digits may be longer by 5e-9 of themselves, so logits by 1.01e-8; the
# coefficient 1/(1 + (n−1)e^−δ) then grows by less than that times δ.
DIGITS = 1.01e-8
PLAIN, EXACT, FREE = "no rotation", "rotated, exact offsets", "rotated, free phases"
LIMITS = {PLAIN: 1.05, EXACT: 1.05, FREE: 1.3}


@dataclass(frozen=True)
class Row:
    """One bound beside what it must not lie below.

    `reached` is what ascent gave, and `witness` what the package's own context gives.
    """

    name: str
    layer: int
    head: int
    length: int
    group: str
    bound: float
    reached: float
    witness: float
    wrong: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.bound / max(self.reached, self.witness)


def rows(folder: Path) -> Iterator[Row]:
    """Every recorded head of a checkpoint, at every length and with both kinds of offsets."""
    record = json.loads((folder / "adversarial.json").read_text())
    layers = plan(open_checkpoint(folder)).layers
    number = numbers(layers)
    turned = {
        (layer.module, layer.layer): next(iter(layer.heads()))[2].rotary is not None
        for layer in layers
    }
    for offsets in ("free", "exact"):
        for n in record["lengths"]:
            found = audit(folder, [Target(int(n))], offsets=offsets, jobs=1)
            certified = {(number[h.module, h.layer], h.head): h for h in found.heads}
            for h in record["heads"]:
                if (h["layer"], h["head"]) not in certified:
                    continue  # refused, see `refusals`
                answer = certified[h["layer"], h["head"]]
                rotated = turned[answer.module, answer.layer]
                if offsets == "exact" and not rotated:
                    continue
                group = PLAIN if not rotated else EXACT if offsets == "exact" else FREE
                yield judged(folder.name, n, group, h, answer, record)


def judged(
    name: str, n: str, group: str, recorded: dict[str, Any], answer: HeadResult, record: Any
) -> Row:
    reached = recorded["spread"][n]
    free = recorded.get("free_phase", reached) if group == FREE else reached
    bound = answer.spread.upper
    wrong = []
    if bound < max(reached, free * (1 - 1e-6)) * (1 - ROUNDING):
        wrong.append("bound below what was reached")
    if answer.paper_spread < bound * (1 - ROUNDING):
        wrong.append("product bound below the bound")
    if answer.spread.lower > bound:
        wrong.append("witness above the bound")
    visible = record["lengths"][n]["visible"][recorded["layer"]]
    # The decoder of T5Gemma 2 sees the encoder's keys beside its window's.
    if visible > min(int(n), answer.window or int(n)) and not name.startswith("t5gemma2"):
        wrong.append(f"the model sees {visible} keys, the window says {answer.window}")
    for context in record["witnesses"]:
        same = (context["layer"], context["head"]) == (recorded["layer"], recorded["head"])
        ceiling = answer.results[0].ceiling.upper * (1 + DIGITS * context["spread"])
        if same and n == min(record["lengths"], key=int) and context["coefficient"] > ceiling:
            wrong.append("ceiling below a coefficient that was reached")
    return Row(
        name,
        recorded["layer"],
        recorded["head"],
        int(n),
        group,
        bound,
        max(free, reached),
        answer.spread.lower,
        tuple(wrong),
    )


def refusals(folder: Path) -> list[str]:
    """What the audit of a checkpoint refuses, by name."""
    found = audit(folder, [Target(2)], jobs=1)
    lines = [f"{folder.name}: {r.name}: {r.reason}" for r in found.refused]
    unbounded = {h.layer for h in found.heads if not np.isfinite(h.spread.upper)}
    return lines + [f"{folder.name}: layer {i} is unbounded" for i in sorted(unbounded)]


def table(found: list[Row]) -> Iterator[str]:
    yield f"{'group':24}{'bounds':>8}{'within':>9}{'median':>9}{'90 %':>8}{'99 %':>8}{'max':>8}"
    for group, limit in LIMITS.items():
        ratios = np.array([r.ratio for r in found if r.group == group and np.isfinite(r.bound)])
        if len(ratios):
            share = float(np.mean(ratios <= limit))
            marks = np.quantile(ratios, (0.5, 0.9, 0.99, 1.0))
            yield f"{group:24}{len(ratios):8}{share:9.1%}" + "".join(f"{m:9.4f}" for m in marks)


def outside(found: list[Row]) -> Iterator[str]:
    """The widest bound of each checkpoint and group that is outside its limit."""
    worst: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in found:
        if row.ratio > LIMITS[row.group] and np.isfinite(row.bound):
            worst[row.name, row.group].append(row)
    for (name, group), many in sorted(worst.items()):
        r = max(many, key=lambda row: row.ratio)
        yield (
            f"{name:28} {group:24} {len(many):3} bounds, up to {r.ratio:.4f}: layer {r.layer} head "
            f"{r.head} n={r.length}: {r.bound:.6g} over {r.reached:.6g}, witness {r.witness:.6g}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="checkpoints in it (default: all)")
    args = parser.parse_args()
    folders = sorted(p.parent for p in args.folder.glob("*/adversarial.json"))
    found: list[Row] = []
    refused: list[str] = []
    failed = supported = 0
    for folder in folders:
        if args.names and folder.name not in args.names:
            continue
        try:
            refused += refusals(folder)
            these = list(rows(folder))
            supported += bool(these)
        except DispersionError as error:
            refused.append(f"{folder.name}: {error}")
            continue
        except Exception:  # the point is to find these
            failed += 1
            print(f"CRASH {folder.name}\n{traceback.format_exc()}", flush=True)
            continue
        for row in these:
            if row.wrong:
                failed += 1
                print(f"WRONG {row}", flush=True)
        found += these
        worst = max((row.ratio for row in these if np.isfinite(row.bound)), default=1.0)
        print(f"{folder.name:28} {len(these):4} bounds, at most {worst:.4f}", flush=True)
    print(*(f"refused  {line}" for line in refused), *outside(found), *table(found), sep="\n")
    print(f"{supported} checkpoints supported, {failed} crashes and wrong bounds")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
