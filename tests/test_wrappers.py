"""Language models beside towers, under the names by which real classes save them.

wrapped.json says of each model_type what stands in front of its language model's names, and what
other names begin with: tests/golden/wrapped.py. The weights are those of golden checkpoints.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import families, plan, supported_model_types
from dispersion.architectures.text_sizes import SIZES
from dispersion.architectures.towers import TOWER
from dispersion.architectures.wrappers import WRAPPERS
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, DispersionError, UnsupportedError
from dispersion.head import Head
from dispersion.picked import PickedHead

DATA = Path(__file__).parent / "data"
RECORD = json.loads((DATA / "wrapped.json").read_text())
SAVED = RECORD["wrapped"]
EMBEDDINGS = ("embed_tokens.weight", "embeddings.tok_embeddings.weight", "wte.embedding")
# Their towers come from libraries that make no tiny ones, their defaults cannot be built, or their
# code is elsewhere. Inkling's files name all parts otherwise than a language model alone; their
# names are tested with it.
NOT_BUILT = {"gemma3n", "internvl_chat", "perception_lm", "qwen3_omni_moe"}
NOT_BUILT |= {"inkling2", "inkling_mm_model"}


def stem_of(names):
    (stem,) = {n.removesuffix(e) for n in names for e in EMBEDDINGS if n.endswith(e)}
    return stem


def language(golden):
    """Arrays of a golden checkpoint's language model by their names within it, and its config."""
    checkpoint = open_checkpoint(DATA / golden)
    stem = stem_of(checkpoint.names)
    config = checkpoint.config
    mixed = stem == "model." and {"vision_config", "audio_config"} & set(config)
    parts = ["layers.", "embed_tokens.", "norm."] if mixed else [""]
    own = [n for n in checkpoint.names if n.startswith(tuple(stem + part for part in parts))]
    text = config.get("text_config", config)
    return {n.removeprefix(stem): checkpoint.read(n) for n in own}, text


def wrapped(model_type, stem=None, /, **changes):
    """A file of this model_type with a golden checkpoint's language model, and its config."""
    saved = SAVED[model_type]
    inner, text = language(saved["golden"])
    stem = saved["stem"] if stem is None else stem
    arrays = {stem + name: array for name, array in inner.items()}
    for name in saved["beside"]:
        arrays[name.replace("*", "0")] = np.ones((2, 2), np.float32)
    config = text | {"model_type": WRAPPERS[model_type].inner} | changes
    for key in reversed(WRAPPERS[model_type].keys):
        config = {key: config}
    return arrays, config | {"model_type": model_type}


def heads(found):
    return [head for layer in found.layers for _, _, head in layer.heads()]


def same(one, other):
    for a, b in zip(heads(one), heads(other), strict=True):
        np.testing.assert_array_equal(a.query.matrix, b.query.matrix)
        np.testing.assert_array_equal(a.key.matrix, b.key.matrix)
        assert (a.scale, a.window, a.soft_cap) == (b.scale, b.window, b.soft_cap)
        assert (a.rotary is None) == (b.rotary is None)
        if a.rotary is not None:
            np.testing.assert_array_equal(a.rotary.frequencies, b.rotary.frequencies)
            np.testing.assert_array_equal(a.rotary.pairs, b.rotary.pairs)
    assert len(one.layers) == len(other.layers)


@pytest.mark.parametrize("model_type", SAVED)
def test_the_language_model_of_a_real_file_is_read_and_nothing_else(model_type):
    arrays, config = wrapped(model_type)
    found = plan(from_arrays(arrays, config))
    same(found, plan(open_checkpoint(DATA / SAVED[model_type]["golden"])))
    assert found.model["model_type"] == model_type
    assert not found.refused
    used = {name for layer in found.layers for name in layer.tensors}
    assert len(used) + sum(s.count for s in found.skipped) == len(arrays)
    towers = [s for s in found.skipped if s.reason == TOWER]
    assert sum(s.count for s in towers) == sum(
        "lm_head" not in n for n in SAVED[model_type]["beside"]
    )
    assert not any(s.name.startswith(SAVED[model_type]["stem"] + "layers") for s in towers)


def test_every_wrapper_that_can_be_built_is_recorded():
    assert set(SAVED) | NOT_BUILT == set(WRAPPERS)
    assert not set(SAVED) & NOT_BUILT
    assert set(WRAPPERS) <= set(supported_model_types())


