"""`audit`: sources, filters, default lengths, determinism, provenance and partial refusals."""

import json
import math
import platform
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from checkpoints import refused, write_checkpoint
from dispersion import tasks
from dispersion.auditing import audit
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.lengths import DEFAULT_LENGTHS
from dispersion.verdict import Target, Verdict

DATA = Path(__file__).parent / "data"
ASKED = [Target(8), Target(4096, 0.9), Target(2**20, 0.1, sink_tokens=4)]


def config_of(name):
    return json.loads((DATA / name / "config.json").read_text())


def arrays_of(name):
    checkpoint = open_checkpoint(DATA / name)
    return {key: np.array(checkpoint.read(key)) for key in checkpoint.names}


def numbers(found):
    """An audit without what differs from run to run, and from source to source."""
    model = {key: value for key, value in found.model.items() if key != "dtype"}
    return replace(found, source="", provenance={}, model=model)


# --- sources ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "olmo2"])
def test_a_state_dict_and_its_folder_give_the_same_answers(name):
    lengths = [Target(8), Target(32)]
    path = audit(DATA / name, lengths)
    state = audit(arrays_of(name), lengths, config=config_of(name))
    assert state.source == "state dict"
    assert path.source == str(DATA / name)
    assert numbers(state) == numbers(path)


def test_a_path_may_be_text_a_folder_or_a_file():
    found = [audit(p, ASKED) for p in (str(DATA / "llama"), DATA / "llama" / "model.safetensors")]
    assert numbers(found[0]) == numbers(found[1])


def test_a_state_dict_in_bfloat16_is_read_exactly():
    wide = {
        k: v.astype(ml_dtypes.bfloat16).astype(np.float64) for k, v in arrays_of("llama").items()
    }
    narrow = {k: v.astype(ml_dtypes.bfloat16) for k, v in wide.items()}
    found = [audit(arrays, ASKED, config=config_of("llama")) for arrays in (wide, narrow)]
    assert found[0].heads == found[1].heads
    assert found[0].heads != audit(DATA / "llama", ASKED).heads


def test_a_state_dict_needs_a_config_and_a_path_must_not_have_one():
    refused(ArgumentError, "config must come with a state dict", audit, arrays_of("llama"))
    with pytest.raises(ArgumentError, match="a checkpoint on disk has its own"):
        audit(DATA / "llama", config=config_of("llama"))


def test_what_cannot_be_read_is_an_error_of_this_package(tmp_path):
    refused(CheckpointError, str(tmp_path / "absent"), audit, tmp_path / "absent")
    other = config_of("llama") | {"model_type": "mamba"}
    with pytest.raises(UnsupportedError, match="mamba"):
        audit(arrays_of("llama"), config=other)


# --- filters ----------------------------------------------------------------------------------


def test_layers_and_heads_choose_rows():
    everything = audit(DATA / "llama", ASKED)
    assert [(h.layer, h.head) for h in everything.heads] == [
        (i, j) for i in range(2) for j in range(4)
    ]
    some = audit(DATA / "llama", ASKED, layers=[1], heads={0, 3})
    assert [(h.layer, h.head) for h in some.heads] == [(1, 0), (1, 3)]
    chosen = [h for h in everything.heads if (h.layer, h.head) in {(1, 0), (1, 3)}]
    assert list(some.heads) == chosen
    assert any("layers.*.self_attn.q_proj" in s.name for s in some.skipped)
    assert some.complete
    assert some.refused == ()


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"layers": [2]}, r"layers must lie in 0\.\.1 for this model\. Got 2\."),
        ({"layers": [-1]}, r"Got -1\."),
        ({"layers": []}, "layers must name at least one layer"),
        ({"heads": [0, 4]}, r"heads must lie in 0\.\.3 for this model\. Got 4\."),
        ({"heads": [-1]}, r"Got -1\."),
        ({"offsets": "some"}, "offsets must be 'free' or 'exact'"),
    ],
)
def test_filters_out_of_range_are_refused(filters, words):
    with pytest.raises(ArgumentError, match=words):
        audit(DATA / "llama", ASKED, **filters)


def test_no_targets_are_refused():
    refused(ArgumentError, "targets must name at least one question", audit, DATA / "llama", [])


