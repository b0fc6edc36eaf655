"""JetMoE: Llama, where a router picks the projections that make a token's queries.

Each expert has a query for every key head. What is certified of one holds for all tokens that the
router sends there, as if it sent all of them; so the heads of a layer are the queries of all
experts, those of a key head together. Which of them a state gets is not told: nothing is witnessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.head_rows import rows_of_head
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.rotations import rope
from dispersion.architectures.scales import inverse_root, times
from dispersion.checkpoint import to_float64
from dispersion.config import integer
from dispersion.head import Head
from dispersion.norms import projection_ball

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint

NAMING = ledger.Naming(
    stack="layers",
    module="self_attention",
    near=("input_layernorm",),
    inside={
        r"self_attention\.experts\.(output_linear\.weight|bias)": ledger.VALUE,
        r"self_attention\.experts\.router\.layer\.weight": "picks experts; all of them count",
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?(lm_head|score)\..+": ledger.HEAD,
    },
)


@dataclass(frozen=True, kw_only=True)
class RoutedAttention(Attention):
    """One layer, its queries in one tensor of shape [experts, key heads · head_dim, width]."""

    experts: int

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        inner = self.key.heads * self.head_dim
        return super().tensors | {self.query.weight: (self.experts, inner, self.width)}

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head), the queries of all experts for one key head after another.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.input_norm is not None
        assert self.input_norm.gain is not None
        name = self.query.weight
        gain = to_float64(checkpoint.read(self.input_norm.gain), tensor=self.input_norm.gain)
        for kv_head in range(self.key.heads):
            rows = rows_of_head(checkpoint, self, self.key, kv_head)
            key = projection_ball(rows, norm="rms", gain=gain, overwrite_weight=True)
            part = slice(kv_head * self.head_dim, (kv_head + 1) * self.head_dim)
            for expert in range(self.experts):
                whole = checkpoint.read(name, slice(expert, expert + 1))
                rows = to_float64(whole[0, part], tensor=f"{name}[{expert}]", first_row=part.start)
                query = projection_ball(rows, norm="rms", gain=gain, overwrite_weight=True)
                head = Head(query, key, self.scale, rotary=self.rotary)
                yield kv_head * self.experts + expert, kv_head, head


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read its layers."""
    config = checkpoint.config
    key_heads, size = (
        integer(config, "num_key_value_heads", 16),
        integer(config, "kv_channels", 128),
    )
    experts, width = integer(config, "num_local_experts", 8), integer(config, "hidden_size")
    rotary = rope()(config, "full_attention", size)
    scale = inverse_root(size)
    if rotary is not None:
        scale = times(scale, times(rotary.attention_factor, rotary.attention_factor))

    def describe(prefix: str, layer: int) -> RoutedAttention:
        root = f"{prefix}layers.{layer}."
        module = f"{root}self_attention"
        return RoutedAttention(
            module=module,
            layer=layer,
            width=width,
            head_dim=size,
            query=Projection(f"{module}.experts.input_linear.weight", None, key_heads * experts),
            key=Projection(
                f"{module}.kv_proj.weight", None, key_heads, outputs=2 * key_heads * size
            ),
            input_norm=Norm("rms", f"{root}input_layernorm.weight"),
            scale=scale,
            rotary=rotary,
            known_inputs=False,
            experts=experts,
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="jetmoe",
        layers=integer(config, "num_hidden_layers", 12, maximum=ledger.MOST_LAYERS),
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_position_embeddings", 4096)},
    )


FAMILY = Family(
    "jetmoe",
    ("jetmoe",),
    ("JetMoe",),
    "RMSNorm, RoPE; a router picks a token's queries, and all experts' are audited as heads",
    read,
)
