"""Every family that GGUF files are read for, against its safetensors checkpoint."""

import dataclasses
import re
import tracemalloc
from dataclasses import replace

import gguf
import numpy as np
import pytest

from checkpoints import gguf_bytes, gguf_metadata, refused
from dispersion.architectures import plan, supported_model_types
from dispersion.checkpoint import from_arrays, open_checkpoint, to_float64
from dispersion.checkpoint.gguf_families import ARCHITECTURES
from dispersion.checkpoint.gguf_settings import partial_factor
from dispersion.checkpoint.gguf_unread import STRANGE, UNREAD
from dispersion.cli import main
from dispersion.errors import CheckpointError, DispersionError, UnsupportedError
from gguf_conversion import (
    DATA,
    LATENT,
    LATER,
    LOST,
    WITH_IMAGES,
    Model,
    changed,
    converted,
    golden,
    longrope_factor,
    modified,
    shifted,
    write,
)

FULL = {"layer_types": None, "sliding_window": None, "use_sliding_window": False}
FOURTH = {"layer_types": ["sliding_attention", "sliding_attention"]}  # no pattern is written
FALCON_H1 = ("attention_in_multiplier", "key_multiplier", "embedding_multiplier")  # in weights
ROPE = "rope_parameters"


def rope(**changes):
    """A change of the config's rope parameters; None takes a key away."""

    def change(config):
        found = dict(config[ROPE])
        inner = found.get("full_attention", found)
        inner = {k: v for k, v in {**inner, **changes}.items() if v is not None}
        if "full_attention" in found:
            return {ROPE: {**found, "full_attention": inner}}
        return {ROPE: inner}

    return change


LLAMA4 = {
    "attention_chunk_size": 8192, "layer_types": ["chunked_attention"] * 2,
    "no_rope_layers": [1, 1], "attn_scale": 0.1, "floor_scale": 8192,
}  # fmt: skip


def chatglm(config):
    """The converter reads other keys for these two."""
    return rope(rope_theta=1e4)(config) | {"rms_norm_eps": 1e-5}


T5 = {"relative_attention_max_distance": 128}


def ministral(config):
    """The rate of the temperature is a float32 in the file."""
    return rope(llama_4_scaling_beta=float(np.float32(0.2)))(config)


def tempered(config):
    """The rate of the temperature is a float32 in the file."""
    return rope(llama_4_scaling_beta=float(np.float32(0.2)))(config)


def untempered(config):
    """Mistral 4 where the file says of no temperature: DeepSeek V3's attention."""
    change = rope(llama_4_scaling_beta=None, partial_rotary_factor=None)
    return change(config) | {"model_type": "deepseek_v3"}


def first_heads_norm(tensor, values):
    """Chameleon's converter takes the QK norms of the first head for those of all."""
    found = re.search(r"[qk]_norm\.", tensor)
    return np.tile(values[0], (len(values), 1)) if found else values


def yarn_of_file(config):
    """The multiplier is a float32 in the file, from which both factors are read."""
    factor = float(np.float32(0.1 * config[ROPE]["mscale"]) / np.float32(0.1))
    return rope(mscale=factor, mscale_all_dim=factor)(config)


def one_mscale(config):
    """Files hold one of DeepSeek's two factors; pairs are neighbours in all of them."""
    return rope(mscale=config[ROPE]["mscale_all_dim"])(config) | {"rope_interleave": True}


# What llama.cpp computes with where it differs from the checkpoint. GGUF files have no key for
# these settings, so that a model converted to one does not have them.
DROPPED = {
    "bert": {}, "bert__headless": {}, "cohere": {}, "cohere__qk_norm": {},
    "falcon": rope(rope_theta=1e4), "falcon__new_decoder": {"rope_theta": 1e4}, "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3_text": {"query_pre_attn_scalar": 8},
    "gemma3_text__old_dialect": {"query_pre_attn_scalar": 8},
    "gpt2": {}, "gpt2__headless": {"scale_attn_weights": True},
    "gpt2__inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": False},
    "gpt_bigcode": {}, "gpt_neox": {}, "gpt_neox__old_dialect": {},
    "gpt_oss": rope(truncate=True),
    "granite": {}, "jais2": {},
    "llama": {}, "llama__bias_sharded_bf16": {}, "llama__llama3rope": {}, "llama__old_dialect": {},
    "llama__yarn": {},
    "mistral": FULL | {"model_type": "llama"},
    "mixtral": FULL,
    "modernbert": {},
    "nemotron": {}, "olmo": {}, "olmo2": {}, "olmo3": {}, "olmoe": {},
    "phi": rope(rope_theta=1e4), "phi3": {},
    "phi3__longrope": {},
    "qwen2": FULL, "qwen2_moe": FULL, "qwen3": {},
    "qwen3__yarn": rope(mscale=None, mscale_all_dim=None),
    "qwen3_moe": {},
    "roberta": {},
    "smollm3": {"no_rope_layers": [1, 1]},
    "stablelm": {},
    "starcoder2": FULL,
    "afmoe": FOURTH, "apertus": {}, "arcee": {}, "bloom": {}, "cohere2": FOURTH,
    "dbrx": {}, "dbrx__clip": {}, "dots1": FULL, "ernie4_5": {}, "ernie4_5_moe": {},
    "exaone4__no_window": {}, "exaone_moe": {}, "glm4": {}, "glm4_moe": {},
    "glm4_moe__qk_norm": {}, "granitemoe": {}, "granitemoeshared": {}, "hunyuan_v1_dense": {},
    "hunyuan_v1_moe": {},
    "minimax_m2": {}, "mpt": {}, "mpt__clip": {}, "seed_oss": {},
    "falcon_h1": dict.fromkeys(FALCON_H1, 1.0), "granitemoehybrid": {},
    "granitemoehybrid__rope": {}, "lfm2": {}, "lfm2_moe": {}, "qwen3_5_moe_text": {},
    "qwen3_5_text": {}, "qwen3_next": {},
    "bitnet": {}, "gemma4_text": {}, "gemma4_text__shared": {}, "gemma3n_text": {},
    "llama4_text": LLAMA4, "mimo_v2_flash": {}, "ministral3": ministral,
    "t5": T5, "t5__decoder": T5,
    "distilbert": {}, "gemma3_text encoder": {"query_pre_attn_scalar": 8}, "glm": chatglm,
    "glm fused": chatglm, "solar_open": {}, "qwen2_vl": FULL | {"model_type": "qwen2"},
    "bailing_moe": {}, "bailing_moe__qk_norm": {}, "deepseek": {}, "dream": {}, "eurobert": {},
    "exaone": {}, "internlm2": {}, "jamba": {}, "llada": {}, "minicpm": {}, "nemotron_h": {},
    "nemotron_h_moe": {}, "qwen__no_logn": {}, "xverse": {},
    "jina_embeddings_v3": {}, "nomic_bert": {}, "nomic_bert moe": {},
    "deepseek_v2": {}, "deepseek_v2 whole": {}, "deepseek_v3": {},
    "kimi_linear": {}, "minicpm3": rope(rope_theta=1e4), "mistral4": untempered,
    "mistral4 tempered": tempered,
    "chameleon": {}, "chameleon__swin_norm": {}, "phimoe": {},
    "qwen3_vl": {}, "qwen3_vl_moe": {}, "glm_moe_dsa": {}, "deepseek_v32": {},
    "deepseek_v32 yarn": yarn_of_file, "hunyuan_vl": {}, "paddleocr_vl": {},
    "baichuan": {}, "baichuan__alibi": {}, "glm4v": {}, "glm4v_moe": {}, "glm_ocr": {},
    "hy_v3": {}, "mellum": {}, "mellum yarn": {},
    "step3p5": {"query_pre_attn_scalar": 8},
    "deepseek_v3__yarn": one_mscale, "deepseek_v3__yarn whole": one_mscale,
}  # fmt: skip
MOE = ("bailing_moe", "hunyuan_v1_moe", "hy_v3", "lfm2_moe")  # files of these have experts alone
FLOAT32_EPS = 2.0**-24
FACTORS = 2.0**-22  # divisors of frequencies are float32 numbers in the file


