"""An encoder and a decoder of Llama's descendants, and attention of the one on the other.

Cross-attention does not turn. Its queries come from a norm of its own, its keys from the norm at
the encoder's end, whose width may be another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked
from dispersion.architectures.decoder_reader import NAMING, Reader
from dispersion.architectures.plans import Family
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.attention import Attention, Projection
    from dispersion.architectures.decoder import Decoder
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint


@dataclass(frozen=True)
class Pair:
    """How a family's two stacks are called and what they do.

    Attributes:
        encoder, decoder: their layers.
        config: from the checkpoint and "encoder" or "decoder" to that stack's config.
        cross, cross_norm: the attention on the encoder and its norm, within a decoder's layer.
        end: the norm at the encoder's end, within the encoder.
        inside: patterns of further names within a layer → why they are skipped.
        outside: patterns of further names outside the layers, without the stack's → why.
    """

    encoder: Decoder
    decoder: Decoder
    config: Callable[[Checkpoint, str], dict[str, Any]]
    cross: str
    cross_norm: str
    end: str
    inside: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)

    def family(self, name: str, class_prefix: str, notes: str) -> Family:
        """The family of this description."""

        def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
            return _read(self, name, checkpoint, asked)

        return Family(name, (name,), (class_prefix,), notes, read)

    def naming(self, side: str) -> ledger.Naming:
        """The names in one stack."""
        decodes = side == "decoder"
        rules = self.decoder if decodes else self.encoder
        inside = {rf"{self.cross}\.[vo]_proj\.(weight|bias)": ledger.VALUE} if decodes else {}
        own = {
            r"embed_tokens\.weight": ledger.EMBEDDING,
            r"(norm|layer_norm)\.weight": ledger.FINAL_NORM,
            **self.outside,
        }
        return replace(
            NAMING,
            stack=f"{side}.layers",
            near=(rules.input_norm, *((self.cross, self.cross_norm) if decodes else ())),
            inside={**NAMING.inside, **inside, **self.inside},
            outside={
                **{rf"{side}\.{pattern}": why for pattern, why in own.items()},
                r"(.+\.)?(lm_head|score|proj_out)\..+": ledger.HEAD,
            },
        )


class _Stack(Reader):
    """One stack's config read through its description, and how it looks at the other stack."""

    def own(self, root: str, layer: int) -> Attention:
        """A layer's attention on its own stack."""
        return self._attention(root, layer)

    def cross(self, pair: Pair, root: str, layer: int, end: str, key_width: int) -> Attention:
        """What a layer makes of the encoder: as its own attention, but it does not turn."""
        own = self.own(root, layer)
        within = f"{root}layers.{layer}."

        def moved(side: Projection) -> Projection:
            old, new = f"{within}{pair.decoder.module}.", f"{within}{pair.cross}."
            bias = None if side.bias is None else side.bias.replace(old, new)
            return replace(side, weight=side.weight.replace(old, new), bias=bias)

        return replace(
            own,
            module=within + pair.cross,
            query=moved(own.query),
            key=moved(own.key),
            input_norm=self._input_norm(f"{within}{pair.cross_norm}."),
            key_input=self._input_norm(end),
            key_width=key_width,
            known_inputs=key_width == own.width,
            scale=self._scale(own.head_dim),
            rotated_factor=ONE,
            rotary=None,
            window=None,
            causal=False,
            embedding=None,
        )


def _read(pair: Pair, family: str, checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the encoder, the decoder and the attention between them, or the encoder alone."""
    sides = ["encoder"]
    if any("decoder.layers." in name for name in checkpoint.names):
        sides.append("decoder")
    readers, prefixes, namings = {}, {}, {}
    for side in sides:
        rules = pair.encoder if side == "encoder" else pair.decoder
        own = pair.config(checkpoint, side)
        own["quantization_config"] = checkpoint.config.get("quantization_config")
        reader = readers[side] = _Stack(rules, replace(checkpoint, config=own))
        naming = namings[side] = pair.naming(side)
        prefixes[side] = naming.find_prefix(checkpoint, range(reader.layers))
        naming.check_layers(checkpoint, prefixes[side], reader.layers, f"{side}'s layers")
    check_asked(asked, max(reader.layers for reader in readers.values()))
    attentions: list[Attention] = []
    for side, reader in readers.items():
        root = f"{prefixes[side]}{side}."
        for layer in range(reader.layers):
            if asked is not None and layer not in asked:
                continue
            attentions.append(reader.own(root, layer))
            if side == "decoder":
                end = f"{prefixes['encoder']}encoder.{pair.end}."
                width = readers["encoder"].width
                attentions.append(reader.cross(pair, root, layer, end, width))
    return plan_of_stacks(
        checkpoint,
        family,
        attentions,
        [
            Share(namings["encoder"], prefixes["encoder"], f"{prefixes['encoder']}encoder."),
            Share(pair.naming("decoder"), prefixes.get("decoder", "")),
        ],
        modules=sum(r.layers * (1 + (side == "decoder")) for side, r in readers.items()),
        facts={"max_positions": None},
    )
