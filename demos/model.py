"""The demo models: config, initial tensors and forward pass of one layer in JAX.

It computes what the Llama, Qwen3 and OLMo 2 code of Hugging Face transformers computes;
compare.py holds it to that.
"""

import jax
import jax.numpy as jnp
import numpy as np
from task import TRAIN_LENGTH

WIDTH, MLP_WIDTH, QUERY_HEADS, KEY_HEADS, HEAD_DIM = 64, 32, 4, 2, 16
FAMILIES = {
    "plain": ("llama", "LlamaForCausalLM"),
    "headwise": ("qwen3", "Qwen3ForCausalLM"),
    "layerwise": ("olmo2", "Olmo2ForCausalLM"),
}
ATTENTION = "model.layers.0.self_attn."


def make_config(name):
    """Return the config.json of a demo as a dictionary."""
    model_type, architecture = FAMILIES[name]
    config = {
        "architectures": [architecture],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "initializer_range": 0.02,
        "intermediate_size": MLP_WIDTH,
        "max_position_embeddings": TRAIN_LENGTH,
        "model_type": model_type,
        "num_attention_heads": QUERY_HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": KEY_HEADS,
        "pad_token_id": None,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": 64,
    }
    if model_type == "olmo2":
        del config["head_dim"]  # not a field of that family: hidden_size / num_attention_heads
    return config


def make_parameters(config, rng):
    """Tensors by Hugging Face name, float32: matrices N(0, initializer_range²), gains 1."""
    width, mlp = config["hidden_size"], config["intermediate_size"]
    q_width, k_width = QUERY_HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM
    shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], width),
        ATTENTION + "q_proj.weight": (q_width, width),
        ATTENTION + "k_proj.weight": (k_width, width),
        ATTENTION + "v_proj.weight": (k_width, width),
        ATTENTION + "o_proj.weight": (width, q_width),
        "model.layers.0.mlp.gate_proj.weight": (mlp, width),
        "model.layers.0.mlp.up_proj.weight": (mlp, width),
        "model.layers.0.mlp.down_proj.weight": (width, mlp),
        "model.layers.0.post_attention_layernorm.weight": (width,),
        "model.norm.weight": (width,),
    }
    if config["model_type"] == "olmo2":
        shapes["model.layers.0.post_feedforward_layernorm.weight"] = (width,)
        shapes[ATTENTION + "q_norm.weight"] = (q_width,)
        shapes[ATTENTION + "k_norm.weight"] = (k_width,)
    else:
        shapes["model.layers.0.input_layernorm.weight"] = (width,)
    if config["model_type"] == "qwen3":
        shapes[ATTENTION + "q_norm.weight"] = (HEAD_DIM,)
        shapes[ATTENTION + "k_norm.weight"] = (HEAD_DIM,)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else (config["initializer_range"] * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def is_trained(name):
    """QK-norm gains stay at 1: learned gains would loosen the cap on the spread."""
    return not name.startswith((ATTENTION + "q_norm", ATTENTION + "k_norm"))


def rms_norm(x, gain, eps):
    """Normalise the last axis to root mean square 1, then multiply by the gain."""
    return gain * (x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps))


def rotate(x, positions, theta):
    """RoPE with half-split pairs; x: (batch, heads, positions, head_dim)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] / theta ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def forward(parameters, config, tokens):
    """Logits of the last token, (batch, vocabulary), and its coefficients, (batch, heads, n).

    With one layer and causal attention the last token's output needs no other token's query.
    """
    model_type, eps = config["model_type"], config["rms_norm_eps"]
    layer = {
        k.removeprefix("model.layers.0.").removesuffix(".weight"): v for k, v in parameters.items()
    }
    embedding, final = parameters["model.embed_tokens.weight"], parameters["model.norm.weight"]
    batch, n = tokens.shape

    def project(x, side):  # (batch, m, width) → (batch, heads of that side, m, head_dim)
        y = x @ layer[f"self_attn.{side}_proj"].T
        if model_type == "olmo2" and side != "v":
            y = rms_norm(y, layer[f"self_attn.{side}_norm"], eps)
        y = y.reshape(batch, x.shape[1], -1, HEAD_DIM).swapaxes(1, 2)
        if model_type == "qwen3" and side != "v":
            y = rms_norm(y, layer[f"self_attn.{side}_norm"], eps)
        return y

    def mlp(x):
        gate = jax.nn.silu(x @ layer["mlp.gate_proj"].T)
        return (gate * (x @ layer["mlp.up_proj"].T)) @ layer["mlp.down_proj"].T

    x = embedding[tokens]
    inputs = x if model_type == "olmo2" else rms_norm(x, layer["input_layernorm"], eps)
    positions, theta = jnp.arange(n, dtype=jnp.float32), config["rope_theta"]
    query = rotate(project(inputs[:, -1:], "q"), positions[-1:], theta)
    key = rotate(project(inputs, "k"), positions, theta)
    query = query.reshape(batch, KEY_HEADS, QUERY_HEADS // KEY_HEADS, HEAD_DIM)
    logits = jnp.einsum("bgrd,bgnd->bgrn", query, key) / np.sqrt(HEAD_DIM)
    coefficients = jax.nn.softmax(logits, axis=-1)
    mixed = jnp.einsum("bgrn,bgnd->bgrd", coefficients, project(inputs, "v"))
    out = mixed.reshape(batch, -1) @ layer["self_attn.o_proj"].T

    residual, after = x[:, -1], layer["post_attention_layernorm"]
    if model_type == "olmo2":
        h = residual + rms_norm(out, after, eps)
        h = h + rms_norm(mlp(h), layer["post_feedforward_layernorm"], eps)
    else:
        h = residual + out
        h = h + mlp(rms_norm(h, after, eps))
    return rms_norm(h, final, eps) @ embedding.T, coefficients.reshape(batch, QUERY_HEADS, n)
