"""Local checkpoints as transformers opens them: folders of safetensors, GGUF files. No network."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_parts import is_part
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class Place:
    """Where a checkpoint lies.

    Attributes:
        folder: that it is in.
        gguf: the name of its GGUF file there, or None for a folder as transformers saves it.
    """

    folder: Path
    gguf: str | None

    @property
    def path(self) -> str:
        """The folder, or the GGUF file."""
        return str(self.folder if self.gguf is None else self.folder / self.gguf)

    def files(self) -> list[Path]:
        """Those that hold weights."""
        return sorted(self.folder.glob("*.safetensors")) if self.gguf is None else [
            self.folder / self.gguf
        ]  # fmt: skip

    def options(self) -> dict[str, Any]:
        """What every `from_pretrained` is told."""
        told: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        return told if self.gguf is None else {**told, "gguf_file": self.gguf}


def find(path: str | Path) -> Place:
    """The checkpoint at a path; ArgumentError where there is none."""
    place = Path(path)
    if place.is_file() and place.suffix == ".gguf":
        if is_part(place):
            msg = (
                f"checkpoint must be a GGUF model in one file. Got {str(path)!r}, a part of one; "
                "merge the parts with `llama-gguf-split --merge`."
            )
            raise ArgumentError(msg)
        return Place(place.parent, place.name)
    if (place / "config.json").is_file():
        return Place(place, None)
    found = sorted(place.glob("*.gguf")) if place.is_dir() else []
    if len(found) == 1:
        return Place(place, found[0].name)
    msg = (
        f"checkpoint must be a local folder with a config.json, or a GGUF file. Got {str(path)!r}"
        f"{f', which holds {len(found)} GGUF files: name one' if found else ''}."
    )
    raise ArgumentError(msg)


def open_model(place: Place, *, dtype: str, generates: bool = False) -> Any:
    """The model, ready to run.

    Args:
        place: of the checkpoint.
        dtype: what it computes in.
        generates: with the head that predicts tokens.

    Raises:
        ArgumentError: torch, transformers, JAX or, for a GGUF file, accelerate is not installed.
        CheckpointError: transformers cannot open it, or weights are missing.
    """
    try:
        import jax  # noqa: F401 - a missing one is to show before a model is loaded
        import torch  # noqa: F401
        from transformers import AutoModel, AutoModelForCausalLM

        if place.gguf is not None:
            import accelerate  # noqa: F401 - transformers reads GGUF files with it
    except ImportError as error:
        msg = (
            f"measuring models needs {error.name}. "
            f"Install it: pip install 'dispersion[measure-models]'."
        )
        raise ArgumentError(msg) from None
    source = AutoModelForCausalLM if generates else AutoModel
    try:
        with quiet():
            model, report = source.from_pretrained(
                place.folder, dtype=dtype, output_loading_info=True, **place.options()
            )
    except (OSError, ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        msg = f"checkpoint {_name(place)} cannot be opened by transformers: {one_line(error)}"
        raise CheckpointError(msg) from None
    # transformers fills in what is missing at random. A pooler reads what attention has done.
    missing = sorted(x for x in report["missing_keys"] if "pooler" not in x)
    if missing:
        msg = (
            f"checkpoint {_name(place)} must hold every weight of its model. "
            f"{missing[0]} is missing."
        )
        raise CheckpointError(msg)
    return model.eval()


def has_tokenizer(place: Place) -> bool:
    """Whether there are files of one; a GGUF file holds its own."""
    return place.gguf is not None or any((place.folder / name).is_file() for name in TOKENIZERS)


def open_tokenizer(place: Place) -> Any:
    """The checkpoint's tokenizer; CheckpointError where transformers cannot open it."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(place.folder, **place.options())
    except Exception as error:  # tokenizers raises its own kinds, without a common base
        msg = f"checkpoint {_name(place)} has a tokenizer that cannot be opened: {one_line(error)}"
        raise CheckpointError(msg) from None


def check_layers(config: Any, found: Iterable[int]) -> None:
    """Whether attention was met in every layer that has any.

    Layers without a softmax (linear attention, recurrences, convolutions) have none, where the
    config names them.

    Raises:
        UnsupportedError: some attention went past transformers' interface.
    """
    layers = int(getattr(config, "num_hidden_layers", 0))
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    expected = list(range(layers))
    if kinds is not None and len(kinds) == layers:
        softmax = ["attention" in kind and "linear" not in kind for kind in kinds]
        expected = [layer for layer in expected if softmax[layer]]
    met = sorted(found)
    if not met or met not in (expected, list(range(layers))):
        msg = (
            f"model {config.model_type!r} calls transformers' attention interface in "
            f"{len(met)} of its {len(expected)} layers with attention, so it cannot be measured."
        )
        raise UnsupportedError(msg)


def one_line(error: Exception) -> str:
    """What a library's error says, short."""
    return " ".join(str(error).split())[:200]


def _name(place: Place) -> str:
    return repr(place.path)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' own messages and progress bars off the terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Bars of tqdm's own, which transformers draws while it reads GGUF files, go nowhere.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
