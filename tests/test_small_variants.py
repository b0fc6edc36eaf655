"""What the configs of small variants of known decoders may say, where their code differs."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.picked import PickedHead
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data"
FULL, LINEAR = "full_attention", "linear_attention"


def planned(name, drop=(), **changes):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in (checkpoint.config | changes).items() if k not in drop}
    return plan(from_arrays(arrays, config))


def heads(name, drop=(), **changes):
    """The first head of every layer."""
    return [next(iter(x.heads()))[2] for x in planned(name, drop, **changes).layers]


def layers(name, drop=(), **changes):
    return [x.layer for x in planned(name, drop, **changes).layers]


def test_hybrids_say_in_their_own_ways_which_layers_attend():
    assert layers("jamba") == layers("bamba") == layers("zamba") == [1]
    assert layers("nemotron_h") == layers("nemotron_h__old_dialect") == [1, 3]
    assert layers("zamba2") == [1, 2]
    assert layers("nemotron_h", layers_block_type=None, hybrid_override_pattern="M*-*") == [1, 3]
    assert layers("zamba", layers_block_type=["mamba", "hybrid", "hybrid"]) == [1]
    with pytest.raises(CheckpointError, match=r"attn_layer_offset in config.json must be below"):
        planned("jamba", attn_layer_offset=2)
    with pytest.raises(CheckpointError, match=r"attn_layer_indices .* must list layers in 0\.\.1"):
        planned("bamba", attn_layer_indices=[2])
    with pytest.raises(CheckpointError, match="must have a layer with softmax attention"):
        planned("bamba", attn_layer_indices=None)
    with pytest.raises(CheckpointError, match="hybrid_override_pattern of M, E, "):
        planned("nemotron_h", ["layers_block_type"], hybrid_override_pattern="MX")
    with pytest.raises(UnsupportedError, match=r"attention_head_dim in config.json must be"):
        planned("nemotron_h", attention_head_dim=4)
    with pytest.raises(CheckpointError, match=r"layers_block_type in config.json must list 3"):
        planned("zamba2", layers_block_type=["hybrid"])


def test_attention_in_layers_that_should_have_none_is_refused():
    types = [LINEAR, "mlp", "mlp", FULL]
    found = planned("nemotron_h", layers_block_type=types)
    assert [layer.layer for layer in found.layers] == [3]
    assert [r.name for r in found.refused] == ["backbone.layers.1.mixer"]
    with pytest.raises(CheckpointError, match=r"mixer\.q_proj\.weight"):
        planned("nemotron_h", layers_block_type=[FULL, FULL, "mlp", FULL])


def test_half_of_bambas_heads_turn_whatever_stands_beside_the_rotation():
    for more in ({}, {"partial_rotary_factor": 1.0}):
        rotary = heads("bamba", **more)[0].rotary
        assert len(rotary.pairs) == rotary.head_dim // 4


def test_hybrids_without_rotation_do_not_turn():
    for name in ("jamba", "nemotron_h", "zamba", "zamba2"):
        assert all(head.rotary is None for head in heads(name))
    assert all(head.rotary is not None for head in heads("zamba2__rope"))


def test_zambas_scale_is_that_of_half_a_head():
    for name in ("zamba", "zamba2"):
        head = heads(name)[0]
        assert head.query.head_dim == 8
        assert head.scale.lower <= 1 / math.sqrt(4) <= head.scale.upper
    for key in ("use_shared_attention_adapter", "use_long_context"):
        with pytest.raises(UnsupportedError, match=key):
            planned("zamba2", **{key: True})
    with pytest.raises(UnsupportedError, match=r"attention_head_dim in config.json must be 8"):
        planned("zamba2", attention_head_dim=4)


def test_a_block_that_a_file_holds_twice_is_read_twice():
    checkpoint = open_checkpoint(DATA / "zamba")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    again = {n.replace("layers.1.", "layers.2."): v for n, v in arrays.items() if "shared" in n}
    found = plan(from_arrays(arrays | again, dict(checkpoint.config)))
    assert [layer.layer for layer in found.layers] == [1, 2]
    assert not found.refused


def test_without_a_multiplier_hyperclovax_has_the_usual_scale():
    for drop, changes in ((("attention_multiplier",), {}), ((), {"attention_multiplier": None})):
        head = heads("hyperclovax", drop, **changes)[0]
        assert head.scale.lower <= 1 / math.sqrt(head.query.head_dim) <= head.scale.upper
    assert heads("hyperclovax")[0].scale.lower == 0.21875


def test_internlm3_has_biases_by_either_name():
    assert heads("internlm3")[0].query.offset is not None
    both = heads("internlm3", ["attention_bias"], qkv_bias=True)
    assert both[0].query.offset is not None
    with pytest.raises(CheckpointError, match=r"qkv_bias and attention_bias in config.json must"):
        planned("internlm3", qkv_bias=False)
    refused = planned("internlm3", attention_bias=False).refused
    assert len(refused) == 2
    assert all("bias" in r.reason for r in refused)


def test_iquestcoder_refuses_what_its_code_does():
    for key, value in (("clip_qkv", 8.0), ("use_sliding_window", True)):
        with pytest.raises(UnsupportedError, match=key):
            planned("iquestcoder", **{key: value})
    assert heads("iquestcoder", clip_qkv=None, use_sliding_window=False)


def test_windows_of_variants():
    assert [h.window for h in heads("ministral", ["layer_types"])] == [6, 6]
    without = heads("ministral", ["layer_types"], sliding_window=None)
    assert [h.window for h in without] == [None, None]
    assert [h.window for h in heads("cwm", ["layer_types"])] == [None, 6]
    assert [h.window for h in heads("modernbert_decoder")] == [None, 5]
    assert all(head.causal for head in heads("modernbert_decoder"))


def test_cwm_is_stretched_where_its_config_is_silent():
    assert {h.rotary.kind for h in heads("cwm", ["rope_parameters"])} == {"llama3"}
    assert {h.rotary.kind for h in heads("cwm")} == {"default"}


def test_a_prefix_is_seen_to_both_sides_in_hrm_text():
    assert not any(head.causal for head in heads("hrm_text"))
    assert all(head.causal for head in heads("hrm_text__causal"))
    old = planned("hrm_text", ["num_layers_per_stack"], num_hidden_layers=1)
    assert len(old.layers) == 2
    with pytest.raises(UnsupportedError, match=r"attention_bias in config.json must be false"):
        planned("hrm_text", attention_bias=True)


def test_sarvam_writes_yarn_in_two_ways():
    yarn = {"factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
    yarn["original_max_position_embeddings"] = 4096
    drop = ("rope_parameters", "q_lora_rank")
    one, other = (
        heads("sarvam_mla", drop, rope_scaling=yarn | {key: name}, rope_theta=5000.0)[0]
        for key, name in (("type", "deepseek_yarn"), ("rope_type", "yarn"))
    )
    assert one.scale == other.scale
    assert one.scale.lower > heads("sarvam_mla")[0].scale.upper
    np.testing.assert_array_equal(one.rotary.frequencies, other.rotary.frequencies)


def test_a_share_of_the_rotation_is_ignored_by_ling_unless_it_is_scaled():
    usual, stated = heads("bailing_hybrid"), heads("bailing_hybrid", partial_rotary_factor=0.5)
    np.testing.assert_array_equal(usual[0].rotary.pairs, stated[0].rotary.pairs)
    assert base_of("bailing_hybrid", ["rope_parameters", "rope_theta"]) == pytest.approx(6e6)


def base_of(name, drop=(), **changes):
    """The base of the first head's rotation."""
    found = heads(name, drop, **changes)[0].rotary.frequencies
    return float(found[1]) ** -len(found)


