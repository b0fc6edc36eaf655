"""GLM 5 Next: queries and keys of normalised latents alone, which nothing turns, on picked keys.

An indexer picks groups of tokens that are full, and the tokens behind the last of them are always
seen. Layers between have linear attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.decoder_reader import NAMING
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.indexed_attention import NAMES
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.windows import FULL
from dispersion.checkpoint import to_float64
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.head import Head
from dispersion.norms import projection_ball
from dispersion.picked import picked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

CAP = "latent RMSNorm"
INDEXED, TAIL = "indexed_attention", "index_kpool_always_select_tail"
NAMING_HERE = replace(
    NAMING,
    inside={
        **NAMING.inside,
        **NAMES,
        r"hc_(attn|ffn)_(base|fn|scale)": "mixes streams before the norm",
    },
    softmax=r"kv_[ab]_proj(_with_mqa)?\.weight",
)


@dataclass(frozen=True, kw_only=True)
class LatentOnly(Attention):
    """One layer; `query` and `key` name W_qb and W_kb, which read normalised latents.

    Attributes:
        ranks: sizes of the latents of queries and of keys.
        value_dim: rows of values behind each head's rows of keys.
        picks: how many keys a query sees at least.
        before: tensors in front of the latents' norms, immaterial but for their shapes.
        gains: of the latents' norms.
    """

    ranks: tuple[int, int]
    value_dim: int
    picks: int
    before: dict[str, tuple[int, ...]]
    gains: tuple[str, str]

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        heads, (first, second) = self.query.heads, self.ranks
        return {
            self.query.weight: (heads * self.head_dim, first),
            self.key.weight: (heads * (self.head_dim + self.value_dim), second),
            self.gains[0]: (first,),
            self.gains[1]: (second,),
            **self.before,
        }

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head), reading one head's rows at a time.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        for name in self.before:
            to_float64(checkpoint.read(name), tensor=name)
        gains = [to_float64(checkpoint.read(name), tensor=name) for name in self.gains]
        size = self.head_dim
        for head in range(self.query.heads):
            balls = []
            for side, stride, gain in (
                (self.query.weight, size, gains[0]),
                (self.key.weight, size + self.value_dim, gains[1]),
            ):
                part = slice(head * stride, head * stride + size)
                rows = to_float64(checkpoint.read(side, part), tensor=side, first_row=part.start)
                balls.append(projection_ball(rows, norm="rms", gain=gain, cap=CAP))
            yield head, head, picked(Head(balls[0], balls[1], self.scale), self.picks)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config whose keys have no part that turns."""
    config = checkpoint.config
    if not flag(config, TAIL, default=True):
        msg = f"{TAIL} in config.json must be true: else queries may see no key. Got false."
        raise UnsupportedError(msg)
    if integer(config, "qk_rope_head_dim", 0, minimum=0):
        msg = "qk_rope_head_dim in config.json must be 0 for glm5_next_text. Got more."
        raise UnsupportedError(msg)
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    kinds = Mixed(lambda _, n: [LINEAR if i % 4 != 3 else FULL for i in range(n)]).rule()
    stated = config.get("layer_types")
    if isinstance(stated, list):
        stated = [FULL if kind == INDEXED else kind for kind in stated]
    found = kinds({**config, "layer_types": stated}, layers)
    one = _describe(config)
    key = "max_position_embeddings"
    return assemble(
        checkpoint,
        NAMING_HERE,
        lambda prefix, layer: one(f"{prefix}layers.{layer}.", layer),
        family="glm5_next_text",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": None if config.get(key) is None else integer(config, key)},
        without=frozenset(i for i, kind in enumerate(found) if not kind.attends),
    )


def _describe(config: Config) -> Any:
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    size, values = integer(config, "qk_nope_head_dim"), integer(config, "v_head_dim")
    ranks = integer(config, "q_lora_rank"), integer(config, "kv_lora_rank")
    picks, pool = integer(config, "index_topk", 2048), integer(config, "index_kpool", 16)
    if picks % pool:
        msg = (
            f"index_topk in config.json must be a multiple of index_kpool={pool}: whole groups are "
            f"picked. Got {picks}."
        )
        raise CheckpointError(msg)
    bias = flag(config, "attention_bias", default=False)

    def one(root: str, layer: int) -> LatentOnly:
        module = f"{root}self_attn"
        maps = zip(("q_a_proj", "kv_a_proj_with_mqa"), ranks, strict=True)
        before: dict[str, tuple[int, ...]] = {f"{root}input_layernorm.weight": (width,)}
        for name, rank in maps:
            before[f"{module}.{name}.weight"] = (rank, width)
            if bias:
                before[f"{module}.{name}.bias"] = (rank,)
        return LatentOnly(
            module=module,
            layer=layer,
            width=width,
            head_dim=size,
            query=Projection(f"{module}.q_b_proj.weight", None, heads),
            key=Projection(f"{module}.kv_b_proj.weight", None, heads),
            input_norm=Norm("rms", f"{root}input_layernorm.weight"),
            scale=inverse_root(size),
            ranks=ranks,
            value_dim=values,
            picks=picks,
            before=before,
            gains=(f"{module}.q_a_layernorm.weight", f"{module}.kv_a_layernorm.weight"),
        )

    return one


FAMILY = Family(
    "glm5_next_text",
    ("glm5_next_text",),
    ("Glm5NextText",),
    "latents alone, nothing turns, keys that an indexer picks; linear layers are skipped",
    read,
)
