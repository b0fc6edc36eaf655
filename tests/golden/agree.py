"""Compare the normal form of every head with the logits that `heldout.py --logits` recorded.

python tests/golden/agree.py DIR [NAME ...]        # needs neither torch nor transformers

Prints what is refused, what differs, and heads whose inputs are not known (held by a larger set
than what the model reaches); exits with 1 where logits, layers or visible keys differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numbering import numbers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import DispersionError
from dispersion.picked import PickedHead
from test_architectures import POSITIONS, inputs_of, last_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.head import Head

LENGTH = int(POSITIONS[-1]) + 1
SLACK = 1e-6  # of the largest logit of a row; ε in a norm moves a logit by less


def row(head: Head, expected: list[float]) -> Any:
    """The last query's logits from the normal form, or None where the inputs are not known."""
    if head.reach is None or head.query is None:
        return None
    if head.rotary is not None and head.rotary.rescale is not None:
        there = head.rotary.frequencies_at(LENGTH)
        head = replace(head, rotary=replace(head.rotary, frequencies=there))
    found = last_row(head, inputs_of(head), POSITIONS)
    # Biases of positions are defined up to a constant of the row.
    return found if head.bias is None else found - found.max() + max(expected)


def differences(folder: Path) -> Iterator[tuple[bool, str]]:
    """Whether it is a mistake, and what, for everything worth a word about a checkpoint."""
    record = json.loads((folder / "logits.json").read_text())
    found = plan(open_checkpoint(folder))
    number = numbers(found.layers)
    for refused in found.refused:
        yield False, f"refused {refused.name}: {refused.reason}"
    real = [i for i, rows in enumerate(record["logits"]) if rows]
    if len(real) != len(found.layers) + len(found.refused):
        yield True, f"layers {sorted(number.values())}, the model has {real}"
    unknown = 0
    for layer in found.layers:
        if number[layer.module, layer.layer] not in real:
            continue
        expected = record["logits"][number[layer.module, layer.layer]]
        if len(expected) != layer.query_heads:
            yield True, f"{layer.module}: {layer.query_heads} heads, not {len(expected)}"
        for index, _, head in layer.heads():
            where = f"{layer.module} head {index}"
            for n, seen in record["visible"].items():
                most = seen[number[layer.module, layer.layer]]
                # Where keys are picked so many are seen at least.
                told = head.visible(int(n))
                if told > most or (told < most and not isinstance(head, PickedHead)):
                    yield True, f"{where}: other keys are seen at n={n}"
            own = row(head, expected[index])
            if own is None:
                unknown += 1
            elif np.abs(own - expected[index]).max() > SLACK * np.abs(expected[index]).max():
                yield True, f"{where}: {own}, not {np.array(expected[index])}"
    if unknown:
        yield False, f"inputs of {unknown} heads are not known"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="checkpoints in it (default: all)")
    args = parser.parse_args()
    wrong = agreed = 0
    for folder in sorted(p.parent for p in args.folder.glob("*/logits.json")):
        if args.names and folder.name not in args.names:
            continue
        try:
            found = list(differences(folder))
        except DispersionError as error:
            found = [(False, f"refused: {error}")]
        for mistaken, what in found:
            print(f"{'WRONG' if mistaken else '     '} {folder.name}: {what}", flush=True)
        mistakes = sum(mistaken for mistaken, _ in found)
        wrong += mistakes
        agreed += not mistakes
    print(f"{agreed} checkpoints agree, {wrong} differences")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