@pytest.mark.parametrize(
    ("name", "base"),
    [("longcat_flash", 1e7), ("bailing_hybrid", 6e6), ("muse_spark_text", 1e4)],
)
def test_rope_parameters_without_a_base_turn_by_the_base_of_their_class(name, base):
    plain = {"rope_type": "default"}
    assert base_of(name, ["rope_theta"], rope_parameters=plain) == pytest.approx(base)


def test_muse_spark_has_another_base_without_rope_parameters():
    assert base_of("muse_spark_text", ["rope_parameters"]) == pytest.approx(5e5)
    assert base_of("muse_spark_text", rope_parameters={}) == pytest.approx(1e4)


def test_phi3_was_trained_on_the_length_beside_its_rope_parameters():
    def scale(drop=(), **changes):
        return heads("phi3__longrope", drop, **changes)[0].scale

    beside = "original_max_position_embeddings"
    assert scale(**{beside: 4096}) == scale([beside])  # where it is silent
    assert scale(**{beside: 64}) == scale()
    assert scale().lower > scale([beside]).upper


def test_minimax_m3_leaves_all_blocks_but_one_and_a_token():
    first, second = heads("minimax_m3_vl_text")
    assert first.window is None
    assert first.reach is not None
    assert isinstance(second, PickedHead)
    assert second.window == 3 * 16 + 1
    old = {"sparse_attention_freq": [1, 0], "sparse_block_size": 4, "sparse_topk_blocks": 2}
    changed = planned("minimax_m3_vl_text", ["layer_types"], sparse_attention_config=old)
    assert [r.reason for r in changed.refused] == []
    windows = [next(iter(layer.heads()))[2].window for layer in changed.layers]
    assert windows == [5, None]
    with pytest.raises(CheckpointError, match=r"layer_types in config.json must list 2 layers"):
        planned("minimax_m3_vl_text", layer_types=[FULL, LINEAR])
    old = {"sparse_attention_freq": 1}
    with pytest.raises(CheckpointError, match=r"sparse_attention_freq of sparse_attention_config"):
        planned("minimax_m3_vl_text", ["layer_types"], sparse_attention_config=old)


def test_a_sink_of_hy_v4_takes_its_share():
    for layer in planned("hy_v4").layers:
        for _, _, head in layer.heads():
            assert head.sink is not None
            without = replace(head, sink=None)
            ceilings = [
                check_head(h, [Target(16)]).results[0].ceiling.upper for h in (head, without)
            ]
            assert ceilings[0] < ceilings[1]
