from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.report.wording import headline
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data"
NAMES = ["clip", "siglip"]


def parts(name):
    checkpoint = open_checkpoint(DATA / name)
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


def read(arrays, config, **changes):
    return plan(from_arrays(arrays, config | changes))


def joined(text, vision):
    """One file of two golden checkpoints, whose widths and layers may differ."""
    arrays, configs = {}, {}
    for word, name in (("text", text), ("vision", vision)):
        own, configs[f"{word}_config"] = parts(name)
        arrays |= {f"{word}_model." + n.removeprefix(f"{word}_model."): a for n, a in own.items()}
    return arrays, {"model_type": text.partition("_")[0]} | configs


def same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        for (*place, head), (*where, expected) in zip(mine.heads(), theirs.heads(), strict=True):
            assert place == where
            np.testing.assert_array_equal(head.query.matrix, expected.query.matrix)
            np.testing.assert_array_equal(head.key.matrix, expected.key.matrix)
            assert (head.causal, head.scale) == (expected.causal, expected.scale)


@pytest.mark.parametrize("name", NAMES)
def test_each_tower_is_what_it_is_alone(name):
    whole = read(*joined(f"{name}_text_model", f"{name}_vision_model"))
    assert [layer.layer for layer in whole.layers] == [0, 1, 0, 1]
    same(whole.layers[:2], plan(open_checkpoint(DATA / f"{name}_text_model")).layers)
    same(whole.layers[2:], plan(open_checkpoint(DATA / f"{name}_vision_model")).layers)
    assert [next(iter(p.heads()))[2].causal for p in whole.layers] == [name == "clip"] * 2 + [
        False
    ] * 2


@pytest.mark.parametrize("name", NAMES)
def test_text_has_no_more_keys_than_positions_and_images_have_no_limit(name):
    found = read(*parts(name))
    assert found.learned_positions is None
    assert [next(iter(p.heads()))[2].window for p in found.layers] == [32, None, None]
    (heads,) = [[h for _, _, h in p.heads()] for p in found.layers[:1]]
    assert heads[0].key is not heads[1].key
    answer = audit(DATA / name, [Target(32), Target(4096)], jobs=1)
    text = [h for h in answer.heads if h.module.startswith("text")]
    assert {h.results[0].ceiling.upper == h.results[1].ceiling.upper for h in text} == {True}


def test_an_image_classifier_has_no_text_tower():
    arrays, config = parts("clip")
    arrays = {n: a for n, a in arrays.items() if n.startswith("vision_model.")}
    arrays["classifier.weight"] = np.ones((3, 16))
    found = read(arrays, config, architectures=["CLIPForImageClassification"])
    assert [p.module.partition(".")[0] for p in found.layers] == ["vision_model"] * 2
    assert ("classifier.weight", "output head") in {(s.name, s.reason) for s in found.skipped}
    assert not found.refused


def test_layers_are_those_of_either_tower():
    checkpoint = open_checkpoint(DATA / "clip")
    found = plan(checkpoint, layers=frozenset({1}))
    assert [p.module for p in found.layers] == ["vision_model.encoder.layers.1.self_attn"]
    reasons = {s.name: s.reason for s in found.skipped}
    assert reasons["text_model.*"] == "layer not asked for"
    assert found.model["layers"] == 3
    counted = sum(s.count for s in found.skipped) + sum(len(p.tensors) for p in found.layers)
    assert counted == len(checkpoint.names)
    with pytest.raises(ArgumentError, match=r"0\.\.1"):
        plan(checkpoint, layers=frozenset({2}))


def test_absent_sizes_are_those_of_the_class():
    config = {"model_type": "clip", "text_config": {}, "vision_config": None}
    with pytest.raises(CheckpointError, match=r"num_hidden_layers=12, but the file lacks layer 1"):
        read(parts("clip")[0], config)
    arrays, config = parts("clip")
    short = {k: v for k, v in config["text_config"].items() if k != "num_attention_heads"}
    assert read(arrays, config, text_config=short).layers[0].query_heads == 8
    short = {k: v for k, v in config["vision_config"].items() if k != "hidden_size"}
    with pytest.raises(CheckpointError, match=r"shape \(768, 768\)"):
        read(arrays, config, vision_config=short)


def test_the_old_second_config_counts_instead_of_the_first():
    arrays, config = parts("clip")
    wrong = config["text_config"] | {"num_attention_heads": 4}
    found = read(arrays, config, text_config=wrong)
    assert found.layers[0].query_heads == 4
    assert found.model["query_heads"] is None
    found = read(arrays, config, text_config=wrong, text_config_dict=config["text_config"])
    assert found.layers[0].query_heads == 2
    found = read(arrays, config, text_config_dict=None)
    assert found.layers[0].query_heads == 2
    # A key that the second does not have is the class's, whatever the first says.
    second = {k: v for k, v in config["text_config"].items() if k != "num_hidden_layers"}
    with pytest.raises(CheckpointError, match="num_hidden_layers=12"):
        read(arrays, config, text_config_dict=second)


