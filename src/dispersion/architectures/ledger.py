"""The account of a checkpoint's tensors: each one is used, skipped with a reason or refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
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
FREQUENCIES = "rotary frequencies come with the configuration"
NOT_ASKED = "layer not asked for"
FURTHER = "a layer that predicts further tokens, which the model's own pass does not run"
OTHER = "not part of attention"

MOST_LAYERS = 100_000

# Companions of packed integers or of 8-bit floats: the weights beside them are not the numbers.
_QUANTISED = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_scale_inv|weight_shape"
    r"|input_scale|absmax|quant_map|SCB|weight_format)$|\.quant_state\."
)
# Methods that pack experts alone; a packed projection would lack its `weight`.
_EXPERTS_ONLY = ("mxfp4",)
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
# Unknown names within a layer that could well act on queries, keys or the input of attention.
_TELLING = re.compile(
    r"(^|[._])(q|k|qk|query|key|rotary|rope|sinks?|logit_scale)([._]|$)|norm|(^|[._])ln",
    re.IGNORECASE,
)
_FEED_FORWARD = re.compile(r"mlp|feed_forward|ffn|expert|moe", re.IGNORECASE)


@dataclass(frozen=True)
class Naming:
    """How a family names its tensors.

    Attributes:
        stack: the word in front of the layer index ("layers", "h", "encoder.layer").
        module: the attention within a layer ("self_attn").
        inside: pattern of a name within a layer → why it is skipped.
        outside: pattern of a name outside the layers, without the stack's prefix → why.
        near: further modules within a layer in which an unknown tensor would change attention.
        refused: pattern of a name within a layer → why its module is refused.
        further_layers: layers behind those of the config that the model's own pass does not run.
    """

    stack: str
    module: str
    inside: Mapping[str, str]
    outside: Mapping[str, str]
    near: tuple[str, ...] = ()
    refused: Mapping[str, str] | None = None
    further_layers: int = 0

    def find_prefix(self, checkpoint: Checkpoint, layers: int) -> str:
        """The part of names before the stack in this file, such as "model." or nothing.

        Where several stacks are named alike, the one with as many layers as the config says.

        Raises:
            CheckpointError: no tensor of an attention layer is there.
        """
        stack, module = re.escape(self.stack), re.escape(self.module)
        layer = re.compile(rf"^((?:.*\.)?){stack}\.(\d+)\.{module}\.")
        found: dict[str, set[int]] = {}
        for name in checkpoint.names:
            if m := layer.match(name):
                found.setdefault(m[1], set()).add(int(m[2]))
        if not found:
            msg = (
                f"{shown(checkpoint.source)} must hold attention tensors named {self.stack}.N."
                f"{self.module}.*, as the model_type in its config.json says. Got none."
            )
            raise CheckpointError(msg)
        return min(found, key=lambda prefix: (found[prefix] != set(range(layers)), len(prefix)))

    def check_layers(self, checkpoint: Checkpoint, prefix: str, layers: int, key: str) -> None:
        """Compare the layer indices of the file with the config's number of layers.

        Raises:
            CheckpointError: they disagree.
        """
        layer = re.compile(rf"^{re.escape(prefix + self.stack)}\.(\d+)\.")
        found = {int(m[1]) for name in checkpoint.names if (m := layer.match(name))}
        further = set(range(layers, layers + self.further_layers))
        wrong = (found - further).symmetric_difference(range(layers))
        if wrong:
            what = "lacks" if min(wrong) < layers else "also holds"
            msg = (
                f"{key} in config.json must fit the layers in the file. Got {key}={layers}, but "
                f"the file {what} layer {min(wrong)}; one of them belongs to another model."
            )
            raise CheckpointError(msg)


def refuse_quantised(checkpoint: Checkpoint) -> None:
    """Refuse weights that are packed or lack their scale; without it they are silently wrong.

    Raises:
        UnsupportedError: the message names the method or a tensor.
    """
    method = checkpoint.config.get("quantization_config")
    kind = method.get("quant_method", "unknown") if isinstance(method, dict) else method
    if method and kind not in _EXPERTS_ONLY:
        msg = (
            f"quantization_config in config.json ({shown(kind)}) is not supported: such weights "
            "cannot be read exactly. Give the checkpoint before quantisation, or a GGUF file."
        )
        raise UnsupportedError(msg)
    for name in checkpoint.names:
        if _QUANTISED.search(name):
            msg = (
                f"tensor {shown(name)} belongs to quantised weights, which cannot be read exactly. "
                "Give the checkpoint before quantisation, or a GGUF file."
            )
            raise UnsupportedError(msg)


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
    layers: int | None = None,
) -> Account:
    """Sort names into used, skipped and refused, given the layers that were asked for.

    `layers` are those of the config; what lies behind them is not run.
    """
    used = {name for attention in attentions for name in attention.tensors}
    asked = {attention.layer: attention for attention in attentions}
    parents = {name.rpartition(".")[0] for name in used}
    layer = re.compile(rf"^{re.escape(prefix + naming.stack)}\.(\d+)\.(.+)$")
    skipped: Counter[tuple[str, str]] = Counter()
    refused: dict[str, str] = {}
    for name in sorted(set(names) - used, key=_natural):
        match = layer.match(name)
        if match is None:
            reason = _match(naming.outside, name.removeprefix(prefix))
            if reason is None and (module := _attention_module(name)):
                pattern = _starred(module)
                refused.setdefault(pattern, "attention outside the supported layers")
                continue
            skipped[_starred(name), reason or OTHER] += 1
            continue
        index, rest = int(match[1]), match[2]
        if layers is not None and index >= layers:
            skipped[f"{prefix}{naming.stack}.*.{_starred(rest)}", FURTHER] += 1
            continue
        pattern = f"{prefix}{naming.stack}.*.{_starred(rest)}"
        reason = _match(naming.inside, rest)
        if reason is not None:
            skipped[pattern, reason] += 1
            continue
        if index not in asked:
            skipped[pattern, NOT_ASKED] += 1
            continue
        if reason := _match(naming.refused or {}, rest):
            module = _attention_module(rest) or rest
            refused.setdefault(f"{prefix}{naming.stack}.*.{module}", reason)
            continue
        near = any(rest.startswith(f"{m}.") for m in (naming.module, *naming.near))
        elsewhere = _FEED_FORWARD.search(rest) or _attention_module(rest)
        telling = _TELLING.search(rest) and not elsewhere
        if near or telling or name.rpartition(".")[0] in parents:
            refused.setdefault(
                asked[index].module, f"tensor {shown(name)} is not known to this family"
            )
        elif module := _attention_module(rest):
            whole = f"{prefix}{naming.stack}.{index}.{module}"
            refused.setdefault(whole, "attention that is not known to this family")
        else:
            skipped[pattern, OTHER] += 1
    return Account(
        tuple(a for a in attentions if a.module not in refused),
        tuple(Skipped(name, reason, count) for (name, reason), count in skipped.items()),
        tuple(Refused(name, reason) for name, reason in refused.items()),
    )


def _match(reasons: Mapping[str, str], name: str) -> str | None:
    return next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), None)


def _attention_module(name: str) -> str | None:
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
