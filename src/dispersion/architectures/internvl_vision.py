"""InternVL's image encoder: ViT, whose queries and keys may be normalised over all heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import beit, ledger
from dispersion.architectures.attention import Attention, Norm
from dispersion.checkpoint.text import shown
from dispersion.config import flag
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks
    from dispersion.architectures.blocks_reader import BlocksReader

QK_EPS = 1e-6  # norms of queries and keys do not read the config's ε


def whole(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:  # noqa: ARG001
    """A norm of queries or keys treats all heads together."""
    return replace(attention, layerwise=reader.rules.qk_norm is not None)


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`norm_type` and `use_qk_norm` of the config."""
    kind = config.get("norm_type", "layer_norm")
    if kind not in ("layer_norm", "rms_norm"):
        msg = (
            "norm_type in config.json must be layer_norm or rms_norm. "
            f"Got {shown(repr(kind))}: not supported."
        )
        raise UnsupportedError(msg)
    if kind == "rms_norm":
        blocks = replace(blocks, norm_kind="rms", norm_parts=("weight",))
    if not flag(config, "use_qk_norm", default=False):
        return blocks
    return replace(blocks, qk_norm=Norm("rms", "{side}_norm.weight"))


FAMILY = replace(
    beit.BLOCKS,
    module="attention",
    sides=("q_proj", "k_proj"),
    bias="attention_bias",
    bias_absent=False,
    key_bias=True,
    eps=1e-6,
    qk_eps=QK_EPS,
    biased=whole,
    vary=vary,
    inside={
        r"attention\.(v_proj|projection_layer)\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"layernorm_after\.(weight|bias)": ledger.AFTER,
        r"lambda_[12]": beit.BLOCKS.inside[r"lambda_[12]"],
    },
).family(
    "internvl_vision",
    "InternVLVision",
    "as vit, LayerNorm or RMSNorm; maybe a QK norm over the whole width",
)
