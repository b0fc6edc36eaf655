"""Encoders of images and sound: types that share their code, and what their configs may say."""

from pathlib import Path

import pytest

from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint

DATA = Path(__file__).parent / "data"


def changed(name, changes, more=()):
    """The plan of a golden checkpoint under a changed config, with further tensors."""
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    arrays |= {n: next(iter(arrays.values())) for n in more}
    return plan(from_arrays(arrays, checkpoint.config | changes))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            ("vit", kind)
            for kind in (
                "audio-spectrogram-transformer",
                "deit",
                "ijepa",
                "vit_mae",
                "vit_msn",
                "vivit",
                "yolos",
            )
        ),
        ("dinov2", "dinov2_with_registers"),
        ("wav2vec2", "data2vec-audio"),
        ("wav2vec2", "hubert"),
        ("wav2vec2", "unispeech"),
        ("wav2vec2", "unispeech-sat"),
    ],
)
def test_types_that_share_their_code(name, kind):
    ours, theirs = changed(name, {"model_type": kind}), changed(name, {})
    assert [layer.tensors for layer in ours.layers] == [layer.tensors for layer in theirs.layers]
    assert ours.skipped == theirs.skipped


def test_the_attention_that_vit_mae_is_trained_with_is_refused():
    root = "decoder.decoder_layers.0.attention"
    names = [f"{root}.attention.{side}.weight" for side in ("query", "key")]
    found = changed("vit", {"model_type": "vit_mae"}, [*names, "decoder.decoder_pos_embed"])
    assert [r.name for r in found.refused] == ["decoder.decoder_layers.*.attention"]
    assert len(found.layers) == 2


def test_norms_stand_behind_or_before_attention_as_the_config_says():
    behind, before = (changed(name, {}).layers for name in ("wav2vec2", "wav2vec2__stable"))
    assert "wav2vec2.encoder.layer_norm.weight" in behind[0].tensors
    assert "wav2vec2.encoder.layers.0.final_layer_norm.weight" in behind[1].tensors
    assert "wav2vec2.encoder.layers.1.layer_norm.weight" in before[1].tensors
    audio = {"model_type": "data2vec-audio", "do_stable_layer_norm": True}  # a key it never reads
    assert changed("wav2vec2", audio).layers[1].tensors == behind[1].tensors


def test_videomae_has_a_bias_on_queries_alone():
    for layer in changed("videomae", {}).layers:
        biases = [name for name in layer.tensors if "bias" in name and "norm" not in name]
        assert biases == [f"{layer.module}.q_bias"]
