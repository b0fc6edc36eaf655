"""Run a local transformers checkpoint over documents and keep what its heads did."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from dispersion.architectures.wrappers import WRAPPERS
from dispersion.errors import ArgumentError, DispersionError, UnsupportedError
from dispersion.measure import opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dispersion.measure.documents import Document, Encode
    from dispersion.measure.hooks import Recorder
    from dispersion.measure.records import Records
    from dispersion.measure.results import LayerStatistics


def _language_model(model: Any) -> Any:
    """The language model beside towers, or the model itself."""
    if model.config.model_type not in WRAPPERS:
        return model
    inner = (getattr(model, name, None) for name in ("language_model", "text_model"))
    return next((part for part in inner if part is not None), model)


class Model:
    """A local checkpoint that runs, and its tokenizer where it has one.

    Args:
        path: a folder as transformers saves it, or a GGUF file; nothing is fetched and no code in
            it run.
        dtype: "float32", "bfloat16", "float16" or "auto" (as stored).
        generates: open the head that predicts tokens, too.

    Raises:
        ArgumentError: no such checkpoint, or torch and transformers are not installed.
        CheckpointError: transformers cannot open it.
    """

    def __init__(
        self, path: str | Path, *, dtype: str = "float32", generates: bool = False
    ) -> None:
        self.place = opening.find(path)
        whole = opening.open_model(self.place, dtype=dtype, generates=generates)
        self.generator: Any = whole if generates else None
        self.model: Any = _language_model(whole.base_model if generates else whole)
        self.encode: Encode | None = None
        self.encode_needle: Encode | None = None
        if opening.has_tokenizer(self.place):
            self.encode = lambda text: list(map(int, self.tokenizer(text)["input_ids"]))
            self.encode_needle = lambda text: list(
                map(int, self.tokenizer(text, add_special_tokens=False)["input_ids"])
            )

    @cached_property
    def tokenizer(self) -> Any:
        """Opened when text is first met; CheckpointError where transformers cannot."""
        return opening.open_tokenizer(self.place)

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
        config = self.model.config
        size = getattr(config, "vocab_size", None)
        if size is None or self.model.main_input_name != "input_ids":  # images or sound
            msg = f"model {config.model_type!r} does not read token ids, so it cannot be measured."
            raise UnsupportedError(msg)
        if max(document.tokens) >= size:
            msg = (
                f"document {document.name!r} must hold token ids below {size}, the size of the "
                f"vocabulary. Got {max(document.tokens)}."
            )
            raise ArgumentError(msg)
        spans = {} if document.needle is None else {"needle": document.needle}
        options = {"first": tuple(first), "spans": spans}
        most = _positions(self.model)
        if most is not None and len(document.tokens) > most:
            msg = (
                f"document {document.name!r} must not be longer than the model's {most} "
                f"learned positions. Got {len(document.tokens)} tokens: set a shorter length."
            )
            raise ArgumentError(msg)
        with opening.quiet():
            recorder = self._run(document, options)
        opening.check_layers(config, recorder.layers)
        return recorder.layers

    def retrieve(self, document: Document) -> dict[str, Any]:
        """What the model writes behind a document, and its heads' scores, as a record keeps them.

        Raises:
            ArgumentError: a document without a needle.
            UnsupportedError: the model cannot write, or cannot be watched.
        """
        from dispersion.measure.retrieving import retrieval

        decode = self.tokenizer.decode if self.encode is not None else None
        found = retrieval(self.generator, document, decode=decode)
        return {
            "written": list(found.written),
            "text": None if decode is None else str(decode(list(found.written))),
            "found": found.found,
            "scores": [[round(float(x), 7) for x in layer] for layer in found.scores],
        }

    def _run(self, document: Document, options: dict[str, Any]) -> Recorder:
        """One forward pass; once more with whole masks for a model that computes with masks."""
        import torch

        from dispersion.measure.hooks import Recorder, recording

        tokens = torch.tensor([document.tokens], device=self.model.device)
        for whole in (False, True):
            recorder = Recorder(options, whole_masks=whole)
            with recording(self.model, recorder):
                try:
                    self.model(tokens, **_no_cache(self.model))
                except DispersionError:
                    raise
                except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                    if whole:  # the mask is not why: what a model cannot do here
                        msg = (
                            f"model {self.model.config.model_type!r} fails on document "
                            f"{document.name!r}: {opening.one_line(error)}"
                        )
                        raise UnsupportedError(msg) from None
                    continue
            break
        return recorder


_TOWERS = ("vision", "visual", "image", "audio")


def _positions(model: Any) -> int | None:
    """How many tokens a table of learned positions has room for, or None without one."""
    from torch.nn import Embedding

    names = ("wpe", "position_embedding", "position_embeddings", "embed_positions")
    for name, module in model.named_modules():
        if any(tower in name for tower in _TOWERS):  # places in pictures or sound
            continue
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
    model: Model,
    documents: Iterable[Document],
    records: Records,
    *,
    first: Sequence[int] = (1, 4),
    retrieve: bool = False,
) -> int:
    """Measure what the file does not hold yet; returns how many documents it holds.

    Args:
        model: opened with `generates` where `retrieve` is asked for.
        documents: to be measured.
        records: the file.
        first: numbers of first tokens whose share is measured.
        retrieve: let the model write behind each document, and score its heads.
    """
    from dispersion.measure.records import record

    for document in documents:
        if document.name in records.found:
            continue
        line = record(document, model.measure(document, first=first))
        if retrieve:
            line["retrieval"] = model.retrieve(document)
        records.add(line)
    return len(records.found)
