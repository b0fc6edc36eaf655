"""Audits that go on where they were interrupted."""

import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from dispersion import audit, partial, tasks
from dispersion.cli import main
from dispersion.enclosure import Enclosure, Estimate
from dispersion.errors import ArgumentError, OutputError
from dispersion.verdict import Capacity, Target

DATA = Path(__file__).parent / "data"
ASKED = [Target(16), Target(4096, retrieval="any")]


@pytest.fixture
def model(tmp_path):
    shutil.copytree(DATA / "llama", tmp_path / "llama")
    return tmp_path / "llama"


class Stop(Exception):
    pass


def interrupted(model, path, after=1, **options):
    def stop(done, total):
        assert total > after
        if done == after:
            raise Stop

    with pytest.raises(Stop):
        audit(model, ASKED, resume=path, progress=stop, **options)


def counted(monkeypatch):
    """The layers that are checked from here on."""
    checked, real = [], tasks.check_layer

    def check(layer, work):
        checked.append(layer.layer)
        return real(layer, work)

    monkeypatch.setattr(tasks, "check_layer", check)
    return checked


def test_an_audit_goes_on_where_it_was_interrupted(model, tmp_path, monkeypatch):
    path = tmp_path / "done.jsonl"
    interrupted(model, path)
    assert len(path.read_text().splitlines()) == 2
    checked, seen = counted(monkeypatch), []
    found = audit(model, ASKED, resume=path, progress=lambda done, total: seen.append(done))
    assert len(checked) == 1
    assert seen == [1, 2]
    assert found.heads == audit(model, ASKED).heads
    checked.clear()
    assert audit(model, ASKED, resume=path).heads == found.heads
    assert not checked


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "olmo2", "bert", "gpt2"])
def test_every_number_comes_back_exactly(name, tmp_path):
    path = tmp_path / "done.jsonl"
    asked = [Target(16), Target(16, 0.3, sink_tokens=2), Target(12, retrieval="any")]
    first = audit(DATA / name, asked, resume=path)
    again = audit(DATA / name, asked, resume=path)
    assert again.heads == first.heads == audit(DATA / name, asked).heads
    assert any(h.capacity is not None for h in first.heads)


def test_infinities_estimates_and_notes_come_back(tmp_path):
    head = audit(DATA / "llama", ASKED).heads[0]
    strange = replace(
        head,
        spread=Enclosure(0.0, math.inf),
        largest_length=math.inf,
        capacity=Capacity(0.1 + 0.2, Estimate(1e-300)),
        notes=("a note", "ein ü"),
        window=7,
    )
    text = json.dumps(asdict(strange), default=partial._plain)
    assert partial._head(json.loads(text)) == strange


def test_a_line_that_was_cut_off_is_done_again(model, tmp_path):
    path = tmp_path / "done.jsonl"
    whole = audit(model, ASKED, resume=path)
    raw = path.read_bytes()
    for keep in (len(raw) - 1, len(raw) - 40, raw.index(b"\n") + 3, raw.index(b"\n"), 30, 1, 0):
        path.write_bytes(raw[:keep])
        if keep == 1:
            with pytest.raises(ArgumentError, match="resume file"):
                audit(model, ASKED, resume=path)
            continue
        assert audit(model, ASKED, resume=path).heads == whole.heads
        assert sorted(path.read_bytes().splitlines()) == sorted(raw.splitlines())


def test_layers_may_be_asked_for_in_turns(model, tmp_path, monkeypatch):
    path = tmp_path / "done.jsonl"
    audit(model, ASKED, layers=[1], resume=path)
    checked = counted(monkeypatch)
    assert audit(model, ASKED, resume=path).heads == audit(model, ASKED).heads
    assert checked.count(1) == 1
    assert checked.count(0) == 2


def test_processes_and_resuming_go_together(model, tmp_path):
    path = tmp_path / "done.jsonl"
    interrupted(model, path, jobs=2)
    assert audit(model, ASKED, resume=path, jobs=2).heads == audit(model, ASKED).heads


def changed_weight(model):
    file = model / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))


def changed_config(model):
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rms_norm_eps": 1e-3}))


@pytest.mark.parametrize("change", [changed_weight, changed_config])
def test_another_model_is_not_continued(model, tmp_path, change):
    path = tmp_path / "done.jsonl"
    interrupted(model, path)
    change(model)
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="another audit"):
        audit(model, ASKED, resume=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "other",
    [
        {"targets": [Target(17), ASKED[1]]},
        {"targets": [replace(ASKED[0], coefficient=0.4), ASKED[1]]},
        {"targets": [replace(ASKED[0], sink_tokens=1), ASKED[1]]},
        {"heads": [0]},
        {"offsets": "exact"},
    ],
)
def test_another_question_is_not_continued(model, tmp_path, other):
    path = tmp_path / "done.jsonl"
    interrupted(model, path)
    with pytest.raises(ArgumentError, match="another audit"):
        audit(model, **{"targets": ASKED, **other}, resume=path)


def test_another_version_is_not_continued(model, tmp_path, monkeypatch):
    path = tmp_path / "done.jsonl"
    interrupted(model, path)
    monkeypatch.setattr(partial, "version", lambda _: "9.9.9")
    with pytest.raises(ArgumentError, match="version"):
        audit(model, ASKED, resume=path)


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "{}\n",
        "[]\n",
        "1\n",
        '{"format": "dispersion.audit/1", "audit": ""}\n',
        "[" * 100_000 + "\n",
        "\x00\n",
        "no line",
    ],
)
def test_strange_files_are_left_alone(model, tmp_path, text):
    path = tmp_path / "done.jsonl"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="resume file") as caught:
        audit(model, ASKED, resume=path)
    assert "\n" not in str(caught.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "line", ["{}", "3", '{"layer": 0, "module": "x", "heads": [{}]}', "nonsense"]
)
def test_strange_lines_are_no_layers(model, tmp_path, line):
    path = tmp_path / "done.jsonl"
    interrupted(model, path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ArgumentError, match="resume file"):
        audit(model, ASKED, resume=path)


def test_a_file_that_cannot_be_made_is_named(model, tmp_path):
    for path in (tmp_path / "missing" / "x.jsonl", tmp_path):
        with pytest.raises(OutputError, match="resume file"):
            audit(model, ASKED, resume=path)


def test_what_cannot_be_resumed(model, tmp_path):
    config = json.loads((model / "config.json").read_text())
    with pytest.raises(ArgumentError, match="state dict"):
        audit({"x": np.ones(3)}, ASKED, config=config, resume=tmp_path / "x")
    with pytest.raises(ArgumentError, match="inputs"):
        audit(model, ASKED[:1], inputs="vocabulary", resume=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_command_line_resumes(model, tmp_path, capsys):
    path = tmp_path / "done.jsonl"
    arguments = [
        "check",
        str(model),
        "--length",
        "16",
        "--resume",
        str(path),
        "--quiet",
        "--json",
        "-",
    ]
    outputs = []
    for _ in range(2):
        assert main(arguments) in (0, None)
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs[0]["heads"] == outputs[1]["heads"]
    assert len(path.read_text().splitlines()) == 3
    assert main([*arguments[:-1], str(path)]) == 2
    assert "--resume must name a file of its own" in capsys.readouterr().err
