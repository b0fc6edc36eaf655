"""DeepSeek V4: one key head, normed queries, and keys that are normed sums over several tokens.

Every query has the norm √head_dim at most, and no gain. Keys are of two kinds: those of tokens
within the window, behind an RMSNorm, and on most layers those of groups of tokens, sums by learned
weights behind an RMSNorm of their own. RoPE on a part comes behind all of these and keeps norms.
For two keys k, k′ of any kinds s·⟨q, k − k′⟩ ≤ s·√head_dim·(‖k‖ + ‖k′‖), so that no spread exceeds
2·s·head_dim times the largest gain of either norm: attained by keys of that kind along the query
and against it. A query sees at least as many keys as tokens of its window; groups come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.balls import sqrt_enclosure
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import Head
from dispersion.norms import qk_norm_ball, unit_ball
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

SLIDING = "sliding_attention"
COMPRESSED = {4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
TYPES = (SLIDING, *COMPRESSED.values())
FACTOR_FREE = (None, "default", "linear", "dynamic", "llama3")  # rotations whose factor is 1
MIXES = "mixes streams before the norm"
NAMING = ledger.Naming(
    stack="layers",
    module="attn",
    near=("attn_norm",),
    inside={
        r"attn\.wo_[ab]\.weight": ledger.VALUE,
        r"attn\.(wq_a|q_norm)\.weight": ledger.BEFORE_NORM,
        r"attn\.compressor\.(ape|(wkv|wgate)\.weight)": ledger.BEFORE_NORM,
        r"attn\.indexer\..+": ledger.INDEXER,
        r"hc_(attn|ffn)_(base|fn|scale)": MIXES,
        r"ffn_norm\.weight": ledger.AFTER,
        r"ffn\..+": ledger.FEED_FORWARD,
    },
    outside={
        r"(embed|embed_tokens)\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"hc_head(_|\.).+": MIXES,
        r"(.+\.)?(head|lm_head)\.weight": ledger.HEAD,
        r"(.+\.)?mtp\..+": ledger.DRAFT,
    },
    softmax=r"(wq_b|wkv)\.weight",
)


@dataclass(frozen=True, kw_only=True)
class SharedKey(Attention):
    """One layer; `query` and `key` name W_qb and W_kv, of which norms make the sizes immaterial.

    Attributes:
        rank: size of the queries' latent.
        gains: of the norms of keys, one or two tensors.
    """

    rank: int
    gains: tuple[str, ...]

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        assert self.sinks is not None
        return {
            self.query.weight: (self.query.heads * self.head_dim, self.rank),
            self.key.weight: (self.head_dim, self.width),
            self.input_norm.gain: (self.width,),
            self.sinks: (self.query.heads,),
            **dict.fromkeys(self.gains, (self.head_dim,)),
        }

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, 0, Head), all with the same balls and each with its sink.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.sinks is not None
        assert self.window is not None
        read = {name: to_float64(checkpoint.read(name), tensor=name) for name in self.tensors}
        gain = max((read[name] for name in self.gains), key=lambda g: float(np.abs(g).max()))
        # Which coordinates have the largest gains is left open: positions turn some of them.
        most = np.full(self.head_dim, np.abs(gain).max())
        key = qk_norm_ball(most, kind="rms", head_dim=self.head_dim, cap="RMSNorm of keys")
        query = unit_ball(
            self.head_dim, radius=sqrt_enclosure(self.head_dim), cap="headwise RMSNorm of queries"
        )
        for head, sink in enumerate(read[self.sinks]):
            built = Head(query, key, self.scale, sink=float(sink))
            yield head, 0, picked(built, self.window, more=len(self.gains) > 1)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    types = _types(config, layers)
    _check_rotation(config)
    return assemble(
        checkpoint,
        NAMING,
        lambda prefix, i: _describe(config, f"{prefix}layers.{i}.", i, types[i]),
        family="deepseek_v4",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_position_embeddings", 1048576)},
    )


def _describe(config: Config, root: str, layer: int, kind: str) -> SharedKey:
    module = f"{root}attn"
    size = integer(config, "head_dim", 512)
    gains = [f"{module}.norm.weight"]
    if kind != SLIDING:
        gains.append(f"{module}.compressor.norm.weight")
    return SharedKey(
        module=module,
        layer=layer,
        width=integer(config, "hidden_size"),
        head_dim=size,
        query=Projection(
            f"{module}.wq_b.weight",
            None,
            integer(config, "num_attention_heads"),
            norm=Norm("rms", None),
        ),
        key=Projection(f"{module}.wkv.weight", None, 1),
        input_norm=Norm("rms", f"{root}attn_norm.weight"),
        scale=inverse_root(size),
        sinks=f"{module}.attn_sink",
        window=integer(config, "sliding_window", 128),
        rank=integer(config, "q_lora_rank", 1024),
        gains=tuple(gains),
        known_inputs=False,
    )


def _types(config: Config, layers: int) -> list[str]:
    """Layer types, as its config class sets them.

    Raises:
        CheckpointError: a list is too short.
        UnsupportedError: a type is not known.
    """
    types = config.get("layer_types")
    ratios = config.get("compress_ratios")
    if types is None and isinstance(ratios, list):
        types = [_kind(ratio) for ratio in ratios]
    if types is None:
        types = [
            COMPRESSED[128],
            COMPRESSED[128],
            *(COMPRESSED[128 if i % 2 == 0 else 4] for i in range(layers)),
        ]
    if not isinstance(types, list) or len(types) < layers:
        msg = f"layer_types in config.json must list {layers} layers. Got {shown(repr(types))}."
        raise CheckpointError(msg)
    for kind in types[:layers]:
        if kind not in TYPES:
            msg = (
                f"layer_types in config.json must be of {', '.join(TYPES)} for this model. "
                f"Got {shown(repr(kind))}."
            )
            raise UnsupportedError(msg)
    return types[:layers]


def _kind(ratio: Any) -> Any:
    """The type of a layer with groups of so many tokens; what is no such number stays as it is."""
    if not isinstance(ratio, int):
        return ratio
    return COMPRESSED.get(ratio, ratio) if ratio else SLIDING


def _check_rotation(config: Config) -> None:
    """A factor of cos and sin would change norms.

    Raises:
        UnsupportedError: a rotation may have one other than 1.
    """
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    both = stated if isinstance(stated, dict) else {"": stated}
    nested = all(isinstance(both.get(key), dict) for key in ("main", "compress"))
    entries = [both["main"], both["compress"]] if nested else [both]
    for entry in entries:
        kind = entry.get("rope_type", entry.get("type"))
        # Without the key flat parameters of YaRN get a factor of 1, nested ones get one of theirs.
        absent = 1.0 if not nested else None
        factor = entry.get("attention_factor", absent)
        plain = kind == "yarn" and factor is not None and positive({"f": factor}, "f") == 1.0
        if kind not in FACTOR_FREE and not plain:
            msg = (
                "rope_parameters in config.json must leave cos and sin as they are for this model. "
                f"Got rope_type {shown(repr(kind))}, attention_factor {shown(repr(factor))}: not "
                "supported."
            )
            raise UnsupportedError(msg)


FAMILY = Family(
    "deepseek_v4",
    ("deepseek_v4",),
    ("DeepseekV4",),
    "normed queries on normed keys of tokens and of groups of tokens, learned sinks",
    read,
)
