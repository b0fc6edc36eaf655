"""Golden checkpoints as GGUF files, written with the `gguf` package as llama.cpp's converters do.

Tensor names are those of `gguf.get_tensor_name_map`; which tensors are reordered, transposed or
shifted, and which settings are written, follows the converters (conversion/*.py) and not the
package under test.
"""

import math
import re
import tempfile
from functools import cache
from pathlib import Path

import gguf
import numpy as np

from checkpoints import gguf_bytes
from dispersion.checkpoint import from_arrays, open_checkpoint, to_float64

ARCH = gguf.MODEL_ARCH
ARCHITECTURES = {
    "bert": ARCH.BERT, "cohere": ARCH.COMMAND_R, "falcon": ARCH.FALCON, "gemma": ARCH.GEMMA,
    "gemma2": ARCH.GEMMA2, "gpt_bigcode": ARCH.STARCODER, "phi": ARCH.PHI2,
    "gemma3_text": ARCH.GEMMA3, "gpt2": ARCH.GPT2, "gpt_neox": ARCH.GPTNEOX,
    "gpt_oss": ARCH.GPT_OSS, "granite": ARCH.GRANITE, "jais2": ARCH.JAIS2,
    "llama": ARCH.LLAMA, "mistral": ARCH.LLAMA,
    "mixtral": ARCH.LLAMA, "modernbert": ARCH.MODERN_BERT,
    "nemotron": ARCH.NEMOTRON, "olmo": ARCH.OLMO, "olmo2": ARCH.OLMO2,
    "olmo3": ARCH.OLMO2, "olmoe": ARCH.OLMOE, "phi3": ARCH.PHI3, "qwen2": ARCH.QWEN2,
    "qwen2_moe": ARCH.QWEN2MOE, "qwen3": ARCH.QWEN3, "qwen3_moe": ARCH.QWEN3MOE,
    "roberta": ARCH.BERT, "smollm3": ARCH.SMOLLM3, "stablelm": ARCH.STABLELM,
    "starcoder2": ARCH.STARCODER2,
    "afmoe": ARCH.AFMOE, "apertus": ARCH.APERTUS, "arcee": ARCH.ARCEE, "bloom": ARCH.BLOOM,
    "cohere2": ARCH.COHERE2, "dbrx": ARCH.DBRX, "dots1": ARCH.DOTS1, "ernie4_5": ARCH.ERNIE4_5,
    "ernie4_5_moe": ARCH.ERNIE4_5_MOE, "exaone4": ARCH.EXAONE4, "exaone_moe": ARCH.EXAONE_MOE,
    "glm4": ARCH.GLM4, "glm4_moe": ARCH.GLM4_MOE, "granitemoe": ARCH.GRANITE_MOE,
    "granitemoeshared": ARCH.GRANITE_MOE, "hunyuan_v1_dense": ARCH.HUNYUAN_DENSE,
    "hunyuan_v1_moe": ARCH.HUNYUAN_MOE, "minimax_m2": ARCH.MINIMAXM2, "mpt": ARCH.MPT,
    "seed_oss": ARCH.SEED_OSS,
    "falcon_h1": ARCH.FALCON_H1, "granitemoehybrid": ARCH.GRANITE_HYBRID, "lfm2": ARCH.LFM2,
    "lfm2_moe": ARCH.LFM2MOE, "qwen3_5_text": ARCH.QWEN35, "qwen3_5_moe_text": ARCH.QWEN35MOE,
    "qwen3_next": ARCH.QWEN3NEXT,
    "bitnet": ARCH.BITNET, "gemma3n_text": ARCH.GEMMA3N, "llama4_text": ARCH.LLAMA4,
    "gemma4_text": ARCH.GEMMA4, "ministral3": ARCH.MISTRAL3, "t5": ARCH.T5,
    "deepseek_v2": ARCH.DEEPSEEK2, "deepseek_v3": ARCH.DEEPSEEK2,
    "mimo_v2_flash": ARCH.MIMO2, "glm": ARCH.CHATGLM, "solar_open": ARCH.GLM4_MOE,
    "distilbert": ARCH.BERT, "qwen2_vl": ARCH.QWEN2VL,
    "bailing_moe": ARCH.BAILINGMOE, "deepseek": ARCH.DEEPSEEK, "Dream": ARCH.DREAM,
    "eurobert": ARCH.EUROBERT, "exaone": ARCH.EXAONE, "internlm2": ARCH.INTERNLM2,
    "jamba": ARCH.JAMBA, "jina_embeddings_v3": ARCH.JINA_BERT_V3, "llada": ARCH.LLADA,
    "minicpm": ARCH.MINICPM, "nemotron_h": ARCH.NEMOTRON_H, "nomic_bert": ARCH.NOMIC_BERT,
    "qwen": ARCH.QWEN, "xverse": ARCH.XVERSE,
    "kimi_linear": ARCH.KIMI_LINEAR, "minicpm3": ARCH.MINICPM3, "mistral4": ARCH.MISTRAL4,
    "hy_v3": ARCH.QWEN3MOE, "mellum": ARCH.QWEN3MOE,
    "glm4v_text": ARCH.GLM4, "glm_ocr_text": ARCH.GLM4, "glm4v_moe_text": ARCH.GLM4_MOE,
    "baichuan": ARCH.BAICHUAN, "step3p5": ARCH.STEP35,
    "glm_moe_dsa": ARCH.GLM_DSA, "deepseek_v32": ARCH.GLM_DSA,
    "hunyuan_vl_text": ARCH.HUNYUAN_VL, "paddleocr_vl_text": ARCH.PADDLEOCR,
    "chameleon": ARCH.CHAMELEON, "phimoe": ARCH.PHIMOE,
    "qwen3_vl_text": ARCH.QWEN3VL, "qwen3_vl_moe_text": ARCH.QWEN3VLMOE,
}  # fmt: skip
PERMUTED = (
    ARCH.LLAMA, ARCH.GRANITE, ARCH.GRANITE_MOE, ARCH.SMOLLM3, ARCH.OLMO, ARCH.ARCEE,
    ARCH.GRANITE_HYBRID, ARCH.MISTRAL3, ARCH.BAILINGMOE, ARCH.DEEPSEEK, ARCH.INTERNLM2,
    ARCH.LLADA, ARCH.MINICPM, ARCH.NEMOTRON_H, ARCH.NEMOTRON_H_MOE, ARCH.XVERSE,
    ARCH.CHAMELEON, ARCH.BAICHUAN,
)  # fmt: skip
NEXT = (ARCH.QWEN3NEXT, ARCH.QWEN35, ARCH.QWEN35MOE)
HALF = (ARCH.GLM4, ARCH.GLM4_MOE)  # half of a head turns where nothing is said
QWEN3_VL = (ARCH.QWEN3VL, ARCH.QWEN3VLMOE)
WITH_IMAGES = (*QWEN3_VL, *HALF, ARCH.HUNYUAN_VL, ARCH.PADDLEOCR)
GRANITES = (ARCH.GRANITE, ARCH.GRANITE_MOE, ARCH.GRANITE_HYBRID)
# What stands in front of names in files, and not in the golden checkpoints of these.
PREFIXES = {
    "llada": "model.transformer.",
    "qwen": "transformer.",
    "step3p5": "model.",
    **dict.fromkeys(
        ("Dream", "baichuan", "bailing_moe", "deepseek", "internlm2", "minicpm", "xverse"), "model."
    ),
}
LATENT = (ARCH.DEEPSEEK2, ARCH.KIMI_LINEAR, ARCH.MISTRAL4, ARCH.GLM_DSA)
TAKEN_APART = {ARCH.BAICHUAN: "W_pack", ARCH.INTERNLM2: "wqkv", ARCH.BAILINGMOE: "query_key_value"}
NEMOTRON_H = (ARCH.NEMOTRON_H, ARCH.NEMOTRON_H_MOE)
WITH_EXPERTS = {
    ARCH.NEMOTRON_H: ARCH.NEMOTRON_H_MOE, ARCH.JINA_BERT_V3: ARCH.NOMIC_BERT_MOE,
}  # fmt: skip
ROTATED_BERTS = (ARCH.JINA_BERT_V3, ARCH.NOMIC_BERT, ARCH.NOMIC_BERT_MOE)
MIXED = (ARCH.GRANITE_HYBRID, ARCH.LFM2, ARCH.LFM2MOE)
GEMMA3 = (ARCH.GEMMA3, ARCH.GEMMA_EMBEDDING)
SHIFTED = (ARCH.STEP35, ARCH.GEMMA, ARCH.GEMMA2, *GEMMA3, ARCH.NEMOTRON, *NEXT)
LOST = ("experts", "shared_expert", "mlp.router", "pooler", "cls.", "lm_head.", "position_ids")
LOST += ("decoder.bias", "block_sparse_moe", "shared_mlp", "act_fn", "moe_statics")
LOST += ("vqmodel", "visual", "vit.", "mlp_AR")
LOST += ("e_score_correction_bias", "altup_projections", "altup_unembed", "vocab_")
ROBERTA_OFFSET = 2
MIMO_DRAFTS = 3
DATA = Path(__file__).parent / "data"
MINISTRAL = {
    "factor": 4.0, "llama_4_scaling_beta": 0.2, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16, "rope_theta": 1e4, "rope_type": "yarn",
}  # fmt: skip
YARN = {
    "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.8, "original_max_position_embeddings": 64,
    "rope_theta": 5e3, "rope_type": "yarn",
}  # fmt: skip
# Sliding layers turn by the base of full ones in the program, though the file may have another.
ONE_BASE = {
    "full_attention": {"rope_theta": 5e4, "rope_type": "default"},
    "sliding_attention": {"rope_theta": 5e4, "rope_type": "default"},
}
YARN_OF_GPT = {
    "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 5e4, "rope_type": "yarn",
}  # fmt: skip
VARIANTS = {
    "baichuan": ("baichuan", {"repeated": 32}),
    "baichuan__alibi": ("baichuan__alibi", {"repeated": 40}),
}
VARIANTS |= {  # by name: the folder, and changes of its config
    "exaone_moe": ("exaone_moe", {"layer_types": ["sliding_attention", "sliding_attention"]}),
    "lfm2_moe": ("lfm2", {"model_type": "lfm2_moe"}),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", {"full_attention_interval": 2}),
    "qwen3_5_text": ("qwen3_5_text", {"full_attention_interval": 2}),
    "qwen3_next": ("qwen3_next", {"full_attention_interval": 2}),
    "qwen2_vl": ("qwen2", {"model_type": "qwen2_vl"}),
    "gemma3n_text": (
        "gemma3n_text",
        {
            "layer_types": ["sliding_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_theta": 5e4, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 1e3, "rope_type": "default"},
            },
        },
    ),
    # As its code and the converter have it, both kinds of layers turn one share.
    "mimo_v2_flash": (
        "mimo_v2_flash",
        {
            "rope_parameters": {
                "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 5e4},
                "sliding_attention": {"partial_rotary_factor": 0.5, "rope_theta": 5e2},
            },
        },
    ),
    "ministral3": ("ministral3", {"rope_parameters": MINISTRAL}),
    "phimoe": ("phimoe", {"sliding_window": None}),
    "mellum": ("mellum", {"rope_parameters": ONE_BASE}),
    "mellum yarn": ("mellum", {"rope_parameters": ONE_BASE | {"full_attention": YARN_OF_GPT}}),
    "deepseek_v32 yarn": ("deepseek_v32", {"rope_parameters": YARN}),
    # Files from before kv_b_proj was split.
    "deepseek_v2 whole": ("deepseek_v2", {"whole": True}),
    "deepseek_v3__yarn whole": ("deepseek_v3__yarn", {"whole": True}),
    # Of which only files of a converter for another dialect say that the temperature grows.
    "mistral4 tempered": ("mistral4", {"tempered": True}),
    "gemma3_text encoder": (
        "gemma3_text",
        {
            "architectures": ["Gemma3TextModel"],
            "layer_types": ["sliding_attention", "sliding_attention"],
            "use_bidirectional_attention": True,
        },
    ),
    # Without a share the converter would write that of GLM 4.
    "solar_open": (
        "solar_open",
        {
            "rope_parameters": {
                "partial_rotary_factor": 1.0,
                "rope_theta": 5e3,
                "rope_type": "default",
            },
        },
    ),
    # Files of the model's own code, which has one projection.
    "glm fused": ("glm", {"fused": True}),
    "nemotron_h_moe": ("nemotron_h", {"experts": True}),
    "nomic_bert moe": ("jina_embeddings_v3", {"experts": True}),
    "hunyuan_v1_moe": ("hunyuan_v1_dense", {"model_type": "hunyuan_v1_moe"}),
}


