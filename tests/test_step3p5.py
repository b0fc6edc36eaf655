"""Step 3.5: sizes and rotations by layer type, in the dialects of transformers and of the Hub."""

from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError

FOLDER = Path(__file__).parent / "data" / "step3p5"
FULL, SLIDING = "full_attention", "sliding_attention"
# As on the Hub: lists by layer, with entries of draft layers behind them.
HUB = {
    "num_attention_groups": 1,
    "num_nextn_predict_layers": 1,
    "layer_types": [SLIDING, FULL, SLIDING],
    "rope_theta": [500.0, 50000.0, 500.0],
    "partial_rotary_factors": [1.0, 0.5, 1.0],
    "attention_other_setting": {
        "attention_type": SLIDING,
        "num_attention_heads": 3,
        "num_attention_groups": 1,
        "head_dim": 8,
    },
}
NEW = ("num_key_value_heads", "per_layer_config", "num_sliding_attention_heads", "rope_parameters")


def made(changes=None, drop=(), rename=lambda name: name, extra=None):
    checkpoint = open_checkpoint(FOLDER)
    arrays = {rename(n): checkpoint.read(n) for n in checkpoint.names} | (extra or {})
    config = {k: v for k, v in (checkpoint.config | (changes or {})).items() if k not in drop}
    return plan(from_arrays(arrays, config))


def facts(found):
    """What the config decides of every head."""
    rows = []
    for layer in found.layers:
        for index, kv_head, head in layer.heads():
            frequencies = head.rotary.frequencies.tolist()
            pairs = head.rotary.pairs.tolist()
            rows.append((layer.layer, index, kv_head, head.window, head.scale, frequencies, pairs))
    return rows


def test_both_dialects_say_the_same():
    new, old = made(), made(HUB, drop=NEW)
    assert facts(new) == facts(old)
    assert [layer.query_heads for layer in new.layers] == [3, 2]
    assert [layer.key_heads for layer in new.layers] == [1, 1]
    first, second = (next(iter(layer.heads()))[2] for layer in new.layers)
    assert 11**-0.5 in first.scale
    assert (first.window, second.window) == (6, None)
    assert len(first.rotary.pairs) == 4
    assert len(second.rotary.pairs) == 2
    assert second.rotary.frequencies[1] == pytest.approx(50000.0**-0.5)
    plain = made(HUB | {"query_pre_attn_scalar": None}, drop=NEW)
    assert 8**-0.5 in next(iter(plain.layers[0].heads()))[2].scale


def test_one_base_and_a_scaling_of_full_layers():
    scaled = {"rope_type": "linear", "factor": 4.0}
    changes = HUB | {"rope_theta": 700.0, "rope_scaling": scaled, "partial_rotary_factors": None}
    first, second = (next(iter(p.heads()))[2] for p in made(changes, drop=NEW).layers)
    assert first.rotary.kind == "default"
    assert second.rotary.kind == "linear"
    np.testing.assert_allclose(first.rotary.frequencies, 4 * second.rotary.frequencies)


def test_gains_are_one_plus_the_stored_weight():
    weight = open_checkpoint(FOLDER).read("layers.0.self_attn.q_norm.weight").astype(np.float64)
    head = next(iter(made().layers[0].heads()))[2]
    np.testing.assert_array_equal(np.diag(head.query.matrix), 1 + weight)


def test_a_model_with_images_is_read_without_them():
    text = open_checkpoint(FOLDER).config
    arrays = {"model.vision_model.layers.0.self_attn.q_proj.weight": np.ones((8, 8))}
    found = made(
        {"model_type": "step3p7", "text_config": text},
        rename=lambda name: f"model.language_model.{name}",
        extra=arrays,
    )
    assert len(found.layers) == 2
    assert not found.refused


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rope_theta": [500.0, 50000.0]}, None, ""),
        ({"layer_types": [SLIDING, SLIDING, FULL]}, UnsupportedError, "agree for all layers"),
        ({"rope_theta": [500.0]}, CheckpointError, "rope_theta in config.json must list 2"),
        ({"layer_types": [SLIDING]}, CheckpointError, "layer_types in config.json must list 2"),
        ({"sliding_window": None}, CheckpointError, "sliding_window"),
        ({"attention_other_setting": 3}, CheckpointError, "must be a mapping"),
        (
            {"attention_other_setting": {"num_attention_heads": 3, "head_dim": 16}},
            UnsupportedError,
            "head_dim of attention_other_setting",
        ),
        (
            {"attention_other_setting": {"num_attention_heads": 3, "num_attention_groups": 3}},
            UnsupportedError,
            "num_attention_groups of attention_other_setting",
        ),
        ({"per_layer_config": {"0": {"head_dim": 4}}}, UnsupportedError, "per_layer_config"),
        ({"per_layer_config": [1]}, UnsupportedError, "per_layer_config"),
        ({"num_key_value_heads": 2}, CheckpointError, "must agree"),
        ({"use_rope_layers": [1]}, UnsupportedError, "use_rope_layers"),
        ({"sink": True}, UnsupportedError, "sink"),
        ({"rope_parameters": {"rope_type": "default"}}, CheckpointError, "rope_theta under"),
    ],
)
def test_a_config_that_says_something_else_is_refused(changes, error, words):
    drop = tuple(set(NEW) - set(changes))
    if error is None:
        assert facts(made(HUB | changes, drop=drop)) == facts(made())
        return
    with pytest.raises(error, match=words):
        made(HUB | changes, drop=drop)


def test_heads_must_share_their_keys_evenly():
    changes = {"attention_other_setting": None, "num_sliding_attention_heads": 3}
    drop = tuple(set(NEW) - set(changes))
    assert facts(made(HUB | changes, drop=drop)) == facts(made())
    with pytest.raises(CheckpointError, match="query heads of every layer"):
        made(HUB | changes | {"num_attention_groups": 2}, drop=drop)


def test_a_share_beside_the_layer_types_is_refused():
    with pytest.raises(UnsupportedError, match="partial_rotary_factor"):
        made({"partial_rotary_factor": 0.5})
