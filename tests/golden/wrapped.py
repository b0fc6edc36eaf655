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
from places import walk
from transformers import AutoConfig, AutoModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto

from dispersion.architectures.text_sizes import SIZES
from dispersion.architectures.wrappers import WRAPPERS

OUT = Path(__file__).resolve().parents[1] / "data" / "wrapped.json"
TABLES = ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_CLASSIFICATION")
LAYERS = ("num_hidden_layers", "depth", "encoder_layers", "num_layers")
TEXT = {family.name: family for family in FAMILIES}
# What the defaults of a tower do not allow, or its class does not default.
TOWERS: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
}
NAMED = {"qwen2_5_omni": None, "qwen3_omni_moe": None}


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
    text = TEXT[inner].config(SCALES["tiny"]) | {"model_type": inner}
    config = AutoConfig.for_model(model_type, text_config=text, **TOWERS.get(model_type, {}))
    for key in type(config).sub_configs:
        tower = getattr(config, key)
        for layers in LAYERS if key != "text_config" and tower is not None else ():
            if hasattr(tower, layers):
                setattr(tower, layers, 1)
    with torch.device("meta"):
        model = getattr(transformers, model_class(model_type))(config)
        alone = AutoModel.from_config(config.text_config)
    bare = getattr(model, "model", model)
    for name in ("language_model", "text_model"):
        if hasattr(bare, name):
            held = getattr(bare, name)
            held = getattr(held, "model", held)
            assert type(held) in (type(alone), type(getattr(alone, "model", alone))), model_type
    return model


def record(model_type: str) -> dict[str, Any]:
    model = build(model_type)
    with torch.device("meta"):
        names = sorted(revert_weight_conversion(model, dict(model.state_dict())))
    inner = WRAPPERS[model_type].inner
    (stem,) = {n.partition("embed_tokens.")[0] for n in names if n.endswith(".embed_tokens.weight")}
    return {"inner": inner, "stem": stem, "beside": beside(names, stem)}


def beside(names: list[str], stem: str) -> list[str]:
    """What other names begin with."""
    others = [name for name in names if not name.startswith(stem)]
    return sorted({".".join(re.sub(r"\.\d+\.", ".*.", n).split(".")[:4]) for n in others})


def main() -> None:
    found, failed = {}, {}
    for model_type in sorted(WRAPPERS):
        try:
            found[model_type] = record(model_type)
        except Exception as error:  # noqa: BLE001 - whatever its class does not like
            failed[model_type] = f"{type(error).__name__}: {error}".splitlines()[0]
    sizes = {name: [getattr(AutoConfig.for_model(name), key) for key in own] for name, own in SIZES.items()}
    lines = ",\n".join(f"{json.dumps(n)}:{json.dumps(v)}" for n, v in found.items())
    OUT.write_text(f'{{"sizes":{json.dumps(sizes)},\n"wrapped":{{\n{lines}\n}}}}\n')
    for name, why in failed.items():
        print(name, why)
    print(f"{len(found)} model types")


if __name__ == "__main__":
    main()