# Of later versions than the `gguf` package, with the tensors of the architectures above.
LATER = {"deepseek_v32": "deepseek32", "hy_v3": "hy_v3", "mellum": "mellum"}


class Model:
    """A golden checkpoint and what the converters look up in its config."""

    def __init__(self, folder, changes=()):
        self.source = repeated(open_checkpoint(folder), dict(changes).get("repeated"))
        self.config = {**self.source.config, **dict(changes)}
        self.config |= self.config.pop("text_config", {})
        self.arch = ARCHITECTURES[self.config["model_type"]]
        if self.config.get("architectures") == ["T5EncoderModel"]:
            self.arch = ARCH.T5ENCODER
        if self.config.get("use_qk_norm") and self.arch is ARCH.BAILINGMOE:
            self.arch = ARCH.BAILINGMOE2
        if self.config.get("experts"):
            self.arch = WITH_EXPERTS[self.arch]
        if self.config.get("architectures") == ["Gemma3TextModel"]:
            self.arch = ARCH.GEMMA_EMBEDDING
        own = self.config["model_type"]
        self.name = LATER.get(own, gguf.MODEL_ARCH_NAMES[self.arch])
        self.layers = self.first("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        self.layers = self.layers or len(self.config["layers_block_type"])
        self.width = self.first("hidden_size", "n_embd", "d_model", "dim")
        self.heads = self.first("num_attention_heads", "n_head", "n_heads", "num_heads")
        self.keys = self.first("num_key_value_heads", "n_kv_heads") or self.heads
        if self.arch is ARCH.FALCON:  # the converter reads another key, 1 where there is none
            grouped = self.config["new_decoder_architecture"]
            self.keys = self.config["num_kv_heads"] if grouped else 1
        if self.arch is ARCH.STARCODER:
            self.keys = 1
        if self.arch is ARCH.BLOOM:
            self.config.setdefault("seq_length", self.width)
        attention = self.config.get("attn_config", {})
        self.keys = attention.get("kv_n_heads") or self.keys
        self.split = self.arch in LATENT and not self.config.get("whole")
        if self.split:
            self.keys = 1
        self.head_dim = self.first("head_dim", "d_kv") or self.width // self.heads
        rope = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        self.rope = dict(rope.get("full_attention", rope))
        self.local = rope.get("sliding_attention", {})
        self.theta = self.rope.get("rope_theta") or self.first("rope_theta", "rotary_emb_base")
        self.kind = self.rope.get("rope_type") or self.rope.get("type")

    def first(self, *keys):
        return next((self.config[k] for k in keys if self.config.get(k) is not None), None)

    def tensors(self):
        """Values by Hugging Face name, in float32 and without the prefixes converters drop."""
        for name in self.source.names:
            values = to_float64(self.source.read(name), tensor=name).astype(np.float32)
            if self.arch is ARCH.BERT:
                name = name.removeprefix("bert.").removeprefix("roberta.")
                name = name.removeprefix("distilbert.")
                name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
            if self.arch in (*QWEN3_VL, *HALF):
                name = name.replace("language_model.", "")
            if self.arch is ARCH.NOMIC_BERT:
                name = name.removeprefix("nomic_bert.")
            if self.arch is ARCH.MODERN_BERT:
                name = name.removeprefix("model.")
            if self.arch is ARCH.BLOOM:
                name = name.removeprefix("transformer.")
            yield PREFIXES.get(self.config["model_type"], "") + name, values


def repeated(source, layers):
    """A checkpoint of two layers with as many as llama.cpp knows it by."""
    if layers is None:
        return source
    arrays = {}
    for name in source.names:
        places = [name]
        if found := re.fullmatch(r"layers\.([01])\.(.+)", name):
            places = [f"layers.{i}.{found[2]}" for i in range(int(found[1]), layers, 2)]
        arrays |= dict.fromkeys(places, source.read(name))
    return from_arrays(arrays, source.config | {"num_hidden_layers": layers})


def golden(name):
    """A golden checkpoint by its folder, or one that another family shares but for its config."""
    folder, changes = VARIANTS.get(name, (name, {}))
    return Model(DATA / folder, changes)


def permute(values, heads):
    """LlamaModel.permute: halves of a head become neighbours."""
    return (
        values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        .swapaxes(1, 2)
        .reshape(values.shape)
    )


def shifted(model, name):
    """Whether the file has 1 + weight."""
    inner = name.endswith("linear_attn.norm.weight")
    return model.arch in SHIFTED and name.endswith("norm.weight") and not inner


def in_file(name):
    """Under which name a tensor is looked up."""
    if name.endswith(".dt_bias"):
        return name.removesuffix("dt_bias") + "dt_proj.bias"
    if name.endswith("_sub_norm.weight"):  # the names of an older BitNet are mapped
        return name.replace("attn_sub_norm", "inner_attn_ln").replace(
            "ffn_sub_norm", "ffn_layernorm"
        )
    if name.endswith(("altup.correct_output_scale", "layer_scalar")):
        return f"{name}.weight"
    if name.endswith("e_score_correction_bias"):
        return name.removesuffix("_bias") + ".bias"
    return f"{name}.weight" if name.endswith(("sinks", "attention_sink_bias")) else name


def modified(model, name, values):
    """What `modify_tensors` of the converter makes of a tensor."""
    if model.arch is ARCH.KIMI_LINEAR and "conv1d" in name:
        return values.reshape(1, values.shape[0], 1, values.shape[-1])
    if model.arch is ARCH.KIMI_LINEAR and name.endswith("A_log"):
        return -np.exp(values)
    if "conv1d" in name or ".conv.conv." in name:
        return values.squeeze()
    if model.arch is ARCH.GLM4 and "mrope_section" in model.rope and "_proj." in name:
        return to_halves(model, values) if re.search("[qk]_proj", name) else values
    if model.arch is ARCH.FALCON_H1:
        return values * np.float32(falcon_factor(model.config, name))
    if model.arch is ARCH.BITNET and name.endswith("_proj.weight"):
        return ternary(values)
    if model.arch is ARCH.CHAMELEON and re.search(r"[qk]_norm\.", name):
        # The converter takes the first head's for all.
        return np.tile(permute(values[0], 1), (len(values), 1))
    if model.arch in PERMUTED and name.endswith(("q_proj.weight", "q_proj.bias")):
        return permute(values, model.heads)
    if model.arch in PERMUTED and name.endswith(("k_proj.weight", "k_proj.bias")):
        return permute(values, model.keys)
    if shifted(model, name):
        return values + np.float32(1)
    if model.arch is ARCH.GPT2 and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return values.T
    if model.arch in (ARCH.GPTNEOX, ARCH.BLOOM) and ".query_key_value." in name:
        sides = values.reshape(model.heads, 3, model.head_dim, *values.shape[1:])
        return np.concatenate([sides[:, i].reshape(-1, *values.shape[1:]) for i in range(3)])
    if model.arch is ARCH.FALCON and ".query_key_value." in name:
        shape = (model.keys, model.heads // model.keys + 2, model.head_dim, *values.shape[1:])
        groups = values.reshape(shape)
        sides = groups[:, :-2], groups[:, -2], groups[:, -1]
        return np.concatenate([side.reshape(-1, *values.shape[1:]) for side in sides])
    if model.config["model_type"] == "roberta" and name == "embeddings.position_embeddings.weight":
        return values[ROBERTA_OFFSET:]
    return values


def to_halves(model, values):
    """Glm4Model.normal_to_neox: pairs of neighbours become halves of what turns."""
    turned = int(model.head_dim * model.rope["partial_rotary_factor"])
    heads = values.reshape(-1, model.head_dim, *values.shape[1:])
    parts = heads[:, 0:turned:2], heads[:, 1:turned:2], heads[:, turned:]
    return np.concatenate(parts, axis=1).reshape(values.shape)


def ternary(values):
    """BitnetModel.weight_quant: -1, 0 or 1 times the mean of the absolute values."""
    inverse = np.float32(1) / np.maximum(np.abs(values).mean(dtype=np.float32), np.float32(1e-5))
    return np.clip(np.round(values * inverse), -1, 1) / inverse


def falcon_factor(config, name):
    """What Falcon H1's converter multiplies into a weight that attention reads."""
    inner = config["attention_in_multiplier"]
    if "k_proj" in name:
        return config["key_multiplier"] * inner
    if "q_proj" in name or "v_proj" in name:
        return inner
    return config["embedding_multiplier"] if "embed_tokens" in name else 1.0


def full_head_dim(model):
    """Gemma 4's size of heads on full layers."""
    return max(own.get("head_dim", 0) for own in model.config["per_layer_config"].values())


def gemma4_settings(model, writer):
    """Sizes of full layers under the usual keys, of sliding ones under their own."""
    config, size = model.config, full_head_dim(model)
    own = config["per_layer_config"]
    heads = [
        own.get(str(i), {}).get("num_key_value_heads", model.keys) for i in range(model.layers)
    ]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_key_length_swa(model.head_dim)
    writer.add_value_length_swa(model.head_dim)
    writer.add_head_count_kv(heads if len(set(heads)) > 1 else model.keys)
    writer.add_rope_dimension_count(size)
    writer.add_rope_dimension_count_swa(model.head_dim)


def attending(config):
    """Whether each layer of these hybrids has softmax attention."""
    if "layers_block_type" in config:
        return [kind == "full_attention" for kind in config["layers_block_type"]]
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    return [i % period == offset for i in range(config["num_hidden_layers"])]


def extra_tensors(model):
    """What `generate_extra_tensors` adds: divisors of the rotary frequencies."""
    if model.arch in (ARCH.LLAMA, ARCH.APERTUS, ARCH.EXAONE) and model.kind == "llama3":
        size = model.head_dim
        frequencies = 1 / model.theta ** (np.arange(0, size, 2) / size)
        factor, low, high = (
            model.rope[k] for k in ("factor", "low_freq_factor", "high_freq_factor")
        )
        context = model.rope["original_max_position_embeddings"]
        divisors = []
        for frequency in frequencies:
            wavelength = 2 * math.pi / frequency
            if wavelength < context / high:
                divisors.append(1)
            elif wavelength > context / low:
                divisors.append(factor)
            else:
                smooth = (context / wavelength - low) / (high - low)
                divisors.append(1 / ((1 - smooth) / factor + smooth))
        yield "rope_freqs.weight", np.array(divisors, np.float32)
    if model.arch is ARCH.GEMMA4:
        size = full_head_dim(model)
        turned = int(size * model.rope["partial_rotary_factor"] / 2)
        divisors = [1.0] * turned + [1e30] * (size // 2 - turned)
        yield "rope_freqs.weight", np.array(divisors, np.float32)
    if model.arch is ARCH.PHI3 and model.rope.get("long_factor"):
        for side in ("long", "short"):
            values = np.array(model.rope[f"{side}_factor"], np.float32)
            yield f"rope_factors_{side}.weight", values


def settings(model, writer):
    """What `set_gguf_parameters` writes."""
    config, arch = model.config, model.arch
    drafts = 0 if arch is ARCH.DEEPSEEK2 else config.get("num_nextn_predict_layers") or 0
    if arch is ARCH.MIMO2:
        drafts = MIMO_DRAFTS
        writer.add_nextn_predict_layers(drafts)
    writer.add_block_count(model.layers + drafts)
    context = (
        512
        if "d_kv" in config
        else model.first(
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "max_sequence_length",
            "model_max_length",
        )
    )
    if arch is ARCH.FALCON:
        context = 2048
    writer.add_context_length(
        context - (ROBERTA_OFFSET if config["model_type"] == "roberta" else 0)
    )
    writer.add_embedding_length(model.width)
    writer.add_head_count(model.heads)
    if arch is ARCH.KIMI_LINEAR:
        writer.add_head_count_kv([int(t == "full_attention") for t in config["layer_types"]])
    elif arch in (ARCH.JAMBA, *NEMOTRON_H):
        writer.add_head_count_kv([model.keys if a else 0 for a in attending(config)])
    elif arch in MIXED:
        attends = [t == "full_attention" for t in config["layer_types"]]
        writer.add_head_count_kv([model.keys if a else 0 for a in attends])
    elif arch is ARCH.MIMO2:  # sliding layers have twice the key heads, and drafts follow
        slides = [*(t == "sliding_attention" for t in config["layer_types"]), *[True] * MIMO_DRAFTS]
        writer.add_head_count_kv([2 * model.keys if s else model.keys for s in slides])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(slides)
    elif arch is ARCH.STEP35:
        slides = [t == "sliding_attention" for t in config["layer_types"]]
        both = model.heads, config["num_sliding_attention_heads"]
        writer.add_head_count([both[s] for s in slides])
        writer.add_head_count_kv([model.keys for _ in slides])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(slides)
    elif arch is not ARCH.GEMMA4:
        writer.add_head_count_kv(model.keys)
    if arch in LATENT:
        latent_settings(model, writer)
    elif arch is ARCH.MINICPM3:  # of values nothing is said
        writer.add_q_lora_rank(config["q_lora_rank"])
        writer.add_kv_lora_rank(config["kv_lora_rank"])
        writer.add_key_length(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
        writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    elif arch is ARCH.GEMMA4:
        gemma4_settings(model, writer)
    elif model.first("head_dim", "d_kv") is not None and arch not in (*GRANITES, ARCH.CHATGLM):
        writer.add_key_length(model.head_dim)
        writer.add_value_length(model.head_dim)
    if model.theta is not None and arch not in (ARCH.FALCON, ARCH.PHI2, ARCH.MINICPM3):
        writer.add_rope_freq_base(1e4 if arch is ARCH.CHATGLM else model.theta)
    eps = (
        config["layer_norm_epsilon"]
        if "d_kv" in config
        else model.first("rms_norm_eps", "norm_eps")
    )
    if arch is ARCH.CHATGLM:  # the converter reads another key
        eps = 1e-5
    if eps is not None:
        writer.add_layer_norm_rms_eps(eps)
    eps = model.first("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
    if config["model_type"] == "distilbert":
        eps = 1e-12
    if arch in (ARCH.QWEN, *NEMOTRON_H):
        writer.add_layer_norm_rms_eps(eps)
        eps = None
    if arch in (ARCH.OLMO, ARCH.NEMOTRON, ARCH.MODERN_BERT):
        eps = 1e-5 if arch is ARCH.OLMO else config["norm_eps"]
    if arch in (ARCH.MPT, ARCH.DBRX):
        eps = 1e-5
    if eps is not None:
        writer.add_layer_norm_eps(eps)
    drafts = None if arch is ARCH.DEEPSEEK2 else config.get("num_nextn_predict_layers")
    if drafts is not None:
        writer.add_nextn_predict_layers(drafts)
    if (experts := model.first("num_local_experts", "num_experts")) is not None:
        writer.add_expert_count(experts)
    rope_settings(model, writer)
    match arch:
        case _ if arch in (ARCH.BERT, ARCH.DREAM, ARCH.EUROBERT, ARCH.LLADA, *ROTATED_BERTS):
            writer.add_causal_attention(False)
        case ARCH.MODERN_BERT:
            writer.add_causal_attention(False)
            writer.add_sliding_window(config["local_attention"])
            if (period := config.get("global_attn_every_n_layers")) is not None:
                writer.add_sliding_window_pattern(period)
            writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        case ARCH.COMMAND_R:
            writer.add_logit_scale(config["logit_scale"])
            writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        case ARCH.GEMMA2:
            writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
            writer.add_sliding_window(config["sliding_window"])
        case ARCH.GEMMA_EMBEDDING:
            writer.add_sliding_window(config["sliding_window"])
        case ARCH.GEMMA3 | ARCH.OLMO2 if config.get("sliding_window"):
            types = config.get("layer_types") or ["sliding_attention", "full_attention"]
            writer.add_sliding_window(config["sliding_window"])
            writer.add_sliding_window_pattern([t == "sliding_attention" for t in types])
        case ARCH.GPT_OSS:
            writer.add_sliding_window(config["sliding_window"])
        case ARCH.AFMOE | ARCH.COHERE2:
            writer.add_sliding_window(config["sliding_window"])
            if arch is ARCH.COHERE2:
                writer.add_logit_scale(config["logit_scale"])
                writer.add_rope_dimension_count(model.head_dim)
                writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        case ARCH.EXAONE4 | ARCH.EXAONE_MOE if config.get("sliding_window"):
            writer.add_sliding_window(config["sliding_window"])
            writer.add_sliding_window_pattern(
                [t == "sliding_attention" for t in config["layer_types"]]
            )
            if arch is ARCH.EXAONE_MOE:
                writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        case ARCH.MPT | ARCH.DBRX:
            attention = config["attn_config"]
            if attention["clip_qkv"] is not None:
                writer.add_clamp_kqv(attention["clip_qkv"])
            if arch is ARCH.MPT:
                writer.add_max_alibi_bias(
                    attention["alibi_bias_max"] if attention["alibi"] else 0.0
                )
        case ARCH.GRANITE | ARCH.GRANITE_MOE | ARCH.GRANITE_HYBRID:
            writer.add_attention_scale(config["attention_multiplier"])
            writer.add_embedding_scale(config["embedding_multiplier"])
            writer.add_residual_scale(config["residual_multiplier"])
            writer.add_logit_scale(config["logits_scaling"])
            if arch is ARCH.GRANITE_HYBRID:
                writer.add_rope_scaling_finetuned(config["position_embedding_type"] == "rope")
        case ARCH.MINICPM:
            writer.add_embedding_scale(config["scale_emb"])
        case ARCH.MISTRAL4 if config.get("tempered"):
            writer.add_attn_temperature_scale(model.rope["llama_4_scaling_beta"])
            writer.add_attn_temperature_length(model.rope["original_max_position_embeddings"])
        case ARCH.MISTRAL3:
            writer.add_rope_scaling_yarn_log_mul(model.rope["mscale_all_dim"])
            writer.add_attn_temperature_scale(model.rope["llama_4_scaling_beta"])
        case ARCH.GEMMA3N:
            writer.add_sliding_window(config["sliding_window"])
            writer.add_shared_kv_layers(config["num_kv_shared_layers"])
            writer.add_sliding_window_pattern(
                [t == "sliding_attention" for t in config["layer_types"]]
            )
        case ARCH.BITNET:
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(1.0)
        case ARCH.T5 | ARCH.T5ENCODER:
            writer.add_relative_attn_buckets_count(config["relative_attention_num_buckets"])
            if arch is ARCH.T5:
                writer.add_decoder_block_count(config["num_decoder_layers"])
        case ARCH.QWEN3NEXT | ARCH.QWEN35 | ARCH.QWEN35MOE:
            writer.add_full_attention_interval(config["full_attention_interval"])
            if arch is not ARCH.QWEN3NEXT:
                writer.add_rope_dimension_sections([*model.rope["mrope_section"], 0])
        case ARCH.QWEN3VL | ARCH.QWEN3VLMOE:
            writer.add_rope_dimension_sections([*model.rope["mrope_section"], 0])
            writer.add_num_deepstack_layers(1)
        case ARCH.GLM4 | ARCH.GLM4_MOE if "mrope_section" in model.rope:
            writer.add_rope_dimension_sections([*model.rope["mrope_section"], 0, 0])
        case ARCH.PADDLEOCR:
            writer.add_rope_dimension_sections([*model.rope["mrope_section"], 0])
        case ARCH.HUNYUAN_VL:
            writer.add_rope_dimension_sections(model.rope["mrope_section"])
            writer.add_rope_scaling_alpha(model.rope["alpha"])
            writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
            writer.add_rope_scaling_factor(model.rope["factor"])
        case ARCH.QWEN2VL:
            writer.add_rope_dimension_sections([1, 2, 1, 0])
        case _ if is_mellum(model):
            writer.add_sliding_window(config["sliding_window"])
            slides = [t == "sliding_attention" for t in config["layer_types"]]
            writer.add_sliding_window_pattern(slides)
        case ARCH.GLM_DSA:
            writer.add_indexer_head_count(config["index_n_heads"])
            writer.add_indexer_key_length(config["index_head_dim"])
            writer.add_indexer_top_k(config["index_topk"])
        case ARCH.CHAMELEON:
            writer.add_swin_norm(config["swin_norm"])
        case ARCH.PHI3 | ARCH.PHIMOE:
            writer.add_sliding_window(config.get("sliding_window") or 0)


def is_mellum(model):
    """Whether it is Mellum, whose tensors are Qwen 3's."""
    return model.name == "mellum"


def latent_settings(model, writer):
    """Sizes of latents; of the one key head that is left of them where kv_b_proj is split."""
    config = model.config
    still, turned = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    rank, values = config["kv_lora_rank"], config["v_head_dim"]
    writer.add_kv_lora_rank(rank)
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(turned)
    if config.get("whole"):
        writer.add_key_length(still + turned)
        writer.add_value_length(values)
        return
    writer.add_key_length(rank + turned)
    if model.arch is not ARCH.KIMI_LINEAR:
        writer.add_value_length(rank)
    writer.add_key_length_mla(still + turned)
    writer.add_value_length_mla(values)


def rope_settings(model, writer):
    arch, rope = model.arch, model.rope
    if model.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif model.kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("attention_factor") is not None:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
        if rope.get("beta_fast") is not None:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        if rope.get("beta_slow") is not None:
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if arch in (ARCH.DEEPSEEK2, ARCH.MISTRAL4, ARCH.GLM_DSA):
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    local = model.local.get("rope_theta") or model.config.get("rope_local_base_freq")
    if local is not None:
        writer.add_rope_freq_base_swa(local)
    share = rope.get("partial_rotary_factor") or model.config.get("rotary_pct")
    share = share or model.config.get("partial_rotary_factor")
    if arch in (ARCH.GEMMA4, ARCH.MISTRAL4, ARCH.STEP35):
        return
    if share is None and arch in HALF:
        share = 0.5
    if arch in (*PERMUTED, ARCH.AFMOE, ARCH.APERTUS, ARCH.LLAMA4):
        writer.add_rope_dimension_count(model.head_dim)
    elif share is not None or arch is ARCH.JAIS2:
        writer.add_rope_dimension_count(int((share or 1) * model.head_dim))
    if arch is ARCH.PHI3:
        original = rope.get("original_max_position_embeddings") or model.config.get(
            "original_max_position_embeddings"
        )
        writer.add_rope_scaling_orig_ctx_len(original)
        if model.kind == "longrope":
            writer.add_rope_scaling_attn_factors(longrope_factor(model))


def longrope_factor(model):
    """The converter's factor on cos and sin, as the file holds it."""
    original = model.rope["original_max_position_embeddings"]
    scale = model.config["max_position_embeddings"] / original
    return float(np.float32(math.sqrt(1 + math.log(scale) / math.log(original))))


def pieces(model):
    """The tensors, of which kv_b_proj may become two, and projections of q, k and v one."""
    sides = []
    for name, values in model.tensors():
        if model.config.get("fused") and (found := re.search(r"self_attn\.([qkv])_proj", name)):
            sides.append((found[1], name, values))
            continue
        if (fused := TAKEN_APART.get(model.arch)) and f".{fused}." in name:
            yield from taken_apart(model, name, values, fused)
            continue
        if model.arch is ARCH.MINICPM3 and name.endswith("kv_b_proj.weight"):
            values = of_full_values(model, values)
        if not (model.split and name.endswith("kv_b_proj.weight")):
            yield name, values
            continue
        still, rank = model.config["qk_nope_head_dim"], values.shape[-1]
        heads = values.reshape(model.heads, -1, rank)
        yield name.replace("kv_b_proj", "k_b_proj"), heads[:, :still].swapaxes(1, 2)
        yield name.replace("kv_b_proj", "v_b_proj"), heads[:, still:]
    for letter, name, values in sides:
        if letter == "q":
            others = {n: v for _, n, v in sides}
            three = [values, *(others[name.replace("q_proj", f"{o}_proj")] for o in "kv")]
            yield name.replace("q_proj", "qkv_proj"), np.concatenate(three)


def of_full_values(model, values):
    """A kv_b_proj with as many rows of values as the program takes a head to have."""
    still, share = model.config["qk_nope_head_dim"], model.width // model.heads
    heads = values.reshape(model.heads, -1, values.shape[-1])
    more = np.ones((model.heads, still + share - heads.shape[1], values.shape[-1]), np.float32)
    return np.concatenate([heads, more], axis=1).reshape(-1, values.shape[-1])


def taken_apart(model, name, values, fused):
    """One projection as three; in InternLM 2 each key head's queries stand before its key."""
    shape = (-1, model.head_dim, *values.shape[1:])
    heads = values.reshape(shape)
    if model.arch is ARCH.INTERNLM2:
        groups = heads.reshape(model.keys, -1, *shape[1:])
        sides = groups[:, :-2].reshape(shape), groups[:, -2], groups[:, -1]
    else:
        sides = np.split(heads, [model.heads, model.heads + model.keys])
    for letter, side in zip("qkv", sides, strict=True):
        own = name.replace(f"self_attn.{fused}", f"attention.{fused}")
        own = own.replace(f"attention.{fused}", f"self_attn.{letter}_proj")
        yield own, side.reshape(-1, *values.shape[1:])


def write(model, path, *, kind=None):
    """Write the file; `kind` quantises all matrices. Returns the names that were left out."""
    writer = gguf.GGUFWriter(path, model.name)
    settings(model, writer)
    blocks = max(model.layers, model.config.get("num_decoder_layers", 0))
    names = gguf.get_tensor_name_map(model.arch, blocks)
    lost = []
    for name, values in pieces(model):
        found = names.get_name(in_file(name), try_suffixes=(".weight", ".bias"))
        if found is None or any(part in name for part in LOST):
            lost.append(name)
            continue
        stored = np.ascontiguousarray(modified(model, name, values))
        if kind is not None and stored.ndim == 2 and "norm" not in found:
            block, _ = gguf.GGML_QUANT_SIZES[kind]
            used = kind if stored.shape[1] % block == 0 else gguf.GGMLQuantizationType.F16
            writer.add_tensor(found, gguf.quants.quantize(stored, used), raw_dtype=used)
        else:
            writer.add_tensor(found, stored)
    for name, values in extra_tensors(model):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return lost


@cache
def converted(name):
    """Metadata without its prefix and tensors of a converted checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        write(golden(name), path)
        reader = gguf.GGUFReader(path)
        metadata = {
            key: field.contents()
            for key, field in reader.fields.items()
            if not key.startswith("GGUF.")
        }
        return metadata, {t.name: np.array(t.data) for t in reader.tensors}


def changed(tmp_path, name, change=(), tensors=()):
    """A converted checkpoint with other metadata and tensors; None takes one away."""
    metadata, arrays = converted(name)
    prefix = metadata["general.architecture"] + "."
    metadata = metadata | {prefix + key: value for key, value in dict(change).items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    path = tmp_path / "changed.gguf"
    held = {name: array for name, array in (arrays | dict(tensors)).items() if array is not None}
    path.write_bytes(gguf_bytes(metadata, held))
    return path
