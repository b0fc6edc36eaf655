"""Write a held-out set: the families of families.py in other shapes and with other switches.

python tests/golden/heldout.py --seed S --out DIR [NAME ...] [--logits] [--part 0/2]

Everything is drawn by family and seed: head counts and groups, widths, layer patterns, windows,
rotations, biases, norms, dtypes and dialects, as far as a config class has them. What transformers
itself cannot build or run is drawn again, and checkpoints that exist are kept. `score.py` runs the
audit over such a set; `agree.py` compares normal forms with what `--logits` recorded.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from pathlib import Path

import torch
from drawn import drawn
from families import FAMILIES, Family, Size, deepseek, experts, llama, longrope, randomise
from logits import logits
from make import make, write
from published_families import PUBLISHED
from real import Real

DRAWS = 12  # of one family before it counts as impossible

# Model types that a family of the package reads and no golden checkpoint has.
FURTHER = (
    Family("glm4_moe_lite", "Glm4MoeLite", lambda s: deepseek(s, num_experts_per_tok=1)),
    Family("youtu", "Youtu", deepseek),
    Family(
        "hunyuan_v1_moe",
        "HunYuanMoEV1",
        lambda s: experts(llama(s, head_dim=s.head_dim), moe_topk=[1] * s.layers),
        qk_norm="headwise",
    ),
    Family("llama__longrope", "Llama", longrope),
)


def note(family: Family, size: Size, seed: int, out: Path) -> None:
    """Write one checkpoint with logits.json: rows of logits.py, and how many keys are seen."""
    folder = out / family.name
    torch.set_default_dtype(torch.float32)
    model = family.build(size)
    own = zlib.crc32(f"{family.name}/{seed}".encode())
    randomise(model, family.gain_offset, size, torch.Generator().manual_seed(own))
    write(model.to(family.dtype), family, folder)
    rows = logits(folder)
    real = Real.open(folder)
    visible = {
        n: [int(seen.sum()) for seen in real.visible(n)]
        for n in size.lengths
        if n <= (real.learned or n)
    }
    (folder / "logits.json").write_text(json.dumps({"logits": rows, "visible": visible}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="families (default: all)")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=200, help="restarts of a layer at once")
    parser.add_argument("--effort", type=float, default=0.4, help="1 for the steps of make.py")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth family from the Ith")
    parser.add_argument(
        "--logits", action="store_true", help="record logits of six tokens instead of ascending"
    )
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    known = {family.name: family for family in (*FAMILIES, *FURTHER, *PUBLISHED)}
    for name in (args.names or list(known))[part::parts]:
        if (args.out / name / ("logits.json" if args.logits else "adversarial.json")).exists():
            continue  # an interrupted run goes on
        for attempt in range(DRAWS):
            rng = random.Random(f"{name}/{args.seed}/{attempt}")
            try:
                family, size = drawn(known[name], rng)
                if args.logits:
                    note(family, size, args.seed, args.out)
                else:
                    label = f"held out, draw {attempt}"
                    make(family, size, label, args.seed, args.out, args.most, args.effort)
            except Exception as error:  # transformers has many ways to say no
                said = f"{type(error).__name__}: {error}".splitlines()[0][:150]
                print(f"{name:28} draw {attempt}: {said}", flush=True)
            else:
                break


if __name__ == "__main__":
    main()
