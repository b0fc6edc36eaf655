"""Write tests/data/rotary.json: rotary frequencies computed by transformers in float64.

Each case is a config as its file would hold it; transformers reads it with its own classes. Its
formulas name float32, which is redirected to float64 so that the comparison can be sharp.

    python tests/golden/rotary.py        # needs the dependency group `golden`
"""

import json
from pathlib import Path

import torch
from transformers import AutoConfig
from transformers import modeling_rope_utils as rope
from transformers.models.auto.modeling_auto import MODEL_MAPPING

OUT = Path(__file__).parents[1] / "data" / "rotary.json"
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 4096}
SHORT, LONG = [1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0], [2.0 + 1.5 * j for j in range(8)]
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def case(name, model_type, layer_type=None, lengths=(), **config):
    return name, model_type, layer_type, lengths, {**SMALL, "model_type": model_type, **config}


CASES = [
    case("default_silent", "llama"),
    case("default_old", "llama", rope_theta=500000.0),
    case("default_new", "llama", rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    case("linear_old", "llama", rope_scaling={"type": "linear", "factor": 2.5}),
    case(
        "linear_new",
        "llama",
        rope_parameters={"rope_type": "linear", "factor": 8.0, "rope_theta": 2e4},
    ),
    case(
        "dynamic_old",
        "llama",
        lengths=(1000, 4096, 4097, 20000),
        rope_scaling={"type": "dynamic", "factor": 2.0},
    ),
    case(
        "llama3",
        "llama",
        rope_theta=500000.0,
        head_dim=64,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    ),
    case("yarn_old", "qwen3", head_dim=128, rope_theta=1e6, rope_scaling=YARN),
    case(
        "yarn_mscale",
        "llama",
        head_dim=64,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 40.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.707,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
            "original_max_position_embeddings": 128,
        },
    ),
    case(
        "yarn_stated_factor",
        "llama",
        rope_scaling={**YARN, "attention_factor": 1.5},
    ),
    case(
        "yarn_null_factor",
        "llama",
        rope_scaling={**YARN, "factor": None},
    ),
    case(
        "longrope_phi3",
        "phi3",
        lengths=(1024, 1025),
        original_max_position_embeddings=1024,
        rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    ),
    case(
        "longrope_partial",
        "phi3",
        lengths=(512, 4096),
        hidden_size=128,
        head_dim=32,
        partial_rotary_factor=0.5,
        original_max_position_embeddings=1024,
        rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    ),
    case(
        "longrope_stated_factor",
        "llama",
        lengths=(4096, 4097),
        rope_parameters={
            "rope_type": "longrope",
            "factor": 8.0,
            "attention_factor": 1.25,
            "short_factor": SHORT,
            "long_factor": LONG,
        },
    ),
    *(
        case(
            f"gemma3_old_{kind}",
            "gemma3_text",
            f"{kind}_attention",
            head_dim=32,
            rope_theta=1e6,
            rope_local_base_freq=2e4,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        )
        for kind in ("full", "sliding")
    ),
    *(
        case(
            f"gemma3_new_{kind}",
            "gemma3_text",
            f"{kind}_attention",
            head_dim=32,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 3e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            },
        )
        for kind in ("full", "sliding")
    ),
    *(
        case(f"gemma3_silent_{kind}", "gemma3_text", f"{kind}_attention", head_dim=32)
        for kind in ("full", "sliding")
    ),
    *(
        case(
            f"olmo3_yarn_{kind}",
            "olmo3",
            f"{kind}_attention",
            rope_theta=500000.0,
            rope_scaling={**YARN, "rope_type": "yarn"},
        )
        for kind in ("full", "sliding")
    ),
    case(
        "proportional",
        "gemma4_text",
        "full_attention",
        head_dim=32,
        global_head_dim=32,
        num_hidden_layers=6,
        rope_parameters={
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.25,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    case("partial_interleaved", "glm", head_dim=32, partial_rotary_factor=0.5, rope_theta=1e4),
]


def frequencies(model_type, config, layer_type, length):
    """Inverse frequencies and the factor of cos and sin, as the modelling code computes them."""
    kwargs = {key: value for key, value in config.items() if key != "model_type"}
    read = AutoConfig.for_model(model_type, **kwargs)
    if model_type == "gemma4_text":
        read.per_layer_config = {}
    parameters = read.rope_parameters[layer_type] if layer_type else read.rope_parameters
    kind = parameters["rope_type"]
    if kind == "default":
        module = __import__(MODEL_MAPPING[type(read)].__module__, fromlist=["x"])
        owner = next(
            v
            for k, v in vars(module).items()
            if k.endswith("RotaryEmbedding") and "Vision" not in k
        )
        compute = owner.compute_default_rope_parameters
    else:
        compute = rope.ROPE_INIT_FUNCTIONS[kind]
    kwargs = {"layer_type": layer_type} if layer_type else {}
    inverse, factor = compute(read, device="cpu", seq_len=length, **kwargs)
    if inverse.dtype != torch.float64:
        msg = f"{model_type}: {inverse.dtype} came back instead of float64"
        raise AssertionError(msg)
    return inverse.tolist(), factor


def main():
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    cases = []
    for name, model_type, layer_type, lengths, config in CASES:
        inverse, factor = frequencies(model_type, json.loads(json.dumps(config)), layer_type, None)
        at = {
            str(n): frequencies(model_type, json.loads(json.dumps(config)), layer_type, n)[0]
            for n in lengths
        }
        head_dim = config.get("head_dim") or SMALL["hidden_size"] // SMALL["num_attention_heads"]
        cases.append(
            {
                "name": name,
                "config": config,
                "layer_type": layer_type,
                "head_dim": head_dim,
                "frequencies": inverse,
                "attention_factor": factor,
                "at": at,
            }
        )
    lines = ",\n".join(json.dumps(c) for c in cases)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{OUT}: {len(cases)} cases")


if __name__ == "__main__":
    main()
