"""A dry run names just what an audit reads, and reads no weights itself."""

import csv
import io
import json
import os
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import dispersion
from checkpoints import write_checkpoint
from dispersion import ArgumentError, Target, UnsupportedError, audit, demo, dry_run
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint
from dispersion.checkpoint.tensors import Tensors
from dispersion.cli import main
from dispersion.report.dry_run_report import (
    COLUMNS,
    dry_run_schema,
    dry_run_to_csv,
    dry_run_to_dict,
    render_dry_run,
)
from range_server import serving

DATA = Path(__file__).parent / "data"
GOLDEN = sorted(path for path in DATA.iterdir() if path.is_dir())
DEMO = "demo:headwise"


@pytest.fixture
def read(monkeypatch):
    """Names of the tensors whose values anybody asked for."""
    names = set()
    original = Tensors.read

    def reading(self, name, rows=None):
        names.add(name)
        return original(self, name, rows)

    monkeypatch.setattr(Tensors, "read", reading)
    return names


@pytest.fixture
def run(capsys):
    def call(*arguments):
        capsys.readouterr()
        code = main(["check", *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda path: path.name)
def test_it_names_what_the_heads_are_built_from(folder, read):
    found = dry_run(folder)
    assert read == set()
    for layer in plan(open_checkpoint(folder)).layers:
        for _ in layer.heads():
            pass
    assert {tensor.name for tensor in found.tensors} == read
    assert len(found.tensors) == len(read)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gpt_neox"])
def test_it_names_what_real_token_ids_take(name, read):
    found = dry_run(DATA / name, [Target(8)], inputs="vocabulary")
    assert read == set()
    answer = audit(DATA / name, [Target(8)], inputs="vocabulary")
    assert {tensor.name for tensor in found.tensors} == read
    assert found.heads == len(answer.heads)
    assert found.skipped == answer.skipped


@pytest.mark.parametrize(
    "options", [{}, {"layers": [1]}, {"heads": [0, 3]}, {"layers": [0], "heads": [2]}]
)
def test_it_is_the_audit_without_the_answers(options, read):
    found, answer = dry_run(DATA / "llama", **options), audit(DATA / "llama", **options)
    assert found.heads == len(answer.heads)
    assert {t.name for t in found.tensors} == read
    for shared in ("source", "model", "targets", "skipped", "refused", "left_out"):
        assert getattr(found, shared) == getattr(answer, shared)
    assert [layer.module for layer in found.layers] == list(
        dict.fromkeys(head.module for head in answer.heads)
    )


def test_bytes_are_those_of_the_file():
    found = dry_run(DATA / "llama__bias_sharded_bf16")
    checkpoint = open_checkpoint(DATA / "llama__bias_sharded_bf16")
    assert found.total_bytes == sum(t.nbytes for t in found.tensors)
    for tensor in found.tensors:
        info = checkpoint.info(tensor.name)
        kept = (tensor.dtype, tensor.shape, tensor.nbytes, tensor.file)
        assert kept == (info.dtype, info.shape, info.nbytes, info.file)
        assert tensor.nbytes == checkpoint.read(tensor.name).nbytes
    assert found.checkpoint_bytes == sum(checkpoint.info(n).nbytes for n in checkpoint.names)
    assert 0 < found.total_bytes < found.checkpoint_bytes


def test_at_an_address_it_fetches_headers_only():
    with serving() as site:
        address = site.add_folder(demo.path("headwise"))
        found = dry_run(address)
        data = site.files["/model/model.safetensors"]
        header = 8 + int.from_bytes(data[:8], "little")
        assert site.sent == header + len(site.files["/model/config.json"])
        local = dry_run(demo.path("headwise"))
        assert [(t.name, t.nbytes) for t in found.tensors] == [
            (t.name, t.nbytes) for t in local.tensors
        ]
        before = site.sent
        audit(address)
        # What it said is what an audit then fetches, headers aside.
        assert site.sent - 2 * before == found.total_bytes


def test_what_is_refused_is_said(tmp_path):
    arrays = {
        f"model.layers.{i}.{name}.weight": np.zeros(shape, np.float32)
        for i in range(2)
        for name, shape in {
            "input_layernorm": (8,),
            "self_attn.q_proj": (8, 8),
            "self_attn.k_proj": (8, 8),
        }.items()
    }
    arrays["model.layers.1.self_attn.strange.weight"] = np.zeros(3, np.float32)
    config = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-6,
    }
    folder = write_checkpoint(tmp_path / "model", arrays, config)
    found = dry_run(folder)
    assert [each.name for each in found.refused] == ["model.layers.1.self_attn"]
    assert not found.complete
    assert (found.heads, [layer.layer for layer in found.layers]) == (2, [0])
    assert "Refused: 1 item" in render_dry_run(found)


