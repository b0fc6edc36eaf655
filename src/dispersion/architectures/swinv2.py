"""Swin 2: cosines of queries and keys times a factor of the head, and biases that a net makes.

Queries and keys are divided by their lengths, so that nothing need cap what they are made of: norms
stand behind each branch. The factor is exp(min(logit_scale, ln 100)), the bias of a way between two
patches 16·sigmoid(z), z what two layers make of its logarithm (`continuous_position_bias_mlp`).

Swin2SR has the same layers, in stages of one width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import with_width
from dispersion.architectures import ledger
from dispersion.architectures.attention import Attention, Projection
from dispersion.architectures.head_rows import bias_of_head, rows_of_head
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.swin import Layer, Stages, read_stages, whole_numbers
from dispersion.architectures.window_attention import least_keys, row_widths
from dispersion.balls import from_arb, in_precision, to_arb
from dispersion.checkpoint import to_float64
from dispersion.cholesky import gamma
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError
from dispersion.head import ONE, Head
from dispersion.norms import unit_ball

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure

    Config = Mapping[str, Any]
    Table = NDArray[np.float64]

HIDDEN = 512  # of the net that makes biases
LARGEST = 16.0
# Models compute the logarithms in float32.
WAY_ROUNDING = 2.0**-20
_UP = 1 + 2.0**-40
AFTER = {r"layernorm_before\.(weight|bias)": ledger.AFTER}
PLAIN = Stages(sizes={**Stages().sizes, "image_size": 224, "patch_size": 4}, inside=AFTER)
SR = Stages(
    stack="encoder.stages.{stage}.layers",
    sizes={
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "embed_dim": 180,
        "window_size": 8,
        "image_size": 64,
        "patch_size": 1,
    },
    grows=False,
    inside=AFTER,
)


@dataclass(frozen=True, kw_only=True)
class CosineWindows(Attention):
    """One layer of Swin 2.

    Attributes:
        side: of a window.
        unit: what ways are divided by before the net is told of them, or 0 for 1.
    """

    side: int
    unit: int

    @property
    def own(self) -> dict[str, tuple[int, ...]]:
        """The tensors beside the projections."""
        net = f"{self.module}.continuous_position_bias_mlp"
        return {
            f"{self.module}.logit_scale": (self.query.heads, 1, 1),
            f"{net}.0.weight": (HIDDEN, 2),
            f"{net}.0.bias": (HIDDEN,),
            f"{net}.2.weight": (self.query.heads, HIDDEN),
        }

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | self.own

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which keys get which bias is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        scales, first, shift, second = (
            to_float64(checkpoint.read(name), tensor=name) for name in self.own
        )
        low, high = biases(ways(self.side, self.unit), first, shift, second)
        widths = row_widths(low, high)
        ball = unit_ball(self.head_dim)
        for index, scale in enumerate(scales.ravel()):
            for side in (self.query, self.key):  # read so that a nan in them is found
                rows_of_head(checkpoint, self, side, index)
                bias_of_head(checkpoint, self, side, index)
            head = Head(ball, ball, factor(float(scale)), window=self.window, causal=False)
            yield index, index, with_width(head, widths[index])


@in_precision
def factor(logit_scale: float) -> Enclosure:
    """exp(min(x, ln 100))."""
    found = from_arb(to_arb(logit_scale).exp())
    return from_arb(to_arb(100.0)) if found.upper >= 100.0 else found


def ways(side: int, unit: int) -> Table:
    """What the net is told of each way, by height and width, shape (2·side − 1, 2·side − 1, 2)."""
    lags = np.arange(1 - side, side) * (8.0 / max(unit, 1))
    logs = np.sign(lags) * np.log2(np.abs(lags) + 1.0) / math.log2(8.0)
    return np.stack(np.meshgrid(logs, logs, indexing="ij"), axis=-1)


def biases(told: Table, first: Table, shift: Table, second: Table) -> tuple[Table, Table]:
    """Bounds on 16·sigmoid of what the net makes, shape (…, heads) each."""
    inner = told @ first.T + shift
    sizes = np.abs(told) @ np.abs(first).T
    off = (sizes * WAY_ROUNDING + gamma(8) * (sizes + np.abs(shift))) * _UP
    inner = np.maximum(inner, 0.0)
    value = inner @ second.T
    error = (off + gamma(HIDDEN + 8) * inner) @ np.abs(second).T * _UP
    ends = [LARGEST * (0.5 + 0.5 * np.tanh((value + e) / 2)) for e in (-error, error)]
    # tanh is good to a few units of the last digit of 1.
    return np.maximum(ends[0] - 2.0**-44, 0.0), np.minimum(ends[1] + 2.0**-44, LARGEST)


def _describe(config: Config, layer: Layer, *, grows: bool) -> CosineWindows:
    root = f"{layer.root}.attention.self"
    queries = f"{root}.query.bias" if flag(config, "qkv_bias", default=True) else None
    whole = integer(config, "window_size")
    grid = _grid(config, layer.stage if grows else 0)
    side = min(grid, whole)
    trained = _trained(config, layer.stage) if grows else 0
    head_dim = layer.width // layer.heads
    return CosineWindows(
        module=root,
        layer=layer.number,
        width=layer.width,
        head_dim=head_dim,
        query=Projection(f"{root}.query.weight", queries, layer.heads),
        key=Projection(f"{root}.key.weight", None, layer.heads),
        input_norm=None,
        scale=ONE,
        window=least_keys(side, whole // 2 if layer.shifts and grid > whole else 0),
        causal=False,
        known_inputs=False,
        side=side,
        unit=trained - 1 if trained else side - 1,
    )


def _grid(config: Config, stage: int) -> int:
    """Patches of the configured image from top to bottom, the only way that the code looks at."""
    sizes = []
    for key in ("image_size", "patch_size"):
        value = config[key]
        sides = value if isinstance(value, list) else [value]
        sizes.append(whole_numbers({key: sides}, key)[0])
    found: int = sizes[0] // sizes[1] // 2**stage
    if not found:
        msg = f"image_size in config.json must have patches in every stage. Got {sizes[0]}."
        raise CheckpointError(msg)
    return found


def _trained(config: Config, stage: int) -> int:
    """The side of the windows that the net was trained on, or 0 for that of these."""
    key = "pretrained_window_sizes"
    if key not in config:
        return 0
    found = whole_numbers(config, key, minimum=0)
    if stage >= len(found) or found[stage] == 1:
        msg = f"{key} in config.json must be 0, or 2 or more, for each stage. Got {found}."
        raise CheckpointError(msg)
    return found[stage]


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder's stages."""
    sr = checkpoint.config.get("model_type") == "swin2sr"
    describe = partial(_describe, grows=not sr)
    stages = SR if sr else PLAIN
    return read_stages(checkpoint, asked, "swinv2", stages, describe, qk_norm="headwise")


FAMILY = Family(
    "swinv2",
    ("swinv2", "swin2sr"),
    ("Swinv2", "Swinv2Backbone", "Swin2SR"),
    "cosines of queries and keys in windows, continuous biases by place, bidirectional",
    read,
)
