"""Write tests/data/wrapped.json: under which names models with towers save their language model.

    python tests/golden/wrapped.py        # needs the dependency group `golden`

For every model_type of `wrappers.py` that can be built: the golden checkpoint whose config its
language model has here, what stands in front of that checkpoint's names in a file, and what other
names begin with. It fails where the language model is of another class than alone, or has other
tensors. And the sizes that classes of language models take where a config is silent.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from families import FAMILIES, SCALES
from safetensors import safe_open
from transformers import AutoConfig, AutoModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto

from dispersion.architectures.text_sizes import SIZES
from dispersion.architectures.wrappers import WRAPPERS

OUT = Path(__file__).resolve().parents[1] / "data" / "wrapped.json"
TABLES = ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_CLASSIFICATION")
LAYERS = ("num_hidden_layers", "depth", "encoder_layers", "num_layers")
TEXT = {family.name: family for family in FAMILIES}
# Golden checkpoints of types that have none of their own.
WITHIN = {
    "ernie4_5_vl_moe_text": "ernie4_5_vl_moe",
    "hunyuan_vl_text": "hunyuan_vl",
    "paddleocr_vl_text": "paddleocr_vl",
    "glm4v_moe_text": "glm4v_moe",
    "glm4v_text": "glm4v",
    "glm_ocr_text": "glm_ocr",
    "minimax_m3_vl_text": "minimax_m3_vl",
    "mllama_text_model": "mllama",
    "molmo2_text": "molmo2",
    "qwen2_5_omni_text": "qwen2_5_omni_thinker",
    "voxtral_realtime_text": "voxtral_realtime",
    "qwen2_vl_text": "qwen2_vl",
    "qwen3_omni_moe_text": "qwen3_omni_moe_thinker",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "qwen3_vl_text": "qwen3_vl",
}
EMBEDDING = re.compile(
    r"(.*\.|)(?:(?:embed_tokens|embeddings\.tok_embeddings)\.weight|wte\.embedding)"
    r"|tok_embeddings\.weight"
)
ATTENTION = re.compile(r"attn|attention|input_layernorm|embed_tokens\.")
PARTS = ("layers.", "embed_tokens.", "norm.")
# They save the layers of their language model under names of other towers' layers, or its embedding
# under another name than alone.
ODD = ("kimi_k25", "mistral_large4", "qianfan_ocr")
# What the defaults of a tower do not allow, or what another library would open.
CLIP = {"vision_config": {"model_type": "clip_vision_model"}}
TOWERS: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "dots3_note": {
        "vision_config": {"adapter_out_dim": SCALES["tiny"].hidden, "pyramid_num_routed": [-1]},
        "audio_config": {"adapter_out_dim": SCALES["tiny"].hidden},
    },
    "emu3": {"vocabulary_map": {"<image>": 3}},
    "fast_vlm": CLIP,
    "fun_asr_nano": {
        "adaptor_config": {
            "hidden_size": SCALES["tiny"].hidden,
            "intermediate_size": SCALES["tiny"].hidden // 4,
        }
    },
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "1/2"},
    "granite_docling": {"vision_config": {"out_hidden_size": 32}},
    "muse_spark": {"audio_config": {"out_hidden_size": SCALES["tiny"].hidden}},
    "perception_lm": CLIP,
}


def text_of(inner: str) -> dict[str, Any]:
    """The config of a language model's golden checkpoint."""
    family = TEXT[WITHIN.get(inner, inner)]
    config = family.config(SCALES["tiny"])
    return dict(config.get("text_config", config)) | {"model_type": inner}


def model_class(model_type: str) -> str:
    """The class with a head that reads a model type."""
    for table in TABLES:
        known = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {})
        if model_type in known:
            found = known[model_type]
            return str(found if isinstance(found, str) else found[0])
    return str(modeling_auto.MODEL_MAPPING_NAMES[model_type])