def test_sizes_of_silent_configs_are_those_of_their_classes():
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    assert {name: dict(zip(keys, s, strict=True)) for name, s in RECORD["sizes"].items()} == SIZES
    known = {name for family in families() for name in family.model_types}
    assert set(SIZES) <= known
    assert {w.inner for w in WRAPPERS.values()} <= set(SIZES)


# --- how files and configs are spelled ---------------------------------------------------------

SPELLED = [
    ("mistral3", "model.language_model."),
    ("mistral3", "language_model."),
    ("llava", "model.language_model."),
    ("idefics3", "text_model."),
    ("qwen2_vl", "model.language_model."),
    ("qwen2_vl", "language_model."),
    ("qwen2_vl", ""),
    ("qwen2_5_vl", "model.language_model."),
    ("qwen3_omni_moe_thinker", "thinker.model."),
    ("qwen2_5_omni_thinker", "model.language_model."),
    ("ernie4_5_vl_moe", "model.language_model."),
    ("mllama", "model.language_model."),
]


@pytest.mark.parametrize(("model_type", "stem"), SPELLED)
def test_files_of_other_versions_are_read_alike(model_type, stem):
    golden = plan(open_checkpoint(DATA / SAVED[model_type]["golden"]))
    found = plan(from_arrays(*wrapped(model_type, stem)))
    same(found, golden)
    assert not found.refused
    assert all(layer.module.startswith(f"{stem}layers.") for layer in found.layers)


@pytest.mark.parametrize(
    ("model_type", "other"),
    [
        ("mistral3", "model.language_model.layers.1.self_attn.q_proj.weight"),
        ("mistral3", "language_model.layers.1.self_attn.q_proj.weight"),
        ("qwen2_vl", "model.language_model.layers.0.self_attn.q_proj.weight"),
        ("qwen2_vl", "layers.0.self_attn.q_proj.weight"),
        ("qwen2_5_omni", "model.layers.0.self_attn.q_proj.weight"),
    ],
)
def test_names_of_two_versions_in_one_file_are_refused(model_type, other):
    arrays, config = wrapped(model_type)
    arrays[other] = np.ones((2, 2), np.float32)
    with pytest.raises(CheckpointError, match="must be named alike"):
        plan(from_arrays(arrays, config))


def test_a_file_without_a_language_model_is_refused():
    arrays, config = wrapped("llava")
    towers = {n: a for n, a in arrays.items() if not n.startswith("language_model")}
    with pytest.raises(CheckpointError, match=r"begin with one of model\.language_model\..*none"):
        plan(from_arrays(towers, config))


def test_other_attention_beside_a_language_model_is_refused_by_name():
    arrays, config = wrapped("llava")
    arrays["speech.blocks.3.attn.qkv.weight"] = np.ones((2, 2), np.float32)
    arrays["speech.blocks.3.mlp.weight"] = np.ones((2, 2), np.float32)
    found = plan(from_arrays(arrays, config))
    assert [r.name for r in found.refused] == ["speech.blocks.*.attn"]
    assert ("speech.blocks.*.mlp.weight", "not part of attention") in {
        (s.name, s.reason) for s in found.skipped
    }
    same(found, plan(open_checkpoint(DATA / "llama")))


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
@pytest.mark.parametrize("nested", [True, False])
def test_keys_of_the_language_model_may_stand_beside_those_of_towers(model_type, nested):
    arrays, config = wrapped(model_type)
    _, text = language("qwen2_vl")
    assert text["rope_scaling"]["type"] == "mrope"
    if not nested:
        config = text | {"model_type": model_type, "vision_config": {"hidden_size": 3}}
    same(plan(from_arrays(arrays, config)), plan(open_checkpoint(DATA / "qwen2_vl")))


def test_the_inner_config_of_most_models_must_be_an_object():
    arrays, config = wrapped("llava")
    for broken in (None, 3, [], "llama"):
        with pytest.raises(CheckpointError, match=r"text_config in config\.json must be an object"):
            plan(from_arrays(arrays, config | {"text_config": broken}))
    arrays, config = wrapped("qwen2_5_omni")
    with pytest.raises(CheckpointError, match=r"thinker_config\.text_config in"):
        plan(from_arrays(arrays, config | {"thinker_config": {"text_config": 3}}))
    with pytest.raises(CheckpointError, match=r"thinker_config in config\.json"):
        plan(from_arrays(arrays, config | {"thinker_config": 3}))


