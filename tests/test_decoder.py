"""The decoders of `architectures/`: defaults, dialects and what is peculiar to each.

Values of defaults.json come from transformers' config classes: tests/golden/defaults.py.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import families, plan
from dispersion.architectures.decoder_reader import Reader
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, DispersionError, UnsupportedError

DATA = Path(__file__).parent / "data"
RECORD = json.loads((DATA / "defaults.json").read_text())
STATED, DEFAULTS = RECORD["stated"], RECORD["defaults"]
# Layers that do not rotate although their config states a base.
REST = ("afmoe", "beam", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "kolibri1")
REST += ("jamba", "lara_mini", "muse_glimmer_text", "muse_spark_text")
FULL, SLIDING = "full_attention", "sliding_attention"


def loaded(name):
    checkpoint = open_checkpoint(DATA / name)
    return {n: checkpoint.read(n) for n in checkpoint.names}, checkpoint.config


def planned(name, changes=None, drop=(), **kwargs):
    """The plan of a golden checkpoint under a changed config."""
    arrays, config = loaded(name)
    changed = {k: v for k, v in (config | (changes or {})).items() if k not in drop}
    return plan(from_arrays(arrays, changed), **kwargs)


def first_heads(found):
    return [next(iter(layer.heads()))[2] for layer in found.layers]


# --- configs that are silent -----------------------------------------------------------------


@pytest.fixture
def reader_of(monkeypatch):
    """What a family makes of a config alone."""
    readers = []

    class Stopped(Exception):
        pass

    def stop(self, *_):
        readers.append(self)
        raise Stopped

    monkeypatch.setattr(Reader, "plan", stop)

    def read(config):
        with pytest.raises(Stopped):
            plan(from_arrays({}, config))
        return readers[-1]

    return read


def expected_frequencies(rope, head_dim):
    share = rope.get("partial_rotary_factor", 1.0)
    if rope.get("rope_type") == "proportional":
        pairs = int(share * head_dim // 2)
        return rope["rope_theta"] ** -(2 * np.arange(pairs) / head_dim)
    turned = int(head_dim * share)
    return rope["rope_theta"] ** -(np.arange(0, turned, 2) / turned)


@pytest.mark.parametrize("model_type", [n for n in DEFAULTS if n != "olmo_hybrid"])
def test_a_silent_config_means_what_its_class_takes(model_type, reader_of):
    expected = DEFAULTS[model_type]
    reader = reader_of({**STATED, "model_type": model_type})
    kinds = [kind.layer_type for kind in reader.kinds]
    assert [s.head_dim for s in reader.sizes] == expected["head_dim"]
    key_heads = expected["key_heads"]
    if model_type == "mimo_v2_flash":  # its modelling code doubles them on sliding layers
        key_heads = [n * (1 + (t == SLIDING)) for n, t in zip(key_heads, kinds, strict=True)]
    assert [s.key_heads for s in reader.sizes] == key_heads
    assert reader.eps == expected["eps"]
    assert reader.bias == expected["bias"]
    if model_type != "falcon_h1":  # it calls its layers hybrid
        assert expected["layer_types"] in (None, kinds)
    slides = [t == SLIDING for t in expected["layer_types"] or kinds]
    assert [k.window for k in reader.kinds] == [expected["window"] if s else None for s in slides]
    for kind, sizes in zip(reader.kinds, reader.sizes, strict=True):
        if not kind.attends:
            continue
        rotary = reader._rotary(kind, sizes.head_dim)
        if not kind.rotates:
            assert model_type in REST
            assert rotary is None
            continue
        rope = expected["rope"].get(kind.layer_type, expected["rope"])
        assert rotary.kind == rope.get("rope_type", "default")
        if rotary.kind in ("default", "proportional"):
            np.testing.assert_allclose(
                rotary.frequencies, expected_frequencies(rope, sizes.head_dim), rtol=1e-13
            )


def test_defaults_are_recorded_for_every_decoder_with_no_others():
    names = {t for f in families() for t in f.model_types}
    assert set(DEFAULTS) <= names


FLAT = ["cohere2_moe", "lara_mini"]
FLAT += ["apertus", "arcee", "bitnet", "cohere2", "diffllama", "dots1", "ernie4_5", "ernie4_5_moe"]
FLAT += ["exaone4", "exaone_moe", "falcon_h1", "flex_olmo", "glm", "glm4", "glm4_moe", "granitemoe"]
FLAT += ["bamba", "internlm3", "iquestcoder", "ministral", "hyperclovax"]
FLAT += ["helium", "hy_v3", "lfm2", "minimax", "minimax_m2", "olmo_hybrid", "qwen3_next"]
FLAT += ["recurrent_gemma", "seed_oss", "solar_open", "vaultgemma", "afmoe", "flint", "kolibri1"]


@pytest.mark.parametrize("name", FLAT)
def test_the_old_dialect_turns_alike(name):
    _, config = loaded(name)
    rope = dict(config["rope_parameters"])
    old = {"rope_theta": rope.pop("rope_theta"), "rope_parameters": None}
    if (share := rope.pop("partial_rotary_factor", None)) is not None:
        old["partial_rotary_factor"] = share
    old["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    for one, other in zip(first_heads(planned(name)), first_heads(planned(name, old)), strict=True):
        assert (one.rotary is None) == (other.rotary is None)
        if one.rotary is not None:
            np.testing.assert_array_equal(one.rotary.frequencies, other.rotary.frequencies)
            np.testing.assert_array_equal(one.rotary.pairs, other.rotary.pairs)
        assert one.scale == other.scale


@pytest.mark.parametrize("name", ["glm", "exaone_moe", "lfm2", "qwen3_next", "gemma4_text"])
@pytest.mark.parametrize("prefix", ["", "model.", "model.language_model."])
def test_any_prefix_is_found(name, prefix):
    arrays, config = loaded(name)
    renamed = {prefix + n.removeprefix("model."): a for n, a in arrays.items()}
    found = plan(from_arrays(renamed, config))
    assert not found.refused
    assert found.layers[0].module.startswith(f"{prefix}layers.")


# --- what is peculiar ------------------------------------------------------------------------


def test_full_layers_beside_sliding_ones_do_not_rotate():
    for name in ("afmoe", "cohere2", "exaone4", "exaone_moe", "flint", "kolibri1"):
        heads = first_heads(planned(name))
        assert [(h.window, h.rotary is None) for h in heads] == [(6, False), (None, True)], name
    heads = first_heads(planned("exaone4__no_window"))
    assert [(h.window, h.rotary is None) for h in heads] == [(None, False)] * 2
    pattern = {"sliding_window_pattern": 1, "layer_types": None}
    assert all(h.rotary is None for h in first_heads(planned("cohere2", pattern)))
    with pytest.raises(CheckpointError, match="sliding_window_pattern"):
        planned("exaone4", {"sliding_window_pattern": "LLLG", "layer_types": None})


@pytest.mark.parametrize("name", ["glm", "glm4", "cohere2", "ernie4_5", "ernie4_5_moe", "helium"])
def test_neighbouring_coordinates_turn_together(name):
    rotary = first_heads(planned(name))[0].rotary
    turned = 4 if name.startswith("glm") else 8
    assert rotary.pairs.tolist() == [[i, i + 1] for i in range(0, turned, 2)]


def test_a_qk_norm_is_there_only_where_the_config_says_so():
    assert first_heads(planned("glm4_moe__qk_norm"))[0].cap == "headwise QK norm"
    assert first_heads(planned("glm4_moe"))[0].cap == "input RMSNorm"
    assert planned("glm4_moe__qk_norm", {"use_qk_norm": False}).layers == ()


def test_bases_by_layer():
    heads = first_heads(planned("granite_swa"))
    np.testing.assert_allclose(heads[0].rotary.frequencies, 300.0 ** -(np.arange(4) / 4))
    assert heads[1].rotary is None
    heads = first_heads(planned("granitemoe_swa"))
    for head, theta in zip(heads, (5000.0, 300.0), strict=True):
        np.testing.assert_allclose(head.rotary.frequencies, theta ** -(np.arange(4) / 4))
    # Muse Spark's list only says which layers rotate.
    heads = first_heads(planned("muse_spark_text", {"layer_rope_theta": [7.0, 0]}))
    np.testing.assert_allclose(heads[0].rotary.frequencies, 5000.0 ** -(np.arange(4) / 4))
    assert heads[1].rotary is None
    for wrong in ([1.0], "x", [1.0, -2.0]):
        with pytest.raises(CheckpointError, match="layer_rope_theta"):
            planned("granite_swa", {"layer_rope_theta": wrong})


def test_sinks_have_the_name_of_the_file():
    for name, tensor in (
        ("granite_swa", "sinks"),
        ("flint", "softmax_offset"),
        ("openai_privacy_filter", "sinks"),
    ):
        arrays, _ = loaded(name)
        found = planned(name)
        for layer in found.layers:
            stored = arrays[f"{layer.module}.{tensor}"]
            np.testing.assert_array_equal([h.sink for _, _, h in layer.heads()], stored)
        assert [layer.embedding for layer in found.layers] == [None, None]


def test_sliding_layers_of_mimo_have_sinks_and_twice_the_key_heads():
    found = planned("mimo_v2_flash")
    assert [layer.key_heads for layer in found.layers] == [2, 1]
    assert [h.sink is None for h in first_heads(found)] == [False, True]
    with pytest.raises(UnsupportedError, match=r"rope_theta.*5000000.*Got 1e\+?0?6|1000000"):
        planned("mimo_v2_flash", {"rope_theta": 1000000.0}, drop=("rope_parameters",))
    flat = {"rope_theta": 5000000, "swa_rope_theta": 10000, "sliding_window_size": 4}
    flat |= {"head_dim": 8, "partial_rotary_factor": 0.334}
    heads = first_heads(planned("mimo_v2_flash", flat, drop=("rope_parameters",)))
    assert [h.rotary.frequencies.tolist() for h in heads] == [[1.0], [1.0]]
    assert [h.window for h in heads] == [5, None]


def test_a_scaled_rotation_of_mimo_turns_the_whole_head_where_it_states_no_share():
    plain = {"rope_type": "default", "rope_theta": 1234.5, "partial_rotary_factor": 0.5}
    linear = {"rope_type": "linear", "rope_theta": 1234.5, "factor": 4.0}
    rope = {"sliding_attention": linear, "full_attention": plain}
    heads = first_heads(planned("mimo_v2_flash", {"rope_parameters": rope}))
    assert [len(h.rotary.frequencies) for h in heads] == [4, 2]
    rope["sliding_attention"] = linear | {"partial_rotary_factor": 0.25}
    heads = first_heads(planned("mimo_v2_flash", {"rope_parameters": rope}))
    assert [len(h.rotary.frequencies) for h in heads] == [1, 2]


@pytest.mark.parametrize("name", ["gemma4_text", "lfm3"])
def test_a_share_of_the_head_that_the_code_of_a_family_ignores_is_refused(name):
    _, config = loaded(name)
    full = {"rope_type": "default", "rope_theta": 50000.0, "partial_rotary_factor": 0.5}
    rope = config["rope_parameters"] | {"full_attention": full}
    with pytest.raises(UnsupportedError, match="partial_rotary_factor in config"):
        planned(name, {"rope_parameters": rope})
    full["rope_type"] = "proportional"
    heads = first_heads(planned(name, {"rope_parameters": rope}))
    assert [h.rotary.unrotated.size > 0 for h in heads] == [False, True]


def test_bases_that_versions_of_the_code_read_differently_are_refused():
    with pytest.raises(UnsupportedError, match="must be 500000 for olmo3"):
        planned("olmo3", {"rope_theta": 777.0}, drop=("rope_parameters",))
    planned("olmo3", {"rope_theta": 777.0})  # every layer type states its own
    planned("olmo3", {"rope_theta": 500000.0}, drop=("rope_parameters",))
    scaled = {"rope_theta": 777.0, "rope_scaling": {"type": "linear", "factor": 3.0}}
    for name in ("gemma3_text", "gemma3n_text", "olmo3"):
        with pytest.raises(UnsupportedError, match=r"rope_type|rope_theta"):
            planned(name, scaled, drop=("rope_parameters",))
    for key in ("rope_theta", "rope_scaling"):
        with pytest.raises(UnsupportedError, match=key):
            planned("muse_spark_text", {key: scaled[key]}, drop=("rope_parameters",))


def test_a_base_and_a_scaling_beside_rope_parameters_count_for_muse_glimmer():
    beside = {"rope_theta": 81.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    rotary = first_heads(planned("muse_glimmer_text", beside, drop=("rope_parameters",)))[0].rotary
    size = len(rotary.frequencies)
    np.testing.assert_allclose(rotary.frequencies, 81.0 ** -(np.arange(size) / size) / 2)


def test_a_layer_type_of_gemma3_without_a_base_takes_that_beside_the_layer_types():
    rope = {SLIDING: {"rope_type": "default"}, "full_attention": {"rope_type": "default"}}
    beside = {"rope_parameters": rope, "rope_theta": 81.0, "rope_local_base_freq": 16.0}
    heads = first_heads(planned("gemma3_text", beside))
    found = [h.rotary.frequencies[1] for h in heads]
    assert found == pytest.approx([16.0**-0.25, 81.0**-0.25])


def test_recurrent_gemma_reads_its_head_dim():
    assert first_heads(planned("recurrent_gemma", {"head_dim": 8}))[0].query.head_dim == 8
    with pytest.raises(CheckpointError, match=r"q_proj.weight must have shape \(16, 32\)"):
        planned("recurrent_gemma", {"head_dim": 4})


def test_layers_of_laguna_differ_in_their_heads():
    found = planned("laguna")
    assert [layer.query_heads for layer in found.layers] == [2, 4]
    assert [len(list(layer.heads())) for layer in found.layers] == [2, 4]
    for wrong in ([2], [2, 3], "x", [0, 4]):
        with pytest.raises(CheckpointError, match="num_attention_heads_per_layer"):
            planned("laguna", {"num_attention_heads_per_layer": wrong})


def test_full_layers_of_gemma4_have_larger_heads_in_both_dialects():
    arrays, config = loaded("gemma4_text")
    assert [layer.head_dim for layer in planned("gemma4_text").layers] == [8, 16]
    hub = {"global_head_dim": 16, "num_global_key_value_heads": 1, "attention_k_eq_v": True}
    found = planned("gemma4_text", hub, drop=("per_layer_config",))
    assert [(layer.head_dim, layer.key_heads) for layer in found.layers] == [(8, 2), (16, 1)]
    new = {"per_layer_config": {"1": {"head_dim": 16, "num_key_value_heads": 1}}}
    found = planned("gemma4_text", new, drop=tuple(hub))
    assert [(layer.head_dim, layer.key_heads) for layer in found.layers] == [(8, 2), (16, 1)]
    assert first_heads(found)[0].scale.upper == 1.0
    for wrong in ({"1": {"sliding_window": 4}}, {"1": 3}, 3):
        with pytest.raises(UnsupportedError, match="per_layer_config"):
            plan(from_arrays(arrays, config | {"per_layer_config": wrong}))
    with pytest.raises(UnsupportedError, match="use_bidirectional_attention"):
        planned("gemma4_text", {"use_bidirectional_attention": "all"})
    # The last layer is full whatever the config lists.
    found = planned("gemma4_text", {"layer_types": [SLIDING, SLIDING]})
    assert [h.window for h in first_heads(found)] == [6, None]


def test_factors_of_falcon_h1_are_in_the_scale_and_the_states():
    found = planned("falcon_h1")
    head = first_heads(found)[0]
    assert head.scale.upper == pytest.approx(8**-0.5 * 0.375 * 1.5**2, rel=1e-14)
    assert head.reach.radius == pytest.approx(math.sqrt(24) * 1.5)
    assert 5.0 in found.layers[0].embedding.scale
    with pytest.raises(CheckpointError, match="key_multiplier"):
        planned("falcon_h1", {"key_multiplier": -1.0})
    with pytest.raises(UnsupportedError, match="attention_in_multiplier"):
        planned("falcon_h1", {"attention_bias": True})


@pytest.mark.parametrize("name", ["gemma4_text", "laguna", "lfm3", "mimo_v2_flash"])
def test_a_rotation_by_layer_type_states_its_base(name):
    _, config = loaded(name)
    rope = config["rope_parameters"]
    bare = {"rope_type": "default", "partial_rotary_factor": 0.5}
    for wrong in (rope | {SLIDING: bare}, rope | {SLIDING: None}, bare):
        with pytest.raises(CheckpointError, match="rope_theta under sliding_attention"):
            planned(name, {"rope_parameters": wrong, "rope_theta": 500.0})


def test_a_gate_inside_the_query_projection_is_left_out():
    arrays, _ = loaded("qwen3_next")
    found = planned("qwen3_next")
    weight = arrays["model.layers.1.self_attn.q_proj.weight"]
    for index, _, head in found.layers[0].heads():
        rows = weight[16 * index : 16 * index + 8]
        np.testing.assert_array_equal(head.reach.query_norm.weight, rows)


def test_both_sides_of_a_window_are_counted_once():
    heads = first_heads(planned("openai_privacy_filter"))
    assert [(h.window, h.causal) for h in heads] == [(7, False)] * 2


def test_the_share_of_a_head_that_turns_may_be_stated_as_a_size():
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    heads = first_heads(planned("minimax_m2", {"rope_parameters": rope, "rotary_dim": 4}))
    assert heads[0].rotary.pairs.tolist() == [[0, 2], [1, 3]]
    both = {"rotary_dim": 2, "partial_rotary_factor": 0.5, "rope_parameters": rope}
    assert len(first_heads(planned("minimax_m2", both))[0].rotary.pairs) == 2
    heads = first_heads(planned("minimax_m2", {"rope_parameters": rope}))
    assert len(heads[0].rotary.pairs) == 4


@pytest.mark.parametrize("name", ["glm", "deepseek_v3", "internlm2", "gpt2", "zaya", "pegasus"])
@pytest.mark.parametrize("value", [False, None, 0])
def test_a_decoder_that_sees_both_ways_is_refused(name, value):
    assert planned(name, {"is_causal": True}).layers
    with pytest.raises(UnsupportedError, match="is_causal"):
        planned(name, {"is_causal": value})


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_an_encoder_may_say_that_it_sees_both_ways(name):
    assert planned(name, {"is_causal": False}).layers


# --- layers without softmax attention --------------------------------------------------------

HYBRIDS = {
    "granitemoehybrid": "mamba",
    "lfm2": "conv",
    "lfm3": "conv",
    "minimax": "self_attn",
    "olmo_hybrid": "linear_attn",
    "qwen3_next": "linear_attn",
    "qwen3_5_text": "linear_attn",
    "recurrent_gemma": "temporal_block",
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_without_softmax_attention_are_skipped_with_a_reason(name):
    found = planned(name)
    assert 0 not in [layer.layer for layer in found.layers]
    assert not found.refused
    reasons = {s.reason for s in found.skipped if f".{HYBRIDS[name]}." in s.name}
    assert "layer without softmax attention" in reasons
    with pytest.raises(ArgumentError, match="softmax"):
        planned(name, layers=frozenset({0}))
    every = frozenset(range(2 + (name == "lfm3")))
    assert len(planned(name, layers=every).layers) == len(found.layers)


@pytest.mark.parametrize("name", ["lfm2", "minimax", "olmo_hybrid", "qwen3_next"])
def test_a_model_that_attends_nowhere_is_refused(name):
    other = "conv" if name == "lfm2" else "linear_attention"
    with pytest.raises(CheckpointError, match="softmax attention"):
        planned(name, {"layer_types": [other, other]})


def test_queries_in_a_layer_that_should_have_none_refuse_it():
    arrays, config = loaded("qwen3_next")
    arrays["model.layers.0.self_attn.q_proj.weight"] = np.ones((48, 24), np.float32)
    found = plan(from_arrays(arrays, config))
    assert [r.name for r in found.refused] == ["model.layers.0.self_attn"]
    assert "config.json" in found.refused[0].reason


def test_mixed_layers_in_other_dialects():
    old = {"layers_block_type": ["mamba", "attention"], "layer_types": None}
    assert [x.layer for x in planned("granitemoehybrid", old).layers] == [1]
    rope = {**old, "position_embedding_type": "rope"}
    assert first_heads(planned("granitemoehybrid", rope))[0].rotary is not None
    assert first_heads(planned("granitemoehybrid", old))[0].rotary is None
    indices = {"full_attn_idxs": [1], "layer_types": None}
    assert [x.layer for x in planned("lfm2", indices).layers] == [1]
    interval = {"full_attention_interval": 2, "layer_types": None}
    assert [x.layer for x in planned("qwen3_next", interval).layers] == [1]
    blocks = {"block_types": ["attention", "recurrent"]}
    with pytest.raises(CheckpointError, match=r"layers\.0\.temporal_block\.q_proj"):
        planned("recurrent_gemma", blocks)
    for wrong in ({"layer_types": ["conv"]}, {"layer_types": "x"}):
        with pytest.raises(CheckpointError, match="layer_types"):
            planned("lfm2", wrong)
    with pytest.raises(UnsupportedError, match="sliding_attention"):
        planned("lfm2", {"layer_types": ["conv", "sliding_attention"]})


def test_olmo_hybrid_says_whether_it_turns():
    assert first_heads(planned("olmo_hybrid"))[0].rotary is not None
    assert first_heads(planned("olmo_hybrid__no_rope"))[0].rotary is None
    for silent in (None, {}):
        with pytest.raises(UnsupportedError, match="rope_parameters"):
            planned("olmo_hybrid", {"rope_parameters": silent})


# --- what stands beside the layers -----------------------------------------------------------


def test_draft_layers_are_skipped_and_other_surplus_is_not():
    arrays, config = loaded("glm4_moe")
    more = {n.replace("layers.1.", "layers.2."): a for n, a in arrays.items() if "layers.1." in n}
    with pytest.raises(CheckpointError, match="also holds layer 2"):
        plan(from_arrays(arrays | more, config))
    more["model.layers.2.eh_proj.weight"] = np.ones((24, 48), np.float32)
    found = plan(from_arrays(arrays | more, config))
    assert len(found.layers) == 2
    assert not found.refused
    drafts = [s for s in found.skipped if s.reason == "draft layer for multi-token prediction"]
    assert sum(s.count for s in drafts) == len(more)


@pytest.mark.parametrize("stack", ["mtp.layers.0.self_attn", "model.mtp.layers.0.self_attn"])
def test_draft_stacks_are_skipped(stack):
    arrays, config = loaded("qwen3_next")
    arrays[f"{stack}.q_proj.weight"] = np.ones((4, 4), np.float32)
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    assert found.layers[0].module == "model.layers.1.self_attn"


NESTED = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text"}


@pytest.mark.parametrize("outer", NESTED)
@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_a_language_model_beside_a_tower_is_read(outer, prefix):
    arrays, config = loaded(NESTED[outer])
    renamed = {prefix + n.removeprefix("model."): a for n, a in arrays.items()}
    # As many layers as the language model has must not mislead.
    for i in range(2):
        tower = f"model.vision_tower.vision_model.encoder.layers.{i}.self_attn"
        renamed[f"{tower}.q_proj.weight"] = np.ones((4, 4), np.float32)
    nested = {"model_type": outer, "text_config": config, "vision_config": {}}
    found = plan(from_arrays(renamed, nested))
    assert found.model["model_type"] == outer
    assert not found.refused
    assert [x.module for x in found.layers] == [f"{prefix}layers.{i}.self_attn" for i in range(2)]
    assert any("tower" in s.reason and s.count == 2 for s in found.skipped)
    alone = plan(from_arrays(arrays, config))
    for one, other in zip(first_heads(found), first_heads(alone), strict=True):
        np.testing.assert_array_equal(one.query.matrix, other.query.matrix)
    with pytest.raises(CheckpointError, match="text_config"):
        plan(from_arrays(renamed, nested | {"text_config": 3}))
    packed = config | {"quantization_config": {"quant_method": "gptq"}}
    with pytest.raises(UnsupportedError, match="gptq"):
        plan(from_arrays(renamed, nested | {"text_config": packed}))


def test_a_nested_config_may_leave_out_what_its_class_takes():
    arrays, config = loaded("gemma3_text")
    silent = {k: v for k, v in config.items() if k != "num_attention_heads"}
    with pytest.raises(CheckpointError, match=r"q_proj\.weight must have shape \(64"):
        plan(from_arrays(arrays, silent))


# --- hostile configs -------------------------------------------------------------------------

STRANGE = [None, -1, 0, 1.5, 3, 2**70, math.nan, math.inf, "x", [], [None], {}, {"a": 1}, True]
STRANGELY = ["cohere2", "exaone4", "falcon_h1", "gemma3", "gemma4_text", "glm4_moe", "granite_swa"]
STRANGELY += ["granitemoehybrid", "laguna", "lfm2", "lfm3", "mimo_v2_flash", "minimax_m2"]
STRANGELY += ["muse_spark_text", "olmo_hybrid", "qwen3_next", "recurrent_gemma"]


def changed(config):
    for key, value in config.items():
        yield {k: v for k, v in config.items() if k != key}
        for strange in STRANGE:
            yield config | {key: strange}
        if isinstance(value, dict):
            for inner in changed(value):
                yield config | {key: inner}


@pytest.mark.parametrize("name", STRANGELY)
def test_strange_configs_raise_nothing_but_short_one_line_errors(name):
    arrays, config = loaded(name)
    messages = []
    for strange in changed(config):
        try:
            for layer in plan(from_arrays(arrays, strange)).layers:
                next(iter(layer.heads()))
        except DispersionError as error:
            messages.append(str(error))
    assert len(messages) > len(config) / 2
    assert not [m for m in messages if "\n" in m or len(m) > 500]


def test_a_scaling_that_the_code_of_a_model_does_not_apply_is_refused():
    """Cohere 2 with experts reads `rope_parameters`, and `rope_theta`, and nothing else."""
    planned("cohere2_moe", {"rope_scaling": None, "rope_theta": 777.0}, drop=("rope_parameters",))
    for kind in ("linear", "longrope"):
        with pytest.raises(UnsupportedError, match="rope_scaling"):
            planned("cohere2_moe", {"rope_scaling": {"rope_type": kind, "factor": 2.0}})
