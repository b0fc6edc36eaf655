"""Time and memory of an audit of an 8B-shaped checkpoint, against a reference pass in the same run.

The reference pass reads and upcasts every Q and K, forms one float64 Gram matrix a head and one
`eigvalsh` of each. Run it with `python benchmarks/audit_8b.py`; `--layers 4` is a quick look.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import peak_memory
from synthetic import write_checkpoint
from threadpoolctl import threadpool_info

if TYPE_CHECKING:
    from dispersion.head import Head

LENGTHS = (4096, 8192, 32768, 131072, 524288, 1048576)


def reference(folder: Path) -> float:
    """Seconds of the reference pass."""
    from dispersion.checkpoint import open_checkpoint, to_float64

    started = time.perf_counter()
    checkpoint = open_checkpoint(folder)
    for name in checkpoint.names:
        if not name.endswith(("q_proj.weight", "k_proj.weight")):
            continue
        weight = to_float64(checkpoint.read(name), tensor=name)
        for rows in weight.reshape(-1, 128, weight.shape[1]):
            np.linalg.eigvalsh(rows @ rows.T)
    return time.perf_counter() - started


def audited(folder: Path, retrieval: str = "one") -> float:
    """Seconds of the audit."""
    from dispersion import audit
    from dispersion.verdict import Target

    started = time.perf_counter()
    found = audit(folder, [Target(n, retrieval=retrieval) for n in LENGTHS])
    seconds = time.perf_counter() - started
    assert found.complete
    return seconds


def ascent(head: Head, starts: int = 32, steps: int = 300) -> float:
    """The largest spread over free phases that alternating ascent finds (no biases)."""
    rng = np.random.default_rng(0)
    ridge = 1e-13 * np.eye(head.query.head_dim)
    roots = [np.linalg.cholesky(b.gram + np.trace(b.gram) * ridge) for b in (head.query, head.key)]
    first, second = head.rotary.pairs.T
    points = [rng.standard_normal((len(r), starts)) for r in roots]
    points = [p / np.linalg.norm(p, axis=0) for p in points]

    def sizes(x: np.ndarray) -> np.ndarray:
        return np.hypot(x[first], x[second])

    for _ in range(steps):
        for mine, other in ((0, 1), (1, 0)):
            x, y = roots[mine] @ points[mine], roots[other] @ points[other]
            weight = sizes(y) / np.maximum(sizes(x), 1e-300)
            scaled = np.empty_like(x)
            scaled[first], scaled[second] = weight * x[first], weight * x[second]
            points[mine] = roots[mine].T @ scaled
            points[mine] /= np.linalg.norm(points[mine], axis=0)
    value = (sizes(roots[0] @ points[0]) * sizes(roots[1] @ points[1])).sum(0).max()
    radii = head.query.radius.lower * head.key.radius.lower
    return 2 * value * radii * head.scale.lower


def tightness(folder: Path, count: int) -> list[float]:
    """Reported spread over ascent for heads spread over the model, half of them low-rank."""
    from dispersion.architectures import plan
    from dispersion.checking import check_head
    from dispersion.checkpoint import open_checkpoint
    from dispersion.verdict import Target

    layers = plan(open_checkpoint(folder)).layers
    targets = [Target(n) for n in LENGTHS]
    ratios = []
    for i in range(count):
        layer, sample = layers[i * len(layers) // count], (4 * i + i % 4) % 32
        for index, _, head in layer.heads():
            if index == sample:
                ratios.append(check_head(head, targets).spread.upper / ascent(head))
                break
    return ratios


def measured(which: str, folder: Path) -> tuple[float, float]:
    """Seconds of a part in its own process, and peak memory above the interpreter's, in MB."""
    seconds, memory = peak_memory.printed([__file__, "--part", which, "--folder", str(folder)])
    return seconds, memory


def part(which: str, folder: Path, layers: int) -> None:
    """What `measured` runs; writing the checkpoint has its own process too."""
    if which == "write":
        write_checkpoint(folder, layers=layers)
        return
    from dispersion import auditing  # noqa: F401  (imported before memory is measured)

    countable = peak_memory.available() is None
    before = peak_memory.start() if countable else 0.0
    run = {"reference": reference, "audit": audited, "any": partial(audited, retrieval="any")}
    with peak_memory.Children() as children:
        seconds = run[which](folder)
    peak = peak_memory.above(before) + children.peak if countable else float("nan")
    print(seconds, peak / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--folder", type=Path, help="keep the checkpoint here")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count")
    parser.add_argument("--sampled", type=int, default=8, help="heads to compare with ascent")
    parser.add_argument(
        "--part", choices=["write", "reference", "audit", "any"], help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.part:
        part(options.part, options.folder, options.layers)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "config.json").exists():
            writing = ["--part", "write", "--folder", str(folder), "--layers", str(options.layers)]
            subprocess.run([sys.executable, __file__, *writing], check=True)
        kernels = {i["internal_api"] + " " + str(i.get("architecture")) for i in threadpool_info()}
        print("BLAS kernels:", ", ".join(sorted(kernels)))
        if reason := peak_memory.available():
            print(reason)
        measured("reference", folder)  # warms the file cache
        rounds = [
            [measured(which, folder) for which in ("reference", "audit", "any")]
            for _ in range(options.rounds)
        ]
        times = [[seconds for seconds, _ in each] for each in zip(*rounds, strict=True)]
        memory = max(each[1][1] for each in rounds)
        base, seconds, every = (median(each) for each in times)
        layer = (4096 + 1024) * 4096 * 8 / 2**20
        for which, each in zip(("reference", "audit", "any token"), times, strict=True):
            print(f"{which:10}", " ".join(f"{x:6.2f}" for x in each), "s")
        print(f"reference {base:.1f} s, audit {seconds:.1f} s, ratio {seconds / base:.2f}")
        print(f"with --retrieval any {every:.1f} s, {every / seconds:.2f} of the audit")
        print(
            f"peak memory {memory:.0f} MB, {memory / layer:.2f} of one layer's Q and K in float64"
        )
        ratios = tightness(folder, options.sampled)
        print("certified / ascent:", ", ".join(f"{r:.4f}" for r in ratios))
        print(f"within 2 %: {sum(r <= 1.02 for r in ratios)} of {len(ratios)}")


if __name__ == "__main__":
    main()
