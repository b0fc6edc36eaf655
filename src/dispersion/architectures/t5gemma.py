"""T5Gemma: an encoder and a decoder of Gemma 2's layers, and soft-capped attention between them.

Cross-attention does not turn. Its queries come from a norm of its own, its keys from the norm at
the encoder's end, whose width may be another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import NAMING, Reader
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.architectures.windows import full_every
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError
from dispersion.head import ONE

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

_GEMMA = Decoder(
    gain_offset=1.0,
    head_dim=256,
    key_heads=4,
    input_norm="pre_self_attn_layernorm",
    scale_key=("query_pre_attn_scalar", 256.0),
    soft_cap=("attn_logit_softcapping", 50.0),
    window=full_every(2),
    scaled_embedding=True,
)
_RULES = {"encoder": replace(_GEMMA, bidirectional="always"), "decoder": _GEMMA}
CROSS = "cross_attn"
_AFTER = rf"(post_self_attn|post_{CROSS}|(pre|post)_feedforward)_layernorm\.weight"


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the encoder, the decoder and the attention between them, or the encoder alone."""
    stacks = {
        side: Reader(_RULES[side], replace(checkpoint, config=_config(checkpoint, side)))
        for side in ("encoder", "decoder")
        if side == "encoder" or any("decoder.layers." in name for name in checkpoint.names)
    }
    prefixes, namings = {}, {}
    for side, reader in stacks.items():
        namings[side] = _naming(side)
        prefixes[side] = namings[side].find_prefix(checkpoint, range(reader.layers))
        namings[side].check_layers(checkpoint, prefixes[side], reader.layers, "num_hidden_layers")
    check_asked(asked, max(reader.layers for reader in stacks.values()))
    attentions: list[Attention] = []
    for side, reader in stacks.items():
        for layer in range(reader.layers):
            if asked is not None and layer not in asked:
                continue
            attentions.append(reader.attention(f"{prefixes[side]}{side}.", layer))
            if side == "decoder":
                end = f"{prefixes['encoder']}encoder.norm.weight"
                width = stacks["encoder"].width
                attentions.append(_cross_attention(reader, prefixes[side], layer, end, width))
    shares = [Share(namings["encoder"], prefixes["encoder"], f"{prefixes['encoder']}encoder.")]
    shares.append(Share(_naming("decoder"), prefixes.get("decoder", "")))
    return plan_of_stacks(
        checkpoint,
        "t5gemma",
        attentions,
        shares,
        modules=sum(reader.layers * (1 + (side == "decoder")) for side, reader in stacks.items()),
        facts={"max_positions": None},
    )


def _config(checkpoint: Checkpoint, side: str) -> dict[str, Any]:
    """One stack's own, with what the model's says of all weights."""
    own = checkpoint.config.get(side)
    if not isinstance(own, dict):
        msg = f"{side} in config.json must be a mapping. Got {shown(repr(own))}."
        raise CheckpointError(msg)
    return {**own, "quantization_config": checkpoint.config.get("quantization_config")}


def _naming(side: str) -> ledger.Naming:
    further = (CROSS, f"pre_{CROSS}_layernorm") if side == "decoder" else ()
    return replace(
        NAMING,
        stack=f"{side}.layers",
        near=("pre_self_attn_layernorm", *further),
        inside={
            **NAMING.inside,
            rf"{CROSS}\.[vo]_proj\.(weight|bias)": ledger.VALUE,
            _AFTER: ledger.AFTER,
        },
        outside={
            rf"{side}\.embed_tokens\.weight": ledger.EMBEDDING,
            rf"{side}\.norm\.weight": ledger.FINAL_NORM,
            r"(.+\.)?(lm_head|score)\..+": ledger.HEAD,
        },
    )


def _cross_attention(
    reader: Reader, prefix: str, layer: int, end: str, key_width: int
) -> Attention:
    """What a decoder's layer makes of the encoder: as its own attention, but it does not turn."""
    own = reader.attention(f"{prefix}decoder.", layer)
    root = f"{prefix}decoder.layers.{layer}."

    def moved(side: Projection) -> Projection:
        weight, bias = (n and n.replace(f"{root}self_attn.", f"{root}{CROSS}.")
                        for n in (side.weight, side.bias))  # fmt: skip
        assert weight is not None
        return replace(side, weight=weight, bias=bias)

    def norm(name: str) -> Norm:
        return Norm("rms", name, gain_offset=reader.gain_offset)

    return replace(
        own,
        module=f"{root}{CROSS}",
        query=moved(own.query),
        key=moved(own.key),
        input_norm=norm(f"{root}pre_{CROSS}_layernorm.weight"),
        key_input=norm(end),
        key_width=key_width,
        known_inputs=key_width == own.width,
        scale=reader.scale(own.head_dim),
        rotated_factor=ONE,
        rotary=None,
        window=None,
        causal=False,
        embedding=None,
    )


FAMILY = Family(
    "t5gemma",
    ("t5gemma",),
    ("T5Gemma",),
    "as gemma2; encoder, decoder and cross-attention, which does not turn",
    read,
)
