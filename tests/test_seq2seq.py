"""Encoders and decoders built like BART's: what their configs and files may say."""

from pathlib import Path

import pytest

from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError

DATA = Path(__file__).parent / "data"


def changed(name, changes, keep=lambda _: True):
    """The plan of a golden checkpoint under a changed config, or of a part of its tensors."""
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if keep(n)}
    return plan(from_arrays(arrays, checkpoint.config | changes))


def first_heads(found):
    return {layer.module: next(iter(layer.heads()))[2] for layer in found.layers}


def test_plbart_is_bart():
    ours, theirs = (changed("bart", {"model_type": kind}) for kind in ("plbart", "bart"))
    assert [layer.tensors for layer in ours.layers] == [layer.tensors for layer in theirs.layers]


def test_keys_of_cross_attention_come_from_the_end_of_the_encoder():
    for name, end in (("bart", "layers.0.final_layer_norm"), ("mbart", "layer_norm")):
        found = changed(name, {})
        cross = [layer for layer in found.layers if layer.module.endswith("encoder_attn")]
        assert len(cross) == 2
        for layer in cross:
            assert any(t.endswith(f"encoder.{end}.weight") for t in layer.tensors)
        heads = first_heads(found)
        causal = {module for module, head in heads.items() if head.causal}
        assert causal == {c.module.replace("encoder_attn", "self_attn") for c in cross}


def test_positions_of_tables_and_of_sines_with_an_end_limit_the_length():
    names = ("bart", "fsmt", "m2m_100", "marian", "nllb_moe")
    limits = {name: changed(name, {}).learned_positions for name in names}
    ends = {"bart": 32, "marian": 32}
    assert limits == {name: ends.get(name) for name in names}
    with pytest.raises(CheckpointError, match=r"embed_positions\.weight must have 35 rows"):
        changed("bart", {"max_position_embeddings": 33})


def test_a_decoder_alone_has_no_keys_for_its_cross_attention():
    found = changed("bart", {}, keep=lambda name: "encoder." not in name)
    assert [layer.module for layer in found.layers] == [
        f"model.decoder.layers.{i}.self_attn" for i in range(2)
    ]
    assert [r.name for r in found.refused] == ["model.decoder.layers.*.encoder_attn"]
    assert "keys come from another model" in found.refused[0].reason


def test_an_encoder_alone_is_read():
    found = changed("bart", {}, keep=lambda name: "encoder." in name and "decoder" not in name)
    assert [layer.module for layer in found.layers] == ["model.encoder.layers.0.self_attn"]
    assert not found.refused
    with pytest.raises(CheckpointError, match="must hold tensors named encoder"):
        changed("bart", {}, keep=lambda name: "layers" not in name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bart", {"normalize_before": True}),
        ("mbart", {"normalize_embedding": False}),
        ("marian", {"normalize_embedding": True}),
        ("pegasus", {"normalize_before": False}),
    ],
)
def test_old_keys_that_contradict_the_class_are_refused(name, changes):
    (key,) = changes
    assert changed(name, {key: not changes[key]}).layers
    with pytest.raises(UnsupportedError, match=f"{key} in config.json must be"):
        changed(name, changes)


@pytest.mark.parametrize(
    ("name", "changes", "reads"),
    [
        ("bart", {}, ["model.encoder.layers.0.self_attn", "model.decoder.layers.0.self_attn"]),
        ("bart", {"scale_embedding": True}, []),
        ("mbart", {"scale_embedding": False}, []),  # a norm of a norm
        ("marian", {"scale_embedding": False}, []),
    ],
)
def test_first_layers_read_token_ids_where_one_norm_stands_between(name, changes, reads):
    found = changed(name, changes)
    assert [layer.module for layer in found.layers if layer.embedding is not None] == reads


def test_an_unknown_tensor_beside_a_projection_refuses_its_module():
    checkpoint = open_checkpoint(DATA / "bart")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    arrays["model.decoder.layers.1.encoder_attn.q_norm.weight"] = arrays[
        "model.decoder.layers.1.final_layer_norm.weight"
    ]
    found = plan(from_arrays(arrays, checkpoint.config))
    assert [r.name for r in found.refused] == ["model.decoder.layers.1.encoder_attn"]


def test_cross_attention_of_nllb_with_experts_has_a_name_of_its_own():
    found = changed("nllb_moe", {})
    cross = [layer for layer in found.layers if layer.module.endswith("cross_attention")]
    assert len(cross) == 2
    for layer in cross:
        assert f"{layer.module}_layer_norm.weight" in layer.tensors
        assert "model.encoder.layer_norm.weight" in layer.tensors
    assert not found.refused
    assert any("experts" in s.name for s in found.skipped)
    alone = changed("nllb_moe", {}, keep=lambda name: "encoder." not in name)
    assert [r.name for r in alone.refused] == ["model.decoder.layers.*.cross_attention"]


def test_trocr_says_whether_a_norm_and_a_table_stand_in_front_of_its_first_layer():
    found = changed("trocr", {})
    assert found.learned_positions == 32
    assert "model.decoder.layernorm_embedding.weight" in found.layers[0].tensors
    assert found.layers[0].embedding is not None
    sines = changed("trocr", {"use_learned_position_embeddings": False})
    assert sines.learned_positions is None
    assert sines.layers[0].embedding is None
    bare = changed("trocr", {"layernorm_embedding": False}, keep=lambda n: "layernorm_" not in n)
    assert bare.layers[0].tensors == tuple(t for t in found.layers[0].tensors if "norm" not in t)


def test_attention_of_trocr_to_images_is_refused():
    checkpoint = open_checkpoint(DATA / "trocr")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    own = {n: a for n, a in arrays.items() if ".self_attn." in n}
    arrays |= {n.replace("self_attn", "encoder_attn"): a for n, a in own.items()}
    found = plan(from_arrays(arrays, checkpoint.config))
    assert [r.name for r in found.refused] == ["model.decoder.layers.*.encoder_attn"]
    assert len(found.layers) == 2
