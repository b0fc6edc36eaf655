"""Families described as `Blocks`: what their configs may say, in old and new dialects.

Logits of all of them are held to the real modules in test_architectures.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.architectures.layouts import grouped, in_four_parts, stacked
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError, UnsupportedError

DATA = Path(__file__).parent / "data"


def changed(name, changes=None, drop=(), rename=None, extra=None):
    """The plan of a golden checkpoint under another config, other names or more tensors."""
    checkpoint = open_checkpoint(DATA / name)
    rename = rename or (lambda tensor: tensor)
    arrays = {rename(n): checkpoint.read(n) for n in checkpoint.names} | (extra or {})
    config = {k: v for k, v in (checkpoint.config | (changes or {})).items() if k not in drop}
    return plan(from_arrays(arrays, config))


def first_heads(*args, **kwargs):
    return [next(iter(layer.heads()))[2] for layer in changed(*args, **kwargs).layers]


# --- layouts ----------------------------------------------------------------------------------


def test_layouts_say_where_each_head_lies():
    """Against the reshapes of the reference code, on a projection whose outputs are numbered."""
    heads, key_heads, size = 8, 2, 3

    def check(fused, query, key, outputs):
        assert fused.outputs == outputs
        assert list(fused.query) == query[:, 0].tolist()
        assert list(fused.key) == key[:, 0].tolist()

    rows = np.arange((heads + 2 * key_heads) * size)
    query, key, _ = np.split(rows, [heads * size, (heads + key_heads) * size])
    query, key = query.reshape(heads, size), key.reshape(key_heads, size)
    check(stacked(heads, key_heads, size), query, key, len(rows))

    groups = rows.reshape(key_heads, heads // key_heads + 2, size)
    query = groups[:, :-2].reshape(heads, size)
    check(grouped(heads, key_heads, size), query, groups[:, -2], len(rows))

    rows = np.arange(3 * heads * size)
    query, _, key = np.split(rows.reshape(4, -1), 3, axis=1)
    query, key = query.reshape(heads, size), key.reshape(heads, size)
    check(in_four_parts(heads, heads, size), query, key, len(rows))


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_four_parts_must_hold_whole_heads(heads):
    with pytest.raises(UnsupportedError, match=f"multiple of 4.*Got {heads}"):
        in_four_parts(heads, heads, 8)


# --- sizes and names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("gptj", {"n_embd": "hidden_size", "n_head": "num_attention_heads"}),
        ("gpt_neo", {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"}),
        ("dbrx", {"d_model": "hidden_size", "n_layers": "num_hidden_layers"}),
        ("distilbert", {"dim": "hidden_size", "n_heads": "num_attention_heads"}),
        ("falcon", {"hidden_size": "n_embed"}),
    ],
)
def test_sizes_go_by_the_classs_own_keys_or_the_common_ones(name, names):
    config = open_checkpoint(DATA / name).config
    common = {other: config[own] for own, other in names.items()}
    renamed = changed(name, common, drop=tuple(names))
    assert renamed.model == changed(name).model
    own, other = next(iter(names.items()))
    with pytest.raises(CheckpointError, match=f"{other} in config.json must agree with {own}"):
        changed(name, {other: config[own] + 1})


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("gpt_neo", "transformer."),
        ("opt", "model."),
        ("phi", "model."),
        ("falcon", "transformer."),
        ("dbrx", "transformer."),
        ("modernbert", "model."),
        ("electra", "electra."),
        ("distilbert", "distilbert."),
        ("esm", "esm."),
        ("vit", "vit."),
    ],
)
def test_files_without_a_prefix_are_read_alike(name, prefix):
    usual = changed(name)
    bare = changed(name, rename=lambda tensor: tensor.removeprefix(prefix))
    assert usual.layers[0].module == prefix + bare.layers[0].module
    assert not bare.refused
    reasons = [
        {(s.name.removeprefix(prefix), s.reason, s.count) for s in found.skipped}
        for found in (usual, bare)
    ]
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("gpt_neo", ["attn.attention.bias", "attn.attention.masked_bias"]),
        ("gptj", ["attn.bias", "attn.masked_bias"]),
        ("codegen", ["attn.causal_mask"]),
        ("gpt_bigcode", ["attn.bias"]),
        ("falcon", ["self_attention.rotary_emb.inv_freq"]),
        ("phi", ["self_attn.rotary_emb.inv_freq"]),
        ("esm", ["attention.self.rotary_embeddings.inv_freq"]),
    ],
)
def test_buffers_of_old_files_are_known(name, extra):
    module = changed(name).layers[0].module
    root = module[: module.index(".0.") + 3]
    found = changed(name, extra={root + each: np.ones(4, np.float32) for each in extra})
    assert len(found.layers) == 2
    assert not found.refused


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("gpt_neo", "attn.attention.q_proj.bias"),
        ("opt__postnorm", "self_attn.q_proj.bias"),
        ("phi", "self_attn.q_layernorm.weight"),
        ("stablelm", "self_attn.q_layernorm.norms.0.weight"),
        ("falcon", "ln_attn.weight"),
        ("dbrx", "norm_attn_norm.norm_1.bias"),
        ("modernbert", "attn.q_norm.weight"),
        ("vit", "attention.attention.relative_bias"),
    ],
)
def test_a_tensor_that_the_config_does_not_account_for_refuses_its_layer(name, tensor):
    module = changed(name).layers[1].module
    root = module[: module.index(".1.") + 3]
    found = changed(name, extra={root + tensor: np.ones(4, np.float32)})
    assert [layer.layer for layer in found.layers] == [0]
    assert tensor in found.refused[0].reason


def test_old_names_of_norms_are_known():
    found = changed(
        "electra",
        rename=lambda n: n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"),
    )
    assert not found.refused
    assert len(found.layers) == 2
    assert any("gamma" in name for name in open_checkpoint(DATA / "esm").names)


# --- what a config says -----------------------------------------------------------------------


def test_windows_of_gpt_neo_follow_either_key():
    def windows(changes, drop=()):
        return [h.window for h in first_heads("gpt_neo", changes, drop)]

    assert windows({}) == [None, 6]
    both = {"attention_layers": ["local", "global"]}
    assert windows(both, drop=("attention_types",)) == [6, None]
    assert windows({"attention_types": [[["local"], 2]], "attention_layers": None}) == [6, 6]
    assert windows(
        {"attention_types": [[["local"], 1], [["global"], 1]]}, ("attention_layers",)
    ) == [6, None]
    assert windows({}, drop=("window_size",)) == [None, 256]
    with pytest.raises(CheckpointError, match=r"attention_layers.*attention_types says"):
        windows(both)
    for wrong in (
        [[["local"], 3]],
        [["local", 2]],
        "local",
        [[["axial"], 2]],
        [[["local"], 10**9]],
    ):
        with pytest.raises(CheckpointError, match="attention_types"):
            windows({"attention_types": wrong, "attention_layers": None})
    # The class's own default makes up 24 layers.
    with pytest.raises(CheckpointError, match="2 layers"):
        windows({}, drop=("attention_types", "attention_layers"))


def test_logits_of_gpt_neo_are_not_scaled():
    assert {h.scale for h in first_heads("gpt_neo")} == {Enclosure.exact(1.0)}
    assert {h.scale for h in first_heads("gpt_bigcode__headwise")} == {Enclosure.exact(1.0)}
    assert 8**-0.5 in first_heads("gpt_bigcode")[0].scale


def test_windows_of_modernbert_count_the_keys_of_one_side():
    def windows(name, changes=None, drop=()):
        return [h.window for h in first_heads(name, changes, drop)]

    assert windows("modernbert") == windows("modernbert__old_dialect") == [None, 6]
    assert windows("modernbert", {"local_attention": 7}) == [None, 4]
    silent = ("layer_types", "global_attn_every_n_layers", "local_attention")
    assert windows("modernbert__old_dialect", drop=silent) == [None, 65]
    assert not any(h.causal for h in first_heads("modernbert"))
    # Saved beside `local_attention`, or instead of it, it is what the classes count with.
    both = {"local_attention": 10, "sliding_window": 6}
    assert windows("modernbert", both) == [None, 7]
    assert windows("modernbert_decoder", both) == [None, 6]
    with pytest.raises(CheckpointError, match=r"sliding_window in config.json must be set"):
        windows("modernbert_decoder", {"sliding_window": None})


def test_rotations_follow_each_class_where_the_config_is_silent():
    def thetas(name, drop):
        rotary = [h.rotary for h in first_heads(name, drop=drop)]
        return [(len(r.frequencies), r.frequencies[-1]) for r in rotary]

    def power(theta, pairs):
        return pairs, pytest.approx(theta ** -((pairs - 1) / pairs), rel=1e-14)

    new = ("rope_parameters",)
    assert thetas("phi", new) == [power(1e4, 2)] * 2
    assert thetas("phimoe", new) == [power(1e6, 4)] * 2
    assert thetas("chameleon", new) == [power(1e4, 4)] * 2
    assert thetas("stablelm", new) == [power(1e4, 1)] * 2
    assert thetas("persimmon", new) == [power(1e4, 2)] * 2
    old = ("global_rope_theta", "local_rope_theta")
    assert thetas("modernbert__old_dialect", old) == [power(160000.0, 4), power(1e4, 4)]
    assert thetas("esm", ("rope_theta",)) == [power(1e4, 4)] * 2


def test_modernberts_bases_may_stand_beside_nested_parameters():
    kinds = ("full_attention", "sliding_attention")
    nested = {"rope_parameters": {kind: {"rope_type": "default"} for kind in kinds}}
    both = nested | {"global_rope_theta": 100.0, "local_rope_theta": 16.0}
    null = both | {"rope_parameters": dict.fromkeys(kinds)}
    cases = (both, (100.0, 16.0)), (null, (100.0, 16.0)), (nested, (160000.0, 10000.0))
    for changes, thetas in cases:
        heads = first_heads("modernbert", changes)
        for head, theta in zip(heads, thetas, strict=True):
            assert head.rotary.frequencies == pytest.approx(theta ** -(np.arange(4) / 4), rel=1e-14)


def test_dbrx_takes_its_base_from_either_place():
    inner = {"attn_config": {"kv_n_heads": 2, "rope_theta": 300.0}}
    outer = {"attn_config": {"kv_n_heads": 2}, "rope_theta": 300.0}
    for changes in (inner, outer):
        rotary = first_heads("dbrx", changes, drop=("rope_parameters",))[0].rotary
        assert rotary.frequencies == pytest.approx(300.0 ** -(np.arange(4) / 4), rel=1e-14)


@pytest.mark.parametrize("name", ["phi", "stablelm", "chameleon"])
def test_key_heads_follow_each_class_where_the_config_is_silent(name):
    # phi: as many as queries; the others: 32, which 4 queries cannot share.
    words = "k_proj" if name == "phi" else "num_key_value_heads must divide"
    with pytest.raises(CheckpointError, match=words):
        changed(name, drop=("num_key_value_heads",))


OLD_FALCON = ("num_hidden_layers", "num_attention_heads", "num_kv_heads", "multi_query")
OLD_FALCON += ("new_decoder_architecture", "rope_parameters", "rope_theta")


def old_falcon(name, changes=None, drop=()):
    """A golden checkpoint with a config as the files' own code had it."""
    own = {"n_layer": 2, "n_head": 4}
    if name == "falcon":
        own |= {"model_type": "RefinedWebModel", "multi_query": True}
    else:
        own |= {"model_type": "RefinedWeb", "n_head_kv": 2}
    drop = [key for key in (*OLD_FALCON, *drop) if key not in (own | (changes or {}))]
    return changed(name, own | (changes or {}), drop=drop)


