"""Models whose positions add to their logits, and what their modules are asked for."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import torch
from published_attention import slopes

if TYPE_CHECKING:
    from real import Real
    from torch import Tensor


DISTANCES = ("deberta", "deberta-v2")
SHAW = ("wav2vec2-bert",)  # rows of a table by the distances of all states
WAVES = ("parakeet_encoder", "wav2vec2-conformer")  # sinusoids of the distances


def waves(real: Real, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The model's own sinusoids of all distances, and where those of these positions stand."""
    n = int(positions.max()) + 1
    owner, name = owner_of_waves(real.model)
    lags = positions[:, :, None] - positions[:, None, :]
    rows = getattr(owner, name)(torch.zeros(1, n, real.width, dtype=real.dtype))
    return rows, n - 1 - lags


def owner_of_waves(model: Any) -> tuple[Any, str]:
    """Where a model keeps the module that makes its sinusoids."""
    if model.config.model_type == "parakeet_encoder":
        return model, "encode_positions"
    return model.encoder, "embed_positions"


def picked(scores: Tensor, where: Tensor) -> Tensor:
    """Scores (batch, heads, n, distances) at (batch, n, n) places."""
    batch, heads, n, _ = scores.shape
    return scores.gather(3, where[:, None].expand(batch, heads, n, n))


def unshifted(where: Tensor) -> Any:
    """In the place of the shift of scores by which conformers sort them."""
    return lambda _module, scores: picked(scores, where)