# --- which language model ------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["qwen3", "mistral", "gemma2", "granite", "gemma3_text", "opt"])
@pytest.mark.parametrize("outer", ["llava", "internvl", "aya_vision"])
def test_any_supported_language_model_may_be_inside(outer, inner):
    checkpoint = open_checkpoint(DATA / inner)
    stem = f"language_model.{stem_of(checkpoint.names)}"
    own = stem_of(checkpoint.names)
    arrays = {
        stem + n.removeprefix(own): checkpoint.read(n)
        for n in checkpoint.names
        if n.startswith(own)
    }
    config = {"model_type": outer, "text_config": checkpoint.config}
    found = plan(from_arrays(arrays, config))
    same(found, plan(checkpoint))
    assert found.model["model_type"] == outer


@pytest.mark.parametrize("inner", ["mamba", "llava", "lama", "clip_vision"])
def test_a_language_model_that_is_not_supported_is_refused_by_name(inner):
    arrays, config = wrapped("llava", model_type=inner)
    with pytest.raises(UnsupportedError, match=f"'{inner}', the language model of llava, is not"):
        plan(from_arrays(arrays, config))


def test_the_name_of_a_language_model_must_be_one():
    arrays, config = wrapped("llava", model_type=3)
    with pytest.raises(CheckpointError, match="model_type of text_config"):
        plan(from_arrays(arrays, config))


def test_a_name_that_its_class_ignores_is_ignored_and_older_names_are_known():
    same(
        plan(from_arrays(*wrapped("qwen3_vl", model_type="qwen3_vl"))),
        plan(open_checkpoint(DATA / "qwen3_vl")),
    )
    for outer, older in (("exaone4_5", "exaone4_5_text"), ("kimi_k25", "kimi_k2")):
        golden = plan(open_checkpoint(DATA / SAVED[outer]["golden"]))
        same(plan(from_arrays(*wrapped(outer, model_type=older))), golden)


@pytest.mark.parametrize("inner", ["llama", "qwen2"])
def test_the_class_of_the_language_model_decides_in_older_internvl(inner):
    checkpoint = open_checkpoint(DATA / inner)
    arrays = {f"language_model.{n}": checkpoint.read(n) for n in checkpoint.names}
    arrays["vision_model.encoder.layers.0.attn.qkv.weight"] = np.ones((2, 2), np.float32)
    arrays["mlp1.1.weight"] = np.ones((2, 2), np.float32)
    config = {"model_type": "internvl_chat", "llm_config": checkpoint.config}
    found = plan(from_arrays(arrays, config))
    same(found, plan(checkpoint))
    assert not found.refused
    for classes in (["InternLM2ForCausalLM"], ["MixtralForCausalLM"], [], None, [3], "Llama"):
        text = checkpoint.config | {"architectures": classes}
        with pytest.raises(UnsupportedError, match=r"architectures of llm_config in config\.json"):
            plan(from_arrays(arrays, config | {"llm_config": text}))


def test_a_silent_config_is_that_of_its_class():
    """Files of LLaVA 1.5 state no sizes of their Llama, which are those of its class."""
    arrays, config = wrapped("llava")
    text = {"model_type": "llama", "rms_norm_eps": 1e-5, "vocab_size": 32064}
    with pytest.raises(CheckpointError, match="num_hidden_layers=32, but the file lacks layer 2"):
        plan(from_arrays(arrays, config | {"text_config": text}))
    with pytest.raises(CheckpointError, match=r"q_proj\.weight must have shape \(4096, 4096\)"):
        plan(from_arrays(arrays, config | {"text_config": text | {"num_hidden_layers": 2}}))


def test_defaults_of_a_wrapper_overrule_those_of_the_class():
    arrays, config = wrapped("voxtral")
    text = {k: v for k, v in config["text_config"].items() if k not in ("head_dim", "rope_theta")}
    del text["rope_parameters"]
    with pytest.raises(CheckpointError, match=rf"q_proj\.weight must have shape \({128 * 4}, "):
        plan(from_arrays(arrays, config | {"text_config": text}))
    found = plan(from_arrays(arrays, config | {"text_config": text | {"head_dim": 8}}))
    np.testing.assert_allclose(heads(found)[0].rotary.frequencies[1], 1e8**-0.25, rtol=1e-14)


def test_tokens_of_a_prompt_of_paligemma_see_each_other_both_ways():
    arrays, config = wrapped("paligemma")
    found = plan(from_arrays(arrays, config))
    assert {head.causal for head in heads(found)} == {False}
    assert {head.causal for head in heads(plan(open_checkpoint(DATA / "gemma")))} == {True}
    assert {head.causal for head in heads(plan(from_arrays(*wrapped("llava"))))} == {True}