# --- lengths ----------------------------------------------------------------------------------


def test_default_lengths_run_to_a_million():
    found = audit(DATA / "llama", coefficient=0.3, sink_tokens=2)
    assert DEFAULT_LENGTHS == (4096, 16384, 65536, 262144, 1048576)
    assert found.targets == tuple(Target(n, 0.3, sink_tokens=2) for n in DEFAULT_LENGTHS)
    assert all(tuple(r.target for r in h.results) == found.targets for h in found.heads)
    assert found.left_out == ()


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_default_lengths_adapt_to_learned_positions(name):
    found = audit(DATA / name)
    assert found.targets == (Target(32),)
    assert [n for n, _ in found.left_out] == list(DEFAULT_LENGTHS)
    assert all(h.results for h in found.heads)
    assert found.complete


def test_lengths_past_learned_positions_are_left_out_and_said_so():
    found = audit(DATA / "gpt2", [Target(33), Target(32), Target(64), Target(33, 0.9), Target(1)])
    assert [t.length for t in found.targets] == [32, 1]
    assert [n for n, _ in found.left_out] == [33, 64]
    assert all("learned positions for 32 tokens" in why for _, why in found.left_out)
    assert {len(h.results) for h in found.heads} == {2}


def test_only_lengths_past_learned_positions_leave_nothing_asked():
    found = audit(DATA / "bert", [Target(4096)])
    assert found.targets == ()
    assert found.heads == ()
    assert [n for n, _ in found.left_out] == [4096]
    assert not found.complete


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2", "llama__bias_sharded_bf16"])
def test_processes_and_repetition_change_no_number(name):
    lengths = [Target(8), Target(32)]
    first = audit(DATA / name, lengths, jobs=1)
    for jobs in (1, 2):
        assert numbers(audit(DATA / name, lengths, jobs=jobs)) == numbers(first)


def test_exact_offsets_are_deterministic_too():
    found = [audit(DATA / "llama", [Target(8), Target(24)], offsets="exact") for _ in range(2)]
    assert numbers(found[0]) == numbers(found[1])
    assert {h.spread_kind for h in found[0].heads} == {"exact"}
    assert {h.notes for h in found[0].heads} == {()}


def test_exact_offsets_announce_their_time_and_respect_the_budget():
    said = []
    found = audit(DATA / "llama", [Target(4096)], offsets="exact", budget=0.0, announce=said.append)
    assert len(said) == 1
    assert "for 8 heads" in said[0]
    assert "past 0 s in all" in said[0]
    free = audit(DATA / "llama", [Target(4096)])
    assert [h.spread for h in found.heads] == [h.spread for h in free.heads]
    assert all("time budget" in h.notes[0] for h in found.heads)
    said.clear()
    audit(DATA / "llama", [Target(4096)], announce=said.append)
    assert said == []
    audit(DATA / "gpt2", [Target(8)], offsets="exact", announce=said.append)
    assert "no head is rotated" in said[0]


def test_progress_counts_layers():
    seen = []
    audit(DATA / "llama", ASKED, progress=lambda *step: seen.append(step))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_an_error_in_progress_reaches_the_caller():
    def stop(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(DATA / "llama", ASKED, progress=stop)


def test_one_head_is_alive_at_a_time(monkeypatch):
    """A layer's heads are not all read before the first is checked."""
    alive = most = 0
    checked, read = tasks.check_head, tasks.heads_of

    def reading(layer, only, piece):
        nonlocal alive, most
        for item in read(layer, only, piece):
            alive += 1
            most = max(most, alive)
            yield item

    def checking(*args, **kwargs):
        nonlocal alive
        result = checked(*args, **kwargs)
        alive -= 1
        return result

    monkeypatch.setattr(tasks, "heads_of", reading)
    monkeypatch.setattr(tasks, "check_head", checking)
    rng = np.random.default_rng(0)
    width, heads = 32, 16
    arrays = {
        f"model.layers.0.self_attn.{side}_proj.weight": rng.standard_normal((width, width))
        for side in "qk"
    }
    arrays["model.layers.0.input_layernorm.weight"] = np.ones(width)
    config = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": width,
        "num_attention_heads": heads,
        "max_position_embeddings": 64,
    }
    found = audit(arrays, ASKED, config=config)
    assert len(found.heads) == heads
    assert alive == 0
    assert most == 1


