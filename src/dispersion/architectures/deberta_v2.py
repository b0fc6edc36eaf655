"""DeBERTa v2 and v3: BERT whose queries and keys are multiplied by tables of distances.

Distances share buckets that grow with the logarithm where `position_buckets` says so. Queries and
keys may be made of the table by their own projections (`share_att_key`) or by further ones. Where
there is a convolution the second layer reads its norm, else that of the first layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, distance_attention, ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
from dispersion.distance_bias import Places
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint import Checkpoint

_KINDS = ("c2p", "p2c")
_NORM = r"LayerNorm\.(weight|bias|gamma|beta)"
NAMING = ledger.Naming(
    stack="encoder.layer",
    module="attention.self",
    inside={
        r"attention\.self\.value_proj\.(weight|bias)": ledger.VALUE,
        r"attention\.output\.dense\.(weight|bias)": ledger.VALUE,
        rf"attention\.output\.{_NORM}": ledger.AFTER,
        r"(intermediate|output)\.dense\.(weight|bias)": ledger.FEED_FORWARD,
        rf"output\.{_NORM}": ledger.UNASKED,
    },
    outside={
        **bert.NAMING.outside,
        r"embeddings\.embed_proj\.weight": ledger.EMBEDDING,
        r"encoder\.rel_embeddings\.weight": ledger.UNASKED,
        rf"encoder\.{_NORM}": ledger.UNASKED,
        r"encoder\.conv\.conv\.(weight|bias)": "convolution behind the first layer, before a norm",
        rf"encoder\.conv\.{_NORM}": ledger.UNASKED,
        r"(lm_predictions|mask_predictions|qa_outputs)\..+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder.

    Raises:
        UnsupportedError: a kind of product that the model's code does not know.
        CheckpointError: the config contradicts itself or the file.
    """
    config = checkpoint.config
    heads = integer(config, "num_attention_heads", 24)
    width = integer(config, "hidden_size", 1536)
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    if (size := integer(config, "attention_head_size", head_dim)) != head_dim:
        msg = (
            "attention_head_size in config.json must be hidden_size / num_attention_heads, or the "
            f"model's own code cannot run. Got {size} and {width} / {heads}."
        )
        raise CheckpointError(msg)
    kinds = kinds_of(config, "deberta-v2")
    shared = flag(config, "share_att_key", default=False)

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}encoder.layer.{layer}.attention.self"

        def projection(name: str) -> Projection:
            return Projection(f"{root}.{name}.weight", f"{root}.{name}.bias", heads)

        names = ("key_proj", "query_proj") if shared else ("pos_key_proj", "pos_query_proj")
        plain = Attention(
            module=root,
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=projection("query_proj"),
            key=projection("key_proj"),
            input_norm=bert.stored_norm(checkpoint, prefix + _norm_before(config, layer)),
            scale=inverse_root(head_dim * (1 + len(kinds))),
            causal=False,
        )
        tables = {k: projection(n) for k, n in zip(_KINDS, names, strict=True) if k in kinds}
        norm = None
        if "layer_norm" in _words(config, "norm_rel_ebd"):
            norm = bert.stored_norm(checkpoint, f"{prefix}encoder.LayerNorm")
        return with_distances(config, prefix, plain, tables, norm, buckets=True)

    return plan_of_encoder(checkpoint, asked, NAMING, describe, "deberta_v2", 24)


def plan_of_encoder(
    checkpoint: Checkpoint,
    asked: frozenset[int] | None,
    naming: ledger.Naming,
    describe: Callable[[str, int], Attention],
    family: str,
    layers: int,
) -> Plan:
    """The plan of these layers, whose number is `layers` where the config is silent."""
    config = checkpoint.config
    positions = None
    if flag(config, "position_biased_input", default=True):
        positions = integer(config, "max_position_embeddings", 512)
    return assemble(
        checkpoint,
        naming,
        describe,
        family=family,
        layers=integer(config, "num_hidden_layers", layers, maximum=ledger.MOST_LAYERS),
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": positions},
        learned_positions=positions,
        position_table=None if positions is None else "embeddings.position_embeddings.weight",
    )


def kinds_of(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Which products count in the logit scale.

    Raises:
        UnsupportedError: the config names one that is not known, or one twice.
    """
    value = config.get("pos_att_type")
    found = value if isinstance(value, list) else _words(config, "pos_att_type")
    if any(kind not in _KINDS for kind in found) or len(set(found)) < len(found):
        msg = (
            f"pos_att_type in config.json must name c2p and p2c, each once at most, for {name}. "
            f"Got {shown(repr(value))}: not supported."
        )
        raise UnsupportedError(msg)
    return tuple(found)


def _words(config: Mapping[str, Any], key: str) -> list[str]:
    """The parts of a text between bars, in lower case."""
    value = config.get(key)
    if value is None:
        return []
    if not isinstance(value, str):
        msg = f"{key} in config.json must be a text such as 'c2p|p2c'. Got {shown(repr(value))}."
        raise CheckpointError(msg)
    return [word.strip() for word in value.lower().split("|")]


def with_distances(
    config: Mapping[str, Any],
    prefix: str,
    plain: Attention,
    tables: Mapping[str, Projection],
    norm: Norm | None = None,
    *,
    buckets: bool = False,
) -> Attention:
    """This attention with products of these kinds, where the config asks for any."""
    if not tables or not flag(config, "relative_attention", default=False):
        return plain
    return distance_attention.with_distances(
        plain,
        f"{prefix}encoder.rel_embeddings.weight",
        _places(config, buckets=buckets),
        table_norm=norm,
        table_eps=positive(config, "layer_norm_eps", 1e-7),
        key_table=tables.get("c2p"),
        query_table=tables.get("p2c"),
    )


def _places(config: Mapping[str, Any], *, buckets: bool) -> Places:
    """By distances up to `max_relative_positions`, or by `position_buckets` where there are such.

    Raises:
        CheckpointError: there are more exact buckets than distances.
    """
    most = integer(config, "max_relative_positions", -1, minimum=-(2**31))
    if most < 1:
        most = integer(config, "max_position_embeddings", 512)
    size = integer(config, "position_buckets", -1, minimum=-(2**31)) if buckets else -1
    if size < 1:
        return Places(-most, most - 1)
    if size < 4 or most - 1 <= size // 2:
        msg = (
            "position_buckets in config.json must be at least 4, half of it less than "
            f"max_relative_positions - 1. Got {size} and {most}."
        )
        raise CheckpointError(msg)
    return Places(-size, size - 1, size // 2, most - 1)


def _norm_before(config: Mapping[str, Any], layer: int) -> str:
    """The norm that a layer reads."""
    if layer == 0:
        return "embeddings.LayerNorm"
    if layer == 1 and integer(config, "conv_kernel_size", 0, minimum=-(2**31)) > 0:
        return "encoder.conv.LayerNorm"
    return f"encoder.layer.{layer - 1}.output.LayerNorm"


FAMILY = Family(
    "deberta_v2",
    ("deberta-v2",),
    ("DebertaV2",),
    "as bert; queries and keys are multiplied by tables of distances",
    read,
)
