import gc
import json
import math
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mechanism_checks
from dispersion import architectures
from dispersion.architectures import families, plan, registry, supported_model_types
from dispersion.architectures.scales import divided, inverse_root, times
from dispersion.architectures.unsupported import REASONS
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.distance_bias import JointBias
from dispersion.enclosure import Enclosure
from dispersion.errors import (
    ArgumentError,
    CheckpointError,
    DispersionError,
    UnsupportedError,
)
from golden.numbering import numbers
from mechanism_checks import middle, unknown_inputs

DATA = Path(__file__).parent / "data"
GOLDEN = sorted(p.parent.name for p in DATA.glob("*/config.json"))
REFERENCE = json.loads((DATA / "logits.json").read_text())
POSITIONS = np.array(REFERENCE["positions"])
REACHED = [name for name in GOLDEN if not unknown_inputs(name)]
RECORDED_DIGITS = 9  # of the hidden states in adversarial.json
ROUNDING = 2.0**-40  # of float64, in a few hundred operations
RAW_SCALE = 1000.0  # as in tests/golden/real.py: hidden states so large that no ε matters


def directions(width):
    """The vectors of tests/golden/logits.py."""
    return np.sin(1.0 + np.arange(len(POSITIONS) * width) ** 1.5).reshape(-1, width)


def hidden_states(reach):
    """Inputs of the attention module, built from nothing but `Reach`."""
    x = directions(reach.coordinates)
    if reach.centred:
        x = x - x.mean(axis=1, keepdims=True)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    if math.isinf(reach.radius):
        return RAW_SCALE * math.sqrt(reach.width) * x
    gain = 1.0 if reach.gain is None else reach.gain
    states = reach.radius * gain * x
    if reach.through is not None:
        states = states @ reach.through.T
    return states + (0.0 if reach.bias is None else reach.bias)


def apart(head):
    """Whether keys are made of other states than queries: all but the last of those given."""
    return head.reach.keys is not None


def inputs_of(head):
    """Hidden states of keys and query; where keys are apart the last one alone is the query's."""
    states = hidden_states(head.reach)
    if not apart(head):
        return states
    return np.concatenate([hidden_states(head.reach.of_keys)[:-1], states[-1:]])


def points(states, reach, ball, norm):
    """Queries or keys of hidden states, as points radius·matrix u + offset of the ball."""
    if norm is None:
        gain = 1.0 if reach.gain is None else reach.gain
        u = states - (0.0 if reach.bias is None else reach.bias)
        if reach.through is not None:
            u = np.linalg.lstsq(reach.through, u.T)[0].T
        u = u / gain / reach.radius
        # A recorded number is off by half a unit of its last digit, 5e-9 of itself at most.
        digits = 5 * 10.0**-RECORDED_DIGITS
        if reach.through is None:
            size = np.linalg.norm(states / gain, axis=1)
        else:
            back = np.linalg.norm(np.linalg.pinv(reach.through), 2) / np.min(np.abs(gain))
            size = back * np.linalg.norm(states, axis=1)
        slack = digits * size / reach.radius
    else:
        raw = states @ norm.weight.astype(np.float64).T
        if norm.bias is not None:
            raw = raw + norm.bias.astype(np.float64)
        if norm.centred:
            raw = raw - raw.mean(axis=1, keepdims=True)
        u = raw / np.sqrt(np.sum(raw**2, axis=1, keepdims=True) + raw.shape[1] * norm.eps)
        if not norm.centred:
            u = u[:, norm.start : norm.start + ball.head_dim]
        slack = 0.0
    assert np.all(np.linalg.norm(u, axis=1) <= 1 + slack + ROUNDING)
    y = ball.radius.upper * u @ ball.matrix.T
    return y if ball.offset is None else y + ball.offset


def last_row(head, states, positions):
    """Logits of the last query against every key, from the normal form alone."""
    query = points(states[-1:], head.reach, head.query, head.reach.query_norm)[0]
    others = states[:-1] if apart(head) else states
    keys = points(others, head.reach.of_keys, head.key, head.reach.of_keys.key_norm)
    if head.rotary is not None:
        keys = head.rotary.rotate(keys, positions[: len(keys)] - positions[-1])
    logits = head.scale.upper * keys @ query
    if head.growth is not None:
        logits = logits * middle(head.growth.factor(int(positions[-1]) + 1))
    if isinstance(head.bias, JointBias):
        logits = logits + head.scale.upper * mechanism_checks.products(
            head.bias, query, keys, positions
        )
    elif head.bias is not None:
        logits = logits + mechanism_checks.biases(head.bias, positions)
    return logits if head.soft_cap is None else head.soft_cap * np.tanh(logits / head.soft_cap)


def opened(name):
    return open_checkpoint(DATA / name)


