"""Time and peak memory of `layer_statistics` against a plain online softmax over q·kᵀ.

    python benchmarks/measure_layer.py                              # 8 heads of 128, 32768 tokens
    python benchmarks/measure_layer.py --heads 1 --length 131072    # memory hardly changes
    python benchmarks/measure_layer.py --check                      # fails past 300 MB or 2.5 times

The plain pass is a blocked online softmax (largest logit and sum) in the same block sizes that
skips the blocks which causality hides, as the statistics do. Seconds are of the processor, so that
they mean something on a machine that is shared; both passes run in one process, in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from functools import partial

import peak_memory

MOST_BYTES, MOST_TIMES = 300e6, 2.5


def inputs(heads, length, head_dim):
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 2)
    q, k = (jax.random.normal(x, (heads, length, head_dim), jnp.float32) for x in keys)
    return jax.block_until_ready((q, k))


def plain(q, k, block):
    """log of the sum of exponentials of every row of every head, summed."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    @partial(jax.jit, static_argnums=2)
    def one_head(q, k, size, head):
        n, d = q.shape[1:]

        def rows(index):
            at = index * size
            places = at + jnp.arange(size)
            query = lax.dynamic_slice(q, (head, at, 0), (1, size, d))[0]

            def step(state, other):
                def seen(state):
                    top, total = state
                    begin = other * size
                    key = lax.dynamic_slice(k, (head, begin, 0), (1, size, d))[0]
                    logit = jnp.dot(query, key.T) * d**-0.5
                    behind = places[:, None] >= begin + jnp.arange(size)[None, :]
                    logit = jnp.where(behind, logit, -1e30)
                    new = jnp.maximum(top, logit.max(1))
                    return new, total * jnp.exp(top - new) + jnp.exp(logit - new[:, None]).sum(1)

                return lax.cond(other <= index, seen, lambda x: x, state), None

            start = jnp.full(size, -1e29), jnp.zeros(size)
            (top, total), _ = lax.scan(step, start, jnp.arange(n // size))
            return (top + jnp.log(total)).sum()

        return lax.map(rows, jnp.arange(n // size)).sum()

    return float(sum(one_head(q, k, block, head) for head in range(q.shape[0])))


def ratio(heads, length, head_dim, rounds):
    """Seconds of the statistics and of the plain pass: the least of each."""
    from dispersion.measure import layer_statistics
    from dispersion.measure.layer import BLOCK

    q, k = inputs(heads, length, head_dim)
    seconds = {"statistics": [], "plain": []}
    layer_statistics(q[:1], k[:1])  # compiles
    plain(q[:1], k[:1], BLOCK)
    for _ in range(rounds):
        for name, work in (
            ("plain", lambda: plain(q, k, BLOCK)),
            ("statistics", lambda: layer_statistics(q, k)),
        ):
            begin = time.process_time()
            work()
            seconds[name].append(time.process_time() - begin)
    return {name: min(x) for name, x in seconds.items()}


def peak(heads, length, head_dim):
    """Peak bytes of the statistics above the process that holds the inputs and imported JAX."""
    from dispersion.measure import layer_statistics

    layer_statistics(*inputs(1, 1024, head_dim))
    q, k = inputs(heads, length, head_dim)
    ctypes.CDLL(None).malloc_trim(0)  # else what made the inputs is used again, unseen
    before = peak_memory.start()
    layer_statistics(q, k)
    return peak_memory.above(before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--part", choices=["ratio", "peak"])
    found = parser.parse_args()
    sizes = found.heads, found.length, found.head_dim
    if found.part == "ratio":
        print(json.dumps(ratio(*sizes, found.rounds)))
        return
    if found.part == "peak":
        print(json.dumps(peak(*sizes)))
        return
    print(f"{found.heads} heads of {found.head_dim}, {found.length} tokens, causal")
    measured = {}
    for part in ("peak", "ratio"):
        command = [sys.executable, __file__, "--part", part, *sys.argv[1:]]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        measured[part] = answer
        if part == "peak":
            print(f"  peak above inputs and imported JAX  {answer / 1e6:8.1f} MB")
        else:
            mine, other = answer["statistics"], answer["plain"]
            print(f"  statistics                          {mine:8.2f} s of CPU")
            print(f"  plain online softmax                {other:8.2f} s of CPU")
            print(f"  ratio                               {mine / other:8.2f}")
            measured[part] = mine / other
    if found.check and (measured["peak"] > MOST_BYTES or measured["ratio"] > MOST_TIMES):
        sys.exit(1)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
