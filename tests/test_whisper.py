import json
from pathlib import Path

import numpy as np
import pytest

from dispersion import witness
from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.cli import main
from dispersion.errors import ArgumentError, CheckpointError
from dispersion.verdict import Target

FOLDER = Path(__file__).parent / "data" / "whisper"
MODULES = [
    "model.encoder.layers.0.self_attn",
    "model.decoder.layers.0.self_attn",
    "model.decoder.layers.0.encoder_attn",
    "model.decoder.layers.1.self_attn",
    "model.decoder.layers.1.encoder_attn",
]


def arrays():
    checkpoint = open_checkpoint(FOLDER)
    return {name: checkpoint.read(name) for name in checkpoint.names}, dict(checkpoint.config)


def made(changes=None, without="", **config):
    tensors, own = arrays()
    tensors = {n: a for n, a in tensors.items() if not without or without not in n}
    return from_arrays(tensors | (changes or {}), own | config)


def modules(found):
    return [layer.module for layer in found.layers]


def heads(found, kind):
    return [h for layer in found.layers if kind in layer.module for _, _, h in layer.heads()]


def test_both_stacks_and_the_attention_between_them_are_one_plan():
    found = plan(open_checkpoint(FOLDER))
    assert modules(found) == MODULES
    assert [layer.layer for layer in found.layers] == [0, 0, 0, 1, 1]
    assert found.model["layers"] == 5
    assert (found.model["encoder_layers"], found.model["decoder_layers"]) == (1, 2)
    assert [h.causal for h in heads(found, "encoder.layers")] == [False] * 2
    assert [h.causal for h in heads(found, "decoder")] == [True, True, False, False] * 2
    assert [h.self_attention for h in heads(found, "decoder")] == [True, True, False, False] * 2


def test_cross_attention_has_its_query_from_the_decoder_and_its_key_from_the_encoder():
    checkpoint = open_checkpoint(FOLDER)

    def read(name):
        return checkpoint.read(f"model.{name}").astype(np.float64)

    for layer in (0, 1):
        root = f"decoder.layers.{layer}.encoder_attn"
        for index, head in enumerate(heads(plan(checkpoint), root)):
            rows = slice(6 * index, 6 * index + 6)
            query, key = read(f"{root}.q_proj.weight")[rows], read(f"{root}.k_proj.weight")[rows]
            mean = np.full((12, 12), 1 / 12)
            before = read(f"{root}_layer_norm.weight") * query
            behind = read("encoder.layer_norm.weight") * key
            np.testing.assert_allclose(head.query.matrix, before - before @ mean, atol=1e-13)
            np.testing.assert_allclose(head.key.matrix, behind - behind @ mean, atol=1e-13)
            offset = query @ read(f"{root}_layer_norm.bias") + read(f"{root}.q_proj.bias")[rows]
            np.testing.assert_allclose(head.query.offset, offset[:], atol=1e-13)
            offset = key @ read("encoder.layer_norm.bias")
            np.testing.assert_allclose(head.key.offset, offset, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_witness_of_cross_attention_has_n_keys_and_a_query_that_is_none_of_them(n):
    for head in heads(plan(open_checkpoint(FOLDER)), "encoder_attn"):
        found = witness.build(head, n)
        states = found.inputs(n)
        assert states.shape == (n + 1, 12)

        def ball(rows, reach):
            x = (rows - reach.bias) / reach.gain / reach.radius
            assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-12
            return x

        u, v = ball(states[-1:], head.reach), ball(states[:-1], head.reach.of_keys)
        query = head.query.radius.upper * u @ head.query.matrix.T + head.query.offset
        keys = head.key.radius.upper * v @ head.key.matrix.T + head.key.offset
        row = head.scale.upper * (keys @ query[0])
        share = np.exp(row - row.max())
        largest = float((share / share.sum()).max())
        assert found.coefficient(n) == pytest.approx(largest, rel=1e-9)
        if n > 1:
            assert found.spread(n) == pytest.approx(np.ptp(row), rel=1e-9)


def test_the_shorter_stack_is_never_asked_beyond_its_positions():
    table = np.ones((20, 12), np.float32)
    found = plan(made({"model.decoder.embed_positions.weight": table}, max_target_positions=20))
    assert found.learned_positions == 32
    assert [next(iter(p.heads()))[2].window for p in found.layers] == [None, 20, None, 20, None]
    table = np.ones((20, 12), np.float32)
    found = plan(made({"model.encoder.embed_positions.weight": table}, max_source_positions=20))
    assert [next(iter(p.heads()))[2].window for p in found.layers] == [20, None, 20, None, 20]
    with pytest.raises(CheckpointError, match=r"decoder\.embed_positions\.weight must have 448"):
        plan(made(max_target_positions=None))


def test_an_audio_classifier_has_no_decoder():
    tensors, config = arrays()
    own = {n.removeprefix("model."): a for n, a in tensors.items() if "encoder." in n}
    own = {n: a for n, a in own.items() if n.startswith("encoder.")}
    own |= {"projector.weight": np.ones((3, 12)), "layer_weights": np.ones(2)}
    with pytest.raises(CheckpointError, match=r"decoder\.layers\.N"):
        plan(from_arrays(own, config))
    found = plan(from_arrays(own, config | {"architectures": ["WhisperForAudioClassification"]}))
    assert modules(found) == ["encoder.layers.0.self_attn"]
    assert not found.refused
    assert sum(s.count for s in found.skipped) + len(found.layers[0].tensors) == len(own)


def test_cross_attention_of_a_decoder_alone_is_refused():
    found = plan(made(without=".encoder.", architectures=["WhisperForCausalLM"]))
    assert modules(found) == [MODULES[1], MODULES[3]]
    assert [r.name for r in found.refused] == ["model.decoder.layers.*.encoder_attn"]
    assert "another model" in found.refused[0].reason
    with pytest.raises(CheckpointError, match=r"encoder\.layers\.N"):
        plan(made(without=".encoder."))


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ("model.decoder.layers.0.encoder_attn.k_proj.bias", [MODULES[2]]),
        ("model.decoder.layers.1.self_attn.k_proj.bias", [MODULES[3]]),
        ("model.encoder.layers.0.self_attn.k_proj.bias", [MODULES[0]]),
        ("model.decoder.layers.1.q_norm.weight", [MODULES[3], MODULES[4]]),
        ("model.encoder.layer_norm.scale", [MODULES[2], MODULES[4]]),
    ],
)
def test_an_unknown_tensor_refuses_what_may_depend_on_it(extra, refused):
    found = plan(made({extra: np.ones(12, np.float32)}))
    assert sorted(r.name for r in found.refused) == sorted(refused)
    assert all(extra in r.reason for r in found.refused)
    assert modules(found) == [m for m in MODULES if m not in refused]