@pytest.mark.parametrize("name", REACHED)
def test_logits_of_the_normal_form_are_those_of_the_real_module(name):
    """Every head; ε inside a norm moves raw states of size RAW_SCALE by 1e-5/RAW_SCALE² at most."""
    found = plan(opened(name))
    number = numbers(found.layers)
    # Layers without softmax attention have no logits.
    assert [number[layer.module, layer.layer] for layer in found.layers] == [
        i for i, rows in enumerate(REFERENCE["logits"][name]) if rows
    ]
    assert not found.refused
    for layer in found.layers:
        place = number[layer.module, layer.layer]
        expected = np.array(REFERENCE["logits"][name][place])
        assert len(expected) == layer.query_heads
        for index, _, head in layer.heads():
            if (name, place) in mechanism_checks.UNBOUNDED:
                assert head.query is None  # token plus position, which no norm caps
                assert head.key is None
                continue
            row = last_row(head, inputs_of(head), POSITIONS)
            # ALiBi is defined up to a constant of the row.
            row = row if head.bias is None else row - row.max() + max(expected[index])
            np.testing.assert_allclose(
                row, expected[index], rtol=1e-9, atol=1e-9 * np.abs(expected[index]).max()
            )


@pytest.mark.parametrize("name", REACHED)
def test_recorded_contexts_give_the_recorded_spread_within_the_window(name):
    record = json.loads((DATA / name / "adversarial.json").read_text())
    layers = plan(opened(name)).layers
    number = numbers(layers)
    found = {number[layer.module, layer.layer]: layer for layer in layers}
    for witness in record["witnesses"]:
        heads = {index: head for index, _, head in found[witness["layer"]].heads()}
        head = heads[witness["head"]]
        states = np.array(witness["tokens"])[witness["order"]]
        positions = np.array(witness.get("positions", range(len(states))))
        if apart(head) and head.self_attention:
            positions[-1] -= 1  # the query's token is the last key's
        row = last_row(head, states, positions)
        seen = row[-head.visible(len(row)) :]
        if "positions" in witness:  # keys on both sides
            seen = row[np.abs(positions - positions[-1]) < head.visible(len(row))]
        # Rounded states have a mean of up to 1e-9 of their size; the normal form knows none.
        tolerance = 100 * 10.0**-RECORDED_DIGITS
        assert np.ptp(seen) == pytest.approx(witness["spread"], rel=tolerance)
        sink = 0.0 if head.sink is None else np.exp(head.sink - seen.max())
        share = 1 / (np.exp(seen - seen.max()).sum() + sink)
        assert share == pytest.approx(witness["coefficient"], rel=tolerance * witness["spread"])
        visible = record["lengths"][str(len(row))]["visible"][witness["layer"]]
        assert visible == head.visible(len(row))


@pytest.mark.parametrize("name", GOLDEN)
def test_every_tensor_is_used_skipped_or_refused(name):
    checkpoint = opened(name)
    found = plan(checkpoint)
    used = set()
    for layer in found.layers:
        used |= set(layer.tensors)
    for refused in found.refused:
        inside = {each for each in checkpoint.names if each.startswith(f"{refused.name}.")}
        used |= {each for each in inside if ".value." not in each}
    assert len(used) + sum(s.count for s in found.skipped) == len(checkpoint.names)
    assert json.loads(json.dumps(found.model)) == found.model


@pytest.mark.parametrize("name", GOLDEN)
def test_heads_of_one_key_head_share_its_ball(name):
    for layer in plan(opened(name)).layers:
        keys = {}
        order = []
        for head, kv_head, built in layer.heads():
            assert kv_head == head // (layer.query_heads // layer.key_heads)
            # Covers of clamped keys, and of those with a bias, are made for each query head.
            alike = keys.setdefault(kv_head, built.key) is built.key
            assert alike or "clip" in built.cap or "bounded bias" in built.cap
            order.append(head)
        assert order == list(range(layer.query_heads))
        assert len(keys) == layer.key_heads


def test_dropped_heads_leave_no_weights_behind():
    layer = plan(opened("llama")).layers[0]
    alive = []
    for _, _, head in layer.heads():
        alive = [ref for ref in alive if ref() is not None] + [weakref.ref(head.query)]
        assert len(alive) <= 2
    del head
    gc.collect()
    assert all(ref() is None for ref in alive)


def test_what_is_peculiar_to_each_family_is_in_its_heads():
    def heads(name):
        return [next(iter(layer.heads()))[2] for layer in plan(opened(name)).layers]

    assert [h.window for h in heads("mistral")] == [6, 6]
    assert [h.window for h in heads("qwen2")] == [None, 6]
    assert [h.window for h in heads("gemma3_text")] == [6, None]
    assert [h.soft_cap for h in heads("gemma2")] == [15.0, 15.0]
    assert [h.soft_cap for h in heads("gemma3_text")] == [None, None]
    assert 24**-0.5 in heads("gemma2")[0].scale
    assert [h.causal for h in heads("bert")] == [False, False]
    assert all(h.rotary is None for h in heads("gpt2"))
    kinds = [h.rotary.kind for h in heads("olmo3__yarn")]
    assert sorted(kinds) == ["default", "yarn"]
    assert heads("gpt2__inverse_layer_idx")[1].scale.upper == heads("gpt2")[1].scale.upper / 2
    assert plan(opened("gpt2")).learned_positions == 32
    assert plan(opened("llama")).learned_positions is None


