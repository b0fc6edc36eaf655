"""Families in other shapes and with other switches, drawn at random."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import transformers
from families import Family, Size
from published_families import Published

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TWO_LAYERS, FOUR_PARTS = ("GPTNeo", "Dots3NoteText"), ("CodeGen",)
FLAGS = """
    attention_bias use_bias qkv_bias bias use_qkv_bias norm_bias enable_bias swin_norm
    layer_norm_elementwise_affine use_qk_norm qk_layernorm mlp_bias tie_word_embeddings
    scale_attn_weights scale_attn_by_inverse_layer_idx multi_query new_decoder_architecture
    parallel_attn emb_layer_norm_before token_dropout attn_temperature_tuning rope_interleave
    use_attention_gate attention_k_eq_v mup_enabled use_parallel_residual use_sliding_window
    do_layer_norm_before scale_embedding apply_residual_connection_post_layernorm
    query_bias key_bias qv_bias use_absolute_position_embeddings
    use_relative_position_bias use_shared_relative_position_bias do_stable_layer_norm
    has_relative_attention_bias has_spatial_attention_bias sinusoidal_pos_embds vision_use_head
    relative_attention position_biased_input share_att_key convolution_bias scale_input
    add_qkv_bias add_bias_linear include_bias include_qkv_bias use_logn_attn
