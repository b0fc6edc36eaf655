"""Latent attention in GGUF files: kv_b_proj in two parts, whole, or in a way that fits nothing."""

import gguf
import numpy as np
import pytest

from checkpoints import gguf_bytes, gguf_metadata, refused
from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from gguf_conversion import changed, golden, write

HEADS, STILL, VALUES, RANK, TURNED, WIDTH = 4, 32, 32, 64, 8, 64
WHOLE = "model.layers.0.self_attn.kv_b_proj.weight"
RNG = np.random.default_rng(5)
KV_B = RNG.standard_normal((HEADS, STILL + VALUES, RANK)).astype(np.float32)
K_B, V_B = KV_B[:, :STILL].swapaxes(1, 2), KV_B[:, STILL:]
KEY, VALUE = "blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"


def metadata(**changes):
    values = {
        "block_count": 1, "embedding_length": WIDTH, "attention.head_count": HEADS,
        "attention.head_count_kv": 1, "attention.key_length": RANK + TURNED,
        "attention.value_length": RANK, "attention.key_length_mla": STILL + TURNED,
        "attention.value_length_mla": VALUES, "attention.kv_lora_rank": RANK,
        "rope.dimension_count": TURNED,
    }  # fmt: skip
    return gguf_metadata("deepseek2", **(values | changes))


def tensors(**changes):
    shapes = {
        "attn_q": (HEADS * (STILL + TURNED), WIDTH), "attn_kv_a_mqa": (RANK + TURNED, WIDTH),
        "attn_kv_a_norm": (RANK,), "attn_norm": (WIDTH,), "attn_output": (WIDTH, HEADS * VALUES),
    }  # fmt: skip
    found = {
        f"blk.0.{stem}.weight": RNG.standard_normal(s).astype(np.float32)
        for stem, s in shapes.items()
    }
    found |= {KEY: K_B, VALUE: V_B}
    return {name: value for name, value in (found | changes).items() if value is not None}


def opened(tmp_path, values=None, held=None):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata() if values is None else values, held or tensors()))
    return open_checkpoint(path)


def test_the_parts_are_one_matrix_of_which_any_rows_can_be_read(tmp_path):
    found = opened(tmp_path)
    whole = KV_B.reshape(-1, RANK)
    info = found.info(WHOLE)
    assert (info.shape, info.nbytes, info.dtype) == (whole.shape, whole.nbytes, "F32")
    np.testing.assert_array_equal(found.read(WHOLE), whole)
    for start in range(0, len(whole) + 1, 23):
        for stop in range(0, len(whole) + 1, 31):
            rows = slice(start, stop)
            np.testing.assert_array_equal(found.read(WHOLE, rows), whole[rows])
    assert not [name for name in found.names if "k_b_proj" in name or ".v_b_proj" in name]
    (layer,) = plan(found).layers
    assert sum(1 for _ in layer.heads()) == HEADS


def test_parts_may_be_quantised_each_in_its_own_way(tmp_path):
    kinds = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16
    stored, expected = {}, []
    for name, values, kind in ((KEY, K_B, kinds[0]), (VALUE, V_B, kinds[1])):
        raw = gguf.quants.quantize(np.ascontiguousarray(values), kind)
        stored[name] = (int(kind), values.shape, raw.tobytes())
        expected.append(gguf.quants.dequantize(raw, kind).reshape(values.shape))
    found = opened(tmp_path, held=tensors(**stored))
    whole = np.concatenate([expected[0].swapaxes(1, 2), expected[1]], axis=1).reshape(-1, RANK)
    np.testing.assert_array_equal(found.read(WHOLE), whole)
    assert found.info(WHOLE).dtype == "Q8_0+F16"
    assert found.info(WHOLE).nbytes == sum(len(raw) for _, _, raw in stored.values())


MALFORMED = {
    "keys alone": ({VALUE: None}, "whole or in two parts"),
    "values alone": ({KEY: None}, "whole or in two parts"),
    "whole beside its parts": (
        {"blk.0.attn_kv_b.weight": KV_B.reshape(-1, RANK)}, "whole or in two parts",
    ),
    "keys not transposed": ({KEY: KV_B[:, :STILL]}, "heads x rank x keys"),
    "keys of two axes": ({KEY: KV_B[0]}, "heads x rank x keys"),
    "another rank": ({VALUE: V_B[..., :32]}, "heads x rank x keys"),
    "fewer heads": ({KEY: K_B[:2], VALUE: V_B[:2]}, "with 4 heads"),
    "fewer heads of values": ({VALUE: V_B[:2]}, "with 4 heads"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "match"), MALFORMED.values(), ids=MALFORMED.keys())
def test_parts_that_do_not_fit_are_refused(tmp_path, changes, match):
    refused(CheckpointError, match, lambda: opened(tmp_path, held=tensors(**changes)))


@pytest.mark.parametrize("size", [8, 16, 128])
def test_parts_of_other_sizes_than_the_metadata_says_are_refused(tmp_path, size):
    held = tensors(**{KEY: np.ones((HEADS, RANK, size), np.float32)})
    refused(CheckpointError, "kv_b_proj", lambda: plan(opened(tmp_path, held=held)))


YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
}  # fmt: skip
MULTIPLIER = "rope.scaling.yarn_log_multiplier"
TEMPERATURE, LENGTH = "attention.temperature_scale", "attention.temperature_length"
REFUSED = {
    "yarn without its factor": (YARN, "yarn_log_multiplier"),
    "linear scaling": ({"rope.scaling.factor": 4.0}, "scales RoPE by linear"),
    "nothing that rests": ({"rope.dimension_count": STILL + TURNED}, "less than the head's 40"),
    "a temperature without yarn": ({TEMPERATURE: 0.1, LENGTH: 64}, "without the yarn scaling"),
    "a temperature of no length": (YARN | {MULTIPLIER: 0.1, TEMPERATURE: 0.1}, "original length"),
    "one of another length": (
        YARN | {MULTIPLIER: 0.1, TEMPERATURE: 0.1, LENGTH: 32},
        "by the original length of yarn, 16",
    ),
    "an indexer": ({"attention.indexer.head_count": 2}, "indexer.head_count"),
}


@pytest.mark.parametrize(("changes", "match"), REFUSED.values(), ids=REFUSED.keys())
def test_settings_without_a_bound_are_refused(tmp_path, changes, match):
    refused(UnsupportedError, match, opened, tmp_path, metadata(**changes))


@pytest.mark.parametrize(
    "key",
    ["attention.kv_lora_rank", "attention.value_length_mla", "rope.dimension_count"],
)
@pytest.mark.parametrize("value", [0, -1.0, "x", 2**31, True])
def test_sizes_that_are_none_are_refused(tmp_path, key, value):
    refused(CheckpointError, key, opened, tmp_path, metadata(**{key: value}))


def test_yarn_has_the_factor_of_the_file(tmp_path):
    multiplier = float(np.float32(0.0707))
    found = opened(tmp_path, metadata(**YARN, **{"rope.scaling.yarn_log_multiplier": multiplier}))
    scaling = found.config["rope_scaling"]
    assert scaling["mscale"] == scaling["mscale_all_dim"] == pytest.approx(0.707, rel=2.0**-22)


def first_head(found):
    return next(plan(found).layers[0].heads())[2]


def test_latents_are_normalised_with_the_epsilon_of_the_inputs_norm(tmp_path):
    """As llama.cpp does; the models' own code has 1e-6 there whatever their config says."""
    found = opened(tmp_path, metadata(**{"attention.layer_norm_rms_epsilon": 1e-5}))
    assert first_head(found).coupled.states.eps == float(np.float32(1e-5))
    stated = {**found.config, "latent_norm_eps": 1e-5}
    arrays = from_arrays({name: found.read(name) for name in found.names}, stated)
    assert first_head(arrays).coupled.states.eps == 1e-6  # a key that no config.json has


def test_a_temperature_grows_as_the_file_says(tmp_path):
    stated = YARN | {MULTIPLIER: 0.1, TEMPERATURE: 0.25, LENGTH: 16}
    growth = first_head(opened(tmp_path, metadata(**stated))).growth
    assert (growth.rate, growth.period) == (0.25, 16)


@pytest.mark.parametrize("value", ["x", -0.25, float("nan"), True])
def test_a_temperature_that_is_none_is_refused(tmp_path, value):
    stated = YARN | {MULTIPLIER: 0.1, TEMPERATURE: value, LENGTH: 16}
    refused(CheckpointError, "temperature_scale", opened, tmp_path, metadata(**stated))


def test_rows_of_a_converted_checkpoint_are_those_of_the_original(tmp_path):
    write(golden("deepseek_v3"), tmp_path / "m.gguf")
    found = open_checkpoint(tmp_path / "m.gguf")
    original = golden("deepseek_v3").source.read(WHOLE)
    np.testing.assert_array_equal(found.read(WHOLE, slice(10, 30)), original[10:30])


FACTORS_BY_LENGTH = ("rope_factors_long.weight", "rope_factors_short.weight")


@pytest.mark.parametrize("value", [None, 0, "x", 2.0, [3, 4]])
def test_how_many_keys_an_indexer_picks_must_be_stated(tmp_path, value):
    path = changed(tmp_path, "glm_moe_dsa", {"attention.indexer.top_k": value})
    error = UnsupportedError if value == [3, 4] else CheckpointError
    refused(error, "attention.indexer.top_k", open_checkpoint, path)
    path = changed(tmp_path, "glm_moe_dsa", {"attention.indexer.top_k": 5})
    assert next(plan(open_checkpoint(path)).layers[0].heads())[2].window == 5


def test_divisors_of_minicpm3_are_as_many_as_the_pairs_that_turn(tmp_path):
    values = {"rope_factors_long.weight": [1.0, 2.0], "rope_factors_short.weight": [1.0, 1.5]}
    held = {name: np.array(value, np.float32) for name, value in values.items()}
    found = plan(open_checkpoint(changed(tmp_path, "minicpm3", {}, held)))
    rotary = next(found.layers[0].heads())[2].rotary
    np.testing.assert_allclose(rotary.frequencies_at(256), [1, 1e-2 / 1.5], rtol=1e-12)
    np.testing.assert_allclose(rotary.frequencies_at(257), [1, 1e-2 / 2], rtol=1e-12)
    np.testing.assert_array_equal(rotary.pairs, [[6, 8], [7, 9]])


SIZES = [
    ("attention.kv_lora_rank", 9, "kv_b_proj|kv_a"),
    ("attention.key_length", 12, "q_b_proj|kv_b_proj"),
    ("attention.q_lora_rank", 9, "q_b_proj|q_a"),
    ("attention.head_count", 2, "q_b_proj|kv_b_proj"),
    ("attention.value_length", 5, "kv_b_proj"),
    ("rope.dimension_count", 2, "kv_b_proj|kv_a"),
]


@pytest.mark.parametrize(("key", "value", "tensor"), SIZES)
def test_sizes_of_latents_that_no_tensor_has_are_refused(tmp_path, key, value, tensor):
    path = changed(tmp_path, "minicpm3", {key: value})
    with pytest.raises(CheckpointError, match=tensor):
        plan(open_checkpoint(path))