def test_errors_are_those_of_the_audit(tmp_path):
    folder = write_checkpoint(tmp_path / "m", {"a": np.zeros(2)}, {"model_type": "unheard_of"})
    with pytest.raises(UnsupportedError, match="unheard_of"):
        dry_run(folder)
    for options in ({"layers": [7]}, {"heads": [99]}, {"inputs": "none"}, {"targets": []}):
        with pytest.raises(ArgumentError):
            dry_run(DATA / "llama", **options)
    with pytest.raises(ArgumentError, match="config must come with a state dict"):
        dry_run({"a": np.zeros(2)})


def test_a_state_dict_has_one_too():
    checkpoint = open_checkpoint(demo.path("headwise"))
    arrays = {name: np.array(checkpoint.read(name)) for name in checkpoint.names}
    found = dispersion.dry_run(arrays, config=checkpoint.config)
    assert found.total_bytes == dry_run(demo.path("headwise")).total_bytes
    assert found.source == "state dict"


# Reports


@pytest.mark.parametrize("folder", ["llama", "bert", "gpt_oss"])
def test_json_satisfies_its_schema(folder):
    schema = dry_run_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    report = json.loads(json.dumps(dry_run_to_dict(dry_run(DATA / folder))))
    jsonschema.validate(report, schema)
    for key in schema["required"]:
        broken = {k: v for k, v in report.items() if k != key}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)
    assert report["summary"]["bytes"] == sum(each["bytes"] for each in report["tensors"])


def test_csv_has_a_line_for_each_tensor():
    found = dry_run(DATA / "llama")
    rows = list(csv.DictReader(io.StringIO(dry_run_to_csv(found))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["tensor"] for row in rows] == [t.name for t in found.tensors]
    assert sum(int(row["bytes"]) for row in rows) == found.total_bytes
    assert tuple(map(int, rows[0]["shape"].split("x"))) == found.tensors[0].shape


def test_layers_that_are_alike_share_a_line():
    text = render_dry_run(dry_run(DATA / "llama"))
    line = next(line for line in text.splitlines() if "q_proj" in line)
    assert "model.layers.*.self_attn.q_proj.weight" in line
    assert max(map(len, text.splitlines())) <= 80
    narrow = render_dry_run(dry_run(DATA / "llama"), width=50)
    assert "q_proj" in narrow


def test_names_cannot_reach_the_terminal():
    found = dry_run(DATA / "llama")
    hostile = dispersion.previewing.DryRun(
        **{**vars(found), "source": "x\x1b[2J", "tensors": (_renamed(found.tensors[0]),)}
    )
    assert "\x1b" not in render_dry_run(hostile)


def _renamed(tensor):
    return type(tensor)(**{**vars(tensor), "name": "a\x1b[31m.b"})


# The command


def test_the_command_says_what_would_be_read(run, read):
    code, out, err = run(DEMO, "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("demo:headwise  qwen3, ")
    assert "Dry run of family qwen3, no weights read." in out
    assert "24,960" in out
    assert "k_proj" in out
    assert "stop" not in out  # no answers
    assert read == set()


def test_the_command_writes_json_and_csv(run, tmp_path):
    code, out, _ = run(DEMO, "--dry-run", "--json", str(tmp_path / "a.json"), "--csv", "-")
    assert code == 0
    assert out.startswith("source,layer,module,tensor")
    report = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert report["schema"] == "dispersion.dry-run/1"
    assert report["source"] == DEMO
    _, out, _ = run(DEMO, "--dry-run", "--json", "-")
    assert json.loads(out) == report
    run(DEMO, "--dry-run", "--csv", str(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text("utf-8").startswith("source,")


def test_exit_codes(run, tmp_path):
    assert run(str(DATA / "bert"), "--dry-run")[0] == 0
    assert run(str(DATA / "bert"), "--dry-run", "--length", "4K")[0] == 3
    assert run(str(tmp_path), "--dry-run")[0] == 2
    code, _, err = run("a.npy", "b.npy", "--dry-run")
    assert code == 2
    assert "--dry-run goes with a checkpoint" in err
    assert run(DEMO, "--dry-run", "--layers", "5")[0] == 2


def test_it_tells_of_an_address_and_hides_none_of_its_errors(run, monkeypatch):
    monkeypatch.delenv("http_proxy", raising=False)
    with serving() as site:
        address = site.add_folder(demo.path("headwise"))
        code, out, err = run(address, "--dry-run", "--json", "-")
        assert (code, err) == (0, "")
        report = json.loads(out)
        assert report["source"] == address
        assert report["tensors"][0]["file"] == f"{address}/model.safetensors"
        code, out, err = run(f"{address}/gone.safetensors", "--dry-run")
        assert (code, out, err.count(os.linesep)) == (2, "", 1)


def test_the_readme_shows_what_is_printed(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = run(DEMO, "--dry-run")[1].split("\n\nSkipped")[0].splitlines()
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    shown = readme.split(f"$ dispersion check {DEMO} --dry-run\n")[1].splitlines()
    assert len(printed) > 8
    assert [line.removeprefix("    ") for line in shown[: len(printed)]] == printed
