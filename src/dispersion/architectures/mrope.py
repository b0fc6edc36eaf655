"""RoPE whose pairs of coordinates turn by time, height or width of an image.

A token of text has one position for all three, however the pairs are shared out among them: what
`mrope_section` says, and whether it is interleaved, does not matter then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder_reader import Reader
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dispersion.architectures.decoder import Decoder
    from dispersion.architectures.plans import Family, Plan
    from dispersion.checkpoint import Checkpoint


def family(
    name: str,
    class_prefix: str,
    notes: str,
    rules: Mapping[str, Decoder],
    *,
    undivided: Collection[str] = (),
    renamed: Collection[str] = (),
) -> Family:
    """The family of some model types, each with rules of its own; `name` is one of them.

    `undivided` are those whose attention ignores `head_dim`, `renamed` those in whose older configs
    the plain rotation is of type mrope.
    """

    def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
        config = checkpoint.config
        kind = config.get("model_type", name)
        if kind in undivided:
            check_undivided(config)
        if kind in renamed:
            checkpoint = replace(checkpoint, config=_plain(config))
        return Reader(rules[kind], checkpoint).plan(name, layers)

    others = [each for each in rules if each != name]
    return replace(rules[name].family(name, class_prefix, notes, *others), read=read)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(config)
    for key in ("rope_scaling", "rope_parameters"):
        stated = found.get(key)
        if isinstance(stated, dict) and stated.get("rope_type", stated.get("type")) == "mrope":
            found[key] = {**stated, "rope_type": "default"}
    return found


def check_undivided(config: Mapping[str, Any]) -> None:
    """See to it that `head_dim`, by which heads would only turn, is what attention takes."""
    if config.get("head_dim") is None:
        return
    size, width, heads = (
        integer(config, key) for key in ("head_dim", "hidden_size", "num_attention_heads")
    )
    if size * heads != width:
        msg = (
            "head_dim in config.json must be hidden_size / num_attention_heads for this model, "
            f"whose attention ignores it. Got {size}: not supported."
        )
        raise UnsupportedError(msg)
