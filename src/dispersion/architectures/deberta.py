"""DeBERTa, the first: as its second version, with one fused projection and no buckets.

Its keys have no bias, its queries one beside the projection; the tables have projections of their
own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import bert, deberta_v2, ledger
from dispersion.architectures.assemble import split
from dispersion.architectures.attention import Attention, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

NAMING = replace(
    deberta_v2.NAMING,
    inside={
        r"attention\.self\.v_bias": ledger.VALUE,
        **deberta_v2.NAMING.inside,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder.

    Raises:
        UnsupportedError: heads mix their logits, or a kind of product is not known.
    """
    config = checkpoint.config
    if flag(config, "talking_head", default=False):
        msg = (
            "talking_head in config.json must be false: logits of one head are then sums over all "
            "heads'. Got true: not supported."
        )
        raise UnsupportedError(msg)
    heads = integer(config, "num_attention_heads", 12)
    width = integer(config, "hidden_size", 768)
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    kinds = deberta_v2.kinds_of(config, "deberta")

    def describe(prefix: str, layer: int) -> Attention:
        before = f"encoder.layer.{layer - 1}.output" if layer else "embeddings"
        root = f"{prefix}encoder.layer.{layer}.attention.self"
        query, key = (
            Projection(
                f"{root}.in_proj.weight",
                bias,
                heads,
                first=first,
                outputs=3 * heads * head_dim,
                stride=3 * head_dim,
                own_bias=True,
            )
            for first, bias in ((0, f"{root}.q_bias"), (head_dim, None))
        )
        plain = Attention(
            module=root,
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=bert.stored_norm(checkpoint, f"{prefix}{before}.LayerNorm"),
            scale=inverse_root(head_dim * (1 + len(kinds))),
            causal=False,
        )
        tables = {
            "c2p": Projection(f"{root}.pos_proj.weight", None, heads),
            "p2c": Projection(f"{root}.pos_q_proj.weight", f"{root}.pos_q_proj.bias", heads),
        }
        asked_for = {kind: tables[kind] for kind in kinds}
        return deberta_v2.with_distances(config, prefix, plain, asked_for)

    return deberta_v2.plan_of_encoder(checkpoint, asked, NAMING, describe, "deberta", 12)


FAMILY = Family(
    "deberta",
    ("deberta",),
    ("Deberta",),
    "as bert; queries and keys are multiplied by tables of distances",
    read,
)
