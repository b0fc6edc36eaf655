"""T5Gemma and Moonshine: two stacks that turn, and what the decoder makes of the encoder."""

import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data" / "t5gemma"


def arrays():
    checkpoint = open_checkpoint(DATA)
    return {name: checkpoint.read(name) for name in checkpoint.names}, dict(checkpoint.config)


def read(keep=lambda _: True, **changes):
    tensors, config = arrays()
    return plan(from_arrays({n: a for n, a in tensors.items() if keep(n)}, config | changes))


def first(layer):
    return next(iter(layer.heads()))[2]


def test_cross_attention_is_capped_and_does_not_turn():
    found = read()
    heads = {layer.module.removeprefix("model."): first(layer) for layer in found.layers}
    assert list(heads) == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.cross_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.cross_attn",
    ]
    assert [h.causal for h in heads.values()] == [False, True, False, True, False]
    assert [h.rotary is None for h in heads.values()] == [False, False, True, False, True]
    # six keys to each side of a query, or six with itself
    assert [h.window for h in heads.values()] == [7, 6, None, None, None]
    assert {h.soft_cap for h in heads.values()} == {15.0}
    assert all(24**-0.5 in h.scale for h in heads.values())
    cross = found.layers[2]
    assert "model.decoder.layers.0.pre_cross_attn_layernorm.weight" in cross.tensors
    assert "model.encoder.norm.weight" in cross.tensors


def test_an_encoder_alone_is_read():
    found = read(lambda name: "encoder." in name)
    assert [layer.module for layer in found.layers] == ["model.encoder.layers.0.self_attn"]
    assert not found.refused


def test_an_encoder_of_another_width_is_bounded_without_witnesses():
    tensors, config = arrays()
    for name, array in tensors.items():
        cross = "cross_attn.k_proj" in name or "cross_attn.v_proj" in name
        if cross or ("encoder." in name and array.shape[-1] == 16 and "o_proj" not in name):
            tensors[name] = np.concatenate([array, 0.5 * array], axis=-1)
    config["encoder"] = config["encoder"] | {"hidden_size": 32, "head_dim": 8}
    found = plan(from_arrays(tensors, config))
    for layer, plain in zip(found.layers, read().layers, strict=True):
        result = check_head(first(layer), [Target(8)])
        assert math.isfinite(result.spread.upper)
        if layer.module.endswith("cross_attn"):
            assert first(layer).key.matrix.shape[1] == 32
            assert first(layer).query.matrix.shape[1] == 16
            assert result.spread.lower == 0
        else:
            assert (result.spread.lower > 0) is (first(plain).reach is not None)


@pytest.mark.parametrize("encoder", [None, "small", {}])
def test_configs_that_do_not_fit_are_refused(encoder):
    with pytest.raises(CheckpointError, match=r"config\.json must (be a mapping|have num_hidden)"):
        read(encoder=encoder)


def moonshine(drop=(), **changes):
    checkpoint = open_checkpoint(DATA.parent / "moonshine")
    tensors = {name: checkpoint.read(name) for name in checkpoint.names}
    config = {k: v for k, v in (checkpoint.config | changes).items() if k not in drop}
    return plan(from_arrays(tensors, config))


def test_moonshine_turns_neighbours_in_both_stacks_and_not_between_them():
    found = moonshine()
    heads = {layer.module: first(layer) for layer in found.layers}
    assert list(heads) == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.encoder_attn",
    ]
    for module, head in heads.items():
        assert head.causal is ("decoder" in module and "self_attn" in module)
        assert head.reach.centred
        if module.endswith("encoder_attn"):
            assert head.rotary is None
        else:
            assert head.rotary.pairs.tolist() == [[0, 1], [2, 3]]
    reading = [layer.module for layer in found.layers if layer.embedding is not None]
    assert reading == ["decoder.layers.0.self_attn"]


def test_moonshine_turns_nine_tenths_of_a_head_where_its_config_is_silent():
    with pytest.raises(CheckpointError, match=r"head_dim=6, partial_rotary_factor=0\.9"):
        moonshine(drop=("rope_parameters",))  # five of six coordinates cannot turn
    head = first(moonshine(drop=("rope_parameters",), partial_rotary_factor=0.4).layers[0])
    assert head.rotary.pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize("key", ["encoder_num_attention_heads", "decoder_num_key_value_heads"])
def test_heads_of_moonshine_must_be_as_many(key):
    with pytest.raises(UnsupportedError, match=f"as many.*{key}=1"):
        moonshine(**{key: 1})
