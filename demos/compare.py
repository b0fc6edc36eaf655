"""Run the demo checkpoints in transformers' own code and hold the results to demo.json.

    python demos/compare.py src/dispersion/demo

needs torch and transformers (dependency group `golden`), not JAX. Fails when a tensor is missing or
unexpected, when the accuracy differs by more than two sequences, or the needle's mean coefficient
by more than the rounding of the record and 1e-4 for float32.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from task import EVAL_LENGTHS, EVAL_SEQUENCES, test_batches


def measure(model, seed, length):
    """Accuracy and the needle's mean coefficient in its best head, over the test sequences."""
    right, weight = 0, 0.0
    for tokens, answers, needle in test_batches(seed, length):
        for part in np.array_split(np.arange(len(needle)), max(1, len(needle) * length >> 14)):
            with torch.no_grad():
                out = model(torch.from_numpy(tokens[part]).long(), output_attentions=True)
            right += int((out.logits[:, -1].argmax(-1).numpy() == answers[part]).sum())
            last = out.attentions[0][:, :, -1].numpy()
            weight += float(last[np.arange(len(part)), :, needle[part]].max(axis=1).sum())
    return right / EVAL_SEQUENCES, weight / EVAL_SEQUENCES


def main():
    """Compare every demo below the folder; exit with a message at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    # Eager attention holds all n² coefficients, so the longest measured lengths take long.
    parser.add_argument("--longest", type=int, default=256, help="tokens (default: %(default)s)")
    arguments = parser.parse_args()
    for path in sorted(arguments.folder.glob("*/demo.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        architecture = json.loads((path.parent / "config.json").read_text())["architectures"][0]
        model, loading = getattr(transformers, architecture).from_pretrained(
            path.parent, attn_implementation="eager", output_loading_info=True
        )
        if problems := {k: v for k, v in loading.items() if v}:
            sys.exit(f"{path.parent}: {problems}")
        for length in (n for n in EVAL_LENGTHS if n <= arguments.longest):
            accuracy, coefficient = measure(model.eval(), record["seed"], length)
            there = record["measured"][str(length)]
            print(f"{path.parent.name} {length}: {accuracy:.4f} {coefficient:.4f}, record {there}")
            if abs(accuracy - there["accuracy"]) > 2 / EVAL_SEQUENCES + 5e-5:
                sys.exit(f"{path.parent}, length {length}: accuracy differs.")
            if abs(coefficient - there["needle_coefficient"]) > 1.5e-4:
                sys.exit(f"{path.parent}, length {length}: coefficient differs.")


if __name__ == "__main__":
    main()
