"""Where the real models keep their layers, attention modules and norms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Place:
    """An attention module, the norm in front of it, and in cross-attention that of its keys."""

    module: str
    norm: str
    keys: str | None = None


@dataclass(frozen=True)
class Places:
    """Attribute paths within a model as `AutoModel` opens it.

    Attributes:
        layers: the list of layers.
        attention: the attention module within a layer.
        norm: the norm in front of attention, within a layer; None for none.
        behind: whether `norm` stands at the end of a layer, and the next layer reads it.
        first: the norm that the first layer reads, within the model; None for that of the layer,
            or for none where `behind`.
        base: the attribute of a model with a head that holds the bare model.
        query_norm: the norm of queries within the attention module.
        interleaved: whether neighbouring coordinates turn together.
        listed: every attention module of a model with several stacks, numbered as layers; the
            other paths are then not used.
    """

    layers: str = "layers"
    attention: str = "self_attn"
    norm: str | None = "input_layernorm"
    behind: bool = False
    first: str | None = None
    base: str = "model"
    query_norm: str = "q_norm"
    interleaved: bool = False
    listed: tuple[Place, ...] = ()

    def module(self, model: Any, layer: int) -> Any:
        if self.listed:
            return walk(model, self.listed[layer].module)
        return walk(model, f"{self.layers}.{layer}.{self.attention}")

    def norm_of(self, model: Any, layer: int) -> Any | None:
        if self.listed:
            return walk(model, self.listed[layer].norm)
        if layer == 0 and self.first is not None:
            return walk(model, self.first)
        if self.norm is None or (layer == 0 and self.behind):
            return None
        path = f"{self.layers}.{layer - self.behind}.{self.norm}"
        try:
            return walk(model, path)
        except AttributeError:
            return None  # olmo2, olmo3


def walk(start: Any, path: str) -> Any:
    """The object at a path of attributes and list indices."""
    for part in path.split("."):
        start = start[int(part)] if part.isdigit() else getattr(start, part)
    return start


GPT = Places(layers="h", attention="attn", norm="ln_1", base="transformer")
BERT = Places(
    layers="encoder.layer",
    attention="attention.self",
    norm="output.LayerNorm",
    behind=True,
    first="embeddings.LayerNorm",
    base="bert",
)
PHI = Places(query_norm="q_layernorm")


def places(config: Any) -> Places:
    """By model type, and by config where that decides."""
    kind = config.model_type
    if kind == "opt":
        opt = Places(layers="decoder.layers", norm="self_attn_layer_norm")
        if config.do_layer_norm_before:
            return opt
        return replace(opt, norm="final_layer_norm", behind=True)
    if kind == "chameleon" and config.swin_norm:
        return Places(norm=None)
    if kind == "electra" and config.embedding_size != config.hidden_size:
        return replace(BERT, first=None, base="electra")
    if kind == "falcon":
        two = config.new_decoder_architecture and config.num_ln_in_parallel_attn in (None, 2)
        norm = "ln_attn" if two else "input_layernorm"
        return replace(GPT, attention="self_attention", norm=norm)
    if kind == "whisper":
        return Places(listed=tuple(whisper(config)))
    if kind in TWO_TOWERS:
        return Places(listed=tuple(towers(config)))
    return PLACES.get(kind, Places())


def whisper(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's own and that on the encoder, layer by layer."""
    for i in range(config.encoder_layers):
        root = f"encoder.layers.{i}.self_attn"
        yield Place(root, f"{root}_layer_norm")
    for i in range(config.decoder_layers):
        root = f"decoder.layers.{i}."
        yield Place(f"{root}self_attn", f"{root}self_attn_layer_norm")
        yield Place(
            f"{root}encoder_attn", f"{root}encoder_attn_layer_norm", keys="encoder.layer_norm"
        )


TWO_TOWERS = ("clip", "siglip")


def towers(config: Any) -> Iterator[Place]:
    """The text encoder's layers, then the image encoder's."""
    for name, part in (("text_model", config.text_config), ("vision_model", config.vision_config)):
        for i in range(part.num_hidden_layers):
            root = f"{name}.encoder.layers.{i}."
            yield Place(f"{root}self_attn", f"{root}layer_norm1")


VIT = Places(attention="attention", norm="layernorm_before", base="vit")
TOWER = Places(layers="encoder.layers", norm="layer_norm1", base="vision_model")
PLACES = {
    "bert": BERT,
    "clip_text_model": replace(TOWER, base="text_model"),
    "clip_vision_model": TOWER,
    "codegen": replace(GPT, interleaved=True),
    "cohere": Places(interleaved=True),
    "dbrx": Places(
        layers="blocks",
        attention="norm_attn_norm.attn",
        norm="norm_attn_norm.norm_1",
        base="transformer",
    ),
    "dinov2": replace(VIT, layers="encoder.layer", norm="norm1", base="dinov2"),
    "distilbert": Places(
        layers="transformer.layer",
        attention="attention",
        norm="output_layer_norm",
        behind=True,
        first="embeddings.LayerNorm",
        base="distilbert",
    ),
    "electra": replace(BERT, base="electra"),
    "esm": replace(BERT, norm="attention.LayerNorm", behind=False, first=None, base="esm"),
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neo": replace(GPT, attention="attn.attention"),
    "gpt_neox": Places(attention="attention", base="gpt_neox"),
    "gptj": replace(GPT, interleaved=True),
    "modernbert": Places(attention="attn", norm="attn_norm", first="embeddings.norm"),
    "persimmon": PHI,
    "phi": PHI,
    "roberta": replace(BERT, base="roberta"),
    "siglip_text_model": replace(TOWER, base="text_model"),
    "siglip_vision_model": TOWER,
    "stablelm": PHI,
    "vit": VIT,
}
