"""Milliseconds a head for its two Gram matrices: by NumPy, and by a device.

python benchmarks/gram_matrices.py [--device gpu] [--head-dim 128] [--width 4096] [--heads 32]
"""

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from dispersion.device import grams, open_device


def milliseconds(run, repeats=3):
    run()  # compiles, where something does
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return 1e3 * min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    for name, value in (("--head-dim", 128), ("--width", 4096), ("--heads", 32)):
        parser.add_argument(name, type=int, default=value)
    asked = parser.parse_args()
    device = open_device(asked.device)
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((asked.head_dim, asked.width)) for _ in range(2 * asked.heads)]
    with threadpool_limits(1, user_api="blas"):  # as in an audit, whose processes share the cores
        runs = {
            "NumPy, float64": lambda: [m @ m.T for m in matrices],
            device.kind: lambda: grams(matrices, device),
        }
        for name, run in runs.items():
            print(f"{name:<24} {milliseconds(run) / asked.heads:8.2f} ms a head")


if __name__ == "__main__":
    main()
