"""Swin: ViT within windows that every other layer shifts, in stages of ever wider layers.

Its copies are Donut's and MaskFormer's image encoders and CLAP's audio encoder. Images may have any
size: what is certified holds with the keys of zeros that fill windows over the edge of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.architectures.window_attention import WindowAttention, least_keys
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

_PARTS = r"\.(weight|bias)"
NAMING = Naming(
    stack="",
    module="attention",
    near=("layernorm_before",),
    inside={
        rf"attention\.(self\.value|v_proj|output\.dense|o_proj){_PARTS}": ledger.VALUE,
        r"attention\.self\.relative_(position_index|coords_table)": "index buffer",
        rf"(intermediate\.dense|output\.dense|mlp\.fc[12]){_PARTS}": ledger.FEED_FORWARD,
        rf"layernorm_after{_PARTS}": ledger.AFTER,
    },
    outside={
        r"(.+\.)?(embeddings|patch_embed|first_convolution)\..+": ledger.EMBEDDING,
        r"(.+\.)?layers\.\d+\.downsample\..+": "joins four patches of a stage",
        r"(.+\.)?stages\.\d+\.conv\..+": "convolution behind a stage",
        rf"(.+\.)?(norm|layernorm|hidden_states_norms\.\w+){_PARTS}": ledger.FINAL_NORM,
        r"(.+\.)?batch_norm\..+": ledger.EMBEDDING,
        r"(classifier|decoder|audio_projection|upsample|conv_after_body)\..+": ledger.HEAD,
    },
)


@dataclass(frozen=True)
class Stages:
    """How a model calls its stages.

    Attributes:
        stack: the layers of stage `{stage}`.
        heads, width: keys of the heads of each stage and of the first one's width.
        sizes: what the class has where a key is absent.
        grows: whether the width doubles from stage to stage.
        inside: further patterns of names within a layer → why they are skipped.
    """

    stack: str = "encoder.layers.{stage}.blocks"
    heads: str = "num_heads"
    width: str = "embed_dim"
    sizes: Mapping[str, Any] = field(
        default_factory=lambda: {
            "depths": [2, 2, 6, 2],
            "num_heads": [3, 6, 12, 24],
            "embed_dim": 96,
            "window_size": 7,
        }
    )
    grows: bool = True
    inside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """A layer's place and sizes; `within` counts the layers of its stage."""

    root: str
    number: int
    stage: int
    within: int
    heads: int
    width: int

    @property
    def shifts(self) -> bool:
        return self.within % 2 == 1


def whole_numbers(config: Config, key: str, *, minimum: int = 1) -> list[int]:
    """A list of whole numbers.

    Raises:
        CheckpointError: it is none.
    """
    value = config.get(key)
    if not isinstance(value, list) or not value:
        msg = f"{key} in config.json must be a list of numbers. Got {shown(repr(value))}."
        raise CheckpointError(msg)
    return [integer({key: n}, key, minimum=minimum, maximum=ledger.MOST_LAYERS) for n in value]


def read_stages(
    checkpoint: Checkpoint,
    asked: frozenset[int] | None,
    family: str,
    stages: Stages,
    describe: Callable[[Config, Layer], Attention],
    **facts: Any,
) -> Plan:
    """Read the layers of all stages, numbered through; `describe` says what each of them does.

    Raises:
        CheckpointError: config and file disagree.
    """
    config = {**stages.sizes, **{k: v for k, v in checkpoint.config.items() if v is not None}}
    depths, counts = whole_numbers(config, "depths"), whole_numbers(config, stages.heads)
    if len(counts) < len(depths):
        msg = (
            f"{stages.heads} in config.json must have a number for each of {len(depths)} stages. "
            f"Got {len(counts)}."
        )
        raise CheckpointError(msg)
    starts = [0, *accumulate(depths)]
    check_asked(asked, starts[-1])
    attentions: list[Attention] = []
    shares: list[Share] = []
    for stage, depth in enumerate(depths):
        inside = {**NAMING.inside, **stages.inside}
        naming = replace(NAMING, stack=stages.stack.format(stage=stage), inside=inside)
        prefix = naming.find_prefix(checkpoint, range(depth))
        naming.check_layers(checkpoint, prefix, depth, f"depths[{stage}]")
        shares.append(Share(naming, prefix, f"{prefix}{naming.stack}.", starts[stage]))
        width = integer(config, stages.width) * (2**stage if stages.grows else 1)
        split(width, counts[stage], f"the width of stage {stage}", stages.heads)
        for within in range(depth):
            number = starts[stage] + within
            if asked is None or number in asked:
                root = f"{prefix}{naming.stack}.{within}"
                layer = Layer(root, number, stage, within, counts[stage], width)
                attentions.append(describe(config, layer))
    return plan_of_stacks(
        checkpoint,
        family,
        attentions,
        [*shares, Share(shares[-1].naming, shares[-1].prefix)],
        modules=starts[-1],
        facts={"max_positions": None, **facts},
    )


def _describe(checkpoint: Checkpoint, config: Config, layer: Layer) -> WindowAttention:
    root = f"{layer.root}.attention"
    newer = f"{root}.q_proj.weight" in checkpoint
    table = "relative_position_bias_table"
    names = [f"{root}.{side}" for side in ("self.query", "self.key", f"self.{table}")]
    if newer:
        names = [
            f"{root}.{side}" for side in ("q_proj", "k_proj", f"relative_position_bias.{table}")
        ]
    bias = flag(config, "qkv_bias", default=True)
    query, key = (
        Projection(f"{name}.weight", f"{name}.bias" if bias else None, layer.heads)
        for name in names[:2]
    )
    norm = f"{layer.root}.layernorm_before"
    side = integer(config, "window_size")
    head_dim = layer.width // layer.heads
    return WindowAttention(
        module=root,
        layer=layer.number,
        width=layer.width,
        head_dim=head_dim,
        query=query,
        key=key,
        input_norm=Norm("layer", f"{norm}.weight", f"{norm}.bias"),
        scale=inverse_root(head_dim),
        window=least_keys(side, side // 2 if layer.shifts else 0),
        causal=False,
        known_inputs=False,
        table=names[2],
        side=side,
    )


CLAP_TYPE = "clap_audio_model"
CLAP = Stages(
    stack="audio_encoder.layers.{stage}.blocks",
    heads="num_attention_heads",
    width="patch_embeds_hidden_size",
    sizes={
        "depths": [2, 2, 6, 2],
        "num_attention_heads": [4, 8, 16, 32],
        "patch_embeds_hidden_size": 96,
        "window_size": 8,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder's stages."""
    clap = CLAP.width in checkpoint.config or checkpoint.config.get("model_type") == CLAP_TYPE
    return read_stages(
        checkpoint,
        asked,
        "swin",
        CLAP if clap else Stages(),
        lambda config, layer: _describe(checkpoint, config, layer),
    )


FAMILY = Family(
    "swin",
    ("swin", CLAP_TYPE, "donut-swin", "maskformer-swin"),
    (
        "Swin",
        "SwinBackbone",
        "ClapAudio",
        "ClapAudioModelWithProjection",
        "DonutSwin",
        "MaskFormerSwin",
        "MaskFormerSwinBackbone",
    ),
    "LayerNorm before attention in windows, relative biases by place, bidirectional",
    read,
)
