"""T5's two stacks, and attention on the encoder's final norm."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dispersion.architectures import plan, t5
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.head import ONE
from dispersion.verdict import Target
from golden.numbering import numbers
from mechanism_checks import reached

FOLDER = Path(__file__).parent / "data" / "t5__decoder"
MODULES = [
    "encoder.block.0.layer.0.SelfAttention",
    "decoder.block.0.layer.0.SelfAttention",
    "decoder.block.0.layer.1.EncDecAttention",
    "decoder.block.1.layer.0.SelfAttention",
    "decoder.block.1.layer.1.EncDecAttention",
]


def arrays():
    checkpoint = open_checkpoint(FOLDER)
    return {name: checkpoint.read(name) for name in checkpoint.names}, dict(checkpoint.config)


def made(changes=None, without="", layers=None, **config):
    tensors, own = arrays()
    tensors = {n: a for n, a in tensors.items() if not without or without not in n}
    return plan(from_arrays(tensors | (changes or {}), own | config), layers=layers)


def modules(found):
    return [layer.module for layer in found.layers]


def heads(found, kind):
    return [h for layer in found.layers if kind in layer.module for _, _, h in layer.heads()]


def test_both_stacks_and_the_attention_between_them_are_one_plan():
    found = made()
    assert modules(found) == MODULES
    assert [layer.layer for layer in found.layers] == [0, 0, 0, 1, 1]
    assert found.model["layers"] == 5
    assert not found.refused
    assert [h.causal for h in heads(found, "SelfAttention")] == [False] * 2 + [True] * 4
    for head in heads(found, "EncDecAttention"):
        assert not head.self_attention
        assert not head.causal
        assert head.bias is None
        assert head.scale == ONE
    assert modules(made(layers=frozenset({1}))) == MODULES[3:]


def test_keys_of_cross_attention_come_from_the_encoders_final_norm():
    tensors, _ = arrays()
    final = tensors["encoder.final_layer_norm.weight"].astype(np.float64)
    for layer in (0, 1):
        root = f"decoder.block.{layer}.layer.1."
        own = tensors[f"{root}layer_norm.weight"].astype(np.float64)
        for index, head in enumerate(heads(made(), f"{layer}.layer.1.EncDec")):
            rows = slice(8 * index, 8 * index + 8)
            query, key = (tensors[f"{root}EncDecAttention.{s}.weight"][rows] for s in "qk")
            np.testing.assert_array_equal(head.query.matrix, query * own)
            np.testing.assert_array_equal(head.key.matrix, key * final)


def off(found):
    """Whether some bound lies below what ascent reached, or far above it in cross-attention."""
    number = numbers(found.layers)
    places = {(number[p.module, p.layer], i): h for p in found.layers for i, _, h in p.heads()}
    for n, layer, index, spread in reached("t5__decoder"):
        head = places[layer, index]
        ratio = check_head(head, [Target(n)]).spread.upper / spread
        if ratio < 1 - 2.0**-40 or (ratio > 1.0001 and not head.self_attention):
            return True
    return False


@pytest.mark.parametrize(
    "wrong", ["decoder.final_layer_norm", "decoder.block.0.layer.1.layer_norm"]
)
def test_keys_behind_another_norm_are_caught(monkeypatch, wrong):
    assert not off(made())
    original = t5._cross_attention

    def mutant(*args):
        attention = original(*args)
        norm = dataclasses.replace(attention.key_input, gain=f"{wrong}.weight")
        return dataclasses.replace(attention, key_input=norm)

    monkeypatch.setattr(t5, "_cross_attention", mutant)
    assert off(made())


def test_mt5_is_read_alike():
    found = made(model_type="mt5")
    assert found.family == "t5"
    assert modules(found) == MODULES


def test_a_decoder_alone_has_no_keys_to_attend_to():
    found = made(without="encoder.")
    assert modules(found) == [MODULES[1], MODULES[3]]
    assert [r.name for r in found.refused] == ["decoder.block.*.layer.1.EncDecAttention"]
    assert "another model" in found.refused[0].reason
    found = made(without="decoder.")
    assert modules(found) == MODULES[:1]
    assert not found.refused


def test_a_table_of_old_files_beside_cross_attention_is_skipped():
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    found = made({name: np.ones((8, 2), np.float32)})
    assert modules(found) == MODULES
    assert any("EncDecAttention.relative_attention_bias" in s.name for s in found.skipped)


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ("decoder.block.0.layer.1.EncDecAttention.k.bias", [MODULES[2]]),
        ("decoder.block.1.layer.0.SelfAttention.q.bias", [MODULES[3]]),
        ("encoder.block.0.layer.0.layer_norm.bias", [MODULES[0]]),
        ("encoder.final_layer_norm.bias", [MODULES[2], MODULES[4]]),
    ],
)
def test_an_unknown_tensor_refuses_what_may_depend_on_it(extra, refused):
    found = made({extra: np.ones(16, np.float32)})
    assert sorted(r.name for r in found.refused) == sorted(refused)
    assert modules(found) == [m for m in MODULES if m not in refused]


def test_the_layers_of_both_stacks_must_fit():
    with pytest.raises(CheckpointError, match=r"num_decoder_layers=1.*also holds layer 1"):
        made(num_decoder_layers=1)
    with pytest.raises(CheckpointError, match=r"num_layers=2.*lacks layer 1"):
        made(num_layers=2)
    with pytest.raises(CheckpointError, match=r"encoder\.block\.N or decoder\.block\.N"):
        made(without="block")


@pytest.mark.parametrize("kind", ["mt5", "pop2piano", "switch_transformers"])
def test_types_whose_attention_is_that_of_t5(kind):
    ours = made(model_type=kind)
    assert [layer.tensors for layer in ours.layers] == [layer.tensors for layer in made().layers]


def test_every_layer_of_umt5_has_a_table_of_its_own():
    found = plan(open_checkpoint(FOLDER.parent / "umt5"))
    tables = [[n for n in layer.tensors if "relative" in n] for layer in found.layers]
    own = [f"{layer.module}.relative_attention_bias.weight" for layer in found.layers]
    assert tables == [[name] if "EncDec" not in name else [] for name in own]
    first, second = (
        next(iter(layer.heads()))[2] for layer in found.layers if "decoder" in layer.module
        and "Self" in layer.module
    )  # fmt: skip
    assert first.bias.values != second.bias.values
    with pytest.raises(CheckpointError, match=r"decoder\.block\.1\..*relative_attention_bias"):
        made(model_type="umt5")