"""
CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("rms_norm_eps", "norm_eps", "norm_epsilon"), (1e-8, 1e-6, 1e-5, 1e-4)),
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon"), (1e-12, 1e-6, 1e-5, 1e-3)),
    **dict.fromkeys(("sliding_window", "attention_window_size", "window_size"), range(2, 13)),
    "attention_chunk_size": range(3, 14),
    "local_attention": range(2, 16, 2),
    "max_window_layers": range(3),
    "no_rope_layer_interval": (1, 2, 3),
    "query_pre_attn_scalar": (5, 16, 100, 256),
    "attn_logit_softcapping": (None, 2.0, 20.0, 50.0),
    "attention_multiplier": (0.0078125, 0.3, 1.0),
    "key_multiplier": (0.1, 0.7, 2.0),
    "attention_in_multiplier": (0.25, 1.0, 3.0),
    "embedding_multiplier": (0.5, 12.0),
    "qk_scale_factor": (0.3, 1.0, 7.0),
    "floor_scale": (2, 5, 8192),
    "attn_scale": (0.05, 0.1, 1.0),
    "clip_qkv": (None, 0.3, 1.0, 4.0, 8.0),
    "relative_attention_num_buckets": (4, 16, 32),
    "relative_attention_max_distance": (9, 12, 128),
    "num_ln_in_parallel_attn": (None, 1, 2),
    "q_lora_rank": (None, 5, 9, 16),
    "kv_lora_rank": (4, 7, 20),
    "qk_nope_head_dim": (2, 5, 12),
    "qk_rope_head_dim": (2, 6, 8),
    "v_head_dim": (1, 5, 12),
    "global_head_dim": (8, 12, 24),
    "num_nextn_predict_layers": (0, 1, 2),
    "type_vocab_size": (1, 2, 3),
    "encoder_layers": (1, 2),
    "decoder_layers": (1, 2, 3),
    "encoder_attention_heads": (1, 2, 4),
    "decoder_attention_heads": (1, 2, 4),
    "num_decoder_layers": (1, 2, 3),
    "d_kv": (4, 8, 12),
    "num_buckets": (8, 16, 32),
    "max_bucket_distance": (9, 20, 128),
    "rel_pos_bins": (4, 8, 32),
    "rel_2d_pos_bins": (4, 6, 32),
    "encoder_num_attention_heads": (1, 2, 4),
    "decoder_num_attention_heads": (2, 4),
    "pad_head_dim_to_multiple_of": (None, 4, 8),
    "pos_embed_rescale": (None, 2.0),
    "pos_att_type": ("c2p", "p2c", "c2p|p2c", "p2c|c2p", ["p2c", "c2p"]),
    "max_relative_positions": (-1, 5, 12, 40),
    "position_buckets": (-1, 4, 6, 8),
    "norm_rel_ebd": ("none", "layer_norm"),
    "conv_groups": (1, 2, 4),
    "conv_kernel_size": (2, 3, 4),
    "position_embeddings_type": (None, "relative", "relative_key", "rotary"),
    "left_max_position_embeddings": (1, 5, 64),
    "right_max_position_embeddings": (1, 3, 8),
    "rotary_embedding_base": (60, 10000),
    "swa_head_dim": (4, 6, 10),
    "sliding_window_size": (1, 2, 3, 9),
    "d_rel": (1, 2, 5),
    "rel_extent": (1, 2, 3, 7),
    "log_scaling_n_floor": (None, 1, 2),
    "log_scaling_alpha": (0.05, 0.5),
    "qk_l2_clip_threshold": (0.7, 2.5, 22.0),
    "rel_l2_clip_threshold": (0.3, 0.8, 8.0),
    "cca_time0": (1, 2, 3),
    "cca_time1": (1, 2, 3),
    "keep_window_size": (64, 2048),
    "gated_norm_rank": (1, 3),
}
STACK = ("attention_bias", "sliding_window", "query_pre_attn_scalar", "attn_logit_softcapping")
OWN: dict[str, tuple[Any, ...]] = {  # of models whose code is no part of transformers
    "rope_theta": (70.0, 5000.0, 1e6),
    "rotary_emb_base": (300.0, 1e4),
    "rope_ratio": (1, 0.5, 50),
    "seq_length": (2, 7, 64),
    "scale_emb": (1, 12),
    "layernorm_epsilon": (1e-8, 1e-5, 1e-4),
    "partial_rotary_factor": (0.25, 0.5, 1.0),
}
INNER: dict[str, tuple[Any, ...]] = {  # of MPT's and DBRX's attn_config
    "alibi_bias_max": (1, 4, 8, 16),
    "softmax_scale": (None, 0.1, 0.6),
    "clip_qkv": (None, 0.4, 2.0, 8.0),
}


def draw_size(rng: random.Random, kind: str) -> Size:
    shared, groups = rng.choice([(1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1)])
    return Size(
        hidden=rng.choice((12, 20, 24, 28, 40)),
        heads=4 if kind in FOUR_PARTS else shared * groups,
        shared=1 if kind in FOUR_PARTS else shared,
        few=rng.choice((1, 2, 4, 5)),
        head_dim=rng.choice((4, 8, 8, 12, 16)),
        layers=2 if kind in TWO_LAYERS else rng.choice((2, 2, 2, 2, 3)),
        vocab=rng.choice((11, 17, 32)),
        window=rng.randint(2, 12),
        learned=rng.choice((12, 20, 27)),
        lengths=(rng.randint(4, 9), rng.randint(12, 28)),
        gains=rng.choice((0.1, 0.4, 0.9)),
        uneven=rng.choice((0.0, 0.0, 0.8)),
    )


def draw_rope(rng: random.Random, old: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Another rotation that keeps what else a family says of its own."""
    if "partial_rotary_factor" in old and old.get("rope_type") != "proportional":
        turned = rng.randrange(2, 2 * pairs + 1, 2)
        old = old | {"partial_rotary_factor": turned / (2 * pairs)}
        pairs = turned // 2
    elif rng.random() < 0.1:  # most codes ignore it in a plain rotation
        old = old | {"partial_rotary_factor": 0.5}
    theta = rng.choice((50.0, 1234.5, 10000.0, 1e6))
    kind = rng.choice(("default", "default", "linear", "llama3", "yarn", "longrope", "dynamic"))
    if old.get("rope_type") not in (None, "default") and rng.random() < 0.7:
        return old | {"rope_theta": theta}
    more: dict[str, Any] = {"factor": rng.choice((1.5, 4.0, 32.0))}
    if kind == "default":
        more = {}
    if kind == "llama3":
        more |= {"low_freq_factor": rng.choice((1.0, 1.5)), "high_freq_factor": 4.0}
    if kind in ("llama3", "yarn", "longrope"):
        more["original_max_position_embeddings"] = rng.choice((10, 16, 64, 4096))
    if kind == "yarn":
        more |= rng.choice(
            (
                {},
                {"attention_factor": 0.8},
                {"mscale": 0.7, "mscale_all_dim": 1.0},
                {"mscale": 1.0, "mscale_all_dim": 1.0, "truncate": False},
                {"beta_fast": 8.0, "beta_slow": 0.5},
            )
        )
    if kind == "longrope":
        more |= {"short_factor": [1.0 + 0.3 * rng.random() for _ in range(pairs)]}
        more |= {"long_factor": [1.0 + 20 * rng.random() for _ in range(pairs)]}
        more |= rng.choice(({}, {"attention_factor": 1.3}))
    kept = {
        key: old[key]
        for key in ("partial_rotary_factor", "mrope_section", "llama_4_scaling_beta")
        if key in old
    }
    return {"rope_type": kind, "rope_theta": theta} | more | kept