@pytest.mark.parametrize("said", [{}, {"use_bidirectional_attention": True}])
def test_layers_with_a_window_are_refused_where_a_prompt_sees_beyond_it(said):
    checkpoint = open_checkpoint(DATA / "gemma2")
    arrays = {
        n.replace("model.", "language_model.model."): checkpoint.read(n) for n in checkpoint.names
    }
    config = {"model_type": "paligemma", "text_config": checkpoint.config | said}
    found = plan(from_arrays(arrays, config))
    assert [(r.name, "beyond the window" in r.reason) for r in found.refused] == [
        ("language_model.model.layers.0.self_attn", True)
    ]
    assert [(h.window, h.causal) for h in heads(found)] == [(None, False)] * 4


def test_draft_layers_beside_a_language_model_are_skipped():
    for model_type in ("qwen3_5", "qwen2_vl"):
        arrays, config = wrapped(model_type)
        arrays["mtp.layers.0.self_attn.q_proj.weight"] = np.ones((2, 2), np.float32)
        found = plan(from_arrays(arrays, config))
        assert not found.refused
        assert (
            "mtp.layers.*.self_attn.q_proj.weight",
            "draft layer for multi-token prediction",
        ) in {(s.name, s.reason) for s in found.skipped}


def test_a_method_that_only_the_inner_config_states_is_that_of_the_file():
    arrays, config = wrapped("kimi_k25", quantization_config={"quant_method": "compressed-tensors"})
    golden = SAVED["kimi_k25"]["golden"]
    name = "language_model.model.layers.1.mlp.down_proj.weight"
    del arrays[name]
    arrays[f"{name}_packed"] = np.ones((2, 2), np.int32)
    found = plan(from_arrays(arrays, config))
    same(found, plan(open_checkpoint(DATA / golden)))
    del config["text_config"]["quantization_config"]
    with pytest.raises(UnsupportedError, match="weight_packed belongs to quantised weights"):
        plan(from_arrays(arrays, config))


def test_an_encoder_and_a_decoder_may_be_inside():
    checkpoint = open_checkpoint(DATA / "t5__decoder")
    arrays = {f"language_model.{n}": checkpoint.read(n) for n in checkpoint.names}
    found = plan(from_arrays(arrays, {"model_type": "blip-2", "text_config": checkpoint.config}))
    same(found, plan(checkpoint))
    assert not found.refused


# --- rotations by time, height and width, and layers on images -----------------------------------


def changed(name, changes):
    arrays, config = wrapped(name)
    text = config["text_config"] | changes
    return plan(from_arrays(arrays, config | {"text_config": text}))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("qwen2_vl", {"head_dim": 4}, "head_dim.*ignores it"),
        ("glm4v", {"head_dim": 4}, "head_dim.*ignores it"),
        ("mllama", {"head_dim": 4}, "head_dim.*ignores it"),
        ("qwen2_vl", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("qwen3_vl", {"rope_parameters": {"rope_type": "mrope"}}, "mrope"),
        ("ernie4_5_vl_moe", {"rope_parameters": {"rope_type": "linear", "factor": 2}}, "linear"),
        ("ernie4_5_vl_moe", {"rope_parameters": {"mrope_section": [2, 1, 1]}}, "mrope_section"),
        ("ernie4_5_vl_moe", {"rope_parameters": {"mrope_section": 4}}, "mrope_section"),
        ("molmo2", {"qk_norm_type": "olmo"}, "qk_norm_type='olmo'"),
        ("molmo2", {"norm_after": True}, "norm_after"),
        (
            "molmo2",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_scaling_layers": [1]},
            "rope_scaling_layers.*every layer",
        ),
    ],
)
def test_what_turns_text_otherwise_is_refused(name, changes, words):
    with pytest.raises(UnsupportedError, match=words):
        changed(name, changes)


def test_layers_whose_keys_are_picked_are_told_from_the_others():
    arrays, config = wrapped("minimax_m3_vl")
    full, sparse = "full_attention", "minimax_m3_sparse"
    indexer = f"{SAVED['minimax_m3_vl']['stem']}layers.1.self_attn.index_q_proj.weight"
    more = arrays | {indexer: np.ones((2, 2), np.float32)}
    older = {"layer_types": None, "sparse_attention_config": {"sparse_attention_freq": [0, 1]}}
    for changes in ({"layer_types": [full, sparse]}, older):
        stated = config | {"text_config": config["text_config"] | changes}
        found = plan(from_arrays(more, stated))
        assert not found.refused
        kinds = [type(next(iter(layer.heads()))[2]) for layer in found.layers]
        assert kinds == [Head, PickedHead]
    for types in ([full], [full, "conv"]):
        with pytest.raises(CheckpointError, match="layer_types"):
            changed("minimax_m3_vl", {"layer_types": types})


