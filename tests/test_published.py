"""Families read off code that is no part of transformers: dialects, defaults, what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.growth import LogBaseGrowth

DATA = Path(__file__).parent / "data"


def planned(name, changes=(), drop=()):
    """The plan of a golden checkpoint with another config."""
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in checkpoint.config.items() if k not in drop}
    return plan(from_arrays(arrays, config | dict(changes)))


def first(name, changes=(), drop=()):
    return next(iter(planned(name, changes, drop).layers[0].heads()))[2]


YARN = {"rope_scaling": {"type": "yarn", "factor": 2.0}}
LINEAR = {"rope_scaling": {"type": "linear", "factor": 2.0}}
REFUSED = [
    ("baichuan", {"rope_theta": 5e5}, "10000.0"),
    ("baichuan", LINEAR, "null"),
    ("bailing_moe", {"use_sliding_window": True}, "false"),
    ("bailing_moe", {"rope_scaling": {"type": "longrope"}}, "of type default or linear or dynamic"),
    ("chatglm", {"multi_query_attention": False}, "true"),
    ("chatglm", {"original_rope": False}, "true"),
    ("chatglm", {"rmsnorm": False}, "true"),
    ("chatglm", {"quantization_bit": 4}, "0"),
    ("bailing_moe", YARN | {"use_qk_norm": False}, "of type default or linear or dynamic for"),
    ("chatglm", {"pre_seq_len": 128}, "null"),
    ("chatglm", {"qk_layernorm": True}, "false"),
    ("chatglm", {"position_encoding_2d": True}, "false"),
    ("chatglm", {"vision_config": {}}, "null"),
    ("deepseek", YARN, "of type default or linear or dynamic for deepseek"),
    ("dream", {"use_sliding_window": True}, "false"),
    ("dream", {"use_mrope": True}, "false"),
    ("internlm2", YARN, "of type default or linear or dynamic for internlm2"),
    ("llada", {"block_type": "sequential"}, '"llama"'),
    ("llada", {"layer_norm_type": "default"}, '"rms"'),
    ("llada", {"rope": False}, "true"),
    ("llada", {"alibi": True}, "false"),
    ("llada", {"attention_layer_norm": True}, "false"),
    ("llada", {"input_emb_norm": True}, "false"),
    ("llada", {"bias_for_layer_norm": True}, "false"),
    ("minicpm", {"sparse_config": {"topk": 64}}, "null"),
    ("minicpm", YARN, "of type default or linear or dynamic or longrope for minicpm"),
    ("orion", YARN, "of type default or linear or dynamic for orion"),
    ("qwen", {"rotary_pct": 0.5}, "1.0"),
    ("qwen", {"use_cache_quantization": True}, "false"),
    ("qwen", {"visual": {"layers": 48}}, "null"),
    ("xverse", LINEAR, "null"),
    ("xverse", {"rope_parameters": LINEAR["rope_scaling"]}, "of type default for xverse"),
    ("internlm2", {"rope_parameters": YARN["rope_scaling"]}, "of type default or linear"),
]


@pytest.mark.parametrize(("name", "changes", "rule"), REFUSED)
def test_a_key_that_changes_attention_is_refused_by_name(name, changes, rule):
    key = next(iter(changes))
    with pytest.raises(UnsupportedError) as refusal:
        planned(name, changes)
    message = str(refusal.value)
    assert message.startswith(f"{key} in config.json must be {rule}")
    assert message.endswith(": not supported.")
    assert "\n" not in message


def test_chatglm_2_and_3_read_a_ratio_differently():
    with pytest.raises(UnsupportedError, match="must be 1 for ChatGLM 2 and 3"):
        planned("chatglm", {"padded_vocab_size": 65024})


def test_baichuan_is_told_by_the_position_key_where_the_size_agrees():
    turning, biased = first("baichuan"), first("baichuan__alibi")
    assert turning.rotary is not None
    assert turning.bias is None
    assert biased.rotary is None
    assert biased.bias is not None
    both = planned("baichuan", {"model_max_length": 128})  # as Baichuan 2 7B has them
    assert both.model["rope_type"] == "default"
    for name, drop, changes in (
        ("baichuan", ("max_position_embeddings",), {}),
        ("baichuan", (), {"hidden_size": 5120}),
        ("baichuan__alibi", (), {"hidden_size": 4096}),
    ):
        with pytest.raises(UnsupportedError, match="must be there for Baichuan 7B"):
            planned(name, changes, drop)


def test_chatglm_multiplies_the_base_by_the_ratio_and_turns_half_of_each_head():
    rotary = first("chatglm").rotary
    np.testing.assert_allclose(rotary.frequencies, 30000.0 ** -np.array([0.0, 0.5]), rtol=1e-15)
    np.testing.assert_array_equal(rotary.pairs, [[0, 1], [2, 3]])
    plain = first("chatglm", {"padded_vocab_size": 65024}, ("rope_ratio",)).rotary
    np.testing.assert_allclose(plain.frequencies, [1.0, 0.01], rtol=1e-15)


def test_qwens_queries_grow_and_its_base_does_past_the_trained_length():
    head = first("qwen", {"use_dynamic_ntk": True})
    assert head.growth == LogBaseGrowth(20)
    assert head.growth.factor(400).upper == pytest.approx(2.0, rel=1e-5)
    size = head.query.head_dim
    for length, alpha in ((1, 1), (20, 1), (21, 3), (40, 3), (41, 7), (80, 7), (81, 15)):
        base = 5000.0 * alpha ** (size / (size - 2))
        expected = base ** (-np.arange(0, size, 2) / size)
        np.testing.assert_allclose(head.rotary.frequencies_at(length), expected, rtol=1e-14)
    assert math.ceil(math.log2(41 / 20) + 1) == 3  # 2^3 - 1 is the 7 above


def test_absent_keys_mean_what_the_published_classes_take():
    head = first("qwen", drop=("use_logn_attn", "use_dynamic_ntk", "rotary_emb_base"))
    assert head.growth is not None
    assert head.rotary.rescale is not None
    assert head.rotary.frequencies[1] == pytest.approx(0.1)
    biased = planned("internlm2", drop=("bias",)).layers[0]
    assert any(name.endswith("wqkv.bias") for name in biased.tensors)
    with pytest.raises(UnsupportedError, match="multi_query_attention"):
        planned("chatglm", drop=("multi_query_attention",))
    with pytest.raises(CheckpointError, match="must have shape"):
        planned("chatglm", drop=("kv_channels",))  # 128
    with pytest.raises(UnsupportedError, match="partial_rotary_factor must be"):
        planned("bailing_moe__qk_norm", drop=("partial_rotary_factor",))


def test_qwens_heads_share_the_width():
    with pytest.raises(CheckpointError, match="kv_channels · num_attention_heads"):
        planned("qwen", {"kv_channels": 16})


@pytest.mark.parametrize("key", ["factor", "attention_factor"])
def test_minicpms_longrope_has_no_factor_of_its_own(key):
    scaling = {
        "type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 64,
    }
    head = first("minicpm", {"rope_scaling": scaling})
    factor = math.sqrt(1 + math.log(256 / 64) / math.log(64))  # of cos and of sin
    assert head.scale.upper == pytest.approx(factor**2 / math.sqrt(8))
    with pytest.raises(UnsupportedError, match=f"{key} in config.json must be null"):
        planned("minicpm", {"rope_scaling": scaling | {key: 2.0}})


@pytest.mark.parametrize(("trained", "at_first"), [(64, 2.0), (256, 1.0)])
def test_minicpms_longrope_makes_its_angles_for_the_longest_context(trained, at_first):
    scaling = {
        "type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": trained,
    }
    rotary = first("minicpm", {"rope_scaling": scaling}).rotary
    for length, divisor in ((9, at_first), (256, at_first), (257, 2.0)):
        expected = 5000.0 ** (-np.arange(0, 8, 2) / 8) / divisor
        np.testing.assert_allclose(rotary.frequencies_at(length), expected, rtol=1e-14)
    with pytest.raises(UnsupportedError, match=r"max_position_embeddings .* must be at least"):
        planned("minicpm", {"rope_scaling": scaling | {"original_max_position_embeddings": 257}})


def test_models_by_diffusion_see_both_sides():
    assert not first("dream").causal
    assert not first("llada").causal
    assert first("deepseek").causal


def test_lladas_layers_hold_the_projections_and_nothing_unknown():
    checkpoint = open_checkpoint(DATA / "llada")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    found = plan(from_arrays(arrays, checkpoint.config))
    assert [layer.module for layer in found.layers] == ["blocks.0", "blocks.1"]
    assert "blocks.0.q_proj.weight" in found.layers[0].tensors
    for name in ("blocks.1.q_norm.weight", "blocks.1.something.weight", "blocks.1.attn_norm.bias"):
        changed = plan(from_arrays({**arrays, name: np.ones(32)}, checkpoint.config))
        assert [layer.module for layer in changed.layers] == ["blocks.0"]
        assert [refused.name for refused in changed.refused] == ["blocks.1"]
    for key in ("block_type", "layer_norm_type", "rope"):  # its class takes something else then
        with pytest.raises(UnsupportedError, match=f"{key} in config.json must be"):
            planned("llada", drop=(key,))
    single = {"multi_query_attention": True}
    with pytest.raises(CheckpointError, match="must have shape"):
        planned("llada", single, drop=("n_kv_heads",))  # one key head