def draw_config(
    rng: random.Random, config: dict[str, Any], known: Callable[[str], bool], size: Size
) -> dict[str, Any]:
    """Other switches, of those that the config class knows."""
    config = dict(config)
    for key in FLAGS.split():
        if known(key) and rng.random() < 0.5:
            config[key] = rng.random() < 0.5
    for key, values in CHOICES.items():
        clips = key != "clip_qkv" or key in config
        if known(key) and clips and rng.random() < 0.6:
            config[key] = rng.choice(values)
    if "attn_config" in config:
        inner = {k: rng.choice(v) for k, v in INNER.items() if rng.random() < 0.6}
        config["attn_config"] = config["attn_config"] | inner
    if "index_head_dim" in config:  # of which a part turns
        turned = config.get("qk_rope_head_dim", 0)
        config["index_head_dim"] = max(config["index_head_dim"], turned)
    types = config.get("layer_types")
    if types and "sliding_attention" in types and rng.random() < 0.7:
        config["layer_types"] = [
            t if t == "conv" else rng.choice(("sliding_attention", "full_attention")) for t in types
        ]
    elif types:
        rng.shuffle(types)
    if "no_rope_layers" in config:
        layers = config.get("num_hidden_layers", size.layers)
        config["no_rope_layers"] = [rng.randint(0, 1) for _ in range(layers)]
        if "kv_source_layers" in config:  # none reads one that turns otherwise
            sources = enumerate(config["kv_source_layers"])
            turns = config["no_rope_layers"]
            config["kv_source_layers"] = [s if turns[s] == turns[i] else i for i, s in sources]
    if "layer_rope_theta" in config:
        config["layer_rope_theta"] = [rng.choice((0.0, 70.0, 1e4)) for _ in range(size.layers)]
    elsewhere = ("qk_rope_head_dim", "global_head_dim", "new_decoder_architecture")
    if not config.keys() & set(elsewhere) and known("head_dim") and rng.random() < 0.4:
        config["head_dim"] = rng.choice((4, 8, 12, 20))
    width = config.get("head_dim") or size.head_dim
    rope = config.get("rope_parameters")
    if rope and rng.random() < 0.7:
        if all(v is None or isinstance(v, dict) for v in rope.values()):  # by layer type
            config["rope_parameters"] = {
                k: v and draw_rope(rng, v, width // 2) for k, v in rope.items()
            }
        else:
            width = config.get("qk_rope_head_dim", width)
            config["rope_parameters"] = draw_rope(rng, rope, width // 2)
        if rng.random() < 0.5:
            config["max_position_embeddings"] = rng.choice((12, 20, 640))
    rope = config.get("rope_parameters") or {}
    for part in (rope, *rope.values()):
        if isinstance(part, dict) and int(width * part.get("partial_rotary_factor", 1)) % 2:
            msg = "an odd number of coordinates cannot turn"
            raise ValueError(msg)
    if "rope_theta" in config.get("attn_config", ()):
        config["attn_config"]["rope_theta"] = rope["rope_theta"]
    if "rotary_dim" in config:
        config["rotary_dim"] = rng.randrange(2, size.head_dim + 1, 2)
    return config


def old_dialect(config: dict[str, Any]) -> dict[str, Any]:
    """`rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top, as on the Hub."""
    rope = dict(config.get("rope_parameters") or {})
    if not rope.get("rope_theta"):
        return config
    del config["rope_parameters"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            config[key] = rope.pop(key)
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    return config


def drawn(family: Family, rng: random.Random) -> tuple[Family, Size]:
    """A family with other switches, and a size."""
    size = draw_size(rng, family.kind)
    config = family.config(size)
    if isinstance(family, Published):
        inner = dict(config)
        config = draw_config(rng, config, lambda k: k in inner, size)
        config |= {k: rng.choice(v) for k, v in OWN.items() if k in config and rng.random() < 0.6}
        return varied(family, config, rng), size
    kind = getattr(transformers, family.kind.replace("ForText", "") + "Config")
    if "text_config" in config:
        inner = type(kind(**config).text_config)()
        config["text_config"] = draw_config(
            rng, config["text_config"], lambda k: hasattr(inner, k), size
        )
    elif "decoder" in config:  # sizes of both stacks belong together
        for stack in ("encoder", "decoder"):
            within = config[stack].get("text_config", config[stack])
            within |= draw_config(rng, within, STACK.__contains__, size)
    else:
        built = kind(**config)
        built.allow_global_per_layer_attribute_access = True  # where layers have sizes of their own
        config = draw_config(rng, config, lambda k: hasattr(built, k), size)
    return varied(family, config, rng), size


def varied(family: Family, config: dict[str, Any], rng: random.Random) -> Family:
    """A family with this config, saved in another way and with logits of another size."""
    switch = config.get("use_qk_norm", config.get("qk_layernorm"))
    norm = family.qk_norm if switch is None else "headwise" if switch else None
    if family.kind == "Llama4Text":
        norm = None
    headless = "text_config" not in config and family.head != "EncoderModel"
    low = rng.choice((0.5, 3.0))
    return replace(
        family,
        config=lambda _: config,
        qk_norm=norm,
        dtype=rng.choice((torch.float32, torch.bfloat16, torch.float16)),
        shard=rng.choice((None, "8KB")),
        rewrite=family.rewrite or rng.choice((None, None, old_dialect)),
        head="Model" if headless and rng.random() < 0.3 else family.head,
        targets=family.targets and (low, low * rng.choice((3.0, 20.0, 60.0))),
        # three tokens are a whole context where keys are made of several
        lengths=family.lengths if family.lengths == (3,) else None,
    )
