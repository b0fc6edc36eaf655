"""The tiny checkpoints: which transformers class, which config, which twist."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Size:
    """Sizes all families share; `shared` says how many query heads read one key head.

    `few` heads have families whose heads are not grouped, or that are short of room; matrices have
    columns that differ by a factor of exp(`uneven`) or its inverse, about.
    """

    hidden: int = 24
    heads: int = 4
    shared: int = 2
    few: int = 3
    head_dim: int = 8  # where a config may choose it freely
    layers: int = 2
    vocab: int = 16
    mlp: int = 4
    window: int = 6
    learned: int = 32  # learned positions (gpt2, bert)
    lengths: tuple[int, ...] = (8, 48)
    gains: float = 0.4  # standard deviation of log gains and of biases
    uneven: float = 0.0


SCALES = {
    "tiny": Size(),
    "medium": Size(
        hidden=36, heads=6, shared=3, head_dim=16, vocab=40, mlp=16, window=9, learned=40
    ),
    "big": Size(
        hidden=128,
        heads=8,
        shared=2,
        head_dim=64,
        vocab=64,
        mlp=32,
        window=12,
        learned=40,
    ),
}


@dataclass(frozen=True)
class Family:
    """One checkpoint. `config` maps a size to the keyword arguments of the config class."""

    name: str
    kind: str  # prefix of the transformers classes
    config: Callable[[Size], dict[str, Any]]
    head: str = "ForCausalLM"  # suffix of the model class that is saved
    dtype: torch.dtype = torch.float32
    shard: str | None = None
    rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    qk_norm: str | None = None
    gain_offset: float = 0.0
    targets: tuple[float, ...] | None = field(default=(3.0, 60.0))  # None: as random as they come
    dropped: str | None = None  # parts of this name are not saved
    lengths: tuple[int, ...] | None = None  # None for those of the size
    effort: float = 1.0  # how much longer than others its attack climbs
    code: str | None = None  # prefix of the model's class where it is another model's

    def build(self, size: Size) -> Any:
        config = getattr(transformers, self.kind.replace("ForText", "") + "Config")
        model = getattr(transformers, self.model_class)
        built = model(config(**self.config(size)))
        if self.dropped is not None:
            for owner in list(built.modules()):
                owner._modules.pop(self.dropped, None)
        return built

    @property
    def model_class(self) -> str:
        # a model of text alone has no class of its own with a head
        kind = self.kind if self.head == "Model" else self.kind.removesuffix("Text")
        return (self.code or kind) + self.head


def decoder(size: Size, **more: Any) -> dict[str, Any]:
    """Keys common to the decoders; head_dim·heads differs from hidden in all of them."""
    return {
        "vocab_size": size.vocab,
        "hidden_size": size.hidden,
        "intermediate_size": size.mlp,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads // size.shared,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},  # no class's default
    } | more


def in_turn(size: Size, *values: Any) -> list[Any]:
    """One value for each layer."""
    return [values[i % len(values)] for i in range(size.layers)]


def kinds(size: Size) -> list[str]:
    """Layer types, sliding and full in turn, sliding first."""
    return in_turn(size, "sliding_attention", "full_attention")


def sections(size: Size) -> list[int]:
    """Half of a head's pairs of coordinates, divided among time, height and width."""
    pairs = size.head_dim // 4
    return [pairs - pairs // 2, pairs // 2, 0]


def yarn(theta: float, **more: Any) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    } | more


def stretched(config: dict[str, Any]) -> dict[str, Any]:
    """The length YaRN stretches to, as its factor says."""
    return config | {"max_position_embeddings": 16384}


def llama(size: Size, **more: Any) -> dict[str, Any]:
    # no head_dim of its own: hidden / heads
    return decoder(size, **{"hidden_size": size.heads * size.head_dim} | more)


def llama_scaled(size: Size) -> dict[str, Any]:
    return llama(
        size,
        max_position_embeddings=512,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )


def old_llama(config: dict[str, Any]) -> dict[str, Any]:
    """The dialect of most files on the Hub: rope_theta, rope_scaling, no head_dim."""
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = {"type": "linear", "factor": 4.0}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.36.2"
    for key in ("head_dim", "attention_bias", "mlp_bias"):
        config.pop(key, None)
    return config


def gemma2(size: Size) -> dict[str, Any]:
    return decoder(
        size,
        num_key_value_heads=1,
        head_dim=size.head_dim,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=24,
        sliding_window=size.window,
        attn_logit_softcapping=15.0,
        final_logit_softcapping=30.0,
        layer_types=kinds(size),
    )


def t5gemma(size: Size) -> dict[str, Any]:
    """A layer that slides in the encoder; in the decoder one that slides and one that does not."""
    few = {"hidden_size": 2 * size.head_dim, "num_attention_heads": 2, "num_key_value_heads": 1}
    both = gemma2(size) | few
    del both["layer_types"]
    return {
        "encoder": both | {"num_hidden_layers": 1},
        "decoder": both,
        "vocab_size": size.vocab,
        "pad_token_id": 0,
    }


def t5gemma2(size: Size) -> dict[str, Any]:
    """In both stacks a layer that slides, by an even and an odd window, and one that does not."""
    both = {
        "vocab_size": size.vocab,
        "hidden_size": 2 * size.head_dim,
        "intermediate_size": size.mlp,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": size.head_dim,
        "query_pre_attn_scalar": size.head_dim + 3,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    }
    tower = {"hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1}
    tower |= {"num_attention_heads": 1, "image_size": 2, "patch_size": 1, "vision_use_head": False}
    return {
        "encoder": {
            "text_config": both | {"sliding_window": size.window},
            "vision_config": tower,
            "mm_tokens_per_image": 4,
        },
        "decoder": both | {"sliding_window": size.window - 1},
    }


def moonshine(size: Size) -> dict[str, Any]:
    """Heads of 6 coordinates, of which 4 turn."""
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 2}
    both = {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in sizes.items()}
    return both | {
        "vocab_size": size.vocab,
        "hidden_size": 12,
        "intermediate_size": size.mlp,
        "encoder_num_hidden_layers": 1,
        "decoder_num_hidden_layers": size.layers,
        "pad_head_dim_to_multiple_of": 8,
        "pad_token_id": 0,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5000.0,
            "partial_rotary_factor": 0.7,
        },
    }


def gemma3(size: Size) -> dict[str, Any]:
    return decoder(
        size,
        num_key_value_heads=size.heads // size.shared,
        head_dim=size.head_dim,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=24,
        sliding_window=size.window,
        attn_logit_softcapping=10.0,  # a key the model never applies
        layer_types=kinds(size),
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 2.0},
        },
    )


def cohere2_moe(size: Size) -> dict[str, Any]:
    """A dense layer that turns though it is full, then a sliding one, then one at rest."""
    full = "full_attention"
    return decoder(
        size,
        head_dim=size.head_dim,
        num_hidden_layers=3,
        sliding_window=size.window,
        layer_types=[full, "sliding_attention", full],
        mlp_layer_types=["dense", "sparse", "sparse"],
        num_experts=2,
        num_experts_per_tok=1,
        intermediate_size=2,
        prefix_dense_intermediate_size=2,
        rope_theta=5000.0,
        **few(size),
    )


def old_cohere2_moe(config: dict[str, Any]) -> dict[str, Any]:
    for key in ("layer_types", "mlp_layer_types", "rope_parameters"):
        config.pop(key, None)
    config["rope_theta"] = 5000.0
    config["first_k_dense_replace"] = 1
    config["sliding_window_pattern"] = 2
    return config


def longcat(size: Size) -> dict[str, Any]:
    """A layer with two attentions, their latents of unlike ranks."""
    config = latent(
        size,
        num_layers=size.layers // 2,
        head_dim=size.head_dim // 2,
        num_attention_heads=3,
        num_key_value_heads=3,
        ffn_hidden_size=2,
        expert_ffn_hidden_size=2,
        n_routed_experts=2,
        zero_expert_num=1,
        moe_topk=2,
    )
    del config["num_hidden_layers"], config["intermediate_size"]
    return config


def mistral4(size: Size) -> dict[str, Any]:
    still, turned = size.head_dim - 2, size.head_dim // 2
    scaled = yarn(
        10000.0,
        original_max_position_embeddings=16,
        llama_4_scaling_beta=0.2,
        mscale=1.0,
        mscale_all_dim=1.0,
        partial_rotary_factor=turned / (still + turned),
    )
    return routed(
        latent(size, rope_parameters=scaled, max_position_embeddings=64),
        first_k_dense_replace=size.layers,
    )


def kimi(size: Size) -> dict[str, Any]:
    """A linear layer, then one with attention."""
    config = latent(
        size,
        q_lora_rank=None,
        num_attention_heads=3,
        num_key_value_heads=3,
        layer_types=mixed(size),
        mlp_layer_types=["dense"] * size.layers,
        linear_head_dim=4,
        linear_num_heads=2,
        linear_conv_kernel_dim=2,
    )
    del config["rope_parameters"]
    return config


def step3p5(size: Size) -> dict[str, Any]:
    return decoder(
        size,
        head_dim=size.head_dim,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_sliding_attention_heads=3,
        query_pre_attn_scalar=11,
        mlp_layer_types=["dense", "sparse"],
        n_routed_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=2,
        share_expert_dim=2,
        rope_parameters=by_layer(partial=0.5),
        **sliding(size),
    )


def gemma3n(size: Size) -> dict[str, Any]:
    return (
        gemma3(size)
        | few(size)
        | {
            "hidden_size_per_layer_input": 2,
            "vocab_size_per_layer_input": 4,
            "altup_num_inputs": 2,
            "laurel_rank": 2,
            "num_kv_shared_layers": 0,
        }
    )


def gemma4(size: Size) -> dict[str, Any]:
    return gemma3(size) | {
        "hidden_size_per_layer_input": 2,
        "vocab_size_per_layer_input": size.vocab,
        "global_head_dim": 2 * size.head_dim,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "rope_parameters": by_layer(rope_type="proportional", partial=0.25),
    }


def shared(size: Size) -> dict[str, Any]:
    """Layer 3 reads the keys of layer 1, layer 4 those of layer 2, and none those of layer 0."""
    types = ["sliding_attention"] * 2 + kinds(size)[::-1] + ["full_attention"]
    return {
        "hidden_size": 2 * size.head_dim,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 2,
        "layer_types": types,
    }


SIGLIP = {
    "hidden_size": 8,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 4,
    "patch_size": 2,
}


def old_gemma3(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = {"rope_type": "linear", "factor": rope["full_attention"]["factor"]}
    config.pop("layer_types")
    config.pop("_sliding_window_pattern", None)
    config["sliding_window_pattern"] = 2
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.50.0"
    return config


def olmo3(size: Size, full: dict[str, Any]) -> dict[str, Any]:
    return decoder(
        size,
        hidden_size=size.heads * size.head_dim,
        sliding_window=size.window,
        layer_types=kinds(size),
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "full_attention": full,
        },
    )


def gpt2(size: Size, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "n_positions": size.learned,
        "n_embd": size.head_dim * size.few,
        "n_layer": size.layers,
        "n_head": size.few,
        "n_inner": size.mlp,
        "bos_token_id": 0,
        "eos_token_id": 0,
    } | more