def test_layers_are_those_of_either_stack():
    checkpoint = open_checkpoint(FOLDER)
    assert modules(plan(checkpoint, layers=frozenset({0}))) == MODULES[:3]
    found = plan(checkpoint, layers=frozenset({1}))
    assert modules(found) == MODULES[3:]
    assert not found.refused
    with pytest.raises(ArgumentError, match=r"0\.\.1"):
        plan(checkpoint, layers=frozenset({2}))


def test_each_stack_has_its_own_number_of_heads():
    found = plan(made(decoder_attention_heads=3))
    assert [layer.query_heads for layer in found.layers] == [2, 3, 3, 3, 3]
    assert [layer.head_dim for layer in found.layers] == [6, 4, 4, 4, 4]
    with pytest.raises(CheckpointError, match="decoder_attention_heads must divide d_model"):
        plan(made(decoder_attention_heads=5))
    for key, side in (("encoder_layers", "encoder"), ("decoder_layers", "decoder")):
        with pytest.raises(CheckpointError, match=rf"{key}=3, but the file lacks layer"):
            plan(made(**{key: 3}))
        with pytest.raises(CheckpointError, match=rf"must have {side}_attention_heads"):
            plan(made(**{f"{side}_attention_heads": None}))


def test_an_audit_that_was_interrupted_tells_the_modules_of_a_layer_apart(tmp_path):
    whole = audit(FOLDER, [Target(8)], jobs=1)
    assert [(h.layer, h.module, h.head) for h in whole.heads] == sorted(
        (int(module.split(".")[3]), module, head) for module in MODULES for head in (0, 1)
    )
    file = tmp_path / "kept.jsonl"
    audit(FOLDER, [Target(8)], jobs=1, resume=file)
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 6
    file.write_text("".join(lines[:3]))
    again = audit(FOLDER, [Target(8)], jobs=1, resume=file)
    assert again.heads == whole.heads


def test_the_report_names_the_modules_of_a_layer(capsys, tmp_path):
    main(["check", str(FOLDER), "--length", "8", "--json", str(tmp_path / "found.json")])
    text = capsys.readouterr().out
    for words in ("encoder self_attn", "decoder self_attn", "decoder encoder_attn"):
        assert words in text
    assert json.loads((tmp_path / "found.json").read_text())["summary"]["layers"] == 5