@pytest.mark.parametrize("name", ["gpt_oss", "smollm3", "cohere", "phi3", "gpt_neox", "granite"])
def test_what_is_peculiar_to_a_newer_family_is_in_its_heads(name):
    checkpoint = opened(name)
    layers = plan(checkpoint).layers
    heads = [head for layer in layers for _, _, head in layer.heads()]
    if name == "gpt_oss":
        sinks = [checkpoint.read(f"model.layers.{i}.self_attn.sinks") for i in range(2)]
        np.testing.assert_array_equal([h.sink for h in heads], np.concatenate(sinks))
        assert [h.window for h in heads] == [6] * 4 + [None] * 4
        factor = (0.1 * math.log(4.0) + 1) ** 2
        assert heads[0].scale.upper == pytest.approx(8**-0.5 * factor, rel=1e-14)
        assert [layer.embedding for layer in layers] == [None, None]
        return
    assert {h.sink for h in heads} == {None}
    if name == "smollm3":
        assert [h.rotary is None for h in heads] == [False] * 4 + [True] * 4
    if name == "cohere":
        assert heads[0].rotary.pairs.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert heads[0].reach.centred
    if name == "gpt_neox":
        assert heads[0].rotary.pairs.tolist() == [[0, 1]]
    if name == "phi3":
        fused = checkpoint.read("model.layers.0.self_attn.qkv_proj.weight").astype(np.float64)
        gain = checkpoint.read("model.layers.0.input_layernorm.weight").astype(np.float64)
        np.testing.assert_array_equal(heads[3].query.matrix, fused[24:32] * gain)
        np.testing.assert_array_equal(heads[3].key.matrix, fused[40:48] * gain)
    if name == "granite":
        assert heads[0].scale == Enclosure.exact(0.21875)
        assert 6.0 in layers[0].embedding.scale


def test_positions_of_roberta_start_behind_the_padding():
    checkpoint = opened("roberta")
    found = plan(checkpoint)
    assert found.learned_positions == 30
    assert found.layers[0].embedding is None
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    renamed = checkpoint.config | {"model_type": "xlm-roberta"}
    assert len(plan(from_arrays(arrays, renamed)).layers) == 2
    short = checkpoint.config | {"max_position_embeddings": 2}
    with pytest.raises(CheckpointError, match="max_position_embeddings"):
        plan(from_arrays(arrays, short))


def test_a_gain_with_a_row_for_each_head_gives_each_head_its_own():
    checkpoint = opened("cohere__qk_norm")
    gains = checkpoint.read("model.layers.1.self_attn.q_norm.weight").astype(np.float64)
    key_gains = checkpoint.read("model.layers.1.self_attn.k_norm.weight").astype(np.float64)
    assert gains.shape == (4, 8)
    mean = np.eye(8) - 1 / 8
    for index, kv_head, head in plan(checkpoint).layers[1].heads():
        for ball, gain in ((head.query, gains[index]), (head.key, key_gains[kv_head])):
            np.testing.assert_allclose(ball.matrix, gain[:, None] * mean, rtol=1e-14)
        assert head.reach.query_norm.centred


