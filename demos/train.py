"""Train the bundled demo checkpoints: three one-layer models that retrieve a needle.

The task is in task.py, the models in model.py. They are written in the layout of Hugging Face
transformers (config.json, model.safetensors), with what was measured in demo.json. QK-norm gains
are not trained: they stay at 1, so the spread, in logits, is capped at 2·√head_dim (headwise) and
2·√(query_heads·key_heads·head_dim) (layerwise).

    python demos/train.py --out src/dispersion/demo

takes half a minute a model on one core, most of it spent measuring at 16384 tokens. Randomness
comes from NumPy generators made from --seed; on one machine, with the same versions, the files
come out the same.
"""

import argparse
import json
import platform
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from model import FAMILIES, forward, is_trained, make_config, make_parameters
from task import EVAL_LENGTHS, EVAL_SEQUENCES, TRAIN_LENGTH, VALUES, sample, test_batches


def train(config, seed, steps, batch=256, peak=3e-3):
    """Parameters after `steps` of Adam, warm-up and cosine decay, on fresh sequences each step."""
    rng = np.random.default_rng([seed, 0])
    parameters = make_parameters(config, rng)
    fixed = {k: v for k, v in parameters.items() if not is_trained(k)}
    trained = {k: jnp.asarray(v) for k, v in parameters.items() if is_trained(k)}
    zeros = jax.tree.map(jnp.zeros_like, trained)

    def loss(trained, tokens, answers):
        logits, _ = forward(trained | fixed, config, tokens)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), answers[:, None], axis=1).mean()

    @jax.jit
    def step(state, i, tokens, answers):
        trained, mean, square = state
        value, grad = jax.value_and_grad(loss)(trained, tokens, answers)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grad)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, grad)
        rate = peak * jnp.minimum(1.0, i / 100) * 0.5 * (1 + jnp.cos(jnp.pi * i / steps))
        c1, c2 = 1 - 0.9**i, 1 - 0.99**i
        trained = jax.tree.map(
            lambda p, m, s: p - rate * (m / c1) / (jnp.sqrt(s / c2) + 1e-8), trained, mean, square
        )
        return (trained, mean, square), value

    state, value = (trained, zeros, zeros), jnp.nan
    for i in range(1, steps + 1):
        tokens, answers, _ = sample(rng, batch, TRAIN_LENGTH)
        state, value = step(state, float(i), tokens, answers)
        if i % 500 == 0:
            print(f"  step {i}: loss {float(value):.4f}", flush=True)
    return {k: np.array(v) for k, v in (state[0] | fixed).items()}, float(value)


def evaluate(parameters, config, seed, length):
    """Accuracy and the needle's mean coefficient in its best head, over the test sequences."""
    run = jax.jit(partial(forward, config=config))
    right, weight = 0, 0.0
    for tokens, answers, needle in test_batches(seed, length):
        logits, coefficients = jax.tree.map(np.asarray, run(parameters, tokens=tokens))
        right += int((logits.argmax(axis=1) == answers).sum())
        weight += float(coefficients[np.arange(len(needle)), :, needle].max(axis=1).sum())
    shares = {"accuracy": right, "needle_coefficient": weight}
    return {name: round(share / EVAL_SEQUENCES, 4) for name, share in shares.items()}


def safetensors_bytes(parameters):
    """Return float32 tensors in the safetensors format: header length, JSON header, data."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in sorted(parameters.items()):
        end = offset + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format asks for data aligned to 8 bytes
    data = b"".join(array.astype("<f4").tobytes() for _, array in sorted(parameters.items()))
    return len(text).to_bytes(8, "little") + text + data


def write(folder, parameters, config, record):
    """Write model.safetensors, config.json and demo.json into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(parameters))
    for name, content in (("config.json", config), ("demo.json", record)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main():
    """Train, measure and write the demos named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--out", type=Path, required=True, help="a folder per NAME goes here")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(FAMILIES):
        parser.error(f"NAME must be one of {', '.join(FAMILIES)}. Got {', '.join(unknown)}.")
    for name in arguments.names or FAMILIES:
        print(name, flush=True)
        config, start = make_config(name), time.perf_counter()
        parameters, final_loss = train(config, arguments.seed, arguments.steps)
        seconds = time.perf_counter() - start
        print(f"  trained in {seconds:.0f} s", flush=True)
        measured = {}
        for length in EVAL_LENGTHS:
            measured[str(length)] = evaluate(parameters, config, arguments.seed, length)
            print(f"  length {length}: {measured[str(length)]}", flush=True)
        record = {
            "task": "single-needle retrieval",
            "train_length": TRAIN_LENGTH,
            "seed": arguments.seed,
            "steps": arguments.steps,
            "final_loss": float(f"{final_loss:.3g}"),
            "fixed_at_one": sorted(k for k in parameters if not is_trained(k)),
            "versions": {
                "python": platform.python_version(),
                "jax": jax.__version__,
                "numpy": np.__version__,
            },
            "sequences": EVAL_SEQUENCES,
            "chance": round(1 / VALUES, 4),
            "measured": measured,
        }
        write(arguments.out / name, parameters, config, record)


if __name__ == "__main__":
    main()
