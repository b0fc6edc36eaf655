"""GPT-Neo: logits are not scaled at all, and every other layer slides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.windows import FULL, SLIDING, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPES = [[["global", "local"], 12]]
MOST = ledger.MOST_LAYERS


def kinds(config: Mapping[str, Any], layers: int) -> tuple[LayerKind, ...]:
    """`attention_layers` names each layer's kind, `attention_types` what is repeated how often."""
    types, stated = config.get("attention_types"), config.get("attention_layers")
    found = _expanded(types or TYPES) if types or stated is None else stated
    if stated is not None and stated != found:
        msg = (
            "attention_layers in config.json must be what attention_types says. "
            f"Got {shown(repr(stated))}; remove one of them."
        )
        raise CheckpointError(msg)
    if not isinstance(found, list) or len(found) != layers:
        msg = (
            f"attention_types in config.json must make up {layers} layers. "
            f"Got {shown(repr(found))}."
        )
        raise CheckpointError(msg)
    for kind in found:
        if kind not in ("global", "local"):
            msg = (
                "attention_types in config.json must name global and local layers. "
                f"Got {shown(repr(kind))}."
            )
            raise CheckpointError(msg)
    window = integer(config, "window_size", 256)
    return tuple(LayerKind(SLIDING, window) if k == "local" else LayerKind(FULL) for k in found)


def _expanded(types: object) -> list[Any]:
    found: list[Any] = []
    for item in types if isinstance(types, list) else [None]:
        match item:
            case [list(names), int(times)] if 0 <= times * len(names) <= MOST - len(found):
                found += names * times
            case _:
                msg = (
                    "attention_types in config.json must be a list of [[kind, …], times]. "
                    f"Got {shown(repr(types))}."
                )
                raise CheckpointError(msg)
    return found


FAMILY = Blocks(
    stack="h",
    module="attn.attention",
    norm="ln_1",
    keys=Keys(("num_layers", "num_hidden_layers"), heads=("num_heads", "num_attention_heads")),
    bias=False,
    scale="one",
    window=kinds,
    table="wpe.weight",
    positions_absent=2048,
    tokens="wte.weight",
    inside={
        r"attn\.attention\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"attn\.attention\.(bias|masked_bias)": ledger.MASK,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"ln_2\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"wpe\.weight": "position embedding",
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"lm_head\..+": ledger.HEAD,
    },
).family("gpt_neo", "GPTNeo", "LayerNorm, logit scale 1, learned positions, local layers slide")
