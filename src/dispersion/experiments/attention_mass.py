"""Where attention goes with and without QK norm: bundled demos, and a trained model with needles.

Entropy, share of the first tokens and share of the needle, of the last query: after Bertsch et al.
2026, section 5.4, who show 7B models.
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion import demo
from dispersion.experiments.length_prediction import MODELS
from dispersion.experiments.python_documents import python_documents
from dispersion.measure.documents import Document, Needle, put_needle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dispersion.measure.results import LayerStatistics

DEMOS = ("plain", "headwise", "layerwise")
LENGTHS = (16, 64, 256, 1024)
SEQUENCES = 48
LENGTH = 1024  # tokens of a document for the trained model
DEPTHS = (0.2, 0.5, 0.8)
NEEDLES = (
    (
        "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park.",
        "\n\nQuestion: What is the best thing to do in San Francisco?\nAnswer: The best thing to "
        "do in San Francisco is",
        "eat a sandwich and sit in Dolores Park",
    ),
    (
        "The secret number of the city of Amsterdam is 74215.",
        "\n\nQuestion: What is the secret number of the city of Amsterdam?\nAnswer: The secret "
        "number of the city of Amsterdam is",
        "74215",
    ),
    (
        "The name of the old sailor's grey parrot was Captain Whistlebeak.",
        "\n\nQuestion: What was the name of the old sailor's grey parrot?\nAnswer: The name of the "
        "old sailor's grey parrot was",
        "Captain Whistlebeak",
    ),
)


def measure_all(
    sequences: Callable[[int, int, int], tuple[Any, Any]],
    keep: Callable[[dict[str, Any]], None],
    folder: Path,
) -> None:
    """Measure demos and the trained model.

    Args:
        sequences: seed, count and length to tokens (count, length) and needles' places (count,).
        keep: takes the results.
        folder: for a model that comes in parts.
    """
    names = ("jax", "numpy", "torch", "transformers")
    keep(
        {
            "settings": {
                "sequences": SEQUENCES,
                "lengths": list(LENGTHS),
                "length": LENGTH,
                "depths": list(DEPTHS),
                "versions": {"python": platform.python_version(), **{x: version(x) for x in names}},
            },
            "demos": {name: _demo(name, sequences) for name in DEMOS},
            "trained": _trained(folder),
        }
    )


def _demo(name: str, sequences: Callable[[int, int, int], tuple[Any, Any]]) -> dict[str, Any]:
    """Means over sequences, per length and head."""
    from dispersion.measure.running import Model

    model = Model(demo.path(name))
    found: dict[str, Any] = {"entropy": [], "first": [], "needle": []}
    for length in LENGTHS:
        tokens, needles = sequences(0, SEQUENCES, length)
        rows = []
        for line, place in zip(tokens, needles, strict=True):
            span = int(place), int(place) + 1
            document = Document("x", tuple(int(x) for x in line), span)
            rows.append(_last(model.measure(document, first=(1,))[0], "first 1"))
        for key, values in zip(found, np.mean(rows, axis=0), strict=True):
            found[key].append([_round(x) for x in values])
    return found


def _last(found: LayerStatistics, first: str) -> Any:
    """Shape (3, heads): entropy, share of first tokens, share of the needle of the last query."""
    shares = found.chosen.mass[:, -1]
    mine = [shares[:, found.marks.index(name)] for name in (first, "needle")]
    return np.stack([found.chosen.entropy[:, -1], *mine])


def needle_documents(model: Any) -> Iterator[Document]:
    """Prose of the library with every needle, at every depth."""
    texts = (x for x in python_documents(model.encode, LENGTH) if x.name.startswith("prose"))
    for document, (text, question, answer) in zip(texts, NEEDLES, strict=False):
        for depth in DEPTHS:
            needle = Needle(text, (depth,), question, answer)
            yield put_needle(document, needle, depth, model.encode_needle)


def _trained(folder: Path) -> dict[str, Any]:
    """Means over documents, per layer and head, and retrieval scores where answers were found."""
    from dispersion.measure.running import Model

    model = Model(MODELS[0].place(folder), generates=True)
    rows, scores, written = [], [], []
    for document in needle_documents(model):
        layers = model.measure(document, first=(4,))
        rows.append([_last(layers[index], "first 4") for index in sorted(layers)])
        answer = model.retrieve(document)
        written.append({"document": document.name, "found": answer["found"]})
        if answer["found"]:
            scores.append(answer["scores"])
    mean = np.mean(rows, axis=0)  # layers, 3, heads
    return {
        "name": MODELS[0].name,
        "documents": written,
        **{
            name: [[_round(x) for x in layer] for layer in mean[:, place]]
            for place, name in enumerate(("entropy", "first", "needle"))
        },
        "scores": [[_round(x) for x in layer] for layer in np.mean(scores, axis=0)],
    }


def _round(value: Any) -> float:
    return float(f"{float(value):.4g}")