def reference(name, model):
    """The plan of the checkpoint itself, with what the file's float32 numbers make of it."""
    config = dict(model.config)
    dropped = DROPPED[name]
    config |= dropped(config) if callable(dropped) else dropped
    arrays = {}
    for tensor in model.source.names:
        values = to_float64(model.source.read(tensor), tensor=tensor)
        if name in ("falcon_h1", "bitnet"):
            values = modified(model, tensor, values.astype(np.float32)).astype(float)
        if shifted(model, tensor):
            values = (values.astype(np.float32) + np.float32(1)).astype(float) - 1
        if name.startswith("chameleon"):
            values = first_heads_norm(tensor, values)
        if model.arch in WITH_IMAGES:  # the language model alone
            if tensor.startswith(("model.visual.", "visual.", "vit.", "mlp_AR.")):
                continue
            tensor = tensor.replace("language_model.", "")
        arrays[tensor] = values
    for key in ("attention_multiplier", "embedding_multiplier"):
        if key in config:
            config[key] = float(np.float32(config[key]))
    if name == "phi3__longrope":
        config |= rope(attention_factor=longrope_factor(model))(config)
    if model.arch in (*LATENT, gguf.MODEL_ARCH.MINICPM3):
        # llama.cpp normalises latents with the ε of the input's norm.
        config["latent_norm_eps"] = float(np.float32(config["rms_norm_eps"]))
        return plan(replace(from_arrays(arrays, config), format="gguf"))
    if name == "phimoe":  # llama.cpp computes another norm
        return plan(replace(from_arrays(arrays, config), format="gguf"))
    return plan(from_arrays(arrays, config))


def same_ball(got, want):
    if want is None:
        assert got is None
        return
    np.testing.assert_array_equal(got.matrix, want.matrix)
    assert got.radius == want.radius
    if want.offset is None:
        assert got.offset is None
    else:
        np.testing.assert_array_equal(got.offset, want.offset)


def same_norm(got, want):
    if want is None:
        assert got is None
        return
    np.testing.assert_array_equal(np.asarray(got.weight), np.asarray(want.weight))
    assert got.centred == want.centred
    assert got.start == want.start
    assert got.eps == pytest.approx(want.eps, rel=FLOAT32_EPS)


def same_reach(got, want):
    if want is None:
        assert got is None
        return
    assert (got.width, got.radius, got.centred) == (want.width, want.radius, want.centred)
    for part in ("gain", "bias", "through"):
        mine, theirs = getattr(got, part), getattr(want, part)
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            np.testing.assert_array_equal(mine, theirs)
    same_norm(got.query_norm, want.query_norm)
    same_norm(got.key_norm, want.key_norm)
    same_reach(got.keys, want.keys)


def same_rotary(got, want):
    if want is None:
        assert got is None
        return
    np.testing.assert_array_equal(got.pairs, want.pairs)
    for length in (2, 10**6):
        np.testing.assert_allclose(
            got.frequencies_at(length), want.frequencies_at(length), rtol=FACTORS
        )


def same_coupling(got, want):
    if want is None:
        assert got is None
        return
    same_ball(got.plain, want.plain)
    same_ball(got.states.latent, want.states.latent)
    same_ball(got.states.turned, want.states.turned)
    assert got.states.eps == want.states.eps


def same_heads(found, expected):
    assert not found.refused
    assert [layer.layer for layer in found.layers] == [layer.layer for layer in expected.layers]
    count = 0
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        for (head, kv, got), (number, group, want) in zip(
            mine.heads(), theirs.heads(), strict=True
        ):
            assert (head, kv) == (number, group)
            same_ball(got.query, want.query)
            same_ball(got.key, want.key)
            assert got.scale == want.scale
            assert got.soft_cap == want.soft_cap
            assert got.sink == want.sink
            assert got.window == want.window
            assert got.causal == want.causal
            same_rotary(got.rotary, want.rotary)
            same_reach(got.reach, want.reach)
            for fact in ("chunked", "self_attention"):
                assert getattr(got, fact) == getattr(want, fact)
            assert (got.bias, got.growth) == (want.bias, want.growth)
            assert (got.inner is None) == (want.inner is None)
            same_coupling(got.coupled, want.coupled)
            count += 1
    assert count


@pytest.mark.parametrize("name", DROPPED)
def test_a_converted_checkpoint_has_the_heads_of_its_original(tmp_path, name):
    model = golden(name)
    lost = write(model, tmp_path / "m.gguf")
    others = (".mlp.", "feed_forward") if name in MOE else ()
    assert all(any(part in tensor for part in (*LOST, *others)) for tensor in lost), lost
    found, expected = plan(open_checkpoint(tmp_path / "m.gguf")), reference(name, model)
    same_heads(found, expected)
    assert found.learned_positions == expected.learned_positions
    for fact in ("layers", "query_heads", "key_heads", "head_dim", "width", "qk_norm"):
        assert found.model[fact] == expected.model[fact]