def test_towers_of_other_models_and_no_mappings_are_refused():
    arrays, config = parts("clip")
    other = config["text_config"] | {"model_type": "bert"}
    with pytest.raises(UnsupportedError, match=r"model_type of text_config .* clip_text_model"):
        read(arrays, config, text_config=other)
    with pytest.raises(CheckpointError, match=r"vision_config in config\.json must be a mapping"):
        read(arrays, config, vision_config=[1])
    some = {n: a for n, a in arrays.items() if not n.startswith("text_model.")}
    with pytest.raises(CheckpointError, match=r"must hold attention tensors"):
        read(some, config)


def test_attention_that_pools_images_is_refused_and_leaves_the_towers_alone():
    arrays, config = parts("siglip")
    head = "vision_model.head.attention."
    arrays |= {f"{head}in_proj_weight": np.ones((48, 16)), f"{head}in_proj_bias": np.ones(48)}
    found = read(arrays, config)
    assert [r.name for r in found.refused] == ["vision_model.head.attention"]
    assert len(found.layers) == 3


def test_a_head_that_pools_images_is_read_with_its_tower():
    arrays, config = parts("siglip")
    root = "vision_model.head."
    arrays |= {
        f"{root}probe": np.ones((1, 1, 16)),
        f"{root}attention.in_proj_weight": np.ones((48, 16)),
        f"{root}attention.in_proj_bias": np.ones(48),
        f"{root}attention.out_proj.weight": np.ones((16, 16)),
    }
    config["vision_config"] = config["vision_config"] | {"vision_use_head": True}
    found = read(arrays, config)
    assert not found.refused
    assert [layer.module for layer in found.layers][-1] == f"{root}attention"
    assert len(found.layers) == 4
    heads = [head for _, _, head in found.layers[-1].heads()]
    # All of the probe's query: 16 ones and a bias of one.
    assert all(head.query.matrix.tolist() == [[17.0]] * 8 for head in heads)


def test_the_headline_leaves_out_what_towers_do_not_share():
    arrays, config = parts("clip")
    four = config["text_config"] | {"num_attention_heads": 4}

    class Told:
        model = read(arrays, config, text_config=four).model

    assert headline(Told()) == "clip, no QK norm"
    Told.model = read(arrays, config).model
    assert headline(Told()) == "clip, 3 layers × 2 heads, head_dim 8, no QK norm"
    assert [Told.model["towers"][f"{w}_model"]["layers"] for w in ("text", "vision")] == [1, 2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("clip", "clipseg"),
        ("clip", "metaclip_2"),
        ("clip", "owlv2"),
        ("clip", "owlvit"),
        ("siglip", "siglip2"),
    ],
)
def test_types_that_share_their_code(name, kind):
    arrays, config = parts(name)
    own = {f"{tower}_config": config[f"{tower}_config"] for tower in ("text", "vision")}
    for part in own.values():
        part["model_type"] = part["model_type"].replace(name, kind)
    ours, theirs = read(arrays, config | own, model_type=kind), read(*parts(name))
    same(ours.layers, theirs.layers)
    assert ours.model["model_type"] == kind


def test_the_text_of_chinese_clip_is_read_by_bert():
    found = read(*parts("chinese_clip"))
    text = [layer for layer in found.layers if "text" in layer.module]
    assert [layer.module for layer in text] == [
        f"text_model.encoder.layer.{i}.attention.self" for i in range(2)
    ]
    assert not any(next(iter(layer.heads()))[2].causal for layer in found.layers)
    assert text[0].embedding is None  # its class takes the padding's row for zeros


def test_altclip_is_read_in_the_spelling_of_older_files_too():
    checkpoint = open_checkpoint(DATA / "altclip")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    new, old = "vision_model.encoder.layer.", "vision_model.encoder.layers."
    assert any(n.startswith(new) for n in arrays)
    older = {n.replace(new, old): a for n, a in arrays.items()}
    both = [plan(from_arrays(a, checkpoint.config)) for a in (arrays, older)]
    assert [x.module.replace(new, old) for x in both[0].layers] == [
        x.module for x in both[1].layers
    ]
    assert not both[1].refused
    windows = [next(iter(layer.heads()))[2].window for layer in both[1].layers]
    assert windows == [30, None, None]  # 32 positions less those of padding


@pytest.mark.parametrize("name", ["altclip", "chinese_clip"])
def test_text_towers_with_other_positions_are_refused(name):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    text = checkpoint.config["text_config"] | {"position_embedding_type": "relative_key"}
    with pytest.raises(UnsupportedError, match="position_embedding_type must be absolute"):
        plan(from_arrays(arrays, checkpoint.config | {"text_config": text}))
