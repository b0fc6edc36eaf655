"""Where the real models keep their layers, attention modules and norms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Place:
    """An attention module and the norm in front of it.

    Attributes:
        module, norm: their paths within the model; None for no norm.
        keys: in cross-attention the norm that keys are made of.
        through: the linear map between norm and module, or None.
    """

    module: str
    norm: str | None
    keys: str | None = None
    through: str | None = None


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
        first_map: the linear map between `first` and the first layer's attention, or None.
        base: the attribute of a model with a head that holds the bare model.
        query_norm: the norm of queries within the attention module.
        interleaved: whether neighbouring coordinates turn together.
        mark: an attribute that only modules with softmax attention have, where others stand at the
            same place; None where none do.
        listed: every attention module of a model with several stacks, numbered as layers; the
            other paths are then not used.
    """

    layers: str = "layers"
    attention: str = "self_attn"
    norm: str | None = "input_layernorm"
    behind: bool = False
    first: str | None = None
    first_map: str | None = None
    base: str = "model"
    query_norm: str = "q_norm"
    interleaved: bool = False
    mark: str | None = None
    listed: tuple[Place, ...] = ()

    def module(self, model: Any, layer: int) -> Any | None:
        """The attention of a layer; None where it has no softmax attention."""
        if self.listed:
            return walk(model, self.listed[layer].module)
        try:
            found = walk(model, f"{self.layers}.{layer}.{self.attention}")
        except AttributeError:
            return None
        return found if self.mark is None or hasattr(found, self.mark) else None

    def map_of(self, model: Any, layer: int) -> Any | None:
        """The linear map between the norm and the attention module, or None."""
        path = self.listed[layer].through if self.listed else None if layer else self.first_map
        return None if path is None else walk(model, path)

    def norm_of(self, model: Any, layer: int) -> Any | None:
        if self.listed:
            path = self.listed[layer].norm
            return None if path is None else walk(model, path)
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


RAW = ""  # keys of states that no norm has seen
GPT = Places(layers="h", attention="attn", norm="ln_1", base="transformer")
BERT = Places(
    layers="encoder.layer",
    attention="attention.self",
    norm="output.LayerNorm",
    behind=True,
    first="embeddings.LayerNorm",
    base="bert",
)
BLOOM = Places(layers="h", attention="self_attention", base="transformer")
PHI = Places(query_norm="q_layernorm")
LFM = replace(PHI, norm="operator_norm")
NEIGHBOURS = Places(interleaved=True)


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
        return replace(BERT, first_map="embeddings_project", base="electra")
    if kind == "falcon":
        two = config.new_decoder_architecture and config.num_ln_in_parallel_attn in (None, 2)
        norm = "ln_attn" if two else "input_layernorm"
        return replace(BLOOM, norm=norm)
    if kind == "whisper":
        return Places(listed=tuple(whisper(config)))
    if kind == "moonshine":
        return Places(listed=tuple(moonshine(config)), interleaved=True)
    if kind == "t5gemma":
        return Places(listed=tuple(t5gemma(config)))
    if kind == "inkling2_text":
        return Places(listed=tuple(inkling2(config)))
    if kind == "t5gemma2":
        return Places(listed=tuple(t5gemma2(config)))
    if kind in SEQ2SEQ:
        return Places(listed=tuple(seq2seq(config)))
    if kind == "siglip_vision_model" and config.vision_use_head:
        return Places(listed=tuple(pooled(config)), base="vision_model")
    if kind == "mllama_text_model":
        return Places(listed=tuple(mllama(config)))
    if kind == "longcat_flash":
        return Places(listed=tuple(longcat(config)))
    if kind in ("t5", "umt5") and config.is_encoder_decoder:
        return Places(listed=tuple(t5(config)))
    if kind == "albert":
        return Places(listed=tuple(albert(config)), base="albert")
    if kind == "hrm_text":
        return Places(listed=tuple(hrm(config)))
    if kind == "deberta-v2":
        return Places(listed=tuple(deberta(config)), base="deberta")
    if kind == "blip":
        return Places(listed=tuple(blip(config)))
    if kind in STAGED:
        return Places(listed=tuple(staged(config)), base=STAGED[kind], query_norm="logit_scale")
    if kind in TWO_TOWERS:
        return Places(listed=tuple(towers(config)))
    if getattr(config, "do_stable_layer_norm", False):
        return replace(SOUND, norm="layer_norm", behind=False, first=None, base=kind)
    waves = kind == "wav2vec2-conformer"
    if not waves and hasattr(config, "conv_dim") and hasattr(config, "feat_extract_norm"):
        return replace(SOUND, base=kind)
    return PLACES.get(kind, Places())