@pytest.mark.parametrize("name", DROPPED)
def test_the_inputs_of_a_first_layer_are_the_same_rows(tmp_path, name):
    model = golden(name)
    write(model, tmp_path / "m.gguf")
    got = plan(open_checkpoint(tmp_path / "m.gguf")).layers[0].embedding
    want = reference(name, model).layers[0].embedding
    if name == "roberta":  # its file has only the rows that are positions
        assert want is None
        assert got is not None
        assert len(got.rows(got.positions)) == 30
        return
    if name == "distilbert":  # which the file does not tell from a BERT without token types
        refused(UnsupportedError, "use --inputs ball", got.check)
        return
    assert (got is None) == (want is None)
    if want is None:
        return
    got.check()
    assert len(got.tables) == len(want.tables)
    for mine, theirs in zip(got.tables, want.tables, strict=True):
        np.testing.assert_array_equal(got.rows(mine), want.rows(theirs))
        np.testing.assert_array_equal(got.rows(mine, slice(1, 2)), want.rows(theirs, slice(1, 2)))
    assert (got.scale, got.width) == (want.scale, want.width)
    assert got.eps == pytest.approx(want.eps, rel=FLOAT32_EPS)


def test_every_architecture_is_tested_and_leads_to_a_family():
    tested = {golden(name).name for name in DROPPED}
    assert tested == set(ARCHITECTURES)
    assert {a.model_type for a in ARCHITECTURES.values()} <= set(supported_model_types())
    assert set(ARCHITECTURES) - set(LATER.values()) <= set(gguf.MODEL_ARCH_NAMES.values())


@pytest.mark.parametrize("name", UNREAD)
def test_an_architecture_that_is_read_from_other_files_alone_is_refused_with_a_reason(
    tmp_path, name
):
    assert name in set(gguf.MODEL_ARCH_NAMES.values()) - set(ARCHITECTURES)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(gguf_metadata(name), {}))
    match = f"holds the architecture {name}, which is not read from GGUF files: {UNREAD[name]}. "
    refused(UnsupportedError, match, open_checkpoint, tmp_path / "m.gguf")


@pytest.mark.parametrize("name", STRANGE)
def test_an_architecture_that_is_read_from_no_files_is_refused_with_a_reason(tmp_path, name):
    assert name in set(gguf.MODEL_ARCH_NAMES.values()) - set(ARCHITECTURES) - set(UNREAD)
    assert name.replace("-", "_") not in supported_model_types()
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(gguf_metadata(name), {}))
    match = f"holds the architecture {name}, which is not read: {STRANGE[name]}. "
    refused(UnsupportedError, match, open_checkpoint, tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gpt2", "phi3", "falcon__new_decoder"])
def test_rows_of_quantised_tensors_are_reordered_too(tmp_path, name):
    """Q8_0 where rows have whole blocks of 32 values, F16 elsewhere, as the converters have it."""
    model = golden(name)
    write(model, tmp_path / "m.gguf", kind=gguf.GGMLQuantizationType.Q8_0)
    steps = {
        "F32": 0.0,
        "F16": 2.0**-11,
        "Q8_0": 1 / 254 + 2.0**-11,
    }  # the scale of a block is a float16
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    for tensor in (n for n in checkpoint.names if "mlp" not in n):
        whole = checkpoint.read(tensor)
        assert whole.shape == checkpoint.info(tensor).shape
        original = next(
            (v for n, v in model.tensors() if n.endswith(tensor) or tensor.endswith(n)), None
        )
        assert original is not None, tensor
        step = steps[checkpoint.info(tensor).dtype]
        assert np.abs(whole - original).max() <= step * np.abs(original).max() * (1 + 2.0**-20)
        for rows in (slice(0, 0), slice(1, 5), slice(3, len(whole))):
            np.testing.assert_array_equal(checkpoint.read(tensor, rows), whole[rows])


@pytest.mark.parametrize("architecture", ["llama", "gptneox", "qwen3"])
def test_one_heads_rows_are_read_not_the_whole_matrix(tmp_path, architecture):
    size, kind = 1024, gguf.GGMLQuantizationType.Q8_0
    fused = architecture == "gptneox"
    rows = 3 * size if fused else size
    quantised = gguf.quants.quantize(np.ones((rows, size), np.float32), kind)
    stem = "attn_qkv" if fused else "attn_q"
    tensors = {f"blk.0.{stem}.weight": (int(kind), (rows, size), quantised.tobytes())}
    changes = {
        "embedding_length": size, "attention.head_count": 16, "attention.head_count_kv": 16,
        "attention.key_length": None, "attention.layer_norm_epsilon": 1e-5, "block_count": 1,
    }  # fmt: skip
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(gguf_metadata(architecture, **changes), tensors))
    checkpoint = open_checkpoint(path)
    (name,) = checkpoint.names
    tracemalloc.start()
    try:
        part = checkpoint.read(name, slice(128, 192))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert part.shape == (64, size)
    assert peak < 8 * part.nbytes  # of 16 or 48 times as many rows


def test_a_rotated_share_is_never_rounded_down():
    for head_dim in range(2, 300, 2):
        for rotated in range(2, head_dim + 1, 2):
            assert int(head_dim * min(partial_factor(rotated, head_dim), 1.0)) == rotated


