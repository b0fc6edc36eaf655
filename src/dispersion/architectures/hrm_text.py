"""HRM Text: two stacks of Llama's layers that run in turn, with norms without gains.

Every pass through a stack is made of the same weights behind the same norms, so what is said of a
layer holds of all of its passes. With `prefix_lm` tokens of a prefix see each other to both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root, times
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError
from dispersion.rotary import rotary_from_config

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

STACKS = ("L_module", "H_module")
NAMES = {
    stack: Naming(
        stack=f"{stack}.layers",
        module="attn",
        inside={
            r"attn\.o_proj\.weight": ledger.VALUE,
            r"mlp\..+": ledger.FEED_FORWARD,
        },
        outside={
            r"embed_tokens\.weight": ledger.EMBEDDING,
            r"z_L_init": "state before the first pass",
            r"(.+\.)?lm_head\..+": ledger.HEAD,
        },
        softmax=r"gqkv_proj\.weight",
    )
    for stack in STACKS
}
KEY = "num_layers_per_stack"


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read both stacks; `num_hidden_layers` counts all their passes, or is that of one stack."""
    config = checkpoint.config
    if flag(config, "attention_bias", default=False):
        msg = "attention_bias in config.json must be false for hrm_text. Got true: not supported."
        raise UnsupportedError(msg)
    key = "num_hidden_layers" if config.get(KEY) is None else KEY
    layers = integer(config, key, maximum=ledger.MOST_LAYERS)
    check_asked(asked, layers)
    shares, attentions = [], []
    for stack in STACKS:
        naming = NAMES[stack]
        prefix = naming.find_prefix(checkpoint, range(layers))
        naming.check_layers(checkpoint, prefix, layers, key)
        shares.append(Share(naming, prefix, f"{prefix}{stack}." if stack == STACKS[0] else ""))
        wanted = [i for i in range(layers) if asked is None or i in asked]
        attentions += [_attention(config, f"{prefix}{naming.stack}.{i}", i) for i in wanted]
    stated = config.get("max_position_embeddings")
    positions = None if stated is None else integer(config, "max_position_embeddings")
    return plan_of_stacks(
        checkpoint,
        "hrm_text",
        attentions,
        shares,
        modules=len(STACKS) * layers,
        facts={"max_positions": positions},
    )


def _attention(config: dict[str, Any], root: str, layer: int) -> Attention:
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    size = integer(config, "head_dim", 128)
    rotary = rotary_from_config(config, None, size)
    scale = inverse_root(size)
    if rotary is not None and rotary.unrotated.size:
        msg = (
            "partial_rotary_factor in config.json must be 1 for hrm_text. Got less: not supported."
        )
        raise UnsupportedError(msg)
    if rotary is not None:
        scale = times(scale, times(rotary.attention_factor, rotary.attention_factor))
    # The gate's rows, then those of queries, keys and values.
    query, key = (
        Projection(
            f"{root}.attn.gqkv_proj.weight", None, heads, part * heads * size, 4 * heads * size
        )
        for part in (1, 2)
    )
    return Attention(
        module=f"{root}.attn",
        layer=layer,
        width=width,
        head_dim=size,
        query=query,
        key=key,
        input_norm=Norm("rms", None),
        scale=scale,
        rotary=rotary,
        causal=not flag(config, "prefix_lm", default=True),
    )


FAMILY = Family(
    "hrm_text",
    ("hrm_text",),
    ("HrmText",),
    "two stacks that run in turn; norms without gains, RoPE; keys to both sides with prefix_lm",
    read,
)
