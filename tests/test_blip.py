"""What the classes of BLIP hold: captions, matches, answers, and towers of unlike widths."""

import math
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data" / "blip"


def arrays():
    checkpoint = open_checkpoint(DATA)
    return {name: checkpoint.read(name) for name in checkpoint.names}, dict(checkpoint.config)


def held(*texts):
    """The golden checkpoint with its text under these names instead, and its plan."""
    tensors, config = arrays()
    text = {n: a for n, a in tensors.items() if n.startswith("text_model.")}
    rest = {n: a for n, a in tensors.items() if n not in text}
    for name in texts:
        rest |= {n.replace("text_model.", f"{name}.", 1): a for n, a in text.items()}
    return plan(from_arrays(rest, config))


def first(layer):
    return next(iter(layer.heads()))[2]


def test_captions_come_from_a_causal_decoder_that_attends_to_the_image():
    image, text, cross = held("text_decoder.bert").layers
    assert text.module == "text_decoder.bert.encoder.layer.0.attention.self"
    assert [first(layer).causal for layer in (image, text, cross)] == [False, True, False]
    assert "vision_model.post_layernorm.weight" in cross.tensors
    assert "text_decoder.bert.encoder.layer.0.attention.output.LayerNorm.weight" in cross.tensors
    assert [first(layer).window for layer in (image, text, cross)] == [None, 32, None]


def test_answers_come_from_a_decoder_that_attends_to_the_question():
    found = held("text_encoder", "text_decoder.bert")
    modules = [layer.module for layer in found.layers]
    assert modules == [
        "vision_model.encoder.layers.0.self_attn",
        "text_encoder.encoder.layer.0.attention.self",
        "text_encoder.encoder.layer.0.crossattention.self",
        "text_decoder.bert.encoder.layer.0.attention.self",
        "text_decoder.bert.encoder.layer.0.crossattention.self",
    ]
    question, answer = found.layers[2], found.layers[4]
    assert "vision_model.post_layernorm.weight" in question.tensors
    assert "text_encoder.encoder.layer.0.output.LayerNorm.weight" in answer.tensors
    assert first(answer).window == 32
    assert not found.refused


def test_an_image_encoder_of_another_width_is_bounded_without_witnesses():
    tensors, config = arrays()
    wide = {}
    for name, array in tensors.items():
        if name.startswith("vision_model.") or (
            "crossattention.self" in name and ".query." not in name and name.endswith("weight")
        ):
            # twice the image's coordinates; its heads are then twice as large
            ours = array
            for axis, size in enumerate(array.shape):
                inner = "crossattention" not in name or axis == 1
                if inner and size in (16, 48):
                    ours = np.concatenate([ours, 0.5 * ours], axis=axis)
            wide[name] = ours
    config["vision_config"] = config["vision_config"] | {"hidden_size": 32}
    found = plan(from_arrays(tensors | wide, config))
    cross = next(layer for layer in found.layers if "cross" in layer.module)
    head, plain = first(cross), first(held("text_model").layers[2])
    assert head.key.matrix.shape[1] == 32
    result = check_head(head, [Target(8)])
    assert result.spread.lower == 0
    assert math.isfinite(result.spread.upper)
    assert result.spread.upper > check_head(plain, [Target(8)]).spread.upper


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text_config": "small"}, "text_config in config.json must be a mapping"),
        ({"text_config": {"num_hidden_layers": 2}}, "num_hidden_layers in config.json must fit"),
        ({"vision_config": {"num_hidden_layers": 1, "hidden_size": 24}}, "must have shape"),
    ],
)
def test_configs_that_do_not_fit_are_refused(changes, words):
    tensors, config = arrays()
    with pytest.raises(CheckpointError, match=words):
        plan(from_arrays(tensors, config | changes))