def whisper(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's own and that on the encoder, layer by layer."""
    for i in range(config.encoder_layers):
        root = f"encoder.layers.{i}.self_attn"
        yield Place(root, f"{root}_layer_norm")
    for i in range(config.decoder_layers):
        root = f"decoder.layers.{i}."
        yield Place(f"{root}self_attn", f"{root}self_attn_layer_norm")
        cross = "cross_attention" if config.model_type == "nllb-moe" else "encoder_attn"
        yield Place(f"{root}{cross}", f"{root}{cross}_layer_norm", keys="encoder.layer_norm")


BEHIND = ("bart", "blenderbot-small", "fsmt", "marian", "plbart")  # norms behind each branch
SEQ2SEQ = (*BEHIND, "blenderbot", "m2m_100", "mbart", "nllb-moe", "pegasus", "speech_to_text")
SEQ2SEQ = (*SEQ2SEQ, "moonshine", "t5gemma")


def seq2seq(config: Any) -> Iterator[Place]:
    """As Whisper; layer 0 may have none."""
    if config.model_type not in BEHIND:
        yield from whisper(config)
        return
    first = {"blenderbot-small": "encoder", "fsmt": "", "marian": ""}
    first = first.get(config.model_type, "encoder decoder")
    last = f"encoder.layers.{config.encoder_layers - 1}.final_layer_norm"
    for side in ("encoder", "decoder"):
        before = f"{side}.layernorm_embedding" if side in first else None
        for i in range(getattr(config, f"{side}_layers")):
            root = f"{side}.layers.{i}."
            yield Place(f"{root}self_attn", before)
            if side == "decoder":
                yield Place(f"{root}encoder_attn", f"{root}self_attn_layer_norm", keys=last)
            before = f"{root}final_layer_norm"


def longcat(config: Any) -> Iterator[Place]:
    """Two attentions in each layer."""
    for i in range(config.num_layers):
        for j in range(2):
            yield Place(f"layers.{i}.self_attn.{j}", f"layers.{i}.input_layernorm.{j}")


def mllama(config: Any) -> Iterator[Place]:
    """Layers with attention of their own, or on what a tower gives, behind no norm."""
    for i in range(config.num_hidden_layers):
        root = f"layers.{i}."
        norm = f"{root}input_layernorm"
        if i in config.cross_attention_layers:
            yield Place(f"{root}cross_attn", norm, keys=RAW)
        else:
            yield Place(f"{root}self_attn", norm)


def hrm(config: Any) -> Iterator[Place]:
    """The layers of the stack that runs more often, then those of the other."""
    for stack in ("L_module", "H_module"):
        for i in range(config.num_layers_per_stack):
            root = f"{stack}.layers.{i}."
            yield Place(f"{root}self_attn", f"{root}input_layernorm")


def pooled(config: Any) -> Iterator[Place]:
    """The layers, then the head whose query is a learned probe."""
    for i in range(config.num_hidden_layers):
        root = f"encoder.layers.{i}."
        yield Place(f"{root}self_attn", f"{root}layer_norm1")
    yield Place("head.attention", "post_layernorm", keys="post_layernorm")


def t5(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's own and that on the encoder, layer by layer."""
    for i in range(config.num_layers):
        root = f"encoder.block.{i}.layer.0."
        yield Place(f"{root}SelfAttention", f"{root}layer_norm")
    for i in range(config.num_decoder_layers):
        root = f"decoder.block.{i}.layer."
        yield Place(f"{root}0.SelfAttention", f"{root}0.layer_norm")
        yield Place(
            f"{root}1.EncDecAttention", f"{root}1.layer_norm", keys="encoder.final_layer_norm"
        )


def albert(config: Any) -> Iterator[Place]:
    """The blocks as they run; several layers run the same one."""
    before = "embeddings.LayerNorm"
    for i in range(config.num_hidden_layers):
        group = int(i / (config.num_hidden_layers / config.num_hidden_groups))
        for j in range(config.inner_group_num):
            root = f"encoder.albert_layer_groups.{group}.albert_layers.{j}."
            first = "encoder.embedding_hidden_mapping_in" if i == j == 0 else None
            yield Place(f"{root}attention", before, through=first)
            before = f"{root}full_layer_layer_norm"


TWO_TOWERS = (
    "altclip",
    "chinese_clip",
    "clip",
    "clipseg",
    "metaclip_2",
    "owlv2",
    "owlvit",
    "siglip",
    "siglip2",
)


def towers(config: Any) -> Iterator[Place]:
    """The text encoder's layers, then the image encoder's."""
    both = (("text_model", config.text_config), ("vision_model", config.vision_config))
    if config.model_type in ("altclip", "chinese_clip"):
        alt = config.model_type == "altclip"
        bert, layer = ("text_model.roberta", "layers") if alt else ("text_model", "layer")
        before = f"{bert}.embeddings"
        for i in range(config.text_config.num_hidden_layers):
            root = f"{bert}.encoder.{layer}.{i}."
            yield Place(f"{root}attention.self", f"{before}.LayerNorm")
            before = f"{root}output"
        both = both[1:]
    for name, part in both:
        for i in range(part.num_hidden_layers):
            root = f"{name}.encoder.layers.{i}."
            yield Place(f"{root}self_attn", f"{root}layer_norm1")


def t5gemma(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's own and that on the encoder, layer by layer."""
    for side, part in (("encoder", config.encoder), ("decoder", config.decoder)):
        for i in range(part.num_hidden_layers):
            root = f"{side}.layers.{i}."
            yield Place(f"{root}self_attn", f"{root}pre_self_attn_layernorm")
            if side == "decoder":
                norm = f"{root}pre_cross_attn_layernorm"
                yield Place(f"{root}cross_attn", norm, keys="encoder.norm")


def deberta(config: Any) -> Iterator[Place]:
    """The second layer reads the norm of the convolution where there is one."""
    before = "embeddings.LayerNorm"
    for i in range(config.num_hidden_layers):
        root = f"encoder.layer.{i}."
        yield Place(f"{root}attention.self", before)
        convolved = i == 0 and getattr(config, "conv_kernel_size", 0) > 0
        before = "encoder.conv.LayerNorm" if convolved else f"{root}output.LayerNorm"


def t5gemma2(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's on its own tokens and the encoder's."""
    parts = ("encoder.text_model", config.encoder.text_config), ("decoder", config.decoder)
    for stack, part in parts:
        for i in range(part.num_hidden_layers):
            root = f"{stack}.layers.{i}."
            yield Place(f"{root}self_attn", f"{root}pre_self_attn_layernorm")


def inkling2(config: Any) -> Iterator[Place]:
    """Full layers have norms of their own for queries and keys."""
    for i, kind in enumerate(config.layer_types):
        norm = "input_layernorm" if kind == "hybrid_sliding" else "q_input_layernorm"
        yield Place(f"layers.{i}.self_attn", f"layers.{i}.{norm}")


def moonshine(config: Any) -> Iterator[Place]:
    """The encoder's attention, then the decoder's own and that on the encoder, layer by layer."""
    for i in range(config.encoder_num_hidden_layers):
        yield Place(f"encoder.layers.{i}.self_attn", f"encoder.layers.{i}.input_layernorm")
    for i in range(config.decoder_num_hidden_layers):
        root = f"decoder.layers.{i}."
        yield Place(f"{root}self_attn", f"{root}input_layernorm")
        norm = f"{root}post_attention_layernorm"
        yield Place(f"{root}encoder_attn", norm, keys="encoder.layer_norm")


STAGED = {"clap_audio_model": "audio_model", "swin": "swin", "swinv2": "swinv2"}


def staged(config: Any) -> Iterator[Place]:
    """The layers of all stages; norms of Swin 2 stand behind attention."""
    root = "audio_encoder" if config.model_type == "clap_audio_model" else "encoder"
    inner = "attention" if config.model_type == "swin" else "attention.self"
    for i, depth in enumerate(config.depths):
        for j in range(depth):
            layer = f"{root}.layers.{i}.blocks.{j}"
            norm = None if config.model_type == "swinv2" else f"{layer}.layernorm_before"
            yield Place(f"{layer}.{inner}", norm)


def blip(config: Any) -> Iterator[Place]:
    """The image encoder's layers, then those of the text and what they make of the image."""
    for i in range(config.vision_config.num_hidden_layers):
        root = f"vision_model.encoder.layers.{i}."
        yield Place(f"{root}self_attn", f"{root}layer_norm1")
    before = "text_model.embeddings"
    for i in range(config.text_config.num_hidden_layers):
        root = f"text_model.encoder.layer.{i}."
        yield Place(f"{root}attention.self", f"{before}.LayerNorm")
        norm = f"{root}attention.output.LayerNorm"
        yield Place(f"{root}crossattention.self", norm, keys="vision_model.post_layernorm")
        before = f"{root}output"


VIT = Places(attention="attention", norm="layernorm_before", base="vit")
TOWER = Places(layers="encoder.layers", norm="layer_norm1", base="vision_model")
PLACES = {
    "apertus": Places(norm="attention_layernorm"),
    "bailing_moe": Places(attention="attention", query_norm="query_layernorm"),
    "bailing_hybrid": Places(mark="kv_b_proj"),
    "bert": BERT,
    "biogpt": Places(norm="self_attn_layer_norm", base="biogpt"),
    "bloom": BLOOM,
    "clip_text_model": replace(TOWER, base="text_model"),
    "clip_vision_model": TOWER,
    "codegen": replace(GPT, interleaved=True),
    "chatglm": Places(layers="encoder.layers", attention="self_attention", interleaved=True),
    "cohere": NEIGHBOURS,
    "cohere2": NEIGHBOURS,
    "cohere2_moe": NEIGHBOURS,
    "ctrl": replace(GPT, attention="multi_head_attention", norm="layernorm1"),
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
    "ernie4_5": NEIGHBOURS,
    "ernie4_5_moe": NEIGHBOURS,
    "esmc": Places(base="esmc"),
    "esm": replace(BERT, norm="attention.LayerNorm", behind=False, first=None, base="esm"),
    "ernie4_5_vl_moe_text": NEIGHBOURS,
    "glm": NEIGHBOURS,
    "glm4v_text": NEIGHBOURS,
    "glm4": NEIGHBOURS,
    "glm_ocr_text": NEIGHBOURS,
    "trocr": Places(
        layers="decoder.layers",
        norm="final_layer_norm",
        behind=True,
        first="decoder.layernorm_embedding",
    ),
    "glm5_next_text": Places(mark="kv_b_proj"),
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neo": replace(GPT, attention="attn.attention"),
    "gpt_neox": Places(attention="attention", base="gpt_neox"),
    "gpt_neox_japanese": Places(attention="attention", base="gpt_neox_japanese"),
    "gptj": replace(GPT, interleaved=True),
    "helium": NEIGHBOURS,
    "hunyuan_v1_dense": Places(query_norm="query_layernorm"),
    "hunyuan_vl_text": Places(query_norm="query_layernorm"),
    "internlm2": Places(attention="attention", norm="attention_norm"),
    "kimi_linear": Places(mark="kv_b_proj"),
    "lfm2": LFM,
    "nemotron_h": Places(attention="mixer", norm="norm", mark="q_proj"),
    "lfm3": LFM,
    "llada": Places(layers="blocks", norm="attn_norm"),
    "llama4_text": NEIGHBOURS,
    "minimax": Places(mark="scaling"),
    "modernbert": Places(attention="attn", norm="attn_norm", first="embeddings.norm"),
    "modernbert-decoder": Places(attention="attn", norm="attn_norm", first="embeddings.norm"),
    "mpt": Places(layers="blocks", attention="attn", norm="norm_1", base="transformer"),
    "openai-gpt": replace(GPT, norm="ln_2", behind=True),
    "openai_privacy_filter": NEIGHBOURS,
    "persimmon": PHI,
    "phi": PHI,
    "qwen": GPT,
    "recurrent_gemma": Places(attention="temporal_block", norm="temporal_pre_norm", mark="scaling"),
    "roberta": replace(BERT, base="roberta"),
    "siglip_text_model": replace(TOWER, base="text_model"),
    "siglip_vision_model": TOWER,
    "stablelm": PHI,
    "t5": Places(
        layers="encoder.block", attention="layer.0.SelfAttention", norm="layer.0.layer_norm"
    ),
    "vit": VIT,
    "zamba": Places(attention="shared_transf.self_attn", norm="shared_transf.input_layernorm"),
    "zamba2": Places(
        attention="shared_transformer.self_attn", norm="shared_transformer.input_layernorm"
    ),
    "xglm": Places(norm="self_attn_layer_norm"),
}
BEFORE = replace(BERT, norm="attention.LayerNorm", behind=False, first=None)
AFTER = Places(norm="post_mlp_layernorm", behind=True, first="embeddings.LayerNorm")
SOUND = Places(
    layers="encoder.layers",
    attention="attention",
    norm="final_layer_norm",
    behind=True,
    first="encoder.layer_norm",
)
PLACES |= {
    "beit": replace(VIT, base="beit"),
    "internvl_vision": replace(VIT, layers="encoder.layer", base="internvl_vision"),
    "dinov3_vit": replace(VIT, layers="model.layer", norm="norm1", base="dinov3_vit"),
    "videomae": replace(
        VIT, layers="encoder.layer", attention="attention.attention", base="videomae"
    ),
}
PLACES |= {
    "jetmoe": Places(attention="self_attention"),
    "longt5": Places(
        layers="encoder.block",
        attention="layer.0.LocalSelfAttention",
        norm="layer.0.layer_norm",
    ),
    "parakeet_encoder": Places(norm="norm_self_att"),
    "wav2vec2-bert": Places(
        layers="encoder.layers", norm="self_attn_layer_norm", base="wav2vec2_bert"
    ),
    "wav2vec2-conformer": Places(
        layers="encoder.layers", norm="self_attn_layer_norm", base="wav2vec2_conformer"
    ),
}
PLACES |= {  # encoders built like BERT
    "deberta": replace(BERT, base="deberta"),
    "ernie": replace(BERT, base="ernie"),
    "gte": replace(AFTER, base="gte"),
    "jina_embeddings_v3": replace(AFTER, base="roberta"),
    "big_bird": BERT,
    "squeezebert": replace(
        BERT,
        layers="encoder.layers",
        attention="attention",
        norm="output.layernorm",
        base="transformer",
    ),
    "sam_vision_model": Places(
        layers="vision_encoder.layers", attention="attn", norm="layer_norm1"
    ),
    "lilt": replace(BERT, base="lilt"),
    "longformer": replace(BERT, base="longformer"),
    "layoutlmv3": replace(BERT, first=None, base="layoutlmv3"),
    "megatron-bert": replace(BEFORE, norm="attention.ln"),
    "mpnet": replace(BERT, attention="attention.attn", base="mpnet"),
    "nomic_bert": replace(AFTER, base="nomic_bert"),
    "rembert": replace(BERT, first_map="encoder.embedding_hidden_mapping_in", base="rembert"),
    "roberta-prelayernorm": replace(BEFORE, base="roberta_prelayernorm"),
    "xlm-roberta-xl": replace(BEFORE, norm="attention.self_attn_layer_norm", base="roberta"),
}
