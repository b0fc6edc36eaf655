"""Which heads copy an answer while a model writes it: retrieval scores of Wu et al.

The model reads a document and its question, and then writes greedily, token by token. A head copies
a token of the answer where, at the step that writes it, the head's largest coefficient lies on that
very token in the document. Its score is the share of the answer's tokens that it copied. After Wu,
Wang, Xiao, Peng, Fu 2024, https://arxiv.org/abs/2404.15574, who call heads of 0.1 and more
retrieval heads and count only examples in which the answer was found.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from dispersion.errors import ArgumentError, UnsupportedError
from dispersion.measure.hooks import attend
from dispersion.measure.masks import make_mask
from dispersion.measure.opening import check_layers, one_line, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.measure.documents import Document

NAME = "dispersion_retrieve"
MORE = 16  # tokens written beyond the answer's own number


@dataclass(frozen=True)
class Retrieval:
    """What a model wrote, and which heads looked where.

    Attributes:
        written: token ids.
        found: whether they hold the answer's tokens in a row, or its text where that is known.
        scores: shape (layers with attention, heads): share of the answer's tokens that each head
            copied; only meaningful where `found`.
    """

    written: tuple[int, ...]
    found: bool
    scores: NDArray[np.float64]


@dataclass
class _Watch:
    """Keys that the heads look at most, by layer, in one step; and how many tokens there are."""

    context: int = 0
    looks: dict[int, NDArray[np.int64]] = field(default_factory=dict)


_watching: list[_Watch] = []


def retrieval(generator: Any, document: Document, *, decode: Any = None) -> Retrieval:
    """Let a model write an answer and score its heads.

    Args:
        generator: a transformers model with the head that predicts tokens.
        document: with an answer; its last tokens should ask for it.
        decode: ids to text, to look for the answer's text; its ids are looked for otherwise.

    Raises:
        ArgumentError: a document without an answer.
        UnsupportedError: the model takes no other attention function, keeps no cache, or a layer
            cannot be watched.
    """
    if document.answer is None:
        msg = f"document {document.name!r} must hold a needle, with an answer to be retrieved."
        raise ArgumentError(msg)
    start, stop = document.answer
    answer = document.tokens[start:stop]
    copied: NDArray[np.bool_] | None = None
    written: list[int] = []
    with quiet(), _watched(generator) as watch:
        try:
            for token in _steps(generator, document.tokens, len(answer) + MORE, watch):
                written.append(token)
                check_layers(generator.config, watch.looks)
                looks = np.stack([watch.looks[layer] for layer in sorted(watch.looks)])
                if copied is None:
                    copied = np.zeros((*looks.shape, len(answer)), bool)
                for place, own in enumerate(answer):
                    copied[..., place] |= (looks == start + place) & (own == token)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            msg = (
                f"model {generator.config.model_type!r} cannot write behind document "
                f"{document.name!r}: {one_line(error)}"
            )
            raise UnsupportedError(msg) from None
    if copied is None:  # never: a step is taken at least once
        copied = np.zeros((1, 1, 1), bool)
    return Retrieval(tuple(written), _found(written, answer, decode), copied.mean(-1))


def _steps(generator: Any, tokens: tuple[int, ...], most: int, watch: _Watch) -> Iterator[int]:
    """Greedy tokens, one forward pass each; the last token of the prompt is a step of its own."""
    stops = generator.generation_config.eos_token_id
    ends = {stops} if isinstance(stops, int) else set(stops or ())
    given = torch.tensor([tokens], device=generator.device)
    with torch.no_grad():
        cache = generator(given[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
        if cache is None:
            msg = "it keeps no cache of keys"
            raise ValueError(msg)
        step = given[:, -1:]
        for count in range(most):
            watch.context = len(tokens) + count
            out = generator(step, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            step = out.logits[:, -1:].argmax(-1)
            token = int(step)
            yield token
            if token in ends:
                return


def _found(written: list[int], answer: tuple[int, ...], decode: Any) -> bool:
    if decode is not None:
        wanted = " ".join(decode(list(answer)).split()).casefold()
        return wanted in " ".join(decode(written).split()).casefold()
    n = len(answer)
    return any(tuple(written[i : i + n]) == answer for i in range(len(written) - n + 1))


@contextlib.contextmanager
def _watched(generator: Any) -> Iterator[_Watch]:
    before = generator.config._attn_implementation
    try:
        generator.set_attn_implementation(NAME)
    except (ValueError, AttributeError, NotImplementedError) as error:
        kind = generator.config.model_type
        msg = f"model {kind!r} takes no other attention function: {one_line(error)}"
        raise UnsupportedError(msg) from None
    watch = _Watch()
    _watching.append(watch)
    try:
        yield watch
    finally:
        _watching.pop()
        generator.set_attn_implementation(before)


def _look(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, Any]:
    """The model's eager attention; of a single query the key of the largest coefficient is kept."""
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    index = getattr(module, "layer_idx", None)
    if eager is None or index is None:
        msg = f"{type(module).__name__} has no eager attention function"
        raise ValueError(msg)
    if query.shape[2] > 1:
        return attend(module, eager, query, key, value, attention_mask, options)[0], None
    output, weights = eager(module, query, key, value, attention_mask, **options)
    if weights is None:
        msg = f"{type(module).__name__} returns no eager weights"
        raise ValueError(msg)
    keys = key.shape[2]
    looks = weights[0, :, -1, :keys].argmax(-1).cpu().numpy()
    # A window's cache holds the last keys only, so places count from the end.
    watch = _watching[-1]
    watch.looks[int(index)] = looks + (watch.context - keys)
    return output, None


def _mask(**options: Any) -> Any:
    """Masks of a whole document row by row; a single query's at once."""
    return make_mask(whole=options["q_length"] == 1, **options)


AttentionInterface.register(NAME, _look)
AttentionMaskInterface.register(NAME, _mask)
