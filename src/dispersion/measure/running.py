"""Run a local transformers checkpoint over documents and keep what its heads did."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dispersion.measure.documents import Document, Encode
    from dispersion.measure.records import Records
    from dispersion.measure.results import LayerStatistics


class Model:
    """A model of a local folder, and its tokenizer where it has one.

    Args:
        folder: a checkpoint as transformers saves it; nothing is fetched and no code in it run.
        dtype: "float32", "bfloat16", "float16" or "auto" (as stored).

    Raises:
        ArgumentError: no such folder, or torch and transformers are not installed.
        CheckpointError: transformers cannot open it.
    """

    def __init__(self, folder: str | Path, *, dtype: str = "float32") -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            msg = f"checkpoint must be a local folder with a config.json. Got {str(folder)!r}."
            raise ArgumentError(msg)
        try:
            import jax  # noqa: F401 - a missing one is to show before a model is loaded
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            msg = (
                f"measuring models needs {error.name}. "
                f"Install it: pip install 'dispersion[measure-models]'."
            )
            raise ArgumentError(msg) from None
        self._torch = torch
        try:
            with warnings.catch_warnings(), _quiet():
                warnings.simplefilter("ignore")
                model, report = AutoModel.from_pretrained(
                    self.folder,
                    dtype=dtype,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            msg = f"checkpoint {str(folder)!r} cannot be opened by transformers: {reason}"
            raise CheckpointError(msg) from None
        # transformers fills in what is missing at random. A pooler reads what attention has done.
        missing = sorted(x for x in report["missing_keys"] if "pooler" not in x)
        if missing:
            msg = (
                f"checkpoint {str(folder)!r} must hold every weight of its model. "
                f"{missing[0]} is missing."
            )
            raise CheckpointError(msg)
        self.model: Any = model.eval()
        self.encode: Encode | None = None
        names = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
        if any((self.folder / name).is_file() for name in names):
            tokenizer = AutoTokenizer.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False
            )
            self.encode = lambda text: [int(x) for x in tokenizer(text)["input_ids"]]

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    def measure(
        self, document: Document, *, first: Sequence[int] = (1, 4)
    ) -> dict[int, LayerStatistics]:
        """Statistics of every attention layer for one document, by layer.

        Raises:
            ArgumentError: token ids that the vocabulary does not have, too many tokens.
            UnsupportedError: attention that cannot be measured, or part of it.
        """
        from dispersion.measure.hooks import Recorder, recording

        config = self.model.config
        if (size := getattr(config, "vocab_size", None)) is None:
            msg = f"model {config.model_type!r} does not read token ids, so it cannot be measured."
            raise UnsupportedError(msg)
        if max(document.tokens) >= size:
            msg = (
                f"document {document.name!r} must hold token ids below {size}, the size of the "
                f"vocabulary. Got {max(document.tokens)}."
            )
            raise ArgumentError(msg)
        spans = {} if document.needle is None else {"needle": document.needle}
        recorder = Recorder({"first": tuple(first), "spans": spans})
        most = _positions(self.model)
        if most is not None and len(document.tokens) > most:
            msg = (
                f"document {document.name!r} must not be longer than the model's {most} "
                f"learned positions. Got {len(document.tokens)} tokens: set a shorter length."
            )
            raise ArgumentError(msg)
        with _quiet(), recording(self.model, recorder):
            try:
                self.model(self._torch.tensor([document.tokens]), **_no_cache(self.model))
            except RuntimeError as error:  # as torch raises for what a model cannot do here
                reason = " ".join(str(error).split())[:200]
                msg = f"model {config.model_type!r} fails on document {document.name!r}: {reason}"
                raise UnsupportedError(msg) from None
        layers = config.num_hidden_layers
        if sorted(recorder.layers) != list(range(layers)):
            msg = (
                f"model {config.model_type!r} calls transformers' attention interface in "
                f"{len(recorder.layers)} of its {layers} layers, so it cannot be measured whole."
            )
            raise UnsupportedError(msg)
        return recorder.layers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own messages and progress bars off the terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _positions(model: Any) -> int | None:
    """How many tokens a table of learned positions has room for, or None without one."""
    from torch.nn import Embedding

    names = ("wpe", "position_embedding", "position_embeddings", "embed_positions")
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and name.rsplit(".", 1)[-1] in names:
            padding = module.padding_idx
            offset = getattr(module, "offset", 0 if padding is None else padding + 1)
            return int(module.num_embeddings) - int(offset)
    return None


def _no_cache(model: Any) -> dict[str, bool]:
    """Encoders have no cache to switch off."""
    from inspect import signature

    return {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}


def measure_documents(
    model: Model, documents: Iterable[Document], records: Records, *, first: Sequence[int] = (1, 4)
) -> int:
    """Measure what the file does not hold yet; returns how many documents it holds."""
    from dispersion.measure.records import record

    for document in documents:
        if document.name not in records.found:
            records.add(record(document, model.measure(document, first=first)))
    return len(records.found)