YARN = {"type": "yarn", "factor": 2.0}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("dbrx", {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e5}}, "rope_theta.*attn_config"),
        (
            "falcon__new_decoder",
            {"parallel_attn": False},
            "parallel_attn in config.json must be true",
        ),
        ("phimoe", {"rope_scaling": {"type": "longrope"}}, "longrope.*phimoe"),
        ("phi", {"partial_rotary_factor": 0.5, "rope_scaling": YARN}, "yarn with a factor"),
        ("chameleon", {"head_dim": 4}, "head_dim"),
        ("chameleon", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("gptj", {"rotary_dim": None}, "rotary_dim"),
        ("codegen", {"n_head": 6}, "multiple of 4"),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ("modernbert__old_dialect", {"local_rope_theta": None}, "local_rope_theta"),
        ("electra", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("esm", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("esm", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ("phi3", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_a_variant_that_is_not_covered_is_refused_by_name(name, changes, words):
    checkpoint = opened(name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    assert len(plan(from_arrays(arrays, checkpoint.config)).layers) == 2
    with pytest.raises(UnsupportedError, match=words):
        plan(from_arrays(arrays, checkpoint.config | changes))


@pytest.mark.parametrize("value", [-0.5, -1, "abc", [1e-5], math.inf, math.nan, True])
@pytest.mark.parametrize(
    ("name", "key"),
    [("swin", "layer_norm_eps"), ("t5", "layer_norm_epsilon"), ("lilt", "layer_norm_eps"),
     ("longformer", "layer_norm_eps"), ("jetmoe", "rms_norm_eps"), ("llama", "rms_norm_eps")],
)  # fmt: skip
def test_every_epsilon_is_what_bounds_suppose(name, key, value):
    """A norm with a negative one has no cap, whether its family reads the key or not."""
    checkpoint = opened(name)
    with pytest.raises(CheckpointError, match=f"{key} in config.json must be a finite number"):
        plan(replace(checkpoint, config=checkpoint.config | {key: value}))
    within = checkpoint.config | {"text_config": {key: value}}
    with pytest.raises(CheckpointError, match=f"{key} in config.json must be a finite number"):
        plan(replace(checkpoint, config=within))


@pytest.mark.parametrize("value", [["local"], {"local": 1}])
def test_names_are_texts(value):
    for name, key in (("longt5", "encoder_attention_type"), ("big_bird", "attention_type")):
        checkpoint = opened(name)
        with pytest.raises(UnsupportedError, match=f"{key} in config.json must be"):
            plan(replace(checkpoint, config=checkpoint.config | {key: value}))


def heads_of(name, changes, drop=()):
    """First head of each layer of a golden checkpoint under a changed config."""
    checkpoint = opened(name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in (checkpoint.config | changes).items() if k not in drop}
    return [next(iter(layer.heads()))[2] for layer in plan(from_arrays(arrays, config)).layers]


def test_windows_follow_each_class_where_the_config_is_silent():
    def windows(*args, **kwargs):
        return [h.window for h in heads_of(*args, **kwargs)]

    assert windows("mixtral", {}) == [6, 6]
    for name in ("mixtral", "starcoder2", "phi3"):
        assert windows(name, {}, drop=("sliding_window",)) == [None, None]
    moe = {"use_sliding_window": True, "sliding_window": 5}
    assert windows("qwen3_moe", moe) == [5, 5]
    assert windows("qwen3_moe", moe | {"use_sliding_window": False}) == [None, None]
    assert windows("qwen2_moe", moe, drop=("layer_types",)) == [5, None]
    assert windows("qwen2_moe", moe | {"max_window_layers": 0}, drop=("layer_types",)) == [None] * 2
    assert windows("gpt_oss", {}, drop=("layer_types", "sliding_window")) == [128, None]
    unrotated = {"no_rope_layers": [0, 1], "layer_types": None}
    assert windows("smollm3", moe | unrotated) == [5, None]
    assert [h.rotary is None for h in heads_of("smollm3", unrotated)] == [True, False]


def test_rotations_follow_each_class_where_the_config_is_silent():
    def thetas(name, drop=("rope_parameters",)):
        rotary = heads_of(name, {}, drop=drop)[0].rotary
        return rotary.kind, rotary.frequencies

    silent = {
        "cohere": 500000.0,
        "mixtral": 1000000.0,
        "smollm3": 2000000.0,
        "gemma": 10000.0,
        "starcoder2": 10000.0,
    }
    for name, theta in silent.items():
        kind, frequencies = thetas(name)
        assert kind == "default"
        np.testing.assert_allclose(frequencies, theta ** -(np.arange(4) / 4), rtol=1e-14)
    assert thetas("gpt_oss")[0] == "yarn"
    for name, turned in (("nemotron", 4), ("stablelm", 2), ("gpt_neox", 2)):
        np.testing.assert_allclose(
            thetas(name)[1], 10000.0 ** -(np.arange(turned // 2) / (turned // 2)), rtol=1e-14
        )


def test_packed_experts_beside_plain_projections_are_skipped():
    checkpoint = opened("gpt_oss")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if ".experts." not in n}
    for i in range(2):
        for kind in ("blocks", "scales"):
            name = f"model.layers.{i}.mlp.experts.gate_up_proj_{kind}"
            arrays[name] = np.zeros((2, 8), np.uint8)
    config = checkpoint.config | {"quantization_config": {"quant_method": "mxfp4"}}
    found = plan(from_arrays(arrays, config))
    assert len(found.layers) == 2
    assert not found.refused
    assert ("model.layers.*.mlp.experts.gate_up_proj_blocks", "feed-forward") in {
        (s.name, s.reason) for s in found.skipped
    }
    del arrays["model.layers.0.self_attn.q_proj.weight"]
    with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.q_proj\.weight"):
        plan(from_arrays(arrays, config))


# --- small checkpoints in memory -------------------------------------------------------------


def small_llama(layers=2, width=16, heads=4, key_heads=2, **config):
    rng = np.random.default_rng(0)
    head_dim = width // heads
    arrays = {"model.embed_tokens.weight": np.ones((3, width), np.float32)}
    for i in range(layers):
        root = f"model.layers.{i}."
        for name, shape in {
            "self_attn.q_proj.weight": (width, width),
            "self_attn.k_proj.weight": (key_heads * head_dim, width),
            "self_attn.v_proj.weight": (key_heads * head_dim, width),
            "input_layernorm.weight": (width,),
        }.items():
            arrays[root + name] = rng.standard_normal(shape).astype(np.float32)
    full = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 64,
    } | config
    return arrays, {key: value for key, value in full.items() if value is not ...}


BAD_CONFIGS = {
    "layers missing": ({"num_hidden_layers": ...}, CheckpointError, "num_hidden_layers"),
    "layers text": ({"num_hidden_layers": "2"}, CheckpointError, "num_hidden_layers"),
    "more layers": ({"num_hidden_layers": 3}, CheckpointError, "lacks layer 2"),
    "fewer layers": ({"num_hidden_layers": 1}, CheckpointError, "also holds layer 1"),
    "width": ({"hidden_size": 24, "head_dim": 4}, CheckpointError, "layers.0.self_attn.q_proj"),
    "heads": ({"num_attention_heads": 3}, CheckpointError, "num_key_value_heads"),
    "head_dim": (
        {"num_attention_heads": 5, "num_key_value_heads": 5},
        CheckpointError,
        "num_attention_heads must divide hidden_size",
    ),
    "null key heads": ({"num_key_value_heads": None}, CheckpointError, "k_proj.weight must have"),
    "odd head_dim": ({"head_dim": 3}, CheckpointError, "head_dim"),
    # Refused before there is an array of frequencies.
    "vast head_dim": ({"head_dim": 2**31 - 2}, CheckpointError, "head_dim.*at most 65536"),
    "bias": ({"attention_bias": True}, CheckpointError, "q_proj.bias"),
    "bias text": ({"attention_bias": "yes"}, CheckpointError, "attention_bias"),
    "theta": ({"rope_theta": -1.0}, CheckpointError, "rope_theta"),
    "rope": ({"rope_scaling": {"type": "spiral"}}, UnsupportedError, "spiral"),
    "partial": ({"partial_rotary_factor": 0.5}, UnsupportedError, "partial_rotary_factor"),
    "quantised": (
        {"quantization_config": {"quant_method": "gptq"}},
        UnsupportedError,
        "gptq",
    ),
    "family": ({"model_type": "lama"}, UnsupportedError, "lama.*Nearest: .*llama.*families"),
    "nested": (
        {"model_type": "llavish", "text_config": {"model_type": "llama"}},
        UnsupportedError,
        "llavish.*nested in text_config.*families",
    ),
    "no type": ({"model_type": ...}, CheckpointError, "model_type"),
    "class": (
        {"model_type": ..., "architectures": ["MambaForCausalLM"]},
        UnsupportedError,
        "MambaForCausalLM",
    ),
    "sliding": (
        {"model_type": "gemma2", "head_dim": 4, "layer_types": ["full_attention"]},
        CheckpointError,
        "layer_types",
    ),
    "layer type": (
        {"model_type": "gemma2", "head_dim": 4, "layer_types": ["full_attention", "conv"]},
        UnsupportedError,
        "conv",
    ),
    "no window": (
        {"model_type": "gemma2", "head_dim": 4, "sliding_window": None},
        CheckpointError,
        "sliding_window",
    ),
    "soft cap": (
        {"model_type": "gemma2", "head_dim": 4, "attn_logit_softcapping": 0.0},
        CheckpointError,
        "attn_logit_softcapping",
    ),
    "bidirectional": (
        {"model_type": "gemma2", "head_dim": 4, "use_bidirectional_attention": True},
        UnsupportedError,
        "use_bidirectional_attention",
    ),
    "flat rope": (
        {"model_type": "gemma3_text", "head_dim": 4, "rope_parameters": {"rope_type": "default"}},
        CheckpointError,
        "rope_parameters",
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_config_is_one_line_that_names_the_key(name):
    changes, error, words = BAD_CONFIGS[name]
    arrays, config = small_llama(**changes)
    with pytest.raises(error, match=words) as caught:
        plan(from_arrays(arrays, config))
    assert "\n" not in str(caught.value)


STRANGE = [
    None,
    -1,
    0,
    1.5,
    3,
    2**70,
    10**400,
    math.nan,
    math.inf,
    "x",
    [],
    [None],
    {},
    {"a": 1},
    True,
]


def changed(config):
    """The config with each value in turn, at any depth, missing or replaced by a strange one."""
    for key, value in config.items():
        yield {k: v for k, v in config.items() if k != key}
        for strange in STRANGE:
            yield config | {key: strange}
        if isinstance(value, dict):
            for inner in changed(value):
                yield config | {key: inner}


STRANGELY = ["bert", "gemma2", "gpt2", "llama__yarn", "olmo3__yarn", "qwen3"]
STRANGELY += ["gpt_neox", "gpt_oss", "granite", "phi3__longrope", "qwen2_moe", "roberta", "smollm3"]
STRANGELY += ["nemotron", "chameleon", "codegen", "dbrx", "electra__projected", "esm", "falcon"]
STRANGELY += ["gpt_bigcode", "gpt_neo", "modernbert__old_dialect", "opt", "stablelm__qk_layernorm"]
STRANGELY += ["bloom", "dbrx__clip", "deepseek_v2", "deepseek_v3__yarn", "falcon__alibi"]
STRANGELY += ["dots3_note_text", "nllb_moe", "trocr"]
STRANGELY += ["bailing_hybrid", "bamba", "deepseek_v32", "dory", "esmc", "exaone", "hrm_text"]
STRANGELY += ["hy_v4", "hyperclovax", "internlm3", "jamba", "minimax_m3_vl_text", "nemotron_h"]
STRANGELY += ["gpt_neox_japanese", "openai_gpt", "sarvam_mla", "timesfm2_5", "xglm", "zamba2"]
STRANGELY += ["hunyuan_v1_dense", "llama4_text", "minicpm3", "ministral3", "mpt__clip", "nanochat"]
STRANGELY += ["t5", "whisper", "clip", "siglip", "bart"]


@pytest.mark.parametrize("name", STRANGELY)
def test_strange_configs_raise_nothing_but_short_one_line_errors(name):
    checkpoint = opened(name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    messages = []
    for config in changed(checkpoint.config):
        try:
            for layer in plan(from_arrays(arrays, config)).layers:
                next(iter(layer.heads()))
        except DispersionError as error:
            messages.append(str(error))
    assert len(messages) > len(checkpoint.config)
    most = 500 + len(", ".join(supported_model_types()))  # which the refusal of a type lists
    assert not [m for m in messages if "\n" in m or len(m) > most]


def test_a_plain_small_llama_is_read():
    found = plan(from_arrays(*small_llama()))
    assert [layer.module for layer in found.layers] == [
        "model.layers.0.self_attn",
        "model.layers.1.self_attn",
    ]
    assert found.model["qk_norm"] == "none"


def test_an_absent_model_type_falls_back_to_the_class():
    arrays, config = small_llama(model_type=..., architectures=["LlamaForCausalLM"])
    assert plan(from_arrays(arrays, config)).family == "llama"


@pytest.mark.parametrize("prefix", ["", "model.", "language_model.model."])
def test_any_prefix_before_the_layers_is_found(prefix):
    arrays, config = small_llama()
    renamed = {prefix + name.removeprefix("model."): a for name, a in arrays.items()}
    found = plan(from_arrays(renamed, config))
    assert found.layers[0].module == f"{prefix}layers.0.self_attn"
    assert not found.refused
    assert len(list(found.layers[1].heads())) == 4


def test_the_stack_of_the_configs_size_is_read_and_the_other_is_refused():
    arrays, config = small_llama()
    more, _ = small_llama(layers=3)
    arrays |= {"vision." + name.removeprefix("model."): a for name, a in more.items()}
    arrays = {"language." + n if n.startswith("model.") else n: a for n, a in arrays.items()}
    found = plan(from_arrays(arrays, config))
    assert found.layers[0].module == "language.model.layers.0.self_attn"
    assert [r.name for r in found.refused] == ["vision.layers.*.self_attn"]


def test_a_position_table_of_another_length_is_refused():
    arrays = {n: opened("gpt2").read(n) for n in opened("gpt2").names}
    with pytest.raises(CheckpointError, match=r"wpe\.weight"):
        plan(from_arrays(arrays, opened("gpt2").config | {"n_positions": 64}))


def test_a_missing_tensor_is_named():
    arrays, config = small_llama()
    del arrays["model.layers.1.self_attn.k_proj.weight"]
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.self_attn\.k_proj\.weight"):
        plan(from_arrays(arrays, config))


def test_a_file_without_attention_is_refused():
    _, config = small_llama()
    with pytest.raises(CheckpointError, match="Got none"):
        plan(from_arrays({"encoder.weight": np.ones((2, 2))}, config))


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("model.layers.1.self_attn.sinks", "model.layers.1.self_attn"),
        ("model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn"),
        ("model.layers.1.self_attn.q_proj.bias", "model.layers.1.self_attn"),
        ("model.layers.1.self_attn.q_proj.lora_A.weight", "model.layers.1.self_attn"),
        ("model.layers.1.input_layernorm.bias", "model.layers.1.self_attn"),
    ],
)
def test_an_unknown_tensor_that_could_change_attention_refuses_its_layer(extra, module):
    arrays, config = small_llama()
    arrays[extra] = np.ones(4, np.float32)
    found = plan(from_arrays(arrays, config))
    assert [layer.layer for layer in found.layers] == [0]
    assert [(r.name, extra in r.reason) for r in found.refused] == [(module, True)]
    # A layer that nobody asked for is not refused.
    assert not plan(from_arrays(arrays, config), layers=frozenset({0})).refused


def test_other_attention_is_refused_by_name_and_leaves_the_layers_alone():
    arrays, config = small_llama()
    arrays["vision.blocks.0.attn.qkv.weight"] = np.ones((2, 2))
    arrays["vision.blocks.1.attn.qkv.weight"] = np.ones((2, 2))
    arrays["vision.blocks.1.mlp.weight"] = np.ones((2, 2))
    arrays["model.layers.1.cross_attn.q_proj.weight"] = np.ones((2, 2))
    found = plan(from_arrays(arrays, config))
    assert len(found.layers) == 2
    assert {r.name for r in found.refused} == {
        "vision.blocks.*.attn",
        "model.layers.1.cross_attn",
    }
    assert ("vision.blocks.*.mlp.weight", "not part of attention") in {
        (s.name, s.reason) for s in found.skipped
    }


@pytest.mark.parametrize("extra", ["self_attn.q_proj.qweight", "self_attn.q_proj.weight_scale_inv"])
def test_quantised_tensors_are_refused_by_name(extra):
    arrays, config = small_llama()
    arrays[f"model.layers.0.{extra}"] = np.ones((2, 2), np.int32)
    with pytest.raises(UnsupportedError, match=extra):
        plan(from_arrays(arrays, config))


def test_layers_not_asked_for_are_skipped_and_must_exist():
    checkpoint = from_arrays(*small_llama())
    found = plan(checkpoint, layers=frozenset({1}))
    assert [layer.layer for layer in found.layers] == [1]
    reasons = {s.name: s.reason for s in found.skipped}
    assert reasons["model.layers.*.self_attn.q_proj.weight"] == "layer not asked for"
    for wrong in (frozenset({2}), frozenset({-1}), frozenset()):
        with pytest.raises(ArgumentError, match="layers"):
            plan(checkpoint, layers=wrong)


@pytest.mark.parametrize("tensor", ["q_proj", "k_proj"])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_weight_that_is_not_finite_is_named_with_its_index(tmp_path, name, tensor):
    shutil.copytree(DATA / name, tmp_path / name)
    checkpoint = open_checkpoint(tmp_path / name)
    arrays = {n: np.array(checkpoint.read(n)) for n in checkpoint.names}
    arrays[f"model.layers.1.self_attn.{tensor}.weight"][9, 2] = np.nan
    broken = plan(from_arrays(arrays, checkpoint.config))
    with pytest.raises(CheckpointError, match=rf"layers\.1\.self_attn\.{tensor}\.weight.*9, 2"):
        list(broken.layers[1].heads())
    assert len(list(broken.layers[0].heads())) == 4


def test_weights_keep_their_stored_dtype_in_a_qk_norm():
    checkpoint = opened("qwen3")
    arrays = {n: checkpoint.read(n).astype(ml_dtypes.bfloat16) for n in checkpoint.names}
    layer = plan(from_arrays(arrays, checkpoint.config)).layers[0]
    _, _, head = next(iter(layer.heads()))
    assert head.reach.query_norm.weight.dtype == ml_dtypes.bfloat16
    assert head.reach.query_norm.weight.shape == (8, 24)


def test_a_gain_stored_as_the_factor_is_not_shifted_again():
    checkpoint = opened("gemma3_text")
    arrays = {n: np.array(checkpoint.read(n), dtype=np.float64) for n in checkpoint.names}
    shifted = {n: a + 1 if n.endswith("norm.weight") else a for n, a in arrays.items()}
    pair = [
        [head for layer in plan(c).layers for _, _, head in layer.heads()]
        for c in (
            checkpoint,
            from_arrays(shifted, checkpoint.config, gain_is_multiplier=True),
        )
    ]
    for stored, multiplier in zip(*pair, strict=True):
        np.testing.assert_array_equal(stored.query.matrix, multiplier.query.matrix)
        np.testing.assert_array_equal(stored.reach.gain, multiplier.reach.gain)


def test_old_names_and_buffers_are_known():
    bert = opened("bert")
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): bert.read(n)
        for n in bert.names
    }
    found = plan(from_arrays(old, bert.config))
    assert len(found.layers) == 2
    assert not found.refused
    gpt2 = opened("gpt2")
    arrays = {n: gpt2.read(n) for n in gpt2.names}
    arrays["transformer.h.0.attn.bias"] = np.ones((1, 1, 4, 4))
    arrays["transformer.h.0.attn.masked_bias"] = np.array(-1e4)
    found = plan(from_arrays(arrays, gpt2.config))
    assert len(found.layers) == 2
    assert not found.refused


def test_cross_attention_is_refused_and_self_attention_of_a_decoder_is_causal():
    bert = opened("bert")
    arrays = {n: bert.read(n) for n in bert.names}
    arrays["bert.encoder.layer.0.crossattention.self.query.weight"] = np.ones((24, 24))
    found = plan(from_arrays(arrays, bert.config | {"is_decoder": True}))
    assert [r.name for r in found.refused] == ["bert.encoder.layer.*.crossattention"]
    assert "another model" in found.refused[0].reason
    assert len(found.layers) == 2
    assert next(iter(found.layers[0].heads()))[2].causal
    with pytest.raises(UnsupportedError, match="relative_key"):
        plan(from_arrays(arrays, bert.config | {"position_embedding_type": "relative_key"}))


def test_a_bidirectional_gemma3_counts_the_keys_that_every_query_sees():
    checkpoint = opened("gemma3_text")
    config = checkpoint.config | {"use_bidirectional_attention": True}
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    heads = [next(iter(p.heads()))[2] for p in plan(from_arrays(arrays, config)).layers]
    assert [h.window for h in heads] == [4, None]
    assert not any(h.causal for h in heads)


def test_every_module_of_the_package_that_has_a_family_is_registered():
    folder = Path(architectures.__file__).parent
    holding = {p.stem for p in folder.glob("*.py") if "\nFAMILY = " in p.read_text()}
    assert holding == {f.name for f in families()}
    assert supported_model_types() == tuple(sorted(supported_model_types()))
    assert all(f.notes and "\n" not in f.notes for f in families())
    assert len(registry.every_family()) == len({f.name for f in families()})


@pytest.mark.parametrize("value", [1, 3, 4, 24, 64, 80, 96, 128, 168.0, 256])
def test_logit_scales_enclose_the_exact_root(value):
    scale = inverse_root(value)
    # 1/√v lies between a and b where v·a² ≤ 1 ≤ v·b²; integers decide it exactly.
    for end, sign in ((scale.lower, 1), (scale.upper, -1)):
        top, bottom = end.as_integer_ratio()
        assert sign * (int(value) * top * top - bottom * bottom) <= 0
    assert (scale.lower == scale.upper) == (value in (1, 4, 64, 256))
    assert scale.upper - scale.lower <= 8 * np.finfo(float).eps * scale.upper


def test_products_and_quotients_of_scales_are_rounded_outward():
    third = divided(Enclosure.exact(1.0), 3)
    assert third.lower < third.upper
    one = times(third, Enclosure.exact(3.0))
    assert one.lower < 1 < one.upper
    assert times(Enclosure.exact(1.0), third) == third
    assert divided(Enclosure.exact(1.0), 4) == Enclosure.exact(0.25)


@pytest.mark.parametrize(
    "name", ["q_norm.weight", "input_layernorm_2.weight", "k.scale", "ln_q.weight", "rope.freqs"]
)
def test_an_unknown_tensor_that_could_change_logits_refuses_its_layer(name):
    checkpoint = open_checkpoint(DATA / "llama")
    arrays = {each: checkpoint.read(each) for each in checkpoint.names}
    arrays[f"model.layers.0.{name}"] = np.ones(4, np.float32)
    found = plan(from_arrays(arrays, dict(checkpoint.config)))
    assert [each.layer for each in found.layers] == [1]
    assert name in found.refused[0].reason


def test_an_unknown_tensor_of_the_feed_forward_part_is_skipped():
    checkpoint = open_checkpoint(DATA / "llama")
    arrays = {each: checkpoint.read(each) for each in checkpoint.names}
    arrays["model.layers.0.mlp.q_norm.weight"] = np.ones(4, np.float32)
    found = plan(from_arrays(arrays, dict(checkpoint.config)))
    assert not found.refused


@pytest.mark.parametrize("model_type", sorted(REASONS))
def test_a_known_model_type_that_is_not_read_is_refused_with_its_reason(model_type):
    assert model_type not in supported_model_types()
    with pytest.raises(UnsupportedError) as caught:
        plan(from_arrays({}, {"model_type": model_type}))
    message = str(caught.value)
    assert message.startswith(f"model_type '{model_type}' is not supported: {REASONS[model_type]}.")
    assert "\n" not in message
    assert "Nearest" not in message  # which is for names that nobody knows


@pytest.mark.parametrize("value", [5, -1, [], {}])
def test_a_model_type_must_be_a_name(value):
    checkpoint = open_checkpoint(DATA / "llama")
    with pytest.raises(CheckpointError, match=r"model_type in config\.json must be a name"):
        plan(from_arrays({}, {**checkpoint.config, "model_type": value}))