def unshifted_whole(where: Tensor) -> Any:
    """The same for wav2vec 2's conformers, whose shift has no function of its own."""

    def record(module: Any, query: Tensor, _key: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = module.linear_pos(rows).view(*rows.shape[:2], -1, module.head_size)
        asked = query + module.pos_bias_v[None, :, None]
        scores = picked(asked @ rows.permute(0, 2, 3, 1), where)
        return query + module.pos_bias_u[None, :, None], scores * module.scaling

    return record


def shaw(positions: Tensor) -> Any:
    """In the place of the model's own rows, for states at other positions than 0, 1, 2 and on."""

    def record(module: Any, query: Tensor, _key: Tensor) -> tuple[Tensor, Tensor]:
        ends = module.left_max_position_embeddings, module.right_max_position_embeddings
        found = (positions[:, None, :] - positions[:, :, None]).clamp(-ends[0], ends[1])
        rows = module.distance_embedding(found + ends[0])
        return query, torch.einsum("bhld,blrd->bhlr", query, rows) * module.scaling

    return record


def distances(real: Real, positions: Tensor) -> Tensor:
    """How far each query lies behind each key, or the bucket of that: (batch, n, n)."""
    found = positions[:, :, None] - positions[:, None, :]
    encoder = real.model.encoder
    if getattr(encoder, "position_buckets", -1) > 0:
        bucket = sys.modules[type(real.model).__module__].make_log_bucket_position
        size = encoder.position_buckets, encoder.max_relative_positions
        found = bucket(found, *size).long()
    return found


def owner(real: Real, layer: int) -> int:
    """The layer of T5 whose table a layer of the same stack uses; in UMT5 itself."""
    if real.kind == "umt5":
        return layer
    decodes = real.attention(layer).is_decoder
    return next(i for i in range(real.layers) if real.attention(i).is_decoder == decodes)


def biases(real: Real, positions: Tensor, layer: int) -> Tensor | None:
    """What the model's own builder adds for keys at (batch, n) positions: (batch, heads, 1, n)."""
    n = int(positions.max()) + 1
    if real.crosses(layer):
        return None
    if real.kind in DISTANCES:
        return distances(real, positions)
    if real.kind in (*SHAW, *WAVES):
        return positions
    if real.kind in ("t5", "umt5"):
        first = real.attention(owner(real, layer))
        more = {
            "bidirectional": not first.is_decoder,
            "num_buckets": first.relative_attention_num_buckets,
            "max_distance": first.relative_attention_max_distance,
        }
        buckets = first._relative_position_bucket(
            positions[:, None, :] - positions[:, :, None], **(more if real.kind == "t5" else {})
        )
        return first.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    if real.kind == "baichuan":
        table = torch.tensor(slopes(real.heads), dtype=real.dtype)
        lags = (positions[:, None, :] - positions[:, -1:, None]).to(real.dtype)
        return table[None, :, None, None] * lags[:, None]
    if real.kind == "mpnet":
        encoder = real.model.encoder
        buckets = encoder.relative_position_bucket(positions[:, None, :] - positions[:, -1:, None])
        return encoder.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    if real.kind == "mpt":
        largest = real.config.attn_config.alibi_bias_max
        table = real.model.build_mpt_alibi_tensor(real.heads, n, largest).to(real.dtype)
    else:
        module = sys.modules[type(real.model).__module__]
        ones = torch.ones(1, n, dtype=torch.long)
        table = module.build_alibi_tensor(ones, real.heads, real.dtype)
    return table[:, 0][:, positions].transpose(0, 1).unsqueeze(2)


def arguments(real: Real, bias: Any, states: Tensor, layer: int, *, eager: bool) -> Any:
    """What a module takes besides its states."""
    batch, n, _ = states.shape
    if real.kind == "bloom":
        flat = bias.reshape(batch * real.heads, 1, n)
        return {"residual": torch.zeros_like(states), "alibi": flat, "attention_mask": None}
    if real.kind == "baichuan":
        return {"attention_mask": bias}
    if real.kind in SHAW:
        return {}
    if real.kind in WAVES:
        rows = waves(real, torch.arange(n)[None] if eager else bias)[0]
        name = "relative_position_embeddings"
        if real.kind == "parakeet_encoder":
            name, rows = "position_embeddings", rows.expand(batch, -1, -1)
        return {name: rows}
    if real.kind in DISTANCES:
        if real.kind == "deberta-v2":  # its code knows one context at a time, but any heads
            bias = bias.repeat_interleave(real.heads, dim=0)[None]
        rows = real.model.encoder.get_rel_embedding()
        seen = torch.ones(batch, 1, n, n)
        both = {"relative_pos": bias, "rel_embeddings": rows, "attention_mask": seen}
        return both | {"output_attentions": True}
    if real.kind == "mpnet":
        return {"position_bias": bias, "output_attentions": True}
    if real.kind == "mpt":
        return {"position_bias": bias[0] if eager else None}
    if real.kind == "umt5":
        return {"encoder_hidden_states": states[:, :-1] if real.crosses(layer) else None}
    if real.kind == "t5":  # the first layer makes its own bias of a whole context
        if real.crosses(layer):
            return {"key_value_states": states[:, :-1]}
        usual = real.where is not None and real.where[0].equal(torch.arange(n))
        return {"position_bias": None if eager and usual and layer == owner(real, layer) else bias}
    if eager:
        zeros = torch.zeros(1, 1, 1, n, dtype=states.dtype)
        return {"alibi": bias, "attention_mask": zeros, "output_attentions": True}
    return {"alibi": bias, "attention_mask": bias / math.sqrt(real.width // real.heads)}


def answer(
    real: Real, bias: Tensor, output: Any, calls: list[dict[str, Any]], *, eager: bool
) -> Any:
    """The module's weights, or what gives its logits, from its output or its recorded call."""
    weights = output[2 if real.kind == "t5" else 1]
    if eager:
        return weights
    if real.kind == "parakeet_encoder":
        return calls[-1] | {"bias": calls[-1]["mask"]}
    if real.kind in (*DISTANCES, *SHAW, *WAVES):
        return calls[-1]
    if real.kind in ("bloom", "mpnet"):
        return {"logits": weights[:, :, -1].log()}
    if real.kind == "mpt":
        return {"logits": weights[:, :, -1].log() + bias[:, :, 0]}
    if real.kind == "umt5":
        return calls[-1] | ({} if bias is None else {"position_bias": bias})
    return calls[-1] | ({"bias": calls[-1]["mask"]} if real.kind in ("baichuan", "falcon") else {})