def bert(size: Size, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "hidden_size": size.head_dim * size.few,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.few,
        "intermediate_size": size.mlp,
        "max_position_embeddings": size.learned,
        "pad_token_id": 0,
    } | more


BASE = {"rope_type": "default", "rope_theta": 40000.0}


def turned_bert(size: Size, **more: Any) -> dict[str, Any]:
    """BERT with RoPE, of no class's base."""
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    return bert(size, rope_parameters=rope, max_position_embeddings=256, **more)


def layoutlmv3(size: Size) -> dict[str, Any]:
    """A page of four patches."""
    page = {"input_size": 4, "patch_size": 2, "num_channels": 1, "max_2d_position_embeddings": 4}
    bins = {"rel_pos_bins": 8, "rel_2d_pos_bins": 6, "max_rel_pos": 16, "max_rel_2d_pos": 16}
    sizes = {"coordinate_size": 4, "shape_size": 4, "pad_token_id": 1}
    return bert(size, **page, **bins, **sizes)


def narrow(size: Size) -> dict[str, int]:
    """Two heads, where there are many matrices."""
    return {"hidden_size": 2 * size.head_dim, "num_attention_heads": 2}


def deberta(size: Size, **more: Any) -> dict[str, Any]:
    """A table that ends before the longest contexts do."""
    both = {"relative_attention": True, "pos_att_type": "c2p|p2c"}
    table = {"max_relative_positions": 12, "position_biased_input": False}
    return bert(size, **both, **table) | more


