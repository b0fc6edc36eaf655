"""Models with images or sound: the language model in them, without its towers.

What is said of such a model holds of contexts of text: there attention is causal and positions
count tokens. Towers have attention of their own, which is not looked at. Where images are placed
on a grid (`mrope_section`), text has one position for all its parts, which is plain RoPE; bounds
over free phases hold wherever images are placed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.text_sizes import SIZES
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.results import Refused, Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dispersion.architectures.plans import LayerPlan, Plan
    from dispersion.architectures.wrappers import Wrapper
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

BEYOND = "tokens of a prompt see each other both ways, also beyond the window of this layer"
TOWER = "tower for images or sound, not part of the language model"
_TOWER = re.compile(
    r"(?:thinker\.)?(?:model\.)?"
    r"(?:(?:vision|image|video|audio|high_res_vision|semantic|acoustic)_\w+|visual|audio|visual_\w+|vit"
    r"|embed_(?:vision|audio)|encoder|projector|connector|aligner|merger|mm_projector|mlp_AR|mlp1"
    r"|multi_modal_projector|pre_mm_projector_norm|patch_merger|patch_merge_mlp|vit_large_projector"
    r"|qformer|query_tokens|language_projection"
    r"|perception_emb_norm|vqmodel|generation_(?:embeddings|aligner|head)|resampler_model"
    r"|(?:layerwise|spatial)_projectors|diffusion_head|latent_\w+_factor|talker|token2wav|code2wav)(?:\..+)?"
)
_HEAD = re.compile(r"(?:thinker\.)?(?:model\.)?(?:lm_head|embed_out)\..+")
_DRAFT = re.compile(r"(?:.+\.)?mtp(?:\..+|_.+)")
_NUMBERED = re.compile(r"\.\d+\.")


def inner_type(config: Mapping[str, Any], wrapper: Wrapper) -> str:
    """The model_type of the language model.

    Raises:
        CheckpointError: its config is no object, or its model_type no name.
        UnsupportedError: it is of a class that is not supported.
    """
    inner = _inner(config, wrapper)
    if wrapper.fixed:
        return wrapper.inner
    if wrapper.classes:
        return _by_class(inner, wrapper)
    kind = inner.get("model_type", wrapper.inner)
    if not isinstance(kind, str):
        where = ".".join(wrapper.keys)
        msg = f"model_type of {where} in config.json must be a name. Got {shown(repr(kind))}."
        raise CheckpointError(msg)
    return wrapper.aliases.get(kind, kind)


def _by_class(inner: Mapping[str, Any], wrapper: Wrapper) -> str:
    classes = inner.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    if not isinstance(first, str) or first not in wrapper.classes:
        where = ".".join(wrapper.keys)
        msg = (
            f"architectures of {where} in config.json must begin with one of "
            f"{', '.join(wrapper.classes)}. Got {shown(repr(classes))}: not supported."
        )
        raise UnsupportedError(msg)
    return wrapper.classes[first]


def language_model(checkpoint: Checkpoint, wrapper: Wrapper) -> Checkpoint:
    """The checkpoint of the language model alone, with the defaults of its class.

    What `quantization_config` says beside the inner config holds for it too.

    Raises:
        CheckpointError: the inner config is no object, or the file mixes names of two versions.
    """
    config = checkpoint.config
    kind = inner_type(config, wrapper)
    nested = {**SIZES.get(kind, {}), **wrapper.absent, **_inner(config, wrapper)}
    nested["model_type"] = kind
    if wrapper.both_ways:
        nested.pop("use_bidirectional_attention", None)  # files of newer versions state it
    if not nested.get("quantization_config"):
        nested["quantization_config"] = config.get("quantization_config")
    root = _root(checkpoint, wrapper)
    kept = {n: info for n, info in checkpoint.infos.items() if _within(n, root)}
    return replace(checkpoint, infos=kept, config=nested)


def _within(name: str, root: str) -> bool:
    return name.startswith(root) and _beside(name) is None


def _beside(name: str) -> str | None:
    """Why a tensor is none of the language model's layers; None where it may be."""
    ways = ((_TOWER, TOWER), (_HEAD, ledger.HEAD), (_DRAFT, ledger.DRAFT))
    return next((why for pattern, why in ways if pattern.fullmatch(name)), None)


def _root(checkpoint: Checkpoint, wrapper: Wrapper) -> str:
    """What names of the language model begin with, of the ways in which files spell it."""
    found: dict[str, str] = {}
    for name in checkpoint.names:
        if _beside(name) is not None or not _NUMBERED.search(name):
            continue
        spelled = next((root for root in wrapper.roots if name.startswith(root)), None)
        if spelled is not None:
            inside = "model." if name.startswith(f"{spelled}model.") else ""
            found.setdefault(spelled + inside, name)
    if len(found) > 1:
        one, other, *_ = found.values()
        msg = (
            "the language model's tensors must be named alike, as one version saves them. "
            f"Got {shown(one)} and {shown(other)}."
        )
        raise CheckpointError(msg)
    if not found:
        ways = ", ".join(root or "no prefix" for root in wrapper.roots)
        msg = (
            f"{shown(checkpoint.source)} must hold a language model whose names begin with one of "
            f"{ways}. Got none."
        )
        raise CheckpointError(msg)
    spelled = next(iter(found))
    return next(root for root in wrapper.roots if spelled.startswith(root))


def with_the_rest(found: Plan, checkpoint: Checkpoint, inner: Checkpoint, wrapper: Wrapper) -> Plan:
    """A language model's plan with an account of what lies beside it."""
    skipped: Counter[tuple[str, str]] = Counter()
    refused: dict[str, str] = {}
    for name in _outside(checkpoint, inner):
        starred = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
        if why := _beside(name):
            skipped[starred, why] += 1
        elif module := ledger.attention_module(starred):
            refused.setdefault(module, "attention outside the supported layers")
        else:
            skipped[starred, ledger.OTHER] += 1
    layers = found.layers
    if wrapper.both_ways:
        refused |= {layer.module: BEYOND for layer in layers if layer.window is not None}
        layers = tuple(_both_ways(layer) for layer in layers if layer.window is None)
    return replace(
        found,
        model={**found.model, "model_type": checkpoint.config["model_type"]},
        layers=layers,
        skipped=(*found.skipped, *(Skipped(n, why, count) for (n, why), count in skipped.items())),
        refused=(*found.refused, *(Refused(n, why) for n, why in refused.items())),
    )


def _outside(checkpoint: Checkpoint, inner: Checkpoint) -> Iterable[str]:
    return (name for name in checkpoint.names if name not in inner.infos)


def _both_ways(layer: LayerPlan) -> LayerPlan:
    """A layer whose queries may see later tokens."""
    return replace(layer, heads=partial(_freed, layer.heads))


def _freed(
    heads: Callable[[], Iterator[tuple[int, int, Head]]],
) -> Iterator[tuple[int, int, Head]]:
    for index, key, head in heads():
        yield index, key, replace(head, causal=False)


def _inner(config: Mapping[str, Any], wrapper: Wrapper) -> dict[str, Any]:
    """The inner config, or the outer one where an older dialect has no inner one."""
    found: Any = config
    for depth, key in enumerate(wrapper.keys):
        if wrapper.flat and found.get(key) is None:
            beside = ("vision_config", "audio_config", "model_type", key)
            return {k: v for k, v in found.items() if k not in beside}
        found = found.get(key)
        if not isinstance(found, dict):
            where = ".".join(wrapper.keys[: depth + 1])
            msg = f"{where} in config.json must be an object. Got {shown(repr(found))}."
            raise CheckpointError(msg)
    return dict(found)