def test_older_names_of_keys_are_known():
    arrays, config = wrapped("molmo2")
    text = dict(config["text_config"])
    older = {"qkv_bias": text.pop("attention_bias"), "layer_norm_eps": text.pop("rms_norm_eps")}
    golden = plan(open_checkpoint(DATA / "molmo2"))
    assert older["qkv_bias"] is True
    same(plan(from_arrays(arrays, config | {"text_config": text | older})), golden)
    with pytest.raises(CheckpointError, match=r"layer_norm_eps.*must agree with rms_norm_eps"):
        changed("molmo2", {"layer_norm_eps": 0.5})
    arrays, config = wrapped("hunyuan_vl")
    text = dict(config["text_config"])
    text["attention_head_dim"] = text.pop("head_dim")
    rope = text["rope_parameters"] | {"rope_type": "xdrope"}
    found = plan(from_arrays(arrays, config | {"text_config": text | {"rope_parameters": rope}}))
    same(found, plan(open_checkpoint(DATA / "hunyuan_vl")))


def test_sections_do_not_matter_for_text():
    for sections in ([4, 0, 0], [0, 2, 2]):
        rope = {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": sections}
        same(changed("qwen3_vl", {"rope_parameters": rope}), changed("qwen3_vl", {}))
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0, "mrope_section": [2, 2]}
    half = heads(changed("qwen3_vl", {"rope_parameters": scaled}))[0].rotary.frequencies
    np.testing.assert_array_equal(2 * half, heads(changed("qwen3_vl", {}))[0].rotary.frequencies)


def test_windows_of_qwen2_vl_begin_behind_its_full_layers():
    assert [h.window for h in heads(changed("qwen2_vl", {}))] == [None] * 3 + [6] * 3
    assert {h.window for h in heads(changed("qwen2_vl", {"max_window_layers": None}))} == {None}
    assert {h.window for h in heads(changed("qwen2_vl", {"use_sliding_window": None}))} == {None}


def test_layers_on_images_are_bounded_by_their_qk_norm():
    checkpoint = open_checkpoint(DATA / "mllama")
    found = plan(checkpoint)
    kinds = [layer.module.rpartition(".")[2] for layer in found.layers]
    assert kinds == ["self_attn", "cross_attn", "self_attn"]
    gain = checkpoint.read(f"{found.layers[1].module}.k_norm.weight").astype(np.float64)
    for _, _, head in found.layers[1].heads():
        assert head.rotary is None
        assert not head.self_attention
        np.testing.assert_array_equal(head.key.matrix, np.diag(gain))
    assert not changed("mllama", {"cross_attention_layers": [1, 7]}).refused


@pytest.mark.parametrize("layers", [3, [None], [True], ["1"], {}])
def test_layers_on_images_must_be_listed(layers):
    with pytest.raises(CheckpointError, match=r"cross_attention_layers in config\.json must list"):
        changed("mllama", {"cross_attention_layers": layers})


def test_a_layer_on_images_of_another_place_does_not_fit_the_file():
    with pytest.raises(CheckpointError, match="cross_attn"):
        changed("mllama", {"cross_attention_layers": [0]})


STRANGE = [None, -1, 0, 1.5, 2**70, float("nan"), "x", [], [None], {}, {"a": 1}, True]
HOSTILE = ["ernie4_5_vl_moe", "glm4v", "hunyuan_vl", "minimax_m3_vl", "mllama"]
HOSTILE += ["molmo2", "qwen2_5_omni", "qwen2_vl", "voxtral"]


def altered(config):
    for key, value in config.items():
        yield {k: v for k, v in config.items() if k != key}
        for strange in STRANGE:
            yield config | {key: strange}
        if isinstance(value, dict):
            for inner in altered(value):
                yield config | {key: inner}


@pytest.mark.parametrize("model_type", HOSTILE)
def test_strange_configs_raise_nothing_but_short_one_line_errors(model_type):
    arrays, config = wrapped(model_type)
    messages = []
    for strange in altered(config):
        try:
            for layer in plan(from_arrays(arrays, strange)).layers:
                next(iter(layer.heads()))
        except DispersionError as error:
            messages.append(str(error))
    assert len(messages) > len(config)
    assert not [m for m in messages if "\n" in m or len(m) > 500]
