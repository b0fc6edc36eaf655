"""T5Gemma 2: one softmax over a decoder's own keys and the encoder's; the encoder is Gemma 3's.

Both kinds of keys pass one projection and one QK norm, so that all lie in one ball. Own keys turn
with their positions, the encoder's do not: to the query at position t they all stand at lag t. A
row's largest and smallest logit may then come of one lag, which bounds over pairs of lags leave out
and bounds over free phases hold for. Those are attained, by opposite keys of the encoder. A factor
of cos and sin (YaRN) acts twice on own keys' logits, once on the others': from 1 on twice is most.

A query of a layer that slides sees the last `sliding_window` own keys and all of the encoder's, so
at least so many of all keys, and these stand anywhere. In the encoder it sees ⌈window/2⌉ keys up to
itself and ⌊window/2⌋ behind it, at an end of the text those on one side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import NAMING, Reader
from dispersion.architectures.picked_attention import with_picks
from dispersion.architectures.plans import Family
from dispersion.architectures.towers import TOWER
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.architectures.windows import full_every
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

DECODER = Decoder(
    gain_offset=1.0,
    qk_norm="headwise",
    heads=8,
    head_dim=256,
    key_heads=4,
    input_norm="pre_self_attn_layernorm",
    scale_key=("query_pre_attn_scalar", 256.0),
    window=full_every(6, "sliding_window_pattern"),
    rope=RopeRule(theta=1e6, local_key="rope_local_base_freq", local_theta=1e4),
    embedded=False,  # one token has another embedding, images have none
)
ENCODER = replace(DECODER, bidirectional="always")
_SIDES = {"encoder": ENCODER, "decoder": DECODER}
_OUTSIDE = {
    r"embed_tokens\.(weight|eoi_embedding)": ledger.EMBEDDING,
    r"norm\.weight": ledger.FINAL_NORM,
    r"(vision_tower|multi_modal_projector)\..+": TOWER,
}


def config_of(config: dict[str, Any], side: str) -> dict[str, Any]:
    """One stack's own config.

    Raises:
        CheckpointError: it is not a mapping.
    """
    keys = ("encoder", "text_config") if side == "encoder" else ("decoder",)
    found: Any = config
    for key in keys:
        found = found.get(key)
        if not isinstance(found, dict):
            msg = f"{'.'.join(keys)} in config.json must be a mapping. Got {shown(repr(found))}."
            raise CheckpointError(msg)
    return {**found, "quantization_config": config.get("quantization_config")}


def naming_of(side: str) -> ledger.Naming:
    """The names in one stack."""
    return replace(
        NAMING,
        stack=f"{side}.layers",
        near=("pre_self_attn_layernorm",),
        inside={**NAMING.inside, r"post_self_attn_layernorm\.weight": ledger.AFTER},
        outside={
            **{rf"{side}\.{pattern}": why for pattern, why in _OUTSIDE.items()},
            r"(.+\.)?(lm_head|score)\..+": ledger.HEAD,
        },
    )


def _encoding(reader: Reader, root: str, layer: int) -> Attention:
    found = reader._attention(root, layer)
    window = reader.kinds[layer].window
    if window is None:
        return found
    # One side is longer where the window is even: which keys a query sees is not told.
    return with_picks(replace(found, window=(window + 1) // 2), (window + 1) // 2)


def _merged(reader: Reader, root: str, layer: int) -> Attention:
    found = reader._attention(root, layer)
    assert found.rotary is not None
    if found.rotary.attention_factor.lower < 1:
        msg = (
            "the factor of cos and sin must be at least 1 for this model, whose keys of the "
            f"encoder do not get it. Got {found.rotary.attention_factor.lower:g}: not supported."
        )
        raise UnsupportedError(msg)
    rotary = replace(found.rotary, placed=True)
    return with_picks(replace(found, rotary=rotary, known_inputs=False), found.window)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read both stacks, each with its own config."""
    attentions, shares, stacks = [], [], []
    for side, rules in _SIDES.items():
        own = replace(checkpoint, config=config_of(checkpoint.config, side))
        reader, naming = Reader(rules, own), naming_of(side)
        prefix = naming.find_prefix(checkpoint, range(reader.layers))
        naming.check_layers(checkpoint, prefix, reader.layers, f"{side}'s num_hidden_layers")
        shares.append(Share(naming, prefix, f"{prefix}encoder." if side == "encoder" else ""))
        stacks.append((side, reader, f"{prefix}{side}."))
    check_asked(asked, max(reader.layers for _, reader, _ in stacks))
    for side, reader, root in stacks:
        one = _encoding if side == "encoder" else _merged
        wanted = (i for i in range(reader.layers) if asked is None or i in asked)
        attentions += [one(reader, root, layer) for layer in wanted]
    return plan_of_stacks(
        checkpoint,
        "t5gemma2",
        attentions,
        shares,
        modules=sum(reader.layers for _, reader, _ in stacks),
        facts={"max_positions": None},
    )


FAMILY = Family(
    "t5gemma2",
    ("t5gemma2",),
    ("T5Gemma2",),
    "as gemma3_text; a decoder whose softmax runs over its own keys and the encoder's",
    read,
)