def test_provenance_says_how_the_numbers_were_made():
    found = audit(DATA / "llama", ASKED, jobs=2).provenance
    assert found["version"] == version("dispersion")
    assert found["python"] == platform.python_version()
    assert found["numpy"] == version("numpy")
    assert found["scipy"] == version("scipy")
    assert found["flint"] == version("python-flint")
    assert found["offsets"] == "free"
    assert found["threads"] == 1
    assert found["jobs"] == 2
    assert found["format"] == "safetensors"
    assert found["blas"]
    assert 0 < found["seconds"] < 600
    assert json.loads(json.dumps(found)) == found
    assert audit(DATA / "llama", [Target(8)], offsets="exact").provenance["offsets"] == "exact"


def test_the_model_is_described():
    model = audit(DATA / "qwen3", ASKED).model
    assert model["family"] == model["model_type"] == "qwen3"
    assert (model["layers"], model["query_heads"], model["key_heads"]) == (2, 4, 2)
    assert model["qk_norm"] == "headwise"
    assert json.loads(json.dumps(model)) == model


# --- weights that are not numbers, and tensors that are not known -------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("tensor", "at"),
    [
        ("model.layers.1.self_attn.q_proj.weight", (5, 3)),
        ("model.layers.1.self_attn.k_proj.weight", (2, 7)),
        ("model.layers.0.input_layernorm.weight", (4,)),
    ],
)
def test_a_weight_that_is_not_finite_is_named_with_its_index(tmp_path, tensor, at, value):
    arrays = arrays_of("llama")
    arrays[tensor][at] = value
    folder = write_checkpoint(tmp_path / "model", arrays, config_of("llama"))
    message = refused(CheckpointError, tensor, audit, folder, ASKED)
    assert f"[{', '.join(map(str, at))}]" in message
    assert numbers(audit(folder, ASKED, layers=[0])).complete if "layers.1" in tensor else True


def test_what_attention_does_not_need_may_hold_anything(tmp_path):
    arrays = arrays_of("llama")
    name = next(n for n in arrays if "down_proj" in n)
    arrays[name][0, 0] = math.nan
    folder = write_checkpoint(tmp_path / "model", arrays, config_of("llama"))
    assert audit(folder, ASKED).heads == audit(DATA / "llama", ASKED).heads


def test_an_unknown_tensor_refuses_its_layer_and_leaves_the_others():
    arrays = arrays_of("llama")
    arrays["model.layers.1.self_attn.sinks"] = np.zeros(4, np.float32)
    found = audit(arrays, ASKED, config=config_of("llama"))
    assert [r.name for r in found.refused] == ["model.layers.1.self_attn"]
    assert "sinks" in found.refused[0].reason
    assert {h.layer for h in found.heads} == {0}
    assert [h for h in audit(DATA / "llama", ASKED).heads if h.layer == 0] == list(found.heads)
    assert not found.complete
    assert audit(arrays, ASKED, config=config_of("llama"), layers=[0]).complete


def test_unbounded_heads_are_counted_and_make_an_audit_incomplete():
    """Families with neither an input norm nor a QK norm do not exist yet; a hand-made one does."""
    found = audit(DATA / "llama", ASKED)
    answer = replace(found.heads[0].results[0], verdict=Verdict.UNBOUNDED)
    head = replace(found.heads[0], results=(answer, *found.heads[0].results[1:]))
    changed = replace(found, heads=(head, *found.heads[1:]))
    assert changed.counts(0)[Verdict.UNBOUNDED] == 1
    assert sum(changed.counts(0).values()) == len(found.heads)
    assert not changed.complete
    assert found.complete


def test_a_checkpoint_copied_elsewhere_gives_the_same_numbers(tmp_path):
    shutil.copytree(DATA / "llama__bias_sharded_bf16", tmp_path / "copy")
    found = audit(tmp_path / "copy", ASKED)
    assert numbers(found) == numbers(audit(DATA / "llama__bias_sharded_bf16", ASKED))