def deberta_v2(size: Size, **more: Any) -> dict[str, Any]:
    """As published: buckets, one projection for both, a norm of the table, a convolution."""
    buckets = {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
    return (
        deberta(size, pos_att_type="p2c|c2p", conv_kernel_size=3, conv_groups=3, **buckets) | more
    )


def albert(size: Size, **more: Any) -> dict[str, Any]:
    """Three layers of two groups, on narrower embeddings."""
    grouped = {"embedding_size": size.head_dim - 2, "num_hidden_layers": 3, "num_hidden_groups": 2}
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    return bert(size, **grouped) | ids | more


def experts(config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Two tiny experts, one chosen for each token."""
    return config | {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4} | more


def granite(size: Size) -> dict[str, Any]:
    return llama(size, attention_multiplier=0.21875, embedding_multiplier=6.0, attention_bias=True)


def partial(size: Size, factor: float, **more: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": factor}
    return llama(size, **{"rope_parameters": rope} | more)


def gpt_neox(size: Size, **more: Any) -> dict[str, Any]:
    few = {"hidden_size": size.head_dim * size.few, "num_attention_heads": size.few}
    config = partial(size, 0.25, **few) | more
    del config["num_key_value_heads"]
    return config


def old_gpt_neox(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.pop("rope_parameters")
    config["rotary_emb_base"] = rope["rope_theta"]
    config["rotary_pct"] = rope["partial_rotary_factor"]
    config["torch_dtype"] = config.pop("dtype")
    config.pop("attention_bias", None)
    return config


def mixed(size: Size, other: str = "linear_attention") -> list[str]:
    """Layer types, one without softmax attention and full ones in turn."""
    return in_turn(size, other, "full_attention")


def deltas(size: Size) -> dict[str, Any]:
    """The smallest gated delta net that runs."""
    return {
        "linear_conv_kernel_dim": 2,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "layer_types": mixed(size),
    }


def routed(config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Two tiny experts by the names of DeepSeek's descendants."""
    return (
        experts(config)
        | {"n_routed_experts": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
        | {"first_k_dense_replace": 1}
        | more
    )


def few(size: Size) -> dict[str, Any]:
    """Few query heads on one key head, where room is short."""
    return {
        "hidden_size": size.few * size.head_dim,
        "num_attention_heads": size.few,
        "num_key_value_heads": 1,
    }


def three(size: Size, **more: Any) -> dict[str, Any]:
    return llama(size, **few(size) | more)


def granite_moe(size: Size, **more: Any) -> dict[str, Any]:
    more = {"num_local_experts": 2, "num_experts_per_tok": 1, "attention_bias": False} | more
    return three(size, attention_multiplier=0.21875, embedding_multiplier=6.0, **more)


def mamba(size: Size) -> dict[str, Any]:
    return {
        "mamba_n_heads": size.few,
        "mamba_n_groups": 1,
        "mamba_d_state": 4,
        "mamba_d_conv": 2,
        "mamba_expand": 1,
        "mamba_d_head": size.head_dim,
        "mamba_chunk_size": 8,
    }


def sliding(size: Size, **more: Any) -> dict[str, Any]:
    return {"sliding_window": size.window, "layer_types": kinds(size)} | more


def by_layer(*, partial: float, rope_type: str = "default") -> dict[str, Any]:
    """Rotations nested by layer type; full layers turn in part."""
    full = {"rope_type": rope_type, "rope_theta": 50000.0, "partial_rotary_factor": partial}
    return {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}} | {
        "full_attention": full
    }


def longrope(size: Size, partial: float = 1.0) -> dict[str, Any]:
    pairs = int(size.head_dim * partial) // 2
    return llama(
        size,
        max_position_embeddings=256,
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 5000.0,
            "short_factor": [1.0 + 0.25 * j for j in range(pairs)],
            "long_factor": [2.0 + 1.5 * j for j in range(pairs)],
        }
        | ({} if partial == 1 else {"partial_rotary_factor": partial}),
    )


def gpt_neo(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "max_position_embeddings": size.learned,
        "hidden_size": size.head_dim * size.few,
        "num_layers": size.layers,
        "num_heads": size.few,
        "attention_types": [[["global", "local"], size.layers // 2]],
        "window_size": size.window,
        "intermediate_size": size.mlp,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def gptj(size: Size, heads: int | None = None) -> dict[str, Any]:
    return gpt2(size, n_positions=64, n_head=heads or size.few, rotary_dim=size.head_dim // 2)


def falcon(size: Size, **more: Any) -> dict[str, Any]:
    return llama(size, bias=True, **more) | {"ffn_hidden_size": size.mlp}


def old_rope(config: dict[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `partial_rotary_factor` at the top, as on the Hub."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["rope_theta"]
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope["partial_rotary_factor"]
    config["torch_dtype"] = config.pop("dtype")
    return config


def opt(size: Size, **more: Any) -> dict[str, Any]:
    config = bert(size, **more) | {"ffn_dim": size.mlp, "bos_token_id": 0, "eos_token_id": 0}
    return config | {"pad_token_id": 1}


def chameleon(size: Size, **more: Any) -> dict[str, Any]:
    tokenizer = {
        "num_embeddings": 2,
        "base_channels": 32,
        "channel_multiplier": [1],
        "num_res_blocks": 1,
        "attn_type": "none",
        "resolution": 4,
    }
    return llama(size, vq_config=tokenizer, vocabulary_map={"<image>": 3}, **more)


def dbrx(size: Size, **more: Any) -> dict[str, Any]:
    shared = llama(size)
    return {
        "vocab_size": size.vocab // 2,
        "d_model": shared["hidden_size"],
        "n_heads": size.heads,
        "n_layers": size.layers,
        "max_seq_len": 256,
        "attn_config": {"kv_n_heads": size.heads // size.shared, "rope_theta": 5000.0} | more,
        "ffn_config": {"ffn_hidden_size": 2, "moe_num_experts": 2},
        "rope_parameters": shared["rope_parameters"],
    }


def modernbert(size: Size, **more: Any) -> dict[str, Any]:
    config = bert(size, **more) | {
        "max_position_embeddings": 256,
        "local_attention": 10,
        "layer_types": kinds(size)[::-1],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
        },
    }
    ids = dict.fromkeys(("bos", "eos", "cls", "sep"), 1)
    return config | {f"{name}_token_id": i for name, i in ids.items()}


def old_modernbert(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.pop("rope_parameters")
    config["global_rope_theta"] = rope["full_attention"]["rope_theta"]
    config["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
    config.pop("layer_types")
    config["global_attn_every_n_layers"] = 2
    config["torch_dtype"] = config.pop("dtype")
    return config


def distilbert(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "dim": size.head_dim * size.few,
        "n_layers": size.layers,
        "n_heads": size.few,
        "hidden_dim": size.mlp,
        "max_position_embeddings": size.learned,
    }


def esm(size: Size, **more: Any) -> dict[str, Any]:
    return bert(size, pad_token_id=1, mask_token_id=2, **more)


def vision(size: Size, **more: Any) -> dict[str, Any]:
    """An image of four patches."""
    config = bert(size, image_size=4, patch_size=2, num_channels=1, mlp_ratio=1, **more)
    for key in ("vocab_size", "max_position_embeddings", "pad_token_id"):
        del config[key]
    return config


def sound(size: Size, **more: Any) -> dict[str, Any]:
    """Sound through one narrow convolution."""
    narrow = {"conv_dim": [4], "conv_stride": [5], "conv_kernel": [10]}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = bert(size, **narrow, **positions, **more)
    del config["max_position_embeddings"]
    return config


def wav2vec2_bert(size: Size, **more: Any) -> dict[str, Any]:
    """Conformers whose tables end before the longest contexts do, unlike at their two ends."""
    ends = {"left_max_position_embeddings": 9, "right_max_position_embeddings": 4}
    small = {"feature_projection_input_dim": 4, "conv_depthwise_kernel_size": 3}
    config = bert(size, **narrow(size), **ends, **small, **more)
    del config["max_position_embeddings"]
    return config


def wav2vec2_conformer(size: Size) -> dict[str, Any]:
    return sound(size, **narrow(size), conv_depthwise_kernel_size=3)


def parakeet(size: Size) -> dict[str, Any]:
    """Sound through one narrow convolution."""
    narrow_one = {"subsampling_factor": 2, "subsampling_conv_channels": 4, "num_mel_bins": 8}
    config = bert(size, **narrow(size), **narrow_one, conv_kernel_size=3)
    del config["vocab_size"], config["pad_token_id"]
    return config | {"max_position_embeddings": 100}


def beit(size: Size) -> dict[str, Any]:
    """An image of three by two patches, with both kinds of tables."""
    both = {"use_relative_position_bias": True, "use_shared_relative_position_bias": True}
    return vision(size, **both) | {"image_size": [6, 4]}


def sam(size: Size) -> dict[str, Any]:
    """A layer with windows of three by three patches, and one of four by four, the whole image."""
    return {
        "hidden_size": 2 * size.head_dim,
        "output_channels": 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_channels": 1,
        "image_size": 8,
        "patch_size": 2,
        "window_size": 3,
        "global_attn_indexes": [1],
        "mlp_dim": 2,
    }


def swin(size: Size, **more: Any) -> dict[str, Any]:
    """A stage of three layers and one of a layer, of images of seven by five patches."""
    return {
        "image_size": [14, 10],
        "patch_size": 2,
        "num_channels": 1,
        "embed_dim": size.head_dim,
        "depths": [2, 1],
        "num_heads": [2, 4],
        "window_size": 3,
        "mlp_ratio": 0.5,
    } | more


def clap(size: Size) -> dict[str, Any]:
    return {
        "spec_size": 16,
        "num_mel_bins": 8,
        "patch_size": 4,
        "patch_stride": 4,
        "patch_embeds_hidden_size": size.head_dim,
        "depths": [1, 1],
        "num_attention_heads": [2, 2],
        "window_size": 2,
        "hidden_size": 2 * size.head_dim,
        "mlp_ratio": 0.5,
    }


def wavlm(size: Size) -> dict[str, Any]:
    small = {"hidden_size": 2 * size.head_dim, "num_attention_heads": 2}
    return sound(size, num_buckets=16, max_bucket_distance=20, **small)


def latent(size: Size, **more: Any) -> dict[str, Any]:
    """Latent attention: unrotated and rotated parts of unequal size, values of a third one."""
    config = decoder(
        size,
        num_key_value_heads=size.heads,
        q_lora_rank=size.head_dim + 4,
        kv_lora_rank=size.head_dim + 2,
        qk_nope_head_dim=size.head_dim - 2,
        qk_rope_head_dim=size.head_dim // 2,
        v_head_dim=size.head_dim // 2 - 1,
    )
    return config | more


def bloom(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "hidden_size": size.head_dim * size.few,
        "n_layer": size.layers,
        "n_head": size.few,  # no power of two at first
    }


def mpt(size: Size, heads: int | None = None, **more: Any) -> dict[str, Any]:
    heads = heads or size.few
    return {
        "vocab_size": size.vocab,
        "d_model": size.head_dim * heads,
        "n_layers": size.layers,
        "n_heads": heads,
        "max_seq_len": 256,
        "expansion_ratio": 1,
        "attn_config": {"alibi_bias_max": 4} | more,
    }


def t5(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "d_model": size.hidden,
        "d_kv": size.head_dim,
        "d_ff": size.mlp,
        "num_layers": size.layers,
        "num_heads": size.few,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
    }


def jetmoe(size: Size) -> dict[str, Any]:
    """Every token gets all experts, so that each can be attacked."""
    config = decoder(
        size,
        hidden_size=2 * size.head_dim,
        num_key_value_heads=2,
        kv_channels=size.head_dim,
        num_local_experts=3,
        num_experts_per_tok=3,
        rope_parameters=BASE,
        intermediate_size=2,
    )
    del config["num_attention_heads"]
    return config


def lilt(size: Size) -> dict[str, Any]:
    small = {"num_attention_heads": 2, "channel_shrink_ratio": 3, "pad_token_id": 1}
    small |= {"hidden_size": 12, "intermediate_size": 3, "max_2d_position_embeddings": 4}
    return bert(size, **small)


def longformer(size: Size) -> dict[str, Any]:
    """Windows that hold whole contexts."""
    small = {"hidden_size": size.head_dim, "num_attention_heads": 2, "pad_token_id": 1}
    return bert(size, **small, attention_window=[16] * size.layers)


def longt5(size: Size) -> dict[str, Any]:
    both = {"local_radius": size.window, "encoder_attention_type": "local"}
    return t5(size) | both | {"num_decoder_layers": 1}


def t5_whole(size: Size) -> dict[str, Any]:
    """Both stacks, unlike in depth."""
    narrow = {"d_model": 2 * size.head_dim, "num_heads": 2}
    return t5(size) | narrow | {"num_layers": size.layers // 2, "num_decoder_layers": size.layers}


def llama4(size: Size) -> dict[str, Any]:
    return llama(
        size,
        head_dim=size.head_dim,
        num_local_experts=1,
        moe_layers=[],
        intermediate_size_mlp=size.mlp,
        no_rope_layers=in_turn(size, 1, 0),
        attention_chunk_size=20,
        floor_scale=10,
        attn_scale=0.3,
    )


def ministral3(size: Size) -> dict[str, Any]:
    scaled = yarn(10000.0, original_max_position_embeddings=16, llama_4_scaling_beta=0.2)
    return decoder(size, head_dim=size.head_dim, rope_parameters=scaled, max_position_embeddings=64)


def deepseek(size: Size, **more: Any) -> dict[str, Any]:
    """All layers without experts."""
    return latent(size, n_routed_experts=2, first_k_dense_replace=size.layers) | more


def towers(size: Size, **more: Any) -> dict[str, Any]:
    """Text and images, each with a layer or two."""
    small = {"hidden_size": size.head_dim * 2, "num_attention_heads": 2}
    return {
        "text_config": bert(size, **small, num_hidden_layers=size.layers // 2),
        "vision_config": vision(size, **small, **more),
        "projection_dim": 2,
    }


def blip(size: Size) -> dict[str, Any]:
    """One layer of each kind."""
    small = {"hidden_size": size.head_dim * 2, "num_attention_heads": 2, "num_hidden_layers": 1}
    both = {"text_config": bert(size) | small, "vision_config": vision(size) | small}
    return both | {"projection_dim": 2, "image_text_hidden_size": 2}


def whisper(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "num_mel_bins": 2,
        "d_model": size.hidden // 2,
        "encoder_layers": size.layers // 2,
        "decoder_layers": size.layers,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": size.mlp,
        "decoder_ffn_dim": size.mlp,
        "max_source_positions": size.learned,
        "max_target_positions": size.learned,
    } | {f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "decoder_start")}


def seq2seq(size: Size, **more: Any) -> dict[str, Any]:
    """An encoder of one layer, a decoder of two."""
    config = whisper(size) | {"max_position_embeddings": size.learned, "eos_token_id": 2}
    for key in ("num_mel_bins", "max_source_positions", "max_target_positions"):
        del config[key]
    return config | {"forced_eos_token_id": 2} | more


def trocr(size: Size) -> dict[str, Any]:
    config = seq2seq(size, d_model=size.few * size.head_dim // 2, decoder_attention_heads=size.few)
    return {key: value for key, value in config.items() if not key.startswith(("enc", "forced"))}


def speech_to_text(size: Size) -> dict[str, Any]:
    """Positions without an end, and convolutions as narrow as they come."""
    narrow = {"conv_channels": 2, "input_feat_per_channel": 2, "num_conv_layers": 2}
    config = seq2seq(size, conv_kernel_sizes=[1, 1], max_source_positions=64, **narrow)
    del config["max_position_embeddings"]
    return config


SHORTER = (8, 32)
FAMILIES = (
    Family("llama", "Llama", llama),
    Family("qwen3", "Qwen3", lambda s: decoder(s, head_dim=s.head_dim), qk_norm="headwise"),
    Family("bert", "Bert", bert, head="ForMaskedLM"),
    Family("llama__yarn", "Llama", lambda s: stretched(llama(s, rope_parameters=yarn(10000.0)))),
    Family("llama__llama3rope", "Llama", llama_scaled),
    Family(
        "llama__bias_sharded_bf16",
        "Llama",
        lambda s: llama(s, attention_bias=True, tie_word_embeddings=False),
        dtype=torch.bfloat16,
        shard="8KB",
    ),
    Family("llama__old_dialect", "Llama", llama, rewrite=old_llama),
    Family("mistral", "Mistral", lambda s: llama(s, sliding_window=s.window)),
    Family(
        "qwen2",
        "Qwen2",
        lambda s: llama(s, use_sliding_window=True, sliding_window=s.window, max_window_layers=1),
    ),
    Family(
        "qwen3__yarn",
        "Qwen3",
        lambda s: stretched(
            decoder(
                s,
                head_dim=s.head_dim,
                attention_bias=True,
                rope_parameters=yarn(1000000.0, mscale=1.0, mscale_all_dim=0.5),
            )
        ),
        dtype=torch.float16,
        qk_norm="headwise",
    ),
    Family(
        "olmo2",
        "Olmo2",
        lambda s: decoder(s, hidden_size=s.heads * s.head_dim),
        qk_norm="layerwise",
    ),
    Family(
        "olmo3",
        "Olmo3",
        lambda s: olmo3(s, {"rope_type": "default", "rope_theta": 500000.0}),
        qk_norm="layerwise",
    ),
    Family(
        "olmo3__yarn",
        "Olmo3",
        lambda s: stretched(
            olmo3(s, yarn(500000.0, attention_factor=1.25, beta_fast=16.0, beta_slow=2.0))
        ),
        qk_norm="layerwise",
    ),
    Family("gemma2", "Gemma2", gemma2, gain_offset=1.0),
    Family("gemma3_text", "Gemma3Text", gemma3, qk_norm="headwise", gain_offset=1.0),
    Family(
        "gemma3_text__old_dialect",
        "Gemma3Text",
        gemma3,
        rewrite=old_gemma3,
        qk_norm="headwise",
        gain_offset=1.0,
    ),
    Family("gpt2", "GPT2", gpt2, head="LMHeadModel"),
    Family(
        "gpt2__inverse_layer_idx",
        "GPT2",
        lambda s: gpt2(s, scale_attn_by_inverse_layer_idx=True),
        head="LMHeadModel",
    ),
    Family(
        "gpt2__headless",
        "GPT2",
        lambda s: gpt2(s, n_embd=s.head_dim * 2, n_head=2, scale_attn_weights=False),
        head="Model",
        dtype=torch.float64,
    ),
    Family("bert__headless", "Bert", bert, head="Model"),
    Family(
        "mixtral",
        "Mixtral",
        lambda s: decoder(
            s,
            head_dim=s.head_dim,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=s.window,
        ),
    ),
    Family("gemma", "Gemma", lambda s: decoder(s, head_dim=s.head_dim), gain_offset=1.0),
    Family(
        "qwen2_moe",
        "Qwen2Moe",
        lambda s: experts(
            decoder(s, head_dim=s.head_dim, use_sliding_window=True, sliding_window=s.window),
            shared_expert_intermediate_size=4,
        ),
    ),
    Family(
        "qwen3_moe",
        "Qwen3Moe",
        lambda s: experts(decoder(s, head_dim=s.head_dim)),
        qk_norm="headwise",
    ),
    Family(
        "gpt_oss",
        "GptOss",
        lambda s: stretched(
            decoder(
                s,
                head_dim=s.head_dim,
                num_local_experts=2,
                num_experts_per_tok=1,
                sliding_window=s.window,
                layer_types=kinds(s),
                rope_parameters=yarn(150000.0, truncate=False),
            )
        ),
    ),
    Family(
        "roberta",
        "Roberta",
        lambda s: bert(s, pad_token_id=1, type_vocab_size=1),
        head="ForMaskedLM",
    ),
    Family("granite", "Granite", granite),
    Family("starcoder2", "Starcoder2", lambda s: llama(s, sliding_window=s.window)),
    Family("phi3", "Phi3", llama),
    Family("phi3__longrope", "Phi3", longrope),
    Family("smollm3", "SmolLM3", lambda s: llama(s, no_rope_layer_interval=2)),
    Family("gpt_neox", "GPTNeoX", gpt_neox),
    Family("gpt_neox__old_dialect", "GPTNeoX", gpt_neox, rewrite=old_gpt_neox),
    Family("olmoe", "Olmoe", lambda s: experts(llama(s, intermediate_size=2)), qk_norm="layerwise"),
    Family("olmo", "Olmo", llama),
    Family("cohere", "Cohere", llama),
    Family("cohere__qk_norm", "Cohere", lambda s: llama(s, use_qk_norm=True), qk_norm="headwise"),
    Family("nemotron", "Nemotron", lambda s: partial(s, 0.5), gain_offset=1.0),
    Family("stablelm", "StableLm", lambda s: partial(s, 0.25)),
    Family("gpt_neo", "GPTNeo", gpt_neo),
    Family("gptj", "GPTJ", gptj),
    Family("codegen", "CodeGen", lambda s: gptj(s, heads=4)),
    Family("opt", "OPT", opt),
    Family(
        "opt__postnorm",
        "OPT",
        lambda s: opt(s, do_layer_norm_before=False, word_embed_proj_dim=8, enable_bias=False),
    ),
    Family("phi", "Phi", lambda s: partial(s, 0.5)),
    Family(
        "phi__qk_layernorm",
        "Phi",
        lambda s: partial(s, 0.25, qk_layernorm=True),
        rewrite=old_rope,
        qk_norm="headwise",
    ),
    Family(
        "phimoe",
        "Phimoe",
        lambda s: llama(
            s,
            num_local_experts=2,
            num_experts_per_tok=1,
            intermediate_size=1,
            sliding_window=s.window,
        ),
    ),
    Family(
        "persimmon",
        "Persimmon",
        lambda s: partial(s, 0.5, num_attention_heads=s.few, hidden_size=s.head_dim * s.few),
        qk_norm="headwise",
    ),
    Family(
        "chameleon",
        "Chameleon",
        chameleon,
        head="ForConditionalGeneration",
        qk_norm="headwise",
        dropped="vqmodel",
    ),
    Family(
        "chameleon__swin_norm",
        "Chameleon",
        lambda s: chameleon(s, swin_norm=True, attention_bias=True, intermediate_size=2),
        head="ForConditionalGeneration",
        qk_norm="headwise",
        dropped="vqmodel",
    ),
    Family(
        "stablelm__qk_layernorm",
        "StableLm",
        lambda s: partial(s, 0.25, qk_layernorm=True, use_qkv_bias=True, intermediate_size=1),
        qk_norm="headwise",
    ),
    Family("falcon", "Falcon", falcon),
    Family(
        "falcon__new_decoder",
        "Falcon",
        lambda s: falcon(s, new_decoder_architecture=True, num_kv_heads=s.heads // s.shared),
        rewrite=old_rope,
    ),
    Family(
        "falcon__headwise",
        "Falcon",
        lambda s: falcon(
            s,
            multi_query=False,
            parallel_attn=False,
            num_attention_heads=s.few,
            hidden_size=s.head_dim * s.few,
        ),
    ),
    Family("gpt_bigcode", "GPTBigCode", gpt2),
    Family(
        "gpt_bigcode__headwise",
        "GPTBigCode",
        lambda s: gpt2(s, multi_query=False, scale_attn_weights=False),
    ),
    Family("dbrx", "Dbrx", dbrx),
    Family("jais2", "Jais2", llama),
    Family("modernbert", "ModernBert", modernbert, head="ForMaskedLM"),
    Family(
        "modernbert__old_dialect",
        "ModernBert",
        lambda s: modernbert(s, norm_bias=True, attention_bias=True),
        head="Model",
        rewrite=old_modernbert,
    ),
    Family(
        "electra",
        "Electra",
        lambda s: bert(s, embedding_size=s.head_dim * s.few),
        head="ForPreTraining",
    ),
    Family(
        "electra__projected", "Electra", lambda s: bert(s, embedding_size=s.head_dim), head="Model"
    ),
    Family("distilbert", "DistilBert", distilbert, head="ForMaskedLM"),
    Family(
        "esm",
        "Esm",
        lambda s: esm(s, position_embedding_type="rotary", rope_theta=5000.0),
        head="ForMaskedLM",
    ),
    Family(
        "esm__token_dropout",
        "Esm",
        lambda s: esm(
            s,
            position_embedding_type="rotary",
            token_dropout=True,
            layer_norm_eps=1e-6,
            is_folding_model=False,
        ),
        head="Model",
    ),
    Family("esm__absolute", "Esm", lambda s: esm(s, emb_layer_norm_before=True), head="Model"),
    Family("albert", "Albert", albert, head="ForMaskedLM"),
    Family(
        "albert__inner",
        "Albert",
        lambda s: albert(s, num_hidden_layers=2, num_hidden_groups=1, inner_group_num=2),
        head="Model",
    ),
    Family("vit", "ViT", vision, head="ForImageClassification"),
    Family("dinov2", "Dinov2", lambda s: vision(s, qkv_bias=False), head="Model"),
    Family(
        "siglip_vision_model",
        "SiglipVision",
        lambda s: vision(s, vision_use_head=False),
        head="Model",
    ),
    Family(
        "siglip_vision_model__head",
        "SiglipVision",
        lambda s: vision(s, hidden_size=2 * s.head_dim, num_attention_heads=2, num_hidden_layers=1),
        head="Model",
    ),
    Family("clip_vision_model", "CLIPVision", vision, head="Model"),
    Family("clip_text_model", "CLIPText", bert, head="Model"),
    Family("siglip_text_model", "SiglipText", bert, head="Model"),
    Family("clip", "CLIP", towers, head="Model"),
    Family("siglip", "Siglip", lambda s: towers(s, vision_use_head=False), head="Model"),
    Family("blip", "Blip", blip, head="Model"),
    Family(
        "chinese_clip",
        "ChineseCLIP",
        lambda s: (
            towers(s) | {"text_config": bert(s, hidden_size=2 * s.head_dim, num_attention_heads=2)}
        ),
        head="Model",
    ),
    Family(
        "internvl_vision",
        "InternVLVision",
        lambda s: vision(s, norm_type="rms_norm", use_qk_norm=True),
        head="Model",
        qk_norm="layerwise",
    ),
    Family(
        "internvl_vision__plain",
        "InternVLVision",
        lambda s: vision(s, attention_bias=True),
        head="Model",
    ),
    Family(
        "altclip",
        "AltCLIP",
        lambda s: (
            towers(s)
            | {
                "text_config": bert(
                    s,
                    hidden_size=2 * s.head_dim,
                    num_attention_heads=2,
                    num_hidden_layers=s.layers // 2,
                    pad_token_id=1,
                    project_dim=2,
                )
            }
        ),
        head="Model",
        lengths=(8, 30),
    ),
    Family("whisper", "Whisper", whisper, head="ForConditionalGeneration"),
    Family(
        "videomae",
        "VideoMAE",
        lambda s: vision(s, num_frames=2, tubelet_size=2),
        head="ForVideoClassification",
    ),
    Family(
        "dinov3_vit",
        "DINOv3ViT",
        lambda s: vision(s, rope_theta=50.0, num_register_tokens=2),
        head="Model",
    ),
    Family("beit", "Beit", beit, head="ForImageClassification"),
    Family("clap_audio_model", "ClapAudio", clap, head="Model"),
    Family("sam_vision_model", "SamVision", sam, head="Model"),
    Family("swin", "Swin", swin, head="ForImageClassification"),
    Family(
        "swinv2",
        "Swinv2",
        lambda s: swin(s, depths=[1, 1], num_heads=[2, 2], pretrained_window_sizes=[4, 0]),
        head="Model",
        dtype=torch.bfloat16,  # its nets for biases are wide
        targets=None,
    ),
    Family("wav2vec2", "Wav2Vec2", sound, head="ForCTC"),
    Family("wavlm", "WavLM", wavlm, head="Model"),
    Family(
        "wav2vec2__stable",
        "Wav2Vec2",
        lambda s: (
            sound(s, do_stable_layer_norm=True, feat_extract_norm="layer", adapter_attn_dim=2)
            | {"hidden_size": 2 * s.head_dim, "num_attention_heads": 2}
        ),
        head="ForCTC",
    ),
    Family("ernie", "Ernie", lambda s: bert(s, use_task_id=True), head="Model"),
    Family("layoutlmv3", "LayoutLMv3", layoutlmv3, head="Model"),
    Family("megatron_bert", "MegatronBert", bert, head="Model"),
    Family(
        "roberta_prelayernorm",
        "RobertaPreLayerNorm",
        lambda s: bert(s, pad_token_id=2, type_vocab_size=1),
        head="ForMaskedLM",
    ),
    Family(
        "xlm_roberta_xl",
        "XLMRobertaXL",
        lambda s: bert(s, pad_token_id=1, type_vocab_size=1),
        head="Model",
    ),
    Family(
        "rembert",
        "RemBert",
        lambda s: bert(s, input_embedding_size=s.head_dim, output_embedding_size=4),
        head="Model",
    ),
    Family(
        "eurobert",
        "EuroBert",
        lambda s: decoder(s, head_dim=s.head_dim, rope_parameters=BASE),
        head="ForMaskedLM",
    ),
    Family("jina_embeddings_v3", "JinaEmbeddingsV3", turned_bert, head="Model"),
    Family(
        "nomic_bert",
        "NomicBert",
        lambda s: turned_bert(s, num_attention_heads=2),
        head="ForMaskedLM",
    ),
    Family("gte", "Gte", turned_bert, head="Model"),
    Family("mpnet", "MPNet", lambda s: bert(s, pad_token_id=1), head="Model"),
    Family("parakeet_encoder", "ParakeetEncoder", parakeet, head=""),
    Family("wav2vec2_conformer", "Wav2Vec2Conformer", wav2vec2_conformer, head="Model"),
    Family("wav2vec2_bert", "Wav2Vec2Bert", wav2vec2_bert, head="ForCTC"),
    Family("deberta", "Deberta", lambda s: deberta(s, **narrow(s)), head="Model"),
    Family("deberta_v2", "DebertaV2", deberta_v2, head="ForMaskedLM"),
    Family(
        "deberta_v2__own_keys",
        "DebertaV2",
        # no buckets, projections of the table alone, learned positions too
        lambda s: (
            bert(s, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=12)
            | {"max_position_embeddings": 64, "type_vocab_size": 2, **narrow(s)}
        ),
        head="Model",
    ),
    Family("bart", "Bart", seq2seq, head="ForConditionalGeneration"),
    Family("mbart", "MBart", lambda s: seq2seq(s, scale_embedding=True), head="Model"),
    Family("marian", "Marian", seq2seq, head="Model"),
    Family(
        "fsmt",
        "FSMT",
        lambda s: seq2seq(s, src_vocab_size=s.vocab, tgt_vocab_size=s.vocab, langs=["en", "ru"]),
        head="Model",
        lengths=SHORTER,
    ),
    Family("pegasus", "Pegasus", seq2seq, head="Model"),
    Family("m2m_100", "M2M100", seq2seq, head="ForConditionalGeneration", lengths=SHORTER),
    Family(
        "nllb_moe",
        "NllbMoe",
        lambda s: seq2seq(
            s, num_experts=2, expert_capacity=4, encoder_sparse_step=0, decoder_sparse_step=2
        ),
        head="ForConditionalGeneration",
        lengths=SHORTER,
    ),
    Family("blenderbot", "Blenderbot", seq2seq, head="ForConditionalGeneration"),
    Family("blenderbot_small", "BlenderbotSmall", seq2seq, head="Model"),
    Family("trocr", "TrOCR", trocr, lengths=SHORTER, dropped="encoder_attn"),
    Family("speech_to_text", "Speech2Text", speech_to_text, head="Model", lengths=SHORTER),
    Family("glm", "Glm", lambda s: partial(s, 0.5, head_dim=s.head_dim, attention_bias=True)),
    Family("glm4", "Glm4", lambda s: partial(s, 0.5, head_dim=s.head_dim, attention_bias=False)),
    Family("glm4_moe", "Glm4Moe", lambda s: routed(partial(s, 0.5, attention_bias=True, **few(s)))),
    Family(
        "glm4_moe__qk_norm",
        "Glm4Moe",
        lambda s: routed(partial(s, 0.5, use_qk_norm=True, **few(s))),
        qk_norm="headwise",
    ),
    Family("cohere2", "Cohere2", lambda s: llama(s, **sliding(s))),
    Family("ernie4_5", "Ernie4_5", lambda s: decoder(s, head_dim=s.head_dim, use_bias=True)),
    Family(
        "ernie4_5_moe",
        "Ernie4_5_Moe",
        lambda s: three(
            s, moe_num_experts=2, moe_k=1, moe_num_shared_experts=1, moe_intermediate_size=4
        ),
    ),
    Family("exaone4", "Exaone4", lambda s: llama(s, **sliding(s)), qk_norm="headwise"),
    Family(
        "exaone4__no_window",
        "Exaone4",
        lambda s: llama(s, sliding_window=None, layer_types=["full_attention"] * s.layers),
        qk_norm="headwise",
    ),
    Family(
        "exaone_moe",
        "ExaoneMoe",
        lambda s: experts(three(s, **sliding(s)), num_shared_experts=1),
        qk_norm="headwise",
    ),
    Family("apertus", "Apertus", llama_scaled, qk_norm="headwise"),
    Family("arcee", "Arcee", llama),
    Family("seed_oss", "SeedOss", lambda s: decoder(s, head_dim=s.head_dim)),
    Family("helium", "Helium", lambda s: llama(s, head_dim=s.head_dim)),
    Family(
        "dots1",
        "Dots1",
        lambda s: routed(three(s, sliding_window=s.window, max_window_layers=1)),
        qk_norm="headwise",
    ),
    Family(
        "hy_v3",
        "HYV3",
        lambda s: experts(decoder(s, head_dim=s.head_dim), num_shared_experts=1),
        qk_norm="headwise",
    ),
    Family("solar_open", "SolarOpen", lambda s: routed(three(s, head_dim=s.head_dim))),
    # the factor of cos and sin on a part of each head
    Family("phi3__partial_longrope", "Phi3", lambda s: longrope(s, 0.5)),
    Family(
        "gpt_neox__yarn",
        "GPTNeoX",
        lambda s: stretched(
            gpt_neox(s, rope_parameters=yarn(5000.0, partial_rotary_factor=0.5, factor=8.0))
        ),
    ),
    # latent attention
    Family("deepseek_v2", "DeepseekV2", lambda s: deepseek(s, q_lora_rank=None)),
    Family(
        "deepseek_v2__bias",
        "DeepseekV2",
        lambda s: deepseek(s, attention_bias=True),
    ),
    Family("deepseek_v3", "DeepseekV3", deepseek),
    Family(
        "deepseek_v3__yarn",
        "DeepseekV3",
        lambda s: stretched(
            deepseek(
                s,
                rope_interleave=False,
                rope_parameters=yarn(10000.0, mscale=0.7, mscale_all_dim=1.0),
            )
        ),
    ),
    Family("minicpm3", "MiniCPM3", latent),
    # biases of positions
    Family("bloom", "Bloom", bloom, dtype=torch.float16),
    Family("mpt", "Mpt", mpt, dtype=torch.float16),
    Family(
        "falcon__alibi",
        "Falcon",
        lambda s: falcon(s, alibi=True, multi_query=False, parallel_attn=False),
        dtype=torch.float16,
    ),
    Family("jetmoe", "JetMoe", jetmoe, lengths=SHORTER),
    Family(
        "big_bird",
        "BigBird",
        lambda s: bert(s, attention_type="original_full", block_size=4, num_random_blocks=1),
        head="Model",
    ),
    Family("lilt", "Lilt", lilt, head="Model"),
    Family(
        "squeezebert",
        "SqueezeBert",
        lambda s: bert(
            s, num_attention_heads=2, embedding_size=s.hidden, q_groups=3, k_groups=4, v_groups=2
        ),
        head="Model",
        lengths=(8, 20),
    ),
    Family(
        "longformer",
        "Longformer",
        longformer,
        head="Model",
        targets=None,
        lengths=(8, 9),
        effort=0.5,
    ),
    Family("longt5", "LongT5", longt5, head="EncoderModel"),
    Family("t5", "T5", t5, head="EncoderModel"),
    Family(
        "t5__decoder",
        "T5",
        t5_whole,
        head="ForConditionalGeneration",
        lengths=SHORTER,
    ),
    Family(
        "t5gemma",
        "T5Gemma",
        t5gemma,
        head="ForConditionalGeneration",
        gain_offset=1.0,
        lengths=SHORTER,
    ),
    Family(
        "t5gemma2",
        "T5Gemma2",
        t5gemma2,
        head="ForConditionalGeneration",
        qk_norm="headwise",
        gain_offset=1.0,
        lengths=SHORTER,
    ),
    Family("moonshine", "Moonshine", moonshine, head="Model", dtype=torch.float16, lengths=SHORTER),
    Family("umt5", "UMT5", t5_whole, head="ForConditionalGeneration", lengths=SHORTER),
    # clamped queries and keys
    Family("olmo__clip", "Olmo", lambda s: llama(s, clip_qkv=2.0), targets=None),
    Family(
        "olmoe__clip",
        "Olmoe",
        lambda s: experts(llama(s, intermediate_size=2), clip_qkv=1.5),
        qk_norm="layerwise",
        targets=None,
    ),
    Family("mpt__clip", "Mpt", lambda s: mpt(s, heads=2, clip_qkv=3.0), targets=None),
    Family("dbrx__clip", "Dbrx", lambda s: dbrx(s, clip_qkv=2.5), targets=None),
    # norms behind the rotation, temperatures that grow with the position
    Family(
        "hunyuan_v1_dense",
        "HunYuanDenseV1",
        lambda s: llama(s, head_dim=s.head_dim),
        qk_norm="headwise",
    ),
    Family("nanochat", "NanoChat", llama, targets=None),
    Family("llama4_text", "Llama4Text", llama4),
    Family("ministral3", "Ministral3", ministral3),
)

# With fewer pairs of positions, for what differs from the above in little that depends on them.
FAMILIES += tuple(
    replace(family, lengths=SHORTER)
    for family in (
        Family("bitnet", "BitNet", llama),
        Family("granitemoe", "GraniteMoe", granite_moe),
        Family(
            "granitemoeshared",
            "GraniteMoeShared",
            lambda s: granite_moe(s, shared_intermediate_size=4),
        ),
        Family(
            "granitemoehybrid",
            "GraniteMoeHybrid",
            lambda s: granite_moe(s, shared_intermediate_size=4, layer_types=mixed(s), **mamba(s)),
        ),
        Family(
            "granitemoehybrid__rope",
            "GraniteMoeHybrid",
            lambda s: granite_moe(
                s,
                shared_intermediate_size=4,
                layer_types=mixed(s),
                position_embedding_type="rope",
                **mamba(s),
            ),
        ),
        Family(
            "granite_swa",
            "GraniteSWA",
            lambda s: granite(s) | sliding(s, layer_rope_theta=in_turn(s, 300.0, 0.0)),
        ),
        Family(
            "granitemoe_swa",
            "GraniteMoeSWA",
            lambda s: (
                granite_moe(s, shared_intermediate_size=4)
                | sliding(s, layer_rope_theta=in_turn(s, 5000.0, 300.0))
            ),
        ),
        Family(
            "minimax",
            "MiniMax",
            lambda s: llama(
                s,
                head_dim=s.head_dim,
                num_local_experts=2,
                num_experts_per_tok=1,
                layer_types=mixed(s),
                block_size=4,
                **few(s),
            ),
        ),
        Family(
            "minimax_m2",
            "MiniMaxM2",
            lambda s: partial(
                s, 0.5, head_dim=s.head_dim, num_local_experts=2, num_experts_per_tok=1, **few(s)
            ),
            qk_norm="layerwise",
        ),
        Family("flex_olmo", "FlexOlmo", lambda s: experts(three(s)), qk_norm="layerwise"),
        Family("olmo_hybrid", "OlmoHybrid", lambda s: llama(s) | deltas(s), qk_norm="layerwise"),
        Family(
            "olmo_hybrid__no_rope",
            "OlmoHybrid",
            lambda s: (
                llama(s, rope_parameters={"rope_type": "default", "rope_theta": None}) | deltas(s)
            ),
            qk_norm="layerwise",
        ),
        Family(
            "qwen3_next",
            "Qwen3Next",
            lambda s: (
                experts(
                    partial(s, 0.5, head_dim=s.head_dim, **few(s)),
                    shared_expert_intermediate_size=4,
                )
                | deltas(s)
            ),
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family(
            "lfm2",
            "Lfm2",
            lambda s: three(s, layer_types=mixed(s, "conv"), conv_L_cache=2, block_multiple_of=4),
            qk_norm="headwise",
        ),
        Family(
            "afmoe",
            "Afmoe",
            lambda s: experts(
                three(s, head_dim=s.head_dim, mup_enabled=True, num_shared_experts=1, **sliding(s))
            ),
            qk_norm="headwise",
        ),
        Family(
            "flint",
            "Flint",
            lambda s: experts(
                decoder(s, head_dim=s.head_dim, **sliding(s)), shared_expert_intermediate_size=4
            ),
            qk_norm="headwise",
        ),
        Family(
            "kolibri1",
            "Kolibri1",
            lambda s: decoder(
                s,
                head_dim=s.head_dim,
                num_experts=2,
                num_experts_per_tok=1,
                moe_intermediate_size=4,
                shared_expert_intermediate_size=4,
                **sliding(s),
            ),
            qk_norm="headwise",
        ),
        Family(
            "mimo_v2_flash",
            "MiMoV2Flash",
            lambda s: experts(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    v_head_dim=4,
                    num_key_value_heads=1,
                    n_routed_experts=2,
                    n_group=1,
                    topk_group=1,
                    rope_parameters=by_layer(partial=0.5),
                    **sliding(s),
                )
            ),
        ),
        Family(
            "laguna",
            "Laguna",
            lambda s: experts(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    num_attention_heads_per_layer=in_turn(s, s.heads // s.shared, s.heads),
                    shared_expert_intermediate_size=4,
                    rope_parameters=by_layer(partial=0.5),
                    **sliding(s),
                )
            ),
            qk_norm="headwise",
        ),
        Family(
            "lfm3",
            "Lfm3",
            lambda s: three(
                s,
                head_dim=s.head_dim,
                num_hidden_layers=s.layers + 1,
                sliding_window=s.window,
                layer_types=["conv", *kinds(s)],
                conv_L_cache=2,
                rope_parameters=by_layer(rope_type="proportional", partial=0.5),
            ),
            qk_norm="headwise",
        ),
        Family(
            "qwen3_5_text",
            "Qwen3_5Text",
            lambda s: (
                decoder(
                    s,
                    head_dim=s.head_dim,
                    rope_parameters={
                        "rope_type": "default",
                        "rope_theta": 5000.0,
                        "partial_rotary_factor": 0.5,
                        "mrope_section": sections(s),
                    },
                    **few(s),
                )
                | deltas(s)
            ),
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family(
            "qwen3_5_moe_text",
            "Qwen3_5MoeText",
            lambda s: (
                experts(
                    decoder(
                        s,
                        head_dim=s.head_dim,
                        rope_parameters={
                            "rope_type": "default",
                            "rope_theta": 5000.0,
                            "partial_rotary_factor": 0.5,
                            "mrope_section": sections(s),
                        },
                        **few(s),
                    ),
                    shared_expert_intermediate_size=4,
                )
                | deltas(s)
            ),
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family(
            "recurrent_gemma",
            "RecurrentGemma",
            lambda s: partial(
                s,
                0.5,
                block_types=["recurrent", "attention"],
                lru_width=4 * s.heads,
                attention_window_size=s.window,
            ),
            gain_offset=1.0,
        ),
        Family(
            "falcon_h1",
            "FalconH1",
            lambda s: three(
                s,
                key_multiplier=0.375,
                attention_in_multiplier=1.5,
                embedding_multiplier=5.0,
                **mamba(s) | {"mamba_n_heads": 2, "mamba_d_head": 4, "mamba_d_ssm": 8},
            ),
        ),
        Family(
            "openai_privacy_filter",
            "OpenAIPrivacyFilter",
            lambda s: stretched(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    num_local_experts=2,
                    num_experts_per_tok=1,
                    sliding_window=s.window,
                    rope_parameters=yarn(150000.0, truncate=False),
                )
            ),
            head="Model",
        ),
        Family(
            "muse_spark_text",
            "MuseSparkText",
            lambda s: decoder(
                s,
                head_dim=s.head_dim,
                qk_scale_factor=2.5,
                num_local_experts=2,
                num_experts_per_tok=1,
                moe_hidden_size=4,
                moe_intermediate_size=4,
                layer_rope_theta=in_turn(s, 5000.0, 0.0),
                **sliding(s),
            ),
            head="Model",
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family("gemma3n_text", "Gemma3nText", gemma3n, qk_norm="headwise"),
        Family(
            "gemma3n_text__shared",
            "Gemma3nText",
            lambda s: gemma3n(s) | shared(s),
            qk_norm="headwise",
            dtype=torch.float16,
            lengths=(8, 16),
        ),
        Family("gemma4_text", "Gemma4Text", gemma4, qk_norm="headwise"),
        Family(
            "gemma4_text__shared",
            "Gemma4Text",
            lambda s: gemma4(s) | shared(s),
            qk_norm="headwise",
            dtype=torch.float16,
            lengths=(8, 16),
        ),
        Family(
            "gemma3",
            "Gemma3",
            lambda s: {
                "text_config": gemma3(s) | few(s),
                "vision_config": SIGLIP,
                "mm_tokens_per_image": 1,
            },
            head="ForConditionalGeneration",
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family("longcat_flash", "LongcatFlash", longcat),
        Family(
            "beam",
            "Beam",
            lambda s: experts(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    n_group=1,
                    topk_group=1,
                    intermediate_size=2,
                    moe_intermediate_size=2,
                    rope_parameters={
                        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
                        "full_attention": None,
                    },
                    **sliding(s),
                    **few(s),
                )
            ),
            qk_norm="headwise",
        ),
        Family(
            "lara_mini",
            "LaraMini",
            lambda s: (
                experts(
                    decoder(s, head_dim=s.head_dim, sliding_window=s.window, **few(s)),
                    moe_intermediate_size=2,
                    shared_expert_intermediate_size=2,
                )
                | deltas(s)
                | {
                    "num_hidden_layers": s.layers + 1,
                    "layer_types": ["linear_attention", *kinds(s)],
                }
            ),
            qk_norm="headwise",
        ),
        Family("mistral4", "Mistral4", mistral4),
        Family(
            "muse_glimmer_text",
            "MuseGlimmerText",
            lambda s: decoder(
                s,
                head_dim=s.head_dim,
                qk_scale_factor=2.5,
                layer_rope_theta=[5000.0, 0.0],
                num_attention_heads=3,
                num_key_value_heads=1,
                **sliding(s),
            ),
            head="Model",
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family("kimi_linear", "KimiLinear", kimi),
        Family("cohere2_moe", "Cohere2Moe", cohere2_moe),
        Family(
            "cohere2_moe__old_dialect",
            "Cohere2Moe",
            lambda s: cohere2_moe(s) | {"rms_norm_eps": 1e-6},
            rewrite=old_cohere2_moe,
        ),
        Family(
            "step3p5", "Step3p7Text", step3p5, head="Model", qk_norm="headwise", gain_offset=1.0
        ),
        Family("emu3_text_model", "Emu3Text", lambda s: decoder(s, head_dim=s.head_dim)),
        Family("vaultgemma", "VaultGemma", gemma2, gain_offset=1.0),
        Family(
            "diffllama", "DiffLlama", lambda s: decoder(s, head_dim=s.head_dim, attention_bias=True)
        ),
    )
)


# Language models beside towers, which are as small as their code allows.
VISUAL = {"depth": 1, "hidden_size": 8, "num_heads": 1, "intermediate_size": 4, "patch_size": 2}
VISUAL |= {"in_channels": 1, "temporal_patch_size": 1, "spatial_merge_size": 1}


def turning(size: Size, *sections: int, **more: Any) -> dict[str, Any]:
    """A rotation by time, height and width."""
    rope = {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": list(sections)}
    return {"rope_parameters": rope | more}


def beside(text: dict[str, Any], vision: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True} | more


def spaced(config: dict[str, Any]) -> dict[str, Any]:
    """The dialect of files on the Hub: no config of its own for the language model."""
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    config |= {k: v for k, v in text.items() if k not in ("model_type", "layer_types", "dtype")}
    config["rope_theta"] = rope["rope_theta"]
    config["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    return config


FAMILIES += tuple(
    replace(family, head="ForConditionalGeneration", lengths=SHORTER)
    for family in (
        Family(
            "mistral3",
            "Mistral3",
            lambda s: beside(
                decoder(s, model_type="mistral", head_dim=s.head_dim, sliding_window=s.window),
                SIGLIP | {"model_type": "pixtral", "num_channels": 1},
                spatial_merge_size=1,
            ),
        ),
        Family(
            "idefics3",
            "Idefics3",
            lambda s: beside(
                llama(s, model_type="llama", **few(s)),
                SIGLIP | {"num_channels": 1},
                scale_factor=1,
            ),
        ),
        Family(
            "mllama",
            "Mllama",
            lambda s: beside(
                llama(s, num_hidden_layers=3, cross_attention_layers=[1], **few(s)),
                SIGLIP
                | {"attention_heads": 1, "num_global_layers": 1, "vision_output_dim": 16}
                | {"num_channels": 1, "max_num_tiles": 1, "intermediate_layers_indices": [0]}
                | {"supported_aspect_ratios": [[1, 1]]},
            ),
            dtype=torch.float16,
            targets=None,
        ),
        Family(
            "qwen2_vl",
            "Qwen2VL",
            lambda s: beside(
                llama(
                    s,
                    use_sliding_window=True,
                    sliding_window=s.window,
                    max_window_layers=1,
                    **few(s),
                    **turning(s, 2, 1, 1),
                ),
                {"depth": 1, "embed_dim": 8, "hidden_size": s.few * s.head_dim, "num_heads": 1}
                | {"in_channels": 1, "mlp_ratio": 1, "patch_size": 2, "spatial_merge_size": 1},
            ),
            rewrite=spaced,
        ),
        Family(
            "qwen3_vl",
            "Qwen3VL",
            lambda s: beside(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    attention_bias=True,
                    **turning(s, 2, 1, 1, mrope_interleaved=True),
                ),
                VISUAL
                | {"out_hidden_size": s.hidden, "deepstack_visual_indexes": []}
                | {"num_position_embeddings": 4},
            ),
            qk_norm="headwise",
        ),
        Family(
            "qwen3_omni_moe_thinker",
            "Qwen3OmniMoeThinker",
            lambda s: beside(
                experts(
                    decoder(
                        s,
                        head_dim=s.head_dim,
                        **few(s),
                        **turning(s, 2, 1, 1, mrope_interleaved=True),
                    )
                ),
                VISUAL
                | {"out_hidden_size": s.few * s.head_dim, "deepstack_visual_indexes": []}
                | {"num_position_embeddings": 4},
                audio_config={"d_model": 4, "encoder_layers": 1, "encoder_attention_heads": 1}
                | {"encoder_ffn_dim": 2, "output_dim": s.few * s.head_dim, "num_mel_bins": 8}
                | {"max_source_positions": 4, "downsample_hidden_size": 2},
            ),
            qk_norm="headwise",
        ),
        Family(
            "qwen3_vl_moe",
            "Qwen3VLMoe",
            lambda s: beside(
                experts(llama(s, **few(s), **turning(s, 2, 1, 1, mrope_interleaved=True))),
                VISUAL
                | {"out_hidden_size": s.few * s.head_dim, "deepstack_visual_indexes": []}
                | {"num_position_embeddings": 4},
            ),
            qk_norm="headwise",
        ),
        Family(
            "voxtral_realtime",
            "VoxtralRealtime",
            lambda s: {
                "text_config": decoder(s, head_dim=s.head_dim, sliding_window=s.window, **few(s))
                | {"model_type": "voxtral_realtime_text"},
                "audio_config": {"hidden_size": 4, "intermediate_size": 2, "num_hidden_layers": 1}
                | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
                | {"num_mel_bins": 2},
                "downsample_factor": 1,
            },
            dtype=torch.float16,
        ),
        Family(
            "molmo2",
            "Molmo2",
            lambda s: beside(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    attention_bias=True,
                    additional_vocab_size=2,
                    tie_word_embeddings=False,
                ),
                {"hidden_size": 4, "intermediate_size": 2, "num_hidden_layers": 1}
                | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
                | {"image_size": [4, 4], "patch_size": 2, "num_channels": 1}
                | {"num_position_embeddings": 4},
                adapter_config={"vision_feature_layer": [-1], "hidden_size": 4}
                | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
                | {"intermediate_size": 2, "text_hidden_size": s.hidden},
                tie_word_embeddings=False,
            ),
            qk_norm="headwise",
            dtype=torch.float16,
        ),
        Family(
            "gemma4_unified",
            "Gemma4Unified",
            lambda s: {
                "text_config": {k: v for k, v in gemma4(s).items() if "per_layer" not in k},
                "vision_config": {"patch_size": 2, "pooling_kernel_size": 1, "mm_embed_dim": 4}
                | {"mm_posemb_size": 4, "output_proj_dims": 4},
            },
            qk_norm="headwise",
            dtype=torch.float16,
        ),
        Family(
            "aria",
            "Aria",
            lambda s: beside(
                llama(s, moe_num_experts=2, moe_topk=1, moe_num_shared_experts=1, **few(s)),
                {"model_type": "idefics3_vision"}
                | SIGLIP
                | {"num_channels": 1, "hidden_size": 4, "intermediate_size": 2},
                projector_patch_to_query_dict={4: 2},
            ),
        ),
        Family(
            "granite_docling",
            "GraniteDocling",
            lambda s: beside(
                granite(s) | few(s),
                SIGLIP
                | {"num_channels": 1, "scale_factor": 1, "out_hidden_size": s.few * s.head_dim}
                | {"hidden_size": 4, "use_fine_route": False},
            ),
            dtype=torch.float16,
        ),
        Family(
            "paddleocr_vl",
            "PaddleOCRVL",
            lambda s: beside(
                decoder(s, head_dim=s.head_dim, use_bias=True, **few(s), **turning(s, 2, 1, 1)),
                SIGLIP | {"num_channels": 1, "spatial_merge_size": 1, "hidden_size": 4},
            ),
        ),
        Family(
            "hunyuan_vl",
            "HunYuanVL",
            lambda s: beside(
                decoder(
                    s,
                    head_dim=s.head_dim,
                    num_attention_heads=2,
                    num_key_value_heads=1,
                    **turning(s, 1, 1, 1, 1, rope_type="dynamic", alpha=100.0, factor=1.0),
                ),
                {"hidden_size": 8, "intermediate_size": 2, "num_hidden_layers": 1}
                | {"num_attention_heads": 1, "num_channels": 1, "patch_size": 2}
                | {"spatial_merge_size": 1, "out_hidden_size": s.hidden}
                | {"max_image_size": 4, "min_image_size": 2},
            ),
            qk_norm="headwise",
        ),
        Family(
            "qwen2_5_omni_thinker",
            "Qwen2_5OmniThinker",
            lambda s: beside(
                decoder(s, head_dim=s.head_dim, **few(s), **turning(s, 2, 1, 1)),
                VISUAL | {"out_hidden_size": s.few * s.head_dim, "fullatt_block_indexes": [0]},
                audio_config={"d_model": 4, "encoder_layers": 1, "encoder_attention_heads": 1}
                | {"encoder_ffn_dim": 2, "output_dim": s.few * s.head_dim, "num_mel_bins": 2}
                | {"max_source_positions": 4},
            ),
        ),
        Family(
            "glm_ocr",
            "GlmOcr",
            lambda s: beside(
                decoder(
                    s, head_dim=s.head_dim, **few(s), **turning(s, 1, 1, partial_rotary_factor=0.5)
                ),
                VISUAL | {"out_hidden_size": s.few * s.head_dim, "image_size": 4},
            ),
        ),
        Family(
            "glm4v",
            "Glm4v",
            lambda s: beside(
                llama(s, **few(s), **turning(s, 1, 1, partial_rotary_factor=0.5)),
                VISUAL | {"out_hidden_size": s.few * s.head_dim, "image_size": 4},
            ),
        ),
        Family(
            "glm4v_moe",
            "Glm4vMoe",
            lambda s: beside(
                routed(
                    decoder(
                        s,
                        head_dim=s.head_dim,
                        **few(s),
                        **turning(s, 1, 1, partial_rotary_factor=0.5),
                    ),
                    moe_intermediate_size=2,
                ),
                VISUAL | {"out_hidden_size": s.few * s.head_dim, "image_size": 4},
            ),
        ),
        Family(
            "ernie4_5_vl_moe",
            "Ernie4_5_VLMoe",
            lambda s: beside(
                llama(
                    s,
                    use_bias=True,
                    moe_num_experts=2,
                    moe_k=1,
                    moe_num_shared_experts=1,
                    moe_intermediate_size=[2, 2],
                    **few(s),
                    **turning(s, 1, 1, 2),
                ),
                {k: v for k, v in VISUAL.items() if k != "temporal_patch_size"}
                | {"temporal_merge_size": 1},
            ),
        ),
    )
)

FAMILIES += (
    Family(
        "minimax_m3_vl",
        "MiniMaxM3VL",
        lambda s: beside(
            experts(
                decoder(s, head_dim=s.head_dim, **few(s), num_local_experts=2),
                intermediate_size=2,
                shared_intermediate_size=2,
                dense_intermediate_size=2,
            ),
            SIGLIP | {"num_channels": 1, "spatial_merge_size": 1, "temporal_patch_size": 1},
            projector_hidden_size=4,
        ),
        qk_norm="headwise",
        gain_offset=1.0,
        head="Model",  # that with a head has another name
        lengths=SHORTER,
        dtype=torch.float16,
    ),
)


def jamba(size: Size) -> dict[str, Any]:
    return three(
        size,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        expert_layer_period=2,
        expert_layer_offset=0,
        mamba_d_state=2,
        mamba_d_conv=2,
        mamba_expand=1,
        mamba_dt_rank=2,
    )


def nemotron_h(size: Size) -> dict[str, Any]:
    config = three(
        size,
        head_dim=size.head_dim,
        layers_block_type=["linear_attention", "full_attention", "mlp", "full_attention"],
        mamba_num_heads=2,
        mamba_head_dim=4,
        n_groups=1,
        ssm_state_size=2,
        conv_kernel=2,
        chunk_size=8,
    )
    del config["num_hidden_layers"], config["rope_parameters"]
    return config


def old_nemotron_h(config: dict[str, Any]) -> dict[str, Any]:
    for key in ("layers_block_type", "layer_types", "num_hidden_layers"):
        config.pop(key, None)
    return config | {"hybrid_override_pattern": "M*-*", "num_hidden_layers": 4}


def biogpt(size: Size) -> dict[str, Any]:
    return bert(size, pad_token_id=1, bos_token_id=0, eos_token_id=2)


def dsa(size: Size) -> dict[str, Any]:
    """An indexer that picks more keys than there are."""
    config = deepseek(size, index_topk=64, index_head_dim=4, index_n_heads=1)
    return (
        config | few(size) | {"num_key_value_heads": size.few, "first_k_dense_replace": size.layers}
    )


def openai_gpt(size: Size) -> dict[str, Any]:
    config = gpt2(size, n_embd=2 * size.head_dim, n_head=2)  # its feed-forward parts are wide
    del config["n_inner"]
    return config


def ctrl(size: Size) -> dict[str, Any]:
    config = gpt2(size, dff=size.mlp)
    del config["n_inner"]
    return config


def gpt_neox_japanese(size: Size, share: float = 1.0) -> dict[str, Any]:
    config = gpt_neox(size, intermediate_multiple_size=1)
    del config["intermediate_size"]
    rope = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": share}
    return config | {"rope_parameters": rope}


def xglm(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab,
        "max_position_embeddings": size.learned,
        "d_model": size.head_dim * size.few,
        "num_layers": size.layers,
        "attention_heads": size.few,
        "ffn_dim": size.mlp,
    }


def modernbert_decoder(size: Size) -> dict[str, Any]:
    return modernbert(size, intermediate_size=2)


def hrm_text(size: Size) -> dict[str, Any]:
    """Two stacks of one layer each, which run six times in all."""
    config = decoder(
        size,
        head_dim=size.head_dim,
        num_attention_heads=size.few,
        num_hidden_layers=1,
        H_cycles=2,
        L_cycles=2,
    )
    del config["num_key_value_heads"]
    return config


def zamba(size: Size) -> dict[str, Any]:
    """A block on twice as many coordinates, whose heads have twice as many."""
    config = llama(
        size,
        hidden_size=size.head_dim,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=3,
        layers_block_type=["linear_attention", "hybrid", "hybrid"],
        n_mamba_heads=1,
        mamba_d_state=2,
        mamba_d_conv=2,
        mamba_expand=1,
        mamba_dt_rank=2,
    )
    del config["rope_parameters"]
    return config


def zamba2(size: Size) -> dict[str, Any]:
    return llama(
        size,
        hidden_size=size.head_dim,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=3,
        num_mem_blocks=2,
        layers_block_type=["linear_attention", "hybrid", "hybrid"],
        n_mamba_heads=2,
        mamba_d_state=2,
        mamba_d_conv=2,
        mamba_expand=1,
        chunk_size=8,
        adapter_rank=2,
    )


def esmc(size: Size) -> dict[str, Any]:
    heads = {"num_attention_heads": size.few, "num_key_value_heads": size.few}
    return llama(size, hidden_size=size.few * size.head_dim, **heads)


def dory(size: Size) -> dict[str, Any]:
    return decoder(
        size,
        head_dim=size.head_dim,
        initializer_range=0.7,  # its square divides the logits
        n_input_layers=1,
        n_recurrent_layers=1,
        n_output_layers=0,
        n_recurrent_loops=1,
        rope_parameters=by_layer(partial=1.0),
        **sliding(size),
    )


def timesfm2_5(size: Size) -> dict[str, Any]:
    config = decoder(size, head_dim=size.head_dim, patch_length=2, output_quantile_len=2)
    config |= {"horizon_length": 2, "context_length": 64, "quantiles": [0.5]}
    for key in ("vocab_size", "tie_word_embeddings", "pad_token_id", "bos_token_id"):
        del config[key]
    del config["eos_token_id"]
    return config


def hy_v4(size: Size) -> dict[str, Any]:
    config = dsa(size) | {"indexer_types": ["full", "shared"], "hc_mult": 2}
    config |= {"mlp_layer_types": ["dense"] * size.layers}
    del config["first_k_dense_replace"]
    return config


def mistral_large4(size: Size) -> dict[str, Any]:
    """Turning and still layers with latents of their own, then one of each that reads theirs."""
    config = latent(size, **few_latent(size)) | {"num_attention_heads": 2, "num_key_value_heads": 2}
    config |= {
        "num_hidden_layers": 4,
        "no_rope_layers": [1, 0, 1, 0],
        "kv_source_layers": [0, 1, 0, 1],
        "indexer_types": ["full", "full", "shared", "full"],
        "index_topk": 64,
        "index_head_dim": 4,
        "index_n_heads": 1,
        "mlp_layer_types": ["dense"] * 4,
        "hidden_size": 2 * size.head_dim,
        "rope_parameters": yarn(10000.0, original_max_position_embeddings=16, mscale_all_dim=0.5),
    }
    del config["q_lora_rank"]
    return config


def zaya(size: Size) -> dict[str, Any]:
    return decoder(
        size,
        hidden_size=2 * size.head_dim,
        head_dim=size.head_dim // 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        moe_intermediate_size=1,
        num_experts=2,
        router_hidden_size=1,
        layer_types=["hybrid", "hybrid_sliding"],
        sliding_window=size.window,
        cca_time0=2,
        cca_time1=3,
        rope_parameters={
            "hybrid": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
            "hybrid_sliding": {"rope_type": "default", "rope_theta": 300.0},
        },
    )


def doge(size: Size, **more: Any) -> dict[str, Any]:
    few = {"hidden_size": 3 * size.head_dim, "num_attention_heads": 4, "num_key_value_heads": 2}
    return decoder(size, **few, head_dim=size.head_dim // 2) | more


def inkling(size: Size, **more: Any) -> dict[str, Any]:
    """Three tokens are the longest context that ascent looks at, where keys are convolved."""
    config = decoder(
        size,
        hidden_size=3 * size.head_dim,
        head_dim=size.head_dim // 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        swa_head_dim=size.head_dim // 2 + 2,
        swa_num_attention_heads=2,
        swa_num_key_value_heads=1,
        sliding_window_size=3,
        d_rel=3,
        rel_extent=2,
        log_scaling_n_floor=2,
        log_scaling_alpha=0.3,
        conv_kernel_size=3,
        layer_types=["hybrid_sliding", "hybrid"],
        mlp_layer_types=["dense", "dense"],
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_shared_experts=1,
    )
    del config["rope_parameters"]
    return config | more


def inkling2(size: Size) -> dict[str, Any]:
    """Norms are clipped where they would be larger without."""
    config = inkling(size, qk_l2_clip_threshold=2.5, rel_l2_clip_threshold=0.8)
    return config | {"unpadded_vocab_size": size.vocab, "n_layers_per_attn_res_block": 1}


def qwen4_exp(size: Size) -> dict[str, Any]:
    """A linear layer, then one on blocks of tokens, more than there are."""
    config = decoder(
        size,
        hidden_size=2 * size.head_dim,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=size.head_dim,
        rope_parameters={"rope_theta": 5000.0, "partial_rotary_factor": 0.5},
        layer_types=["linear_attention", "indexed_attention"],
        linear_key_head_dim=2,
        linear_value_head_dim=2,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        moe_intermediate_size=1,
        shared_expert_intermediate_size=1,
        num_experts=2,
        num_experts_per_tok=1,
        hc_count=2,
        hc_lowrank=1,
        indexer_n_heads=1,
        indexer_kv_heads=1,
        indexer_head_dim=size.head_dim,
        indexer_budget=64,
        indexer_compress_ratio=4,
    )
    del config["intermediate_size"]
    return config


def deepseek_v4(size: Size) -> dict[str, Any]:
    """Three tokens make one more key each, on one layer with the token in front of them."""
    config = decoder(
        size,
        hidden_size=2 * size.head_dim,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=size.head_dim,
        num_hidden_layers=3,
        q_lora_rank=6,
        moe_intermediate_size=1,
        n_routed_experts=2,
        num_experts_per_tok=1,
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ],
        compress_rates={"compressed_sparse_attention": 1, "heavily_compressed_attention": 1},
        mlp_layer_types=["moe"] * 3,
        sliding_window=size.window,
        o_groups=1,
        o_lora_rank=1,
        index_n_heads=1,
        index_head_dim=4,
        index_topk=64,
        partial_rotary_factor=0.5,
        hc_mult=2,
    )
    del config["intermediate_size"], config["rope_parameters"]
    return config


def axk2(size: Size, **more: Any) -> dict[str, Any]:
    few = {"gated_norm_rank": 3, "num_attention_heads": 2, "num_hidden_layers": 1}
    return dsa(size) | few | more


def minimax_m3(size: Size) -> dict[str, Any]:
    """A full layer, then one that picks more blocks of keys than there are."""
    return partial(
        size,
        0.5,
        head_dim=size.head_dim,
        layer_types=["full_attention", "minimax_m3_sparse"],
        mlp_layer_types=["dense"] * size.layers,
        dense_intermediate_size=2,
        index_n_heads=2,
        index_head_dim=size.head_dim,
        index_block_size=16,
        index_topk_blocks=4,
    )


def few_latent(size: Size) -> dict[str, Any]:
    return {"num_attention_heads": size.few, "num_key_value_heads": size.few}


def bailing(size: Size) -> dict[str, Any]:
    """A linear layer, then one with attention."""
    return latent(
        size,
        **few_latent(size),
        layer_types=mixed(size),
        mlp_layer_types=["dense"] * size.layers,
        short_conv_kernel_size=2,
        head_dim=4,
    )


def glm5_next(size: Size) -> dict[str, Any]:
    """A linear layer, then one with attention on more keys than there are."""
    config = dsa(size) | {
        "qk_rope_head_dim": 0,
        "layer_types": ["linear_attention", "indexed_attention"],
        "indexer_types": ["full", "full"],
        "mlp_layer_types": ["dense"] * size.layers,
        "index_kpool": 4,
        "hc_mult": 2,
        "linear_head_dim": 4,
        "linear_num_heads": 2,
        "linear_conv_kernel_dim": 2,
    }
    del config["first_k_dense_replace"], config["rope_parameters"]
    return config


def dots3_note(size: Size) -> dict[str, Any]:
    """A layer whose keys an indexer picks, then one that slides and has sizes of its own."""
    config = dsa(size) | {
        "head_dim": size.head_dim * 3 // 2 - 2,
        "layer_types": ["indexed_attention", "sliding_attention"],
        "mlp_layer_types": ["dense"] * size.layers,
        "sliding_window": size.window,
        "swa_num_attention_heads": 2,
        "swa_num_key_value_heads": 2,
        "swa_q_lora_rank": size.head_dim + 1,
        "swa_kv_lora_rank": size.head_dim - 1,
        "swa_head_dim": size.head_dim + 2,
        "swa_qk_nope_head_dim": size.head_dim // 2,
        "swa_v_head_dim": 2,
        "swa_rope_theta": 300.0,
        "rope_theta": 7000.0,
    }
    del config["first_k_dense_replace"], config["rope_parameters"]
    return config


# Decoders that are small variants of those above.
FAMILIES += tuple(
    replace(family, lengths=family.lengths or SHORTER)
    for family in (
        Family("deepseek_v32", "DeepseekV32", dsa),
        Family(
            "deepseek_v32__yarn",
            "DeepseekV32",
            lambda s: stretched(
                dsa(s)
                | {
                    "attention_bias": True,
                    "rope_parameters": yarn(10000.0, mscale=0.7, mscale_all_dim=1.0),
                }
            ),
        ),
        Family(
            "glm_moe_dsa", "GlmMoeDsa", lambda s: dsa(s) | {"indexer_types": ["full", "shared"]}
        ),
        Family(
            "mistral_large4_text",
            "MistralLarge4Text",
            mistral_large4,
            head="Model",
            targets=(0.5, 4.0),
        ),
        Family("zaya", "Zaya", zaya, targets=None, lengths=(3,)),
        Family("doge", "Doge", doge, qk_norm="headwise"),
        Family(
            "doge__bias",
            "Doge",
            lambda s: doge(s, attention_bias=True, sliding_window=s.window),
            qk_norm="headwise",
        ),
        Family(
            "inkling_text",
            "InklingText",
            inkling,
            head="Model",
            qk_norm="headwise",
            lengths=(3,),
        ),
        Family("inkling2_text", "Inkling2Text", inkling2, head="Model", targets=None, lengths=(3,)),
        Family(
            "qwen4_exp_text",
            "Qwen4ExpText",
            qwen4_exp,
            head="Model",
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family("deepseek_v4", "DeepseekV4", deepseek_v4, targets=None, lengths=(3,)),
        Family("axk2", "AXK2", lambda s: axk2(s, num_key_value_heads=2, attention_bias=True)),
        Family("openai_gpt", "OpenAIGPT", openai_gpt, head="LMHeadModel"),
        Family("gpt_neox_japanese", "GPTNeoXJapanese", gpt_neox_japanese),
        Family(
            "gpt_neox_japanese__old_dialect",
            "GPTNeoXJapanese",
            lambda s: gpt_neox_japanese(s, 0.5),
            rewrite=old_gpt_neox,
        ),
        Family("xglm", "XGLM", xglm),
        Family("ctrl", "CTRL", ctrl, head="LMHeadModel"),
        Family("modernbert_decoder", "ModernBertDecoder", modernbert_decoder),
        Family(
            "modernbert_decoder__old_dialect",
            "ModernBertDecoder",
            lambda s: modernbert_decoder(s) | {"norm_bias": True, "attention_bias": True},
            rewrite=old_modernbert,
        ),
        Family("hrm_text", "HrmText", hrm_text, code="HrmText"),
        Family(
            "hrm_text__causal",
            "HrmText",
            lambda s: hrm_text(s) | {"prefix_lm": False},
            code="HrmText",
        ),
        Family("zamba", "Zamba", zamba),
        Family("zamba2", "Zamba2", zamba2),
        Family(
            "zamba2__rope",
            "Zamba2",
            lambda s: zamba2(s) | {"use_mem_rope": True, "num_key_value_heads": 1},
        ),
        Family("esmc", "Esmc", esmc, head="ForMaskedLM", qk_norm="layerwise", effort=4.0),
        Family("dory", "Dory", dory, targets=None),
        Family(
            "timesfm2_5",
            "TimesFm2_5",
            timesfm2_5,
            head="ModelForPrediction",
            targets=None,
        ),
        Family("hy_v4", "HYV4", hy_v4),
        Family("dots3_note_text", "Dots3NoteText", dots3_note),
        Family(
            "minimax_m3_vl_text",
            "MiniMaxM3VLText",
            minimax_m3,
            qk_norm="headwise",
            gain_offset=1.0,
        ),
        Family(
            "sarvam_mla",
            "SarvamMLA",
            lambda s: deepseek(s, q_lora_rank=None, **few_latent(s)),
            code="DeepseekV3",
        ),
        Family(
            "sarvam_moe",
            "SarvamMoE",
            lambda s: routed(partial(s, 0.5, head_dim=s.head_dim, **few(s))),
            code="Glm4Moe",
            qk_norm="headwise",
        ),
        Family(
            "sarvam_moe__bias",
            "SarvamMoE",
            lambda s: routed(
                partial(
                    s, 0.5, head_dim=s.head_dim, use_qk_norm=False, attention_bias=True, **few(s)
                )
            ),
            code="Glm4Moe",
        ),
        Family("bailing_hybrid", "BailingHybrid", bailing),
        Family("glm5_next_text", "Glm5NextText", glm5_next, head="Model"),
        Family("cwm", "Cwm", lambda s: decoder(s, head_dim=s.head_dim, **sliding(s))),
        Family("ministral", "Ministral", lambda s: decoder(s, head_dim=s.head_dim, **sliding(s))),
        Family(
            "mellum",
            "Mellum",
            lambda s: experts(
                decoder(
                    s, head_dim=s.head_dim, rope_parameters=by_layer(partial=1.0), **sliding(s)
                ),
                moe_intermediate_size=2,
            ),
            qk_norm="headwise",
        ),
        Family(
            "hyperclovax",
            "HyperCLOVAX",
            lambda s: llama(s, attention_multiplier=0.21875, embedding_multiplier=6.0),
        ),
        Family(
            "internlm3",
            "InternLM3",
            lambda s: decoder(s, head_dim=s.head_dim, attention_bias=True, mlp_bias=True),
            code="Llama",
        ),
        Family(
            "iquestcoder", "IQuestCoder", lambda s: decoder(s, head_dim=s.head_dim), code="Llama"
        ),
        Family("exaone", "Exaone", llama_scaled, code="Llama"),
        Family("jamba", "Jamba", jamba),
        Family(
            "bamba",
            "Bamba",
            lambda s: three(s, attn_layer_indices=[1], attention_bias=True, **mamba(s)),
        ),
        Family("nemotron_h", "NemotronH", nemotron_h),
        Family("nemotron_h__old_dialect", "NemotronH", nemotron_h, rewrite=old_nemotron_h),
        Family("biogpt", "BioGpt", biogpt),
        Family(
            "biogpt__unscaled",
            "BioGpt",
            lambda s: biogpt(s) | {"scale_embedding": False},
            head="Model",
        ),
    )
)


def randomise(model: nn.Module, gain_offset: float, size: Size, generator: torch.Generator) -> None:
    """Give every parameter a telling value: the usual ones and zeros hide mistakes."""

    def normal(shape: torch.Size, std: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64) * std

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                value = normal(parameter.shape, size.gains)
            elif parameter.ndim < 2:
                value = torch.exp(normal(parameter.shape, size.gains))
                flips = torch.rand(parameter.shape, generator=generator) < 0.15
                value = torch.where(flips, -value, value) - gain_offset
            else:
                value = normal(parameter.shape, parameter.shape[-1] ** -0.5)
                if size.uneven:
                    value = value * torch.exp(normal(parameter.shape[-1:], size.uneven))
            parameter.copy_(value.to(parameter.dtype))