ONES = np.ones(4, np.float32)
FACTORS_BY_LENGTH = ("rope_factors_long.weight", "rope_factors_short.weight")
PATTERN = "attention.sliding_window_pattern"
SECTIONS = "rope.dimension_sections"
REFUSED = [
    ("gpt_bigcode", {"attention.head_count_kv": 3}, {}, "has one key head"),
    ("gpt_bigcode", {"attention.head_count_kv": None}, {}, "has one key head"),
    ("falcon", {"attention.head_count_kv": 3}, {}, "does not divide the number of heads"),
    ("falcon", {"rope.dimension_count": 4}, {}, "rotates only a part of its 8"),
    ("phi", {}, {"blk.0.attn_qkv.weight": np.ones((96, 32), np.float32)}, "attn_qkv"),
    ("modernbert", {"attention.causal": True}, {}, "only false is read"),
    ("nomic_bert", {"attention.causal": None}, {}, "only false is read"),
    ("modernbert", {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, {}, "linear"),
    ("granite", {"rope.scaling.finetuned": False}, {}, "switches the rotation off"),
    ("phi3", {"attention.sliding_window": 6}, {}, "some programs apply and others ignore"),
    ("stablelm", {}, {"blk.0.attn_q_norm.weight": np.ones((4, 8), np.float32)}, "qk_layernorm"),
    ("olmo", {"attention.clamp_kqv": 8.0}, {}, "olmo.attention.clamp_kqv"),
    ("gemma", {"attn_logit_softcapping": 8.0}, {}, "gemma.attn_logit_softcapping"),
    ("qwen2", {"attention.sliding_window": 8}, {}, "qwen2.attention.sliding_window"),
    ("qwen3", {"attention.some_new_thing": 2}, {}, "qwen3.attention.some_new_thing"),
    ("qwen3", {"rope.some_new_thing": "x"}, {}, "qwen3.rope.some_new_thing"),
    ("qwen3", {"rope.a\x1b[0m\nb": "\n"}, {}, r"qwen3.rope.a\x1b[0m\nb to \n"),
    ("qwen3", {"nextn_predict_layers": 1}, {}, "qwen3.nextn_predict_layers"),
    ("qwen3", {"rope.dimension_sections": [1, 1, 2, 0]}, {}, "rope.dimension_sections"),
    ("qwen3", {"rope.dimension_count": 4}, {}, "rotates only a part of its 8"),
    ("nemotron", {"rope.dimension_count": 16}, {}, "rotates only a part of its 8"),
    ("qwen3", {"attention.scale": 0.25}, {}, "logit scale 0.25"),
    ("gpt2", {"attention.key_length": 4}, {}, "share embedding_length=24 among 3"),
    ("olmo3", {"rope.freq_base_swa": 10.0}, {}, "has one base (500000.0)"),
    ("gptneox", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("gpt_oss", {"attention.causal": False}, {}, "only true is read"),
    ("qwen3", {}, {"rope_freqs.weight": ONES}, "rope_freqs.weight"),
    ("llama", {}, {"rope_factors_long.weight": ONES}, "rope_factors_long.weight"),
    ("phi3", {}, {"rope_factors_long.weight": ONES}, "short and long ones together"),
    ("phi3", {"rope.scaling.type": "longrope"}, {}, "without the tensors"),
    ("phi3__longrope", {"rope.scaling.factor": 2.0}, {}, "no other scaling"),
    ("qwen3", {}, {"blk.0.attn_qkv.weight": np.ones((64, 24), np.float32)}, "attn_qkv"),
    ("qwen3", {}, {"token_embd_norm.weight": np.ones(24, np.float32)}, "token_embd_norm"),
    ("exaone4__no_window", {"attention.sliding_window": 6}, {}, "models of 64 layers only"),
    ("exaone_moe", {PATTERN: [True, False]}, {}, "every fourth layer must be the full one"),
    ("afmoe", {PATTERN: 2}, {}, "every fourth layer must be the full one"),
    ("mpt", {}, {"position_embd.weight": np.ones((256, 24), np.float32)}, "a table of positions"),
    ("glm4v", {SECTIONS: [1, 0, 0, 1]}, {}, "pair 1 of 2 would not turn"),
    ("glm4v", {SECTIONS: [1, 1]}, {}, "a list of four integers"),
    ("glm4v_moe", {SECTIONS: [0, 0, 0, 2]}, {}, "pair 0 of 2 would not turn"),
    ("glm_ocr", {"attention.sliding_window": 3}, {}, "glm4.attention.sliding_window"),
    ("cohere2", {"attention.clamp_kqv": 2.0}, {}, "cohere2.attention.clamp_kqv"),
    ("granitemoe", {"rope.scaling.finetuned": False}, {}, "switches the rotation off"),
    ("lfm2", {"attention.head_count_kv": [2, 1]}, {}, "differs between layers"),
    ("lfm2", {"attention.sliding_window": 4}, {}, "lfm2.attention.sliding_window"),
    ("qwen3_next", {"attention.recurrent_layers": [1, 0]}, {}, "attention.recurrent_layers"),
    ("qwen2_vl", {SECTIONS: None}, {}, "a list of four integers"),
    ("qwen2_vl", {SECTIONS: 1}, {}, "a list of four integers"),
    ("qwen2_vl", {SECTIONS: [1, 2, 1]}, {}, "a list of four integers"),
    ("qwen2_vl", {SECTIONS: [1.0, 2.0, 1.0, 0.0]}, {}, "a list of four integers"),
    ("qwen2_vl", {SECTIONS: [True, True, True, True]}, {}, "a list of four integers"),
    ("qwen2_vl", {SECTIONS: [0, 0, 0, 0]}, {}, "all together at least one"),
    ("qwen2_vl", {SECTIONS: [1, 1, 1, 1]}, {}, "pair 3 of 4 would not turn"),
    ("qwen2_vl", {SECTIONS: [0, 0, 0, 4]}, {}, "pair 0 of 4 would not turn"),
    ("qwen3_5_text", {SECTIONS: [1, 0, 1, 0]}, {}, "pair 1 of 2 would not turn"),
    ("qwen3_5_text", {SECTIONS: [0, 1, 1, 0]}, {}, "pair 0 of 2 would not turn"),
    ("qwen3_5_moe_text", {SECTIONS: None}, {}, "a list of four integers"),
    ("falcon_h1", {"attention.scale": 1.0}, {}, "logit scale 1.0"),
    ("minimax_m2", {"attention.indexer.head_count": 2}, {}, "attention.indexer.head_count"),
    ("gemma3_text encoder", {"attention.causal": True}, {}, "only false is read"),
    ("gemma3_text encoder", {PATTERN: 2}, {}, "every sixth layer must be the full one"),
    ("glm", {"attention.key_length": 4}, {}, "share embedding_length=32 among 4"),
    ("glm", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("dots1", {"attention.sliding_window": 4}, {}, "dots1.attention.sliding_window"),
    ("llama4_text", {"attention.sliding_window": 0}, {}, "chunks of this architecture have 8192"),
    ("llama4_text", {"attention.sliding_window": 64}, {}, "chunks of this architecture have 8192"),
    ("llama4_text", {PATTERN: 2}, {}, "every fourth layer must be the full one"),
    ("llama4_text", {"attention.chunk_size": 64}, {}, "attention.chunk_size"),
    ("gemma3n_text", {PATTERN: 2}, {}, "every fifth layer must be the full one"),
    ("gemma3n_text", {"attention.shared_kv_layers": 1}, {}, "0 of 2 layers read keys"),
    ("gemma3n_text", {"attention.scale": 8**-0.5}, {}, "logits of this architecture have none"),
    ("gemma3n_text", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("gemma4_text", {PATTERN: [True, True]}, {}, "the last layer must be a full one"),
    ("gemma4_text", {PATTERN: 2}, {}, "it must list which layers slide"),
    ("gemma4_text", {"attention.shared_kv_layers": 1}, {}, "a sliding and a full layer"),
    ("gemma4_text__shared", {"attention.shared_kv_layers": 1}, {}, "a sliding and a full layer"),
    ("gemma4_text", {"attention.shared_kv_layers": "x"}, {}, "a sliding and a full layer"),
    ("gemma4_text", {"attention.head_count_kv": [2]}, {}, "positive for each of 2 layers"),
    ("gemma4_text", {"attention.head_count_kv": [2, 0]}, {}, "positive for each of 2 layers"),
    ("gemma4_text", {"attention.scale": 1.0}, {}, "logits of this architecture have none"),
    ("gemma4_text", {"rope.dimension_count_swa": 4}, {}, "sliding layers turn all of 8"),
    ("gemma4_text", {"rope.dimension_count": 4}, {}, "rotates only a part of its 16"),
    ("gemma4_text", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("gemma4_text", {}, {"rope_freqs.weight": None}, "must hold 8 numbers"),
    ("gemma4_text", {}, {"rope_freqs.weight": np.array([1, 1, 1, 1.0])}, "must hold 8 numbers"),
    ("mimo_v2_flash", {"attention.head_count_kv": [1] * 5}, {}, "twice as many on sliding layers"),
    ("mimo_v2_flash", {"attention.head_count_kv": 2}, {}, "twice as many on sliding layers"),
    ("mimo_v2_flash", {PATTERN: 2}, {}, "it must list which layers slide"),
    ("mimo_v2_flash", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("gemma4_text", {}, {"rope_freqs.weight": np.array([1.0] * 4 + [2] * 4)}, "ones for the pairs"),
    ("gemma4_text", {}, {"rope_freqs.weight": np.array([1e30] * 7 + [1.0])}, "ones for the pairs"),
    ("ministral3", {"rope.scaling.yarn_log_multiplier": 0.5}, {}, "only 1 is read beside yarn"),
    ("ministral3", {"rope.scaling.yarn_log_multiplier": None}, {}, "only 1 is read beside yarn"),
    ("ministral3", {"rope.scaling.type": "none"}, {}, "without the yarn scaling"),
    ("ministral3", {"attention.temperature_length": 64}, {}, "attention.temperature_length"),
    ("glm_moe_dsa", {"attention.temperature_scale": 0.1}, {}, "attention.temperature_scale"),
    ("glm_moe_dsa", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("glm_moe_dsa", {"attention.indexer.block_size": 4}, {}, "attention.indexer.block_size"),
    ("paddleocr_vl", {SECTIONS: None}, {}, "a list of four integers"),
    ("paddleocr_vl", {SECTIONS: [1, 1, 1, 1]}, {}, "pair 3 of 4 would not turn"),
    ("paddleocr_vl", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("hunyuan_vl", {"rope.scaling.factor": 2.0, "rope.scaling.type": "linear"}, {}, "linear"),
    ("hunyuan_vl", {"attention.sliding_window": 4}, {}, "hunyuan_vl.attention.sliding_window"),
    ("deepseek_v32", {"attention.temperature_scale": 0.1}, {}, "attention.temperature_scale"),
    ("deepseek_v32 yarn", {"rope.scaling.yarn_log_multiplier": None}, {}, "yarn_log_multiplier"),
    ("mellum", {"rope.freq_base_swa": 500.0}, {}, "has one base (50000.0)"),
    ("mellum", {"rope.dimension_count": 4}, {}, "rotates only a part of its 8"),
    ("hy_v3", {"attention.sliding_window": 4}, {}, "hy_v3.attention.sliding_window"),
    ("baichuan", {"block_count": 31}, {}, "heads of 32 layers turn and those of 40 have ALiBi"),
    ("baichuan", {"attention.head_count_kv": 1}, {}, "only as many as query heads"),
    ("baichuan", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("baichuan__alibi", {"rope.scaling.factor": 2.0}, {}, "rope_scaling"),
    ("baichuan__alibi", {"attention.max_alibi_bias": 4.0}, {}, "attention.max_alibi_bias"),
    ("step3p5", {"rope.dimension_count": 8}, {}, "whether full layers turn it or its half"),
    ("step3p5", {"rope.dimension_count": 4}, {}, "rotates only a part of its 8"),
    ("step3p5", {"rope.dimension_count_swa": 8}, {}, "rope.dimension_count_swa"),
    ("step3p5", {"attention.key_length": None}, {}, "it must be stated"),
    ("step3p5", {"attention.key_length": 6}, {}, "half of a head must consist of pairs"),
    ("step3p5", {PATTERN: None}, {}, "it must list which layers slide"),
    ("step3p5", {PATTERN: [True]}, {}, "it must list which layers slide"),
    ("step3p5", {"attention.head_count": [3]}, {}, "it must list all of 2 layers"),
    ("step3p5", {PATTERN: [True, True]}, {}, "for all layers of a type"),
    ("step3p5", {"attention.head_count_kv": [1, 2]}, {}, "differs between layers"),
    ("step3p5", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("step3p5", {}, {"rope_freqs.weight": ONES[:2]}, "must hold 4 positive divisors"),
    ("step3p5", {}, {"rope_freqs.weight": ONES - 1}, "must hold 4 positive divisors"),
    ("qwen3_vl", {SECTIONS: None}, {}, "a list of four integers"),
    ("qwen3_vl", {SECTIONS: [2, 1, 1]}, {}, "a list of four integers"),
    ("qwen3_vl", {SECTIONS: [0, 0, 0, 0]}, {}, "sections hold pairs"),
    ("qwen3_vl_moe", {SECTIONS: [0, 0, 0, 4]}, {}, "with which no pair would turn"),
    ("qwen3_vl", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("qwen3_vl", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("qwen3_vl", {"rope.dimension_count": 4}, {}, "rotates only a part of its 8"),
    ("qwen3", {"n_deepstack_layers": 3}, {}, "qwen3.n_deepstack_layers"),
    ("phimoe", {"attention.sliding_window": 6}, {}, "some programs apply and others ignore"),
    ("phimoe", {}, {"rope_factors_long.weight": ONES}, "short and long ones together"),
    ("phimoe", {}, {"blk.0.attn_qkv.weight": np.ones((64, 32))}, "attn_qkv"),
    ("chameleon", {"attention.clamp_kqv": 2.0}, {}, "chameleon.attention.clamp_kqv"),
    ("chameleon", {"attention.key_length": 4}, {}, "share embedding_length=32 among 4"),
    ("qwen3", {"swin_norm": True}, {}, "qwen3.swin_norm"),
    ("kimi_linear", {}, {"blk.1.attn_kv_b.weight": np.ones((27, 10))}, "in another order than"),
    ("kimi_linear", {"rope.scaling.factor": 2.0}, {}, "scales RoPE by linear"),
    ("kimi_linear", {"attention.temperature_scale": 0.1}, {}, "attention.temperature_scale"),
    ("kimi_linear", {"rope.dimension_count": 10}, {}, "less than the head's 10"),
    ("minicpm3", {"attention.key_length_mla": 10}, {}, "attention.key_length_mla"),
    ("minicpm3", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0}, {}, "yarn"),
    ("minicpm3", {}, {"rope_factors_long.weight": ONES[:2]}, "short and long ones together"),
    ("minicpm3", {}, dict.fromkeys(FACTORS_BY_LENGTH, ONES), "must hold 2 numbers each"),
    ("mistral4", {"attention.temperature_scale": 0.1}, {}, "by the original length of yarn, 16"),
    ("mistral4", {"rope.scaling.yarn_log_multiplier": None}, {}, "yarn_log_multiplier"),
    ("t5", {"attention.scale": 8**-0.5}, {}, "logits of this architecture have none"),
    ("t5__decoder", {}, {"dec.blk.1.attn_rel_b.weight": np.ones((8, 2))}, "biases of their own"),
    ("t5", {}, {"enc.blk.1.attn_rel_b.weight": np.ones((8, 3))}, "biases of their own"),
]


@pytest.mark.parametrize(
    ("name", "tensor", "refused_as"),
    [
        ("nomic_bert", "attn_qkv.bias", "attn.Wqkv.bias"),
        ("nomic_bert", "attn_norm_2.weight", "attn.attn_norm_2.weight"),
        ("jina_embeddings_v3", "attn_q_norm.weight", "mixer.attn_q_norm.weight"),
    ],
)
def test_a_tensor_that_a_rotated_bert_does_not_read_refuses_its_layer(
    tmp_path, name, tensor, refused_as
):
    path = changed(tmp_path, name, {}, {f"blk.1.{tensor}": np.ones(72, np.float32)})
    found = plan(open_checkpoint(path))
    (module,) = found.refused
    assert f"tensor encoder.layers.1.{refused_as} is not known to this family" in module.reason
    assert [layer.layer for layer in found.layers] == [0]


@pytest.mark.parametrize(
    ("name", "change", "tensors", "match"), REFUSED, ids=[f"{r[0]} {r[3]}" for r in REFUSED]
)
def test_what_an_architecture_does_not_have_is_refused_by_name(
    tmp_path, name, change, tensors, match
):
    name = {"gptneox": "gpt_neox"}.get(name, name)
    path = changed(tmp_path, name, change, tensors)
    refused(UnsupportedError, match, lambda: plan(open_checkpoint(path)))


def test_an_attention_factor_that_yarn_files_state_for_themselves_is_refused(tmp_path):
    model = Model(DATA / "olmo3__yarn")
    write(model, tmp_path / "m.gguf")
    refused(UnsupportedError, "yarn_attn_factor", open_checkpoint, tmp_path / "m.gguf")


def test_sliding_layers_of_olmo3_do_not_scale_their_rotation(tmp_path):
    source = Model(DATA / "olmo3__yarn")
    inner = {k: v for k, v in source.rope.items() if k != "attention_factor"}
    config = {ROPE: {"full_attention": inner, "sliding_attention": source.local}}
    model = Model(DATA / "olmo3__yarn", config)
    write(model, tmp_path / "m.gguf")
    arrays = {n: model.source.read(n) for n in model.source.names}
    expected = plan(from_arrays(arrays, model.config))
    found = plan(open_checkpoint(tmp_path / "m.gguf"))
    same_heads(found, expected)
    assert found.model["rope_type"] == "default, yarn"


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2", "gpt_neox", "qwen3"])
@pytest.mark.parametrize("stem", ["attn_q_extra", "attn_q.scale", "strange"])
def test_an_unknown_tensor_in_a_layer_refuses_its_attention(tmp_path, name, stem):
    tensor = f"blk.1.{stem}" if "." in stem else f"blk.1.{stem}.weight"
    path = changed(tmp_path, name, {}, {tensor: ONES})
    found = plan(open_checkpoint(path))
    assert [layer.layer for layer in found.layers] == [0]
    (module,) = found.refused
    assert "not known to this family" in module.reason


@pytest.mark.parametrize("period", [1, 2, 3])
def test_full_layers_of_modernbert_come_first_in_their_period(tmp_path, period):
    path = changed(tmp_path, "modernbert", {"attention.sliding_window_pattern": period})
    layers = plan(open_checkpoint(path)).layers
    windows = [next(iter(layer.heads()))[2].window for layer in layers]
    assert windows == [None, None if period == 1 else 6]
    path = changed(tmp_path, "modernbert", {"attention.sliding_window": 0})
    layers = plan(open_checkpoint(path)).layers
    assert [next(iter(layer.heads()))[2].window for layer in layers] == [None, None]
    for key in ("rope.freq_base_swa", "attention.causal"):
        path = changed(tmp_path, "modernbert", {key: None})
        refused(CheckpointError, key, open_checkpoint, path)


def test_layers_behind_the_last_one_are_drafts(tmp_path):
    """Files of GLM 4.5 and others count them as blocks, and beside those."""
    metadata, arrays = converted("glm4_moe")
    drafts = {n.replace("blk.1", "blk.2"): a for n, a in arrays.items() if n.startswith("blk.1")}
    drafts |= {"blk.2.nextn.eh_proj.weight": np.ones((24, 48)), "blk.2.nextn.enorm.weight": ONES}
    assert metadata["glm4moe.block_count"] == 3
    found = plan(open_checkpoint(changed(tmp_path, "glm4_moe", {}, drafts)))
    assert [layer.layer for layer in found.layers] == [0, 1]
    assert not found.refused
    assert found.model["layers"] == 2
    assert "draft layer for multi-token prediction" in {s.reason for s in found.skipped}


@pytest.mark.parametrize(
    ("change", "tensors", "match"),
    [
        ({"attention.head_count_kv": 4}, {}, "must have (heads + 2 x key heads) x head_dim = (4 +"),
        ({}, {"blk.1.attn_qkv.weight": np.ones((63, 32))}, "Got 63 rows."),
        ({}, {"blk.1.attn_qkv.bias": np.ones(65)}, "Got 65 rows."),
        ({}, {"blk.1.attn_qkv.weight": np.ones((0, 32))}, "Got 0 rows."),
        ({}, {"blk.1.attn_k.weight": np.ones((16, 32))}, "hold one projection twice"),
    ],
)
def test_three_projections_in_one_tensor_must_fit(tmp_path, change, tensors, match):
    path = changed(tmp_path, "glm fused", change, tensors)
    refused(CheckpointError, match, open_checkpoint, path)


def test_a_bias_of_three_projections_must_be_plain(tmp_path):
    quantised = (int(gguf.GGMLQuantizationType.Q8_0), (64,), bytes(68))
    path = changed(tmp_path, "glm fused", {}, {"blk.0.attn_qkv.bias": quantised})
    refused(UnsupportedError, "quantised as Q8_0 across projections", open_checkpoint, path)


def test_rows_of_three_projections_in_one_tensor_are_those_of_three(tmp_path):
    for name in ("glm", "glm fused"):
        write(golden(name), tmp_path / f"{name}.gguf")
    apart, fused = (open_checkpoint(tmp_path / f"{n}.gguf") for n in ("glm", "glm fused"))
    assert set(apart.names) == set(fused.names)
    for name in apart.names:
        assert apart.info(name).shape == fused.info(name).shape
        assert apart.info(name).nbytes == fused.info(name).nbytes
        for rows in (None, slice(0, 0), slice(3, 9), slice(8, 16)):
            np.testing.assert_array_equal(apart.read(name, rows), fused.read(name, rows))


@pytest.mark.parametrize("drafts", [3, 2**31 - 1])
def test_there_must_be_layers_that_are_no_drafts(tmp_path, drafts):
    path = changed(tmp_path, "glm4_moe", {"nextn_predict_layers": drafts})
    refused(CheckpointError, "must be less than block_count=3", open_checkpoint, path)


def test_exaone4_of_64_layers_has_windows_that_turn_and_full_layers_that_rest(tmp_path):
    change = {"block_count": 64, "attention.sliding_window": 6}
    found = open_checkpoint(changed(tmp_path, "exaone4__no_window", change)).config
    assert found["sliding_window"] == 6
    assert found["layer_types"] == (["sliding_attention"] * 3 + ["full_attention"]) * 16
    change = {"block_count": 64, "attention.sliding_window": None}
    found = open_checkpoint(changed(tmp_path, "exaone4__no_window", change)).config
    assert found["sliding_window"] == 4096


KINDS = {  # by layer: whether it turns, and what a query sees
    "cohere2": [(True, 6), (True, 6), (True, 6), (False, None)],
    "mellum": [(True, 6), (True, 6), (True, 6), (True, None)],
    "afmoe": [(True, 6), (True, 6), (True, 6), (False, None)],
    "exaone_moe": [(True, 6), (True, 6), (True, 6), (False, None)],
    "llama4_text": [(True, 8192), (True, 8192), (True, 8192), (False, None)],
    "gemma3_text encoder": [(True, 4)] * 5 + [(True, None)],  # of 6, 3 on each side
    "gemma3n_text": [(True, 6), (True, 6), (True, 6), (True, 6), (True, None)],
}


@pytest.mark.parametrize("name", KINDS)
def test_the_last_layer_of_a_period_is_the_full_one(tmp_path, name):
    """The golden checkpoints have two layers, which are fewer than these periods."""
    _, arrays = converted(name)
    kinds = KINDS[name]
    more = {
        tensor.replace("blk.1.", f"blk.{layer}."): values
        for layer in range(2, len(kinds))
        for tensor, values in arrays.items()
        if tensor.startswith("blk.1.")
    }
    change = {"block_count": len(kinds), PATTERN: None}
    found = plan(open_checkpoint(changed(tmp_path, name, change, more)))
    assert not found.refused
    heads = [next(layer.heads())[2] for layer in found.layers]
    assert [(head.rotary is not None, head.window) for head in heads] == kinds
    grow = [head.growth is not None for head in heads]
    assert grow == [name == "llama4_text" and not turns for turns, _ in kinds]
    if name == "llama4_text":
        assert all(head.chunked for head in heads[:3])
        growth = heads[3].growth
        assert (growth.rate, growth.period, growth.first) == (0.1, 8192, 1)
        assert [head.reach.query_norm is None for head in heads] == [False] * 3 + [True]
    assert all(head.causal == (name != "gemma3_text encoder") for head in heads)
    if name == "gemma3n_text":
        bases = [head.rotary.frequencies_at(2)[1] for head in heads]
        assert bases[3] == pytest.approx(1e3**-0.25)
        assert bases[4] == pytest.approx(5e4**-0.25)


def test_llama4_with_128_experts_has_no_qk_norm(tmp_path):
    for experts in (16, 128):
        found = plan(open_checkpoint(changed(tmp_path, "llama4_text", {"expert_count": experts})))
        head = next(found.layers[0].heads())[2]
        assert (head.reach.query_norm is None) == (experts == 128)


def test_gemma3n_reads_keys_of_earlier_layers_from_the_21st_on(tmp_path):
    change = {"block_count": 35, "attention.shared_kv_layers": 15}
    found = open_checkpoint(changed(tmp_path, "gemma3n_text", {PATTERN: None} | change)).config
    assert found["num_kv_shared_layers"] == 15
    change["attention.shared_kv_layers"] = 14
    path = changed(tmp_path, "gemma3n_text", {PATTERN: None} | change)
    refused(UnsupportedError, "15 of 35 layers read keys", open_checkpoint, path)


@pytest.mark.parametrize(
    "name", ["deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm_ocr", "hy_v3", "step3p5"]
)
def test_draft_layers_are_skipped(tmp_path, name):
    metadata, arrays = converted(name)
    prefix = metadata["general.architecture"]
    drafts = {n.replace("blk.1", "blk.2"): a for n, a in arrays.items() if n.startswith("blk.1")}
    drafts |= {"blk.2.nextn.eh_proj.weight": np.ones((24, 48)), "blk.2.nextn.enorm.weight": ONES}
    change = {"block_count": metadata[f"{prefix}.block_count"] + 1, "nextn_predict_layers": 1}
    found = plan(open_checkpoint(changed(tmp_path, name, change, drafts)))
    assert [layer.layer for layer in found.layers] == [0, 1]
    assert not found.refused
    assert "draft layer for multi-token prediction" in {s.reason for s in found.skipped}


def test_mistral3_without_a_temperature_is_llamas_attention(tmp_path):
    change = {"attention.temperature_scale": None, "rope.scaling.type": "none"}
    found = open_checkpoint(changed(tmp_path, "ministral3", change)).config
    assert found["model_type"] == "llama"
    assert "rope_parameters" not in found


@pytest.mark.parametrize(
    "value", [3, "x", [0, 0], [1], [], [-1, 1], [True, False], [0.0, 1.0], None, ["a", "b"]]
)
@pytest.mark.parametrize("name", ["lfm2", "granitemoehybrid", "kimi_linear"])
def test_key_heads_of_a_mixed_model_are_a_list(tmp_path, name, value):
    value = b"\x09\0\0\0\x04\0\0\0" + bytes(8) if value == [] else value
    if value == [-1, 1]:
        value = b"\x09\0\0\0\x05\0\0\0\x02" + bytes(7) + b"\xff\xff\xff\xff\1\0\0\0"
    path = changed(tmp_path, name, {"attention.head_count_kv": value})
    refused(CheckpointError, "a list of integers from 0 on", open_checkpoint, path)


def test_corrections_of_the_choice_of_experts_act_on_no_attention(tmp_path):
    path = changed(tmp_path, "dots1", {}, {"blk.1.exp_probs_b.bias": ONES})
    found = plan(open_checkpoint(path))
    assert not found.refused
    assert len(found.layers) == 2


ABSURD = [
    ("attention.head_count", 2**31 - 1),
    ("attention.head_count", 10**6),
    ("attention.head_count_kv", 2**31 - 1),
    ("attention.head_count_kv", 3),
    ("attention.key_length", 2**31 - 2),
    ("attention.key_length", 2**16),
    ("attention.key_length", 7),
    ("embedding_length", 2**31 - 1),
    ("block_count", 2**31 - 1),
    ("block_count", 10**5),
    ("context_length", "many"),
    ("rope.dimension_count", 2**31 - 2),
    ("rope.freq_base", float("inf")),
    ("rope.freq_base", 1e-300),
    ("attention.layer_norm_rms_epsilon", float("nan")),
    ("attention.layer_norm_rms_epsilon", None),
    ("attention.layer_norm_epsilon", 0.0),
    ("attention.sliding_window", 2**31),
    ("attention.sliding_window", "six"),
    ("attention.sliding_window_pattern", "abc"),
    ("attention.sliding_window_pattern", [True]),
    ("attention.scale", -1.0),
    ("attention.scale", float("nan")),
    ("attn_logit_softcapping", -2.0),
    ("attention.causal", "yes"),
    ("rope.scaling.finetuned", 3),
    ("expert_count", -1.0),
    ("expert_count", "x"),
    ("full_attention_interval", 0),
    ("full_attention_interval", -2.0),
    ("nextn_predict_layers", "x"),
    ("attention.max_alibi_bias", -1.0),
    ("attention.max_alibi_bias", float("nan")),
    ("attention.clamp_kqv", -1.0),
    ("attention.clamp_kqv", "x"),
    ("attention.indexer.top_k", None),
    ("attention.indexer.top_k", 0),
    ("attention.indexer.top_k", "x"),
    ("swin_norm", None),
    ("swin_norm", "x"),
    ("attention.kv_lora_rank", None),
    ("attention.kv_lora_rank", "x"),
    ("attention.kv_lora_rank", 2**31 - 1),
    ("attention.q_lora_rank", 0),
    ("attention.q_lora_rank", 3),
    ("attention.key_length_mla", 1e9),
    ("attention.value_length_mla", 2**31 - 1),
    ("rope.dimension_count", 3),
]
FAMILIES = ["bert", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "phi3__longrope"]
FAMILIES += ["gemma4_text", "gemma3n_text", "llama4_text", "ministral3", "t5__decoder"]
FAMILIES += ["glm fused", "gemma3_text encoder"]
FAMILIES += ["mpt", "dbrx", "cohere2", "glm4_moe", "lfm2", "qwen3_5_text", "exaone4__no_window"]
FAMILIES += ["step3p5", "glm_moe_dsa", "qwen3_vl", "chameleon", "phimoe"]
FAMILIES += ["kimi_linear", "minicpm3", "mistral4 tempered"]
FAMILIES += ["modernbert", "falcon", "falcon__new_decoder", "gpt_bigcode", "phi"]


@pytest.mark.parametrize(("key", "value"), ABSURD, ids=[f"{k}={v}" for k, v in ABSURD])
@pytest.mark.parametrize("name", FAMILIES)
def test_absurd_metadata_is_refused_or_means_what_it_says(tmp_path, name, key, value):
    """One line and no explosion; where a family has no use for a key, nothing changes."""
    path = changed(tmp_path, name, {key: value})
    tracemalloc.start()
    try:
        found = plan(open_checkpoint(path))
        heads = sum(1 for layer in found.layers for _ in layer.heads())
        assert heads == sum(layer.query_heads for layer in found.layers)
    except DispersionError as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) < 700
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 * 2**20


def test_an_encoder_must_say_whether_it_is_causal(tmp_path):
    path = changed(tmp_path, "bert", {"attention.causal": None})
    refused(CheckpointError, "bert.attention.causal must be true or false", open_checkpoint, path)
    path = changed(tmp_path, "bert", {"attention.causal": True})
    _, _, head = next(plan(open_checkpoint(path)).layers[0].heads())
    assert head.causal


@pytest.mark.parametrize(
    ("name", "change", "tensors", "code"),
    [
        ("qwen3", {}, {}, 0),
        ("gemma2", {}, {}, 0),
        ("kimi_linear", {}, {}, 0),
        ("qwen3_vl", {SECTIONS: [1, 2, 1, 0]}, {}, 0),
        ("chameleon", {"swin_norm": None}, {}, 2),
        ("minicpm3", {"attention.kv_lora_rank": None}, {}, 2),
        ("mistral4", {}, {"blk.0.attn_v_b.weight": None}, 2),
        ("step3p5", {"rope.dimension_count": 8}, {}, 3),
        ("bert", {"block_count": 2**31 - 1}, {}, 2),
        ("gpt_oss", {"attention.sliding_window": "x"}, {}, 2),
        ("llama", {"attention.head_count": 3}, {}, 2),
        ("olmo", {"attention.clamp_kqv": 8.0}, {}, 3),
        ("granite", {"attention.scale": None}, {}, 2),
        ("phi3", {"rope.scaling.type": "spiral"}, {}, 3),
        ("qwen2", {}, {"blk.0.attn_q.weight": np.ones((5, 5), np.float32)}, 2),
        ("stablelm", {}, {"blk.0.attn_q.bias": np.full(32, np.nan, np.float32)}, 2),
    ],
)
def test_the_command_line_answers_in_one_line(tmp_path, capsys, name, change, tensors, code):
    path = changed(tmp_path, name, change, tensors)
    assert main(["check", str(path), "--length", "16"]) == code
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert len(lines) == (0 if code == 0 else 1), printed.err
    assert ("Can a head" in printed.out) == (code == 0)


def test_a_truncated_file_is_refused(tmp_path):
    model = Model(DATA / "gpt2")
    write(model, tmp_path / "m.gguf")
    raw = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(raw[:-4])
    refused(CheckpointError, "ends at", open_checkpoint, tmp_path / "cut.gguf")


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt_neox", "gemma", "llama__old_dialect"])
def test_heads_that_do_not_share_the_width_are_refused(tmp_path, name):
    change = {"attention.head_count": 5, "attention.key_length": None}
    path = changed(tmp_path, name, change | {"rope.dimension_count": None})
    refused(CheckpointError, "must divide", lambda: open_checkpoint(path))


def test_the_architecture_table_holds_no_unused_fields():
    fields = {f.name for f in dataclasses.fields(next(iter(ARCHITECTURES.values())))}
    plain = ARCHITECTURES["qwen3"]
    for field in fields - {"model_type"}:
        assert any(getattr(a, field) != getattr(plain, field) for a in ARCHITECTURES.values())
