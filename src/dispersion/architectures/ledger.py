"""The account of a checkpoint's tensors: each one is used, skipped with a reason or refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from dispersion.architectures.quantised import RUN_TIME, at_run_time, unpacked
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError
from dispersion.results import Refused, Skipped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint

VALUE = "value and output projections do not enter the logits"
FEED_FORWARD = "feed-forward"
AFTER = "norm after attention"
EMBEDDING = "embedding"
FINAL_NORM = "final norm"
HEAD = "output head"
MASK = "mask buffer of an old file"
BEFORE_NORM = "in front of a norm of queries and keys, which caps whatever it makes"
FREQUENCIES = "rotary frequencies come with the configuration"
NOT_ASKED = "layer not asked for"
OTHER = "not part of attention"
UNASKED = "feeds no attention asked for"
GATE = "gate on the output of attention"
DRAFT = "draft layer for multi-token prediction"
SHARED = "the layer reads the keys of an earlier one"
INDEXER = "indexer that picks the keys a query sees; it adds nothing to their logits"
WITHOUT_SOFTMAX = "layer without softmax attention"

MOST_LAYERS = 100_000

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
# Unknown names within a layer that could well act on queries, keys or the input of attention.
_TELLING = re.compile(
    r"(^|[._])(q|k|qk|query|key|rotary|rope|sinks?|logit_scale)([._]|$)|norm|(^|[._])ln",
    re.IGNORECASE,
)
_KEY = re.compile(r"k_(proj\.(weight|bias)|norm\.weight)")
_FEED_FORWARD = re.compile(r"mlp|feed_forward|ffn|expert|moe", re.IGNORECASE)


@dataclass(frozen=True)
class Naming:
    """How a family names its tensors.

    Attributes:
        stack: the word in front of the layer index ("layers", "h", "encoder.layer").
        module: the attention within a layer ("self_attn"); nothing where the layer itself holds the
            projections, and then no tensor within it may be unknown.
        inside: pattern of a name within a layer → why it is skipped.
        outside: pattern of a name outside the layers, without the stack's prefix → why.
        near: further modules within a layer in which an unknown tensor would change attention.
        refused: pattern of a name within a layer → why its module is refused.
        further_layers: layers behind those of the config that the model's own pass does not run.
        softmax: pattern of a name within the attention that only layers with softmax have.
    """

    stack: str
    module: str
    inside: Mapping[str, str]
    outside: Mapping[str, str]
    near: tuple[str, ...] = ()
    refused: Mapping[str, str] | None = None
    further_layers: int = 0
    softmax: str = r"[qk]_proj\.(weight|bias)"

    @property
    def below(self) -> str:
        """What names within the attention begin with."""
        return f"{self.module}." if self.module else ""

    def find_prefix(self, checkpoint: Checkpoint, attending: Collection[int]) -> str:
        """The part of names before the stack in this file, such as "model." or nothing.

        Where several stacks are named alike, the one whose layers have attention where the config
        says so.

        Raises:
            CheckpointError: no tensor of an attention layer is there.
        """
        stack, module = re.escape(self.stack), re.escape(self.below)
        layer = re.compile(rf"^((?:.*\.)?){stack}\.(\d+)\.{module}")
        found: dict[str, set[int]] = {}
        for name in checkpoint.names:
            if m := layer.match(name):
                found.setdefault(m[1], set()).add(int(m[2]))
        if not found:
            msg = (
                f"{shown(checkpoint.source)} must hold attention tensors named {self.stack}.N."
                f"{self.below}*, as the model_type in its config.json says. Got none."
            )
            raise CheckpointError(msg)
        wanted = set(attending)

        def unlike(prefix: str) -> tuple[bool, bool, int]:
            return found[prefix] != wanted, not found[prefix] >= wanted, len(prefix)

        return min(found, key=unlike)

    def check_layers(self, checkpoint: Checkpoint, prefix: str, layers: int, key: str) -> None:
        """Compare the layer indices of the file with the config's number of layers.

        Layers past the end that predict further tokens are no mistake.

        Raises:
            CheckpointError: they disagree.
        """
        layer = re.compile(rf"^{re.escape(prefix + self.stack)}\.(\d+)\.")
        found = {int(m[1]) for name in checkpoint.names if (m := layer.match(name))}
        found -= {i for i in drafts(checkpoint.names, prefix + self.stack) if i >= layers}
        found -= set(range(layers, layers + self.further_layers))
        wrong = found.symmetric_difference(range(layers))
        if wrong:
            what = "lacks" if min(wrong) < layers else "also holds"
            msg = (
                f"{key} in config.json must fit the layers in the file. Got {key}={layers}, but "
                f"the file {what} layer {min(wrong)}; one of them belongs to another model."
            )
            raise CheckpointError(msg)


def drafts(names: Iterable[str], stack: str) -> set[int]:
    """Layers that join the embedding of a next token to hidden states, as draft layers do."""
    joined = re.compile(rf"^{re.escape(stack)}\.(\d+)\.eh_proj\.weight$")
    return {int(m[1]) for name in names if (m := joined.match(name))}


@dataclass(frozen=True)
class Account:
    """Where every tensor went; `layers` are those whose attention can be read."""

    layers: tuple[Attention, ...]
    skipped: tuple[Skipped, ...]
    refused: tuple[Refused, ...]


def account(
    names: Iterable[str],
    naming: Naming,
    prefix: str,
    attentions: Collection[Attention],
    *,
    already: Mapping[str, str] | None = None,
    quantised: bool = False,
    without: Collection[int] = (),
    sharing: Collection[int] = (),
    past: int | None = None,
) -> Account:
    """Sort names into used, skipped and refused, given the layers that were asked for.

    `already` are modules that are refused for what is known before: module → why. Where the config
    says that the model is `quantised`, scales of roundings at run time are skipped. `without` are
    layers that have no softmax attention, `sharing` those that read the keys of another layer,
    `past` is the number of layers of the model; what comes after them are draft layers.

    Of attentions in another stack, as well as of several in one layer, each is refused for its own
    tensors.
    """
    used = {name for attention in attentions for name in attention.tensors}
    stack = prefix + naming.stack
    asked: dict[int, list[Attention]] = {}
    parents: dict[str, list[Attention]] = {}
    for attention in attentions:
        if attention.module.startswith(f"{stack}."):
            asked.setdefault(attention.layer, []).append(attention)
        for name in attention.tensors:
            parents.setdefault(name.rpartition(".")[0], []).append(attention)

    @cache
    def within(module: str) -> list[Attention]:
        """Attentions that read something of a module, whether their own or another layer's."""
        return [a for a in attentions if any(t.startswith(f"{module}.") for t in a.tensors)]

    layer = re.compile(rf"^{re.escape(stack)}\.(\d+)\.(.+)$")
    skipped: Counter[tuple[str, str]] = Counter()
    already = already or {}
    attending = (naming.module, *naming.near)
    refused = dict(already)
    for name in sorted(set(names) - used, key=_natural):
        match = layer.match(name)
        if match is None:
            reason = _match(naming.outside, name.removeprefix(prefix))
            readers = parents.get(name.rpartition(".")[0])
            if reason is None and readers and name.startswith(prefix):
                for attention in readers:
                    refused.setdefault(attention.module, unknown(name))
                continue
            if reason is None and (module := attention_module(name)):
                pattern = _starred(module)
                refused.setdefault(pattern, "attention outside the supported layers")
                continue
            skipped[_starred(name), reason or OTHER] += 1
            continue
        index, rest = int(match[1]), match[2]
        pattern = f"{stack}.*.{_starred(rest)}"
        if past is not None and index >= past:
            skipped[pattern, DRAFT] += 1
            continue
        if index in without:
            if re.fullmatch(naming.softmax, unpacked(rest).removeprefix(f"{naming.module}.")):
                whole = f"{stack}.{index}.{naming.module}"
                refused.setdefault(
                    whole, f"{shown(name)} in a layer that config.json says has none"
                )
            else:
                skipped[pattern, WITHOUT_SOFTMAX] += 1
            continue
        reason = _match(naming.inside, unpacked(rest))
        if reason is None and quantised and at_run_time(rest):
            reason = RUN_TIME
        if index in sharing and _KEY.fullmatch(unpacked(rest).removeprefix(f"{naming.module}.")):
            reason = SHARED
        if reason is not None:
            skipped[pattern, reason] += 1
            continue
        if index not in asked:
            skipped[pattern, NOT_ASKED] += 1
            continue
        whole = unpacked(name)
        if whole in used and any(a.module in already and whole in a.tensors for a in asked[index]):
            continue  # its module is refused for it
        if reason := _match(naming.refused or {}, rest):
            module = attention_module(rest) or rest
            refused.setdefault(f"{stack}.*.{module}", reason)
            continue
        near = not naming.module or any(rest.startswith(f"{m}.") for m in attending)
        elsewhere = _FEED_FORWARD.search(rest) or attention_module(rest)
        telling = _TELLING.search(rest) and not elsewhere
        readers = parents.get(name.rpartition(".")[0], [])
        if near or telling or readers:
            own = {a.module for a in asked[index] if name.startswith(f"{a.module}.")}
            others = [a for module in own for a in within(module)]
            for attention in [*readers, *others] or asked[index]:
                refused.setdefault(attention.module, unknown(name))
        elif module := attention_module(rest):
            whole = f"{stack}.{index}.{module}"
            refused.setdefault(whole, "attention that is not known to this family")
        else:
            skipped[pattern, OTHER] += 1
    return Account(
        tuple(a for a in attentions if a.module not in refused),
        tuple(Skipped(name, reason, count) for (name, reason), count in skipped.items()),
        tuple(Refused(name, reason) for name, reason in refused.items()),
    )


def unknown(name: str) -> str:
    """Why a tensor beside those that are used refuses their module."""
    return f"tensor {shown(name)} is not known to this family"


def _match(reasons: Mapping[str, str], name: str) -> str | None:
    return next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), None)


def attention_module(name: str) -> str | None:
    """The name up to the first part that speaks of attention."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if _ATTENTION.search(part):
            return ".".join(parts[: i + 1])
    return None


def _starred(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", name)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]
