"""Write tests/data/defaults.json: what transformers' config classes take where a config is silent.

    python tests/golden/defaults.py        # needs the dependency group `golden`

For every model type of a decoder: the sizes, the rotation, the ε, biases and layer types of a
config that states STATED and nothing more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig

OUT = Path(__file__).resolve().parents[1] / "data" / "defaults.json"
STATED = {"hidden_size": 7680, "num_attention_heads": 160, "num_hidden_layers": 12}
TYPES = """afmoe apertus arcee beam bitnet cohere2 cohere2_moe diffllama dots1 ernie4_5
ernie4_5_moe exaone4 exaone_moe falcon_h1 flex_olmo flint gemma3n_text gemma4_text glm glm4
glm4_moe granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hy_v3
kolibri1 laguna lara_mini lfm2 lfm2_moe lfm3 mimo_v2_flash minimax minimax_m2 muse_glimmer_text
muse_spark_text olmo_hybrid openai_privacy_filter qwen3_5_moe_text qwen3_5_text qwen3_next
recurrent_gemma seed_oss solar_open step3p5 vaultgemma
ernie4_5_vl_moe_text glm4v_moe_text glm_ocr_text mllama_text_model qwen3_omni_moe_text
qwen3_vl_moe_text qwen3_vl_text emu3_text_model minimax_m3_vl_text voxtral_realtime_text
bamba cwm hyperclovax internlm3 iquestcoder jamba mellum ministral"""
BIASES = ("attention_bias", "use_bias")
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_eps")


def silent(model_type: str) -> dict[str, Any]:
    """The class's own values, as its modelling code would see them."""
    config = AutoConfig.for_model(model_type, **STATED)
    heads = STATED["num_attention_heads"]
    layers = getattr(config, "per_layer_config", None) or [config] * STATED["num_hidden_layers"]
    by_layer = [layers[i] for i in range(STATED["num_hidden_layers"])]
    return {
        "key_heads": [getattr(c, "num_key_value_heads", None) or heads for c in by_layer],
        "head_dim": [getattr(c, "head_dim", None) or c.hidden_size // heads for c in by_layer],
        "rope": getattr(config, "rope_parameters", None),
        "eps": next(getattr(config, k) for k in EPSILONS if getattr(config, k, None)),
        "bias": next((getattr(config, k) for k in BIASES if hasattr(config, k)), False),
        "layer_types": getattr(config, "layer_types", None),
        "window": getattr(config, "sliding_window", None),
    }


def main() -> None:
    record = {name: silent(name) for name in TYPES.split()}
    lines = ",\n".join(f"{json.dumps(n)}:{json.dumps(v)}" for n, v in record.items())
    OUT.write_text(f'{{"stated":{json.dumps(STATED)},\n"defaults":{{\n{lines}\n}}}}\n')
    print(f"{len(record)} model types")


if __name__ == "__main__":
    main()
