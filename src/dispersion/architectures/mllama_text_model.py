"""Llama 3.2 Vision: Llama's layers, and between them some that attend to images instead.

Keys of the latter come from the image tower, as they come: what caps them is the QK norm alone. A
norm divides their size out, so states of any one size stand for all. In contexts of text alone the
model passes these layers over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.mrope import check_undivided
from dispersion.architectures.scales import inverse_root
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

KEY = "cross_attention_layers"
ABSENT = [3, 8, 13, 18, 23, 28, 33, 38]
CROSS = "cross_attn"
RULES = Decoder(
    bias=False,
    eps=1e-5,
    key_heads=8,
    rope=RopeRule(theta=500000.0),
    names={
        rf"{CROSS}\.[vo]_proj\.weight": ledger.VALUE,
        rf"{CROSS}_(attn|mlp)_gate": ledger.GATE,
    },
)


class CrossReader(Reader):
    """Llama's reader, for a stack of which some layers attend to images."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(RULES, checkpoint)
        stated = self.config.get(KEY)
        crossing = ABSENT if stated is None else stated
        if not isinstance(crossing, list) or not all(type(i) is int for i in crossing):
            msg = f"{KEY} in config.json must list layers. Got {shown(repr(crossing))}."
            raise CheckpointError(msg)
        self.crossing = frozenset(crossing)

    def _attention(self, prefix: str, layer: int) -> Attention:
        if layer not in self.crossing:
            return super()._attention(prefix, layer)
        module = f"{prefix}layers.{layer}.{CROSS}"
        query, key = (
            Projection(
                f"{module}.{side}_proj.weight",
                None,
                heads,
                norm=Norm("rms", f"{module}.{side}_norm.weight"),
            )
            for side, heads in (("q", self.heads), ("k", self.key_heads))
        )
        return Attention(
            module=module,
            layer=layer,
            width=self.width,
            head_dim=self.head_dim,
            query=query,
            key=key,
            input_norm=self._input_norm(f"{prefix}layers.{layer}.{RULES.input_norm}."),
            key_input=Norm("rms", None),
            scale=inverse_root(self.head_dim),
            eps=self.eps,
            causal=False,
        )


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read both kinds of layers."""
    check_undivided(checkpoint.config)
    return CrossReader(checkpoint).plan("mllama_text_model", layers)


FAMILY = replace(
    RULES.family(
        "mllama_text_model",
        "MllamaText",
        "Llama's attention, and layers that attend to images behind a headwise QK norm",
    ),
    read=read,
)