def build(model_type: str) -> Any:
    """The model on no device, with the golden checkpoint's text."""
    inner = WRAPPERS[model_type].inner
    parts: dict[str, Any] = {"text_config": text_of(inner), **TOWERS.get(model_type, {})}
    for key in reversed(WRAPPERS[model_type].keys[:-1]):
        parts = {key: parts}
    config = AutoConfig.for_model(model_type, **parts)
    for key in type(config).sub_configs:
        tower = getattr(config, key)
        for layers in LAYERS if key != "text_config" and tower is not None else ():
            if hasattr(tower, layers):
                setattr(tower, layers, 1)
    with torch.device("meta"):
        model = getattr(transformers, model_class(model_type))(config)
    check_class(model, config, model_type)
    return model


def check_class(model: Any, config: Any, model_type: str) -> None:
    """See to it that the language model is the one that its config makes alone."""
    bare = getattr(model, "model", model)
    name = "text_model" if hasattr(bare, "text_model") else "language_model"
    own = WRAPPERS[model_type].fixed or model_type == "voxtral_realtime"
    if own or not hasattr(bare, name):
        return  # it has a class of its own, or is not wrapped here
    held = getattr(bare, name)
    with torch.device("meta"):
        alone = AutoModel.from_config(config.text_config)
    classes = {type(alone), type(getattr(alone, "model", alone))}
    assert {type(held), type(getattr(held, "model", held))} & classes, model_type


def record(model_type: str) -> dict[str, Any]:
    model = build(model_type)
    with torch.device("meta"):
        names = sorted(revert_weight_conversion(model, dict(model.state_dict())))
    inner = WRAPPERS[model_type].inner
    stem = stem_of(names)
    golden = WITHIN.get(inner, inner)
    with safe_open(OUT.parent / golden / "model.safetensors", "np") as file:
        known = set(file.keys())
    differs = attention_in(names, stem) ^ attention_in(known, stem_of(known))
    assert not differs or model_type in ODD, (model_type, sorted(differs)[:3])
    return {"golden": golden, "stem": stem, "beside": beside(names, stem)}


def attention_in(names: Any, stem: str) -> set[str]:
    """Names within a language model that attention is made of."""
    own = {name.removeprefix(stem) for name in names if name.startswith(stem)}
    return {name for name in own if ATTENTION.search(name) and not name.startswith("vis")}


def stem_of(names: Any) -> str:
    """What stands in front of the embedding of tokens, and of all names of a language model."""
    found = next(m[1] or "" for n in sorted(names)[::-1] if (m := EMBEDDING.fullmatch(n)))
    return str(found)


def beside(names: list[str], stem: str) -> list[str]:
    """What other names begin with."""
    own = tuple(stem + part for part in PARTS) if stem == "model." else stem
    others = [name for name in names if not name.startswith(own)]
    return sorted({".".join(re.sub(r"\.\d+\.", ".*.", n).split(".")[:4]) for n in others})


def sizes_of(model_type: str, keys: Any) -> list[int]:
    """What a class takes where its config is silent, whatever some layers have for themselves."""
    config = AutoConfig.for_model(model_type)
    config.allow_global_per_layer_attribute_access = True
    return [getattr(config, key) for key in keys]


def main() -> None:
    found, failed = {}, {}
    for model_type in sorted(WRAPPERS):
        try:
            found[model_type] = record(model_type)
        except Exception as error:  # whatever its class does not like
            failed[model_type] = f"{type(error).__name__}: {error}".replace("\n", " ")
    sizes = {name: sizes_of(name, own) for name, own in SIZES.items()}
    lines = ",\n".join(f"{json.dumps(n)}:{json.dumps(v)}" for n, v in found.items())
    OUT.write_text(f'{{"sizes":{json.dumps(sizes)},\n"wrapped":{{\n{lines}\n}}}}\n')
    for name, why in failed.items():
        print(name, why)
    print(f"{len(found)} model types")


if __name__ == "__main__":
    main()
