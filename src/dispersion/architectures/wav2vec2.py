"""wav2vec 2 and its like: sound, convolutions for positions, norms behind or before each branch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

_NORM = r"\.(weight|bias)"
INSIDE = {
    r"attention\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
    r"feed_forward\..+": ledger.FEED_FORWARD,
    rf"layer_norm{_NORM}": ledger.AFTER,
    rf"final_layer_norm{_NORM}": ledger.UNASKED,
    r"adapter_layer\..+": "adapter behind the feed-forward",
}


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`do_stable_layer_norm`: norms stand in front of each branch."""
    if config.get("model_type") in ("data2vec-audio", "sew"):
        return blocks  # whatever the key says
    if not flag(config, "do_stable_layer_norm", default=False):
        return blocks
    inside = {rule: why for rule, why in blocks.inside.items() if rule != rf"layer_norm{_NORM}"}
    inside[rf"final_layer_norm{_NORM}"] = ledger.AFTER
    return replace(blocks, norm="layer_norm", post_norm=False, first_norm=None, inside=inside)


BLOCKS = Blocks(
    stack="encoder.layers",
    module="attention",
    norm="final_layer_norm",
    post_norm=True,
    first_norm="encoder.layer_norm",
    eps_key="layer_norm_eps",
    causal=False,
    vary=vary,
    inside=INSIDE,
    outside={
        rf"encoder\.layer_norm{_NORM}": ledger.UNASKED,
        r"encoder\.pos_conv_embed\..+": ledger.EMBEDDING,
        r"(feature_extractor|feature_projection)\..+|masked_spec_embed": ledger.EMBEDDING,
        r"(lm_head|classifier|projector|project_q|project_hid|quantizer)\..+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family(
    "wav2vec2",
    ("Wav2Vec2", "Data2VecAudio", "Hubert", "SEW", "UniSpeech", "UniSpeechSat"),
    "LayerNorm before or behind each branch, biases, bidirectional",
    types=("wav2vec2", "data2vec-audio", "hubert", "sew", "unispeech", "unispeech-sat"),
)
