"""Encoders of images and sound: types that share their code, and what their configs may say."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.position_bias import BoundedBias
from dispersion.verdict import Target

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
                "dpt",
                "ijepa",
                "vit_mae",
                "vit_msn",
                "vilt",
                "vivit",
                "yolos",
            )
        ),
        ("dinov2", "dinov2_with_registers"),
        ("wav2vec2", "data2vec-audio"),
        ("wav2vec2", "hubert"),
        ("wav2vec2", "sew"),
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
    for kind in ("data2vec-audio", "sew"):  # which never read the key
        audio = {"model_type": kind, "do_stable_layer_norm": True}
        assert changed("wav2vec2", audio).layers[1].tensors == behind[1].tensors


def test_videomae_has_a_bias_on_queries_alone():
    for layer in changed("videomae", {}).layers:
        biases = [name for name in layer.tensors if "bias" in name and "norm" not in name]
        assert biases == [f"{layer.module}.q_bias"]


def bounded(name, changes=()):
    found = changed(name, dict(changes))
    return [(layer, index, head) for layer in found.layers for index, _, head in layer.heads()]


def test_biases_of_beit_lie_within_the_tables_that_its_config_names():
    """The entries a query adds, as BEiT finds them, for each patch and the class token."""
    checkpoint = open_checkpoint(DATA / "beit")
    own, both = {}, bounded("beit")
    for layer, index, head in both:
        tables = [checkpoint.read(n).astype(float)[:, index] for n in layer.tensors if "table" in n]
        assert [len(table) for table in tables] == [(2 * 3 - 1) * (2 * 2 - 1) + 3] * 2
        places = np.array([(y, x) for y in range(3) for x in range(2)])
        ways = places[:, None] - places[None] + (2, 1)
        entries = np.full((7, 7), 16)  # of the class token for a patch's query
        entries[0], entries[0, 0] = 15, 17
        entries[1:, 1:] = ways[..., 0] * 3 + ways[..., 1]
        rows = sum(table[entries] for table in tables)
        assert np.ptp(rows, axis=1).max() <= head.bias.width
        assert head.bias.width == pytest.approx(sum(np.ptp(table) for table in tables), rel=1e-12)
        own[layer.module, index] = head.bias.width
    for layer, index, head in bounded("beit", {"use_shared_relative_position_bias": False}.items()):
        assert 0 < head.bias.width < own[layer.module, index]
    off = {"use_shared_relative_position_bias": False, "use_relative_position_bias": False}
    assert all(head.bias is None for _, _, head in bounded("beit", off.items()))


def test_a_table_of_another_image_does_not_fit():
    with pytest.raises(CheckpointError, match=r"must have shape \(28, 3\)"):
        changed("beit", {"image_size": 6})


def test_gates_of_wavlm_lie_within_what_is_certified():
    """Rows g·b for gates at the ends of their range and between, whatever the states say."""
    checkpoint = open_checkpoint(DATA / "wavlm")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    for constants in ((-9.0, 0.5), (-2.5, 40.0), (0.0, 1.0)):
        for name in arrays:
            if name.endswith("gru_rel_pos_const"):
                arrays[name] = np.array(constants, dtype=np.float32).reshape(1, 2, 1, 1)
        table = arrays["encoder.layers.0.attention.rel_attn_embed.weight"].astype(float)
        for layer in plan(from_arrays(arrays, checkpoint.config)).layers:
            for index, _, head in layer.heads():
                a, b = np.meshgrid(np.linspace(0, 1, 21), np.linspace(0, 1, 21))
                gates = np.abs(a * (b * constants[index] - 1) + 2)
                reached = gates.max() * np.ptp(table[:, index])
                assert reached <= head.bias.width <= reached * (1 + 1e-12)


def test_a_bounded_bias_adds_to_the_spread_and_to_the_ceiling():
    bias = BoundedBias(1.5)
    assert bias.spread(7) == 1.5
    assert bias.ceiling(2.0, 10, 1) == pytest.approx(1 / (1 + 9 * math.exp(-3.5)), rel=1e-12)
    assert bias.settled() is bias
    _, _, head = bounded("beit")[0]
    for n in (3, 9):  # in rows of two keys the own key counts where nothing is added
        with_it, without = (
            check_head(h, [Target(n)]).spread.upper for h in (head, replace(head, bias=None))
        )
        assert with_it == pytest.approx(without + head.bias.width, rel=1e-12)


def test_patches_that_turn_with_their_places_are_bounded_over_any_angles():
    """Their angles are no multiples of lags: exact offsets change nothing, nothing is witnessed."""
    record = json.loads((DATA / "dinov3_vit" / "adversarial.json").read_text())
    reached = {(h["layer"], h["head"]): h["free_phase"] for h in record["heads"]}
    for layer, index, head in bounded("dinov3_vit"):
        assert head.rotary.placed
        # of the height and of the width, on halves of the head
        np.testing.assert_allclose(head.rotary.frequencies, [1, 50**-0.5] * 2, rtol=1e-15)
        assert head.rotary.pairs.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
        free, exact = (check_head(head, [Target(40)], offsets=o) for o in ("free", "exact"))
        assert free.spread == exact.spread
        assert (free.spread.lower, exact.spread_kind) == (0.0, "free")
        phase = reached[layer.layer, index]
        assert phase * (1 - 1e-12) <= free.spread.upper <= 1.02 * phase
        hidden = replace(head, rotary=replace(head.rotary, placed=False))
        assert check_head(hidden, [Target(40)], offsets="exact").spread.lower > 0
    found = []
    audit(DATA / "dinov3_vit", [Target(40)], offsets="exact", announce=found.append)
    assert found == ["exact offsets: no head is rotated, so offsets make no difference"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 4}, "must be a multiple of 4"),
        ({"query_bias": False, "key_bias": True}, "key_bias"),
    ],
)
def test_what_dinov3_cannot_be_is_refused(changes, words):
    with pytest.raises(UnsupportedError, match=words):
        changed("dinov3_vit", changes)


def test_biases_of_dinov3_are_those_of_its_config():
    assert all(".k_proj.bias" not in n for x in changed("dinov3_vit", {}).layers for n in x.tensors)
    with pytest.raises(CheckpointError, match=r"k_proj\.bias"):
        changed("dinov3_vit", {"key_bias": True})


def test_norms_of_internvl_are_those_that_its_config_says():
    checkpoint = open_checkpoint(DATA / "internvl_vision")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    found = plan(from_arrays(arrays, checkpoint.config))
    assert found.model["qk_norm"] == "layerwise"
    module = found.layers[0].module
    assert f"{module}.q_norm.weight" in found.layers[0].tensors
    plain = plan(from_arrays(arrays, checkpoint.config | {"use_qk_norm": False}))
    assert not plain.layers
    assert {r.name for r in plain.refused} == {f"encoder.layer.{i}.attention" for i in range(2)}
    with pytest.raises(CheckpointError, match=r"layernorm_before\.bias"):
        plan(from_arrays(arrays, checkpoint.config | {"norm_type": "layer_norm"}))
    with pytest.raises(UnsupportedError, match=r"norm_type in config\.json must be layer_norm or"):
        plan(from_arrays(arrays, checkpoint.config | {"norm_type": "batch_norm"}))
