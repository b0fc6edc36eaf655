"""Checkpoints whose config names a method of quantisation."""

from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.architectures.quantised import METHODS, unpacked
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import UnsupportedError

DATA = Path(__file__).parent / "data"
PROJECTION = "model.layers.{}.self_attn.{}_proj"
# What the files of each method hold in place of `weight`, and the words of their configs.
PARTS = {
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
    "bitsandbytes": (
        "weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax",
        "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4",
    ),
    "compressed-tensors": ("weight_packed", "weight_scale", "weight_shape"),
    "modelopt": ("weight", "weight_scale", "weight_scale_2", "input_scale"),
}  # fmt: skip
EIGHT_BITS = ("weight", "SCB", "weight_format")


def model(method, modules, parts=None, **stated):
    """The llama of the tests, with some modules packed as a method packs them."""
    source = open_checkpoint(DATA / "llama")
    arrays = {name: source.read(name) for name in source.names}
    for module in modules:
        arrays.pop(f"{module}.weight", None)
        for part in parts or PARTS[method]:
            arrays[f"{module}.{part}"] = np.zeros((4, 4), np.uint8)
    config = source.config | {"quantization_config": {"quant_method": method} | stated}
    return from_arrays(arrays, config)


def every(*sides):
    return [PROJECTION.format(layer, side) for layer in (0, 1) for side in sides]


@pytest.mark.parametrize("method", PARTS)
def test_plain_queries_and_keys_beside_packed_weights_are_audited(method):
    packed = [*every("v", "o"), *(f"model.layers.{i}.mlp.down_proj" for i in (0, 1)), "lm_head"]
    found = plan(model(method, packed))
    assert len(found.layers) == 2
    assert not found.refused
    reasons = {s.name: s.reason for s in found.skipped}
    part = PARTS[method][1]
    assert "logits" in reasons[f"model.layers.*.self_attn.o_proj.{part}"]
    assert reasons[f"model.layers.*.mlp.down_proj.{part}"] == "feed-forward"
    expected = plan(open_checkpoint(DATA / "llama"))
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        for (_, _, got), (_, _, want) in zip(mine.heads(), theirs.heads(), strict=True):
            np.testing.assert_array_equal(got.query.matrix, want.query.matrix)


@pytest.mark.parametrize("side", ["q", "k"])
@pytest.mark.parametrize("method", PARTS)
def test_packed_queries_or_keys_are_refused_with_method_tensor_and_remedy(method, side):
    with pytest.raises(UnsupportedError) as caught:
        plan(model(method, every(side)))
    message = str(caught.value)
    assert f"layers.0.self_attn.{side}_proj.weight is quantised by {method}" in message
    assert "before quantisation, or a GGUF file" in message


def test_eight_bit_integers_are_refused():
    with pytest.raises(UnsupportedError, match=r"quantised by bitsandbytes .*SCB"):
        plan(model("bitsandbytes", every("q"), EIGHT_BITS))


@pytest.mark.parametrize("method", PARTS)
def test_a_layer_left_alone_is_audited_beside_packed_ones(method):
    packed = PROJECTION.format(1, "k")
    found = plan(model(method, [packed]))
    assert [layer.layer for layer in found.layers] == [0]
    (refused,) = found.refused
    assert refused.name == "model.layers.1.self_attn"
    assert f"quantised by {method}" in refused.reason
    assert list(found.layers[0].heads())
    with pytest.raises(UnsupportedError, match=r"layers\.1"):
        plan(model(method, [packed]), layers=frozenset({1}))


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"mxfp4"}))
def test_a_method_that_would_act_on_loading_is_refused(method):
    with pytest.raises(UnsupportedError, match=f"{method}.*as it loads them"):
        plan(model(method, []))


@pytest.mark.parametrize("method", ["hqq", "spinquant", "", None, 7, ["gptq"]])
def test_methods_that_are_not_known_are_refused(method):
    with pytest.raises(UnsupportedError, match="quantization_config"):
        plan(model(method, every("v"), PARTS["gptq"]))


@pytest.mark.parametrize("stated", ["mxfp4", "gptq", "unknown", 1, True, ["gptq"], 0.5])
def test_a_statement_that_is_no_object_is_refused(stated):
    checkpoint = model("gptq", every("v"))
    checkpoint.config["quantization_config"] = stated
    with pytest.raises(UnsupportedError, match="quantization_config"):
        plan(checkpoint)


def test_inputs_that_a_method_turns_are_refused():
    with pytest.raises(UnsupportedError, match="quantization_config"):
        plan(model("compressed-tensors", every("v"), transform_config={"u": {}}))


def test_old_bitsandbytes_configs_without_a_method_are_known():
    checkpoint = model("bitsandbytes", every("v"))
    checkpoint.config["quantization_config"] = {"load_in_4bit": True}
    assert len(plan(checkpoint).layers) == 2


def test_scales_of_the_cache_are_skipped_only_in_a_quantised_model():
    checkpoint = model("gptq", every("v"))
    arrays = {name: checkpoint.read(name) for name in checkpoint.names}
    arrays["model.layers.0.self_attn.k_scale"] = np.ones((), np.float32)
    found = plan(from_arrays(arrays, checkpoint.config))
    assert len(found.layers) == 2
    assert any("run time" in s.reason for s in found.skipped)
    source = open_checkpoint(DATA / "llama")
    plain = {name: source.read(name) for name in source.names}
    plain["model.layers.0.self_attn.k_scale"] = np.ones((), np.float32)
    (refused,) = plan(from_arrays(plain, source.config)).refused
    assert "k_scale" in refused.reason


def test_parts_are_told_from_other_names():
    for name in ("a.weight", "a.bias", "a.rescales", "scales.weight", "a.input_scale"):
        assert unpacked(name) == name


def nested(packed, **inner):
    """The gemma3 of the tests, whose language model lies in `text_config`, packed by AWQ."""
    source = open_checkpoint(DATA / "gemma3")
    arrays = {name: source.read(name) for name in source.names}
    found = [name.removesuffix(".weight") for name in arrays if name.endswith(f"{packed}.weight")]
    assert found
    for module in found:
        del arrays[f"{module}.weight"]
        for part in PARTS["awq"]:
            arrays[f"{module}.{part}"] = np.zeros((4, 4), np.uint8)
    text = source.config["text_config"] | inner
    return arrays, source.config | {"text_config": text}


def test_what_is_said_of_a_model_holds_of_the_language_model_in_it():
    arrays, config = nested("mlp.down_proj")
    stated = config | {"quantization_config": {"quant_method": "awq"}}
    found = plan(from_arrays(arrays, stated))
    assert len(found.layers) == len(plan(open_checkpoint(DATA / "gemma3")).layers)
    assert not found.refused
    with pytest.raises(UnsupportedError, match="belongs to quantised weights"):
        plan(from_arrays(arrays, config))
    packed, _ = nested("k_proj")
    with pytest.raises(UnsupportedError, match=r"k_proj\.weight is quantised by awq"):
        plan(from_arrays(packed, stated))


def test_a_method_that_only_the_language_model_states_is_looked_at():
    arrays, config = nested("mlp.down_proj", quantization_config={"quant_method": "unheard-of"})
    stated = config | {"quantization_config": {"quant_method": "awq"}}
    with pytest.raises(UnsupportedError, match="unheard-of"):
        plan(from_arrays(arrays, stated))