@pytest.mark.parametrize("name", ["falcon", "falcon__new_decoder"])
def test_falcons_older_model_types_are_the_same_models(name):
    found, today = old_falcon(name), changed(name)
    assert found.family == "falcon"
    assert len(found.layers) == 2
    assert not found.refused
    assert found.model["key_heads"] == today.model["key_heads"]
    for mine, theirs in zip(found.layers, today.layers, strict=True):
        assert mine.tensors == theirs.tensors
        for (*place, head), (*where, expected) in zip(mine.heads(), theirs.heads(), strict=True):
            assert place == where
            np.testing.assert_array_equal(head.query.matrix, expected.query.matrix)
            np.testing.assert_array_equal(head.key.matrix, expected.key.matrix)
            frequencies = 1e4 ** -(np.arange(4) / 4)
            np.testing.assert_allclose(head.rotary.frequencies, frequencies, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("falcon", {"multi_query": False}, "multi_query .* must be true"),
        ("falcon", {"multi_query": None}, "multi_query .* Got None"),
        ("falcon", {"n_head_kv": 2}, "n_head_kv .* must be absent"),
        ("falcon", {"alibi": True}, "alibi .* must be false"),
        ("falcon", {"rope_theta": 5e3}, "rope_theta .* must be absent"),
        ("falcon__new_decoder", {"parallel_attn": False}, "parallel_attn .* must be true"),
        ("falcon__new_decoder", {"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ("falcon__new_decoder", {"alibi": None}, "alibi .* for model_type RefinedWeb"),
    ],
)
def test_other_variants_of_falcons_older_model_types_are_refused(name, changes, words):
    with pytest.raises(UnsupportedError, match=words):
        old_falcon(name, changes)


def test_falcons_older_configs_must_have_their_sizes():
    with pytest.raises(CheckpointError, match="must have n_head_kv"):
        old_falcon("falcon__new_decoder", {"n_head_kv": None})
    with pytest.raises(CheckpointError, match="must have n_layer"):
        old_falcon("falcon", {"n_layer": None, "num_hidden_layers": 2})


def test_falcons_layouts_and_norms_follow_the_config():
    modules = {"falcon": 1, "falcon__new_decoder": 2, "falcon__headwise": 3}
    for name, key_heads in modules.items():
        assert {layer.key_heads for layer in changed(name).layers} == {key_heads}
    silent = ("multi_query", "new_decoder_architecture", "alibi", "parallel_attn")
    assert changed("falcon", drop=silent).model["key_heads"] == 1
    norms = {
        name: changed(name).layers[0].heads.args[1].input_norm.gain.split(".")[-2]
        for name in modules
    }
    assert norms == {
        "falcon": "input_layernorm",
        "falcon__new_decoder": "ln_attn",
        "falcon__headwise": "input_layernorm",
    }
    single = {"num_ln_in_parallel_attn": 1}
    with pytest.raises(CheckpointError, match=r"input_layernorm\.weight"):
        changed("falcon__new_decoder", single)
    # The class takes null for false.
    with pytest.raises(CheckpointError, match="query_key_value"):
        changed("falcon", {"multi_query": None})


def test_positions_stand_behind_the_rows_that_are_no_positions():
    assert changed("opt").learned_positions == 32
    assert changed("opt", drop=("pad_token_id",)).learned_positions == 32
    assert changed("esm__absolute").learned_positions == 30
    assert changed("esm").learned_positions is None
    with pytest.raises(CheckpointError, match="pad_token_id"):
        changed("esm__absolute", drop=("pad_token_id",))
    with pytest.raises(CheckpointError, match=r"embed_positions\.weight must have 42 rows"):
        changed("opt", {"max_position_embeddings": 40})


def test_a_first_layer_without_a_norm_in_front_is_unbounded():
    first, second = first_heads("opt__postnorm")
    assert first.query is None
    assert not first.bounded
    assert second.bounded


def test_each_head_has_the_gain_of_its_own_qk_norm():
    checkpoint = open_checkpoint(DATA / "stablelm__qk_layernorm")
    root = "model.layers.1.self_attn."
    mean = np.eye(8) - 1 / 8
    for index, kv_head, head in plan(checkpoint).layers[1].heads():
        for ball, side, i in ((head.query, "q", index), (head.key, "k", kv_head)):
            gain = checkpoint.read(f"{root}{side}_layernorm.norms.{i}.weight").astype(np.float64)
            np.testing.assert_allclose(ball.matrix, gain[:, None] * mean, rtol=1e-14)
    with pytest.raises(CheckpointError, match=r"1\.self_attn\.k_layernorm\.norms\.1\.weight"):
        changed(
            "stablelm__qk_layernorm",
            rename=lambda n: n.replace("1.self_attn.k_layernorm.norms.1", "1.mlp.other"),
        )


def test_chameleons_norms_carry_biases_and_its_epsilon_is_fixed():
    checkpoint = open_checkpoint(DATA / "chameleon")
    bias = checkpoint.read("model.layers.0.self_attn.q_norm.bias").astype(np.float64)
    for index, _, head in changed("chameleon", {"rms_norm_eps": 0.5}).layers[0].heads():
        np.testing.assert_array_equal(head.query.offset, bias[index])
        assert head.reach.query_norm.eps == 1e-5
        assert head.reach.radius == 32**0.5
    assert all(np.isinf(h.reach.radius) for h in first_heads("chameleon__swin_norm"))


def test_attention_of_another_kind_in_the_same_file_is_refused_by_name():
    pooling = {
        f"head.attention.{part}": np.ones(3, np.float32)
        for part in ("in_proj_weight", "in_proj_bias")
    }
    found = changed("siglip_vision_model", extra=pooling)
    assert [r.name for r in found.refused] == ["head.attention"]
    assert len(found.layers) == 2
    cross = {"transformer.h.0.crossattention.q_attn.weight": np.ones((2, 2), np.float32)}
    found = changed("gpt_bigcode", extra=cross)
    assert [r.name for r in found.refused] == ["transformer.h.*.crossattention"]
    tokenizer = {"model.vqmodel.encoder.mid.attn_1.q.weight": np.ones((2, 2), np.float32)}
    found = changed("chameleon", extra=tokenizer)
    assert [r.name for r in found.refused] == ["model.vqmodel.encoder.mid.attn_1"]


@pytest.mark.parametrize("name", ["vit", "dinov2"])
def test_biases_of_vision_encoders_follow_qkv_bias(name):
    config = json.loads((DATA / name / "config.json").read_text())
    assert config["qkv_bias"] is (name == "vit")
    for layer in changed(name).layers:
        biased = [
            side.bias is not None
            for side in layer.heads.args[1].__dict__.values()
            if hasattr(side, "bias") and hasattr(side, "heads")
        ]
        assert biased == [config["qkv_bias"]] * 2


@pytest.mark.parametrize(
    ("name", "changes", "reads"),
    [
        ("esm", {}, True),
        ("esm", {"emb_layer_norm_before": True}, False),
        ("esm", {"token_dropout": True, "mask_token_id": 2}, True),
        ("esm", {"token_dropout": True, "mask_token_id": None}, False),
        ("esm__absolute", {}, False),
        ("opt", {}, True),
        ("opt", {"word_embed_proj_dim": 8}, False),
        ("opt__postnorm", {"word_embed_proj_dim": None}, False),
    ],
)
def test_first_layers_read_token_ids_where_nothing_else_stands_between(name, changes, reads):
    first = changed(name, changes).layers[0]
    assert (first.embedding is not None) is reads
    if changes.get("token_dropout") and reads:
        assert first.embedding.zeroed == 2
        assert first.embedding.scale.lower < 0.88 < 1e9 < first.embedding.scale.upper
        rows = first.embedding.rows(first.embedding.tokens, slice(1, 4))
        assert np.any(rows[[0, 2]], axis=1).all()
        assert not np.any(rows[1])
