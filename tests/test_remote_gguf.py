"""GGUF files at addresses: the local file's answers from its header and the tensors read."""

import json
import pickle
import struct
from itertools import pairwise

import gguf
import numpy as np
import pytest

from checkpoints import gguf_bytes, gguf_metadata, gguf_shapes, refused
from dispersion import CheckpointError, UnsupportedError, audit, dry_run
from dispersion.checkpoint import open_checkpoint, open_tensors
from dispersion.checkpoint.gguf_parts import part_name
from dispersion.checkpoint.remote import gguf as remote_gguf
from dispersion.cli import main
from dispersion.errors import ArgumentError
from gguf_conversion import golden, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WIDTH, HEADS, KEYS, DIM, LAYERS = 256, 4, 2, 64, 3
READ = ("attn_q", "attn_k", "attn_norm")
FILE = "/model/m.gguf"


def vocabulary(size):
    """Words of uneven lengths, their scores, and merges: what makes real headers long."""
    words = ["x" * (1 + i % 23) for i in range(size)]
    return {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.scores": [0.5] * size,
        "tokenizer.ggml.merges": [f"{i} {i}" for i in range(2 * size)],
    }


def tensors(kind="Q8_0"):
    kind = gguf.GGMLQuantizationType[kind]
    rng = np.random.default_rng(3)
    shapes = gguf_shapes(WIDTH, HEADS, KEYS, DIM, LAYERS, words=64)
    shapes |= {f"blk.{i}.ffn_up.weight": (4 * WIDTH, WIDTH) for i in range(LAYERS)}
    found = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 2:
            found[name] = (int(kind), shape, gguf.quants.quantize(values, kind).tobytes())
        else:
            found[name] = values
    return found


TENSORS = tensors()


def model(size=0):
    values = gguf_metadata(
        "qwen3",
        **{
            "block_count": LAYERS,
            "embedding_length": WIDTH,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KEYS,
            "attention.key_length": DIM,
        },
    )
    return values | (vocabulary(size) if size else {})


def nbytes(tensor):
    return tensor.nbytes if isinstance(tensor, np.ndarray) else len(tensor[2])


def wanted():
    read = (n for n in TENSORS if n.startswith("blk.") and n.split(".")[2].startswith(READ))
    return sum(nbytes(TENSORS[name]) for name in read)


def put(site, tmp_path, size=0):
    """The model at an address and in a file."""
    raw = gguf_bytes(model(size), TENSORS)
    site.files[FILE] = raw
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    header = len(raw) - sum(-(-nbytes(t) // 32) * 32 for t in TENSORS.values())
    return site.url + FILE, path, header


@pytest.mark.parametrize("size", [0, 1000, 30_000])
def test_only_the_header_and_what_the_logits_need_is_read(site, tmp_path, size):
    address, path, header = put(site, tmp_path, size)
    found, local = audit(address), audit(path)
    assert found.heads == local.heads
    assert found.skipped == local.skipped
    assert found.model == local.model
    assert found.source == address
    needed = header + wanted()
    assert needed <= site.sent <= 1.02 * needed
    assert site.paths() == [FILE] * len(site.asked)  # no config.json
    spans = sorted(each.range for each in site.asked)
    assert all(a[1] < b[0] for a, b in pairwise(spans))  # every byte once
    assert len(site.asked) < 5 * LAYERS + 40


@pytest.mark.parametrize("name", ["glm fused", "deepseek_v2", "t5", "lfm2"])
def test_of_a_converted_model_the_planned_bytes_are_read(site, tmp_path, name):
    """Also where the rows of three projections lie in one tensor, or one projection in two."""
    path = tmp_path / "m.gguf"
    write(golden(name), path)
    site.files[FILE] = path.read_bytes()
    planned = sum(tensor.nbytes for tensor in dry_run(path).tensors)
    assert audit(site.url + FILE).heads == audit(path).heads
    header = gguf.GGUFReader(path).data_offset
    assert site.sent <= planned + max(header, remote_gguf.LEAST)
    assert site.sent >= planned + header - 32  # but for padding


def test_a_dry_run_reads_the_header_alone(site, tmp_path, capsys):
    address, path, header = put(site, tmp_path, 1000)
    found, local = dry_run(address), dry_run(path)
    assert [t.name for t in found.tensors] == [t.name for t in local.tensors]
    assert sum(t.nbytes for t in found.tensors) == wanted()
    assert found.checkpoint_bytes == local.checkpoint_bytes
    assert header <= site.sent <= header + max(remote_gguf.LEAST, header // remote_gguf.SHARE)
    assert main(["check", address, "--dry-run"]) == 0
    assert f"{wanted():,}" in capsys.readouterr().out


def test_layers_that_are_not_asked_for_are_not_read(site, tmp_path):
    address, path, header = put(site, tmp_path)
    assert audit(address, layers=[1]).heads == audit(path, layers=[1]).heads
    assert header <= site.sent <= 1.02 * header + remote_gguf.LEAST + wanted() / LAYERS


def test_rows_are_those_of_the_file(site, tmp_path):
    address, path, _ = put(site, tmp_path)
    found, local = open_checkpoint(address), open_checkpoint(path)
    assert found.names == local.names
    assert found.config == local.config
    for name in found.names:
        np.testing.assert_array_equal(found.read(name), local.read(name))
        np.testing.assert_array_equal(found.read(name, slice(2, 5)), local.read(name, slice(2, 5)))
        assert found.info(name).file == address


def test_divisors_of_frequencies_and_reordered_rows_come_along(site, tmp_path):
    values = gguf_metadata("llama", block_count=1)
    held = {
        "rope_freqs.weight": np.array([1, 2, 3, 4.0]),
        "blk.0.attn_norm.weight": np.ones(16),
        "blk.0.attn_q.weight": np.arange(512.0).reshape(32, 16),
        "blk.0.attn_k.weight": np.arange(256.0).reshape(16, 16),
    }
    site.files[FILE] = gguf_bytes(values, held)
    (tmp_path / "m.gguf").write_bytes(site.files[FILE])
    found, local = open_checkpoint(site.url + FILE), open_checkpoint(tmp_path / "m.gguf")
    assert found.config == local.config
    assert found.config["rope_scaling"]["long_factor"] == [1, 2, 3, 4]
    assert audit(site.url + FILE).heads == audit(tmp_path / "m.gguf").heads


def test_it_can_be_sent_to_another_process(site, tmp_path):
    address, _, _ = put(site, tmp_path)
    found = open_checkpoint(address)
    name = "model.layers.0.self_attn.q_proj.weight"
    values = found.read(name)
    packed = pickle.dumps(found)
    assert len(packed) < 20_000
    np.testing.assert_array_equal(pickle.loads(packed).read(name), values)


def test_the_hub_pins_a_commit_and_needs_no_configuration(site, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    _, path, _ = put(site, tmp_path)
    site.headers["X-Repo-Commit"] = COMMIT
    for revision in ("v1", COMMIT):
        site.files[f"/me/mine/resolve/{revision}/q/m.gguf"] = path.read_bytes()
    found = audit("hf://me/mine@v1/q/m.gguf")
    assert found.heads == audit(path).heads
    assert found.provenance["commit"] == COMMIT
    message = refused(CheckpointError, "config.json is missing", audit, "hf://me/mine@v1/q")
    assert "a .gguf file, which says so itself, must be named" in message


def parts(site, count=3, **changed):
    """The model in parts on the server; `changed` by part: metadata, or None for no file."""
    names = list(TENSORS)
    for index in range(count):
        own = {"split.no": index, "split.count": count, "split.tensors.count": len(TENSORS)}
        values = (model(500) if index == 0 else {}) | own
        change = changed.get(f"p{index}", {})
        path = f"/model/{part_name('m', index, count)}"
        if change is not None:
            held = {name: TENSORS[name] for name in names[index::count]}
            site.files[path] = gguf_bytes(values | change, held)
    return site.url + f"/model/{part_name('m', 0, count)}"


@pytest.mark.parametrize("named", [1, 3])
def test_all_parts_of_a_split_model_are_read(site, tmp_path, named):
    _, path, _ = put(site, tmp_path)
    del site.files[FILE]
    address = parts(site).replace("00001-of", f"0000{named}-of")
    found = audit(address)
    assert found.heads == audit(path).heads
    headers = sum(
        len(raw) - sum(-(-nbytes(TENSORS[n]) // 32) * 32 for n in list(TENSORS)[i::3])
        for i, raw in enumerate(site.files.values())
    )
    assert site.sent <= 1.02 * (headers + wanted()) + 3 * remote_gguf.LEAST
    assert set(site.paths()) == set(site.files)
    site.asked.clear()
    assert dry_run(address).tensors
    assert len(site.asked) <= 3 * 20


def test_parts_on_the_hub_are_of_one_commit(site, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    parts(site)
    raw = {path.rpartition("/")[2]: data for path, data in site.files.items()}
    site.files = {
        f"/me/mine/resolve/{at}/{name}": data for name, data in raw.items() for at in ("v1", COMMIT)
    }
    site.headers["X-Repo-Commit"] = COMMIT
    assert audit(f"hf://me/mine@v1/{part_name('m', 1, 3)}").provenance["commit"] == COMMIT
    first, *others = dict.fromkeys(site.paths())
    assert first == f"/me/mine/resolve/v1/{part_name('m', 1, 3)}"
    assert {path.rpartition("/")[0] for path in others} == {f"/me/mine/resolve/{COMMIT}"}


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"p1": None}, "m-00002-of-00003.gguf is missing; it is part 2 of 3"),
        ({"p1": {"split.no": 2}}, "its split.no is 2, not 1"),
        ({"p2": {"split.count": 0}}, "its split.count is 0"),
        ({"p0": {"split.count": 2**32 - 1}}, "must be named as they are numbered"),
        ({f"p{i}": {"split.tensors.count": 4} for i in range(3)}, "were found"),
        ({"p1": {"qwen3.rope.freq_base": 9.0}}, "parts of different models"),
    ],
)
def test_parts_that_do_not_fit_are_refused(site, changed, match):
    address = parts(site, **changed)
    refused(CheckpointError, match, audit, address)


def test_a_server_without_ranges_is_refused_before_the_file_is_read(site, tmp_path, capsys):
    address, _, _ = put(site, tmp_path)
    site.ranges = False
    site.files[FILE] += bytes(50_000_000)
    message = refused(CheckpointError, "sends whole files only", audit, address)
    assert message.endswith("Download the checkpoint and give its folder.")
    assert site.sent < 30_000_000
    assert main(["check", address, "--dry-run"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_file_that_changes_meanwhile_is_an_error(site, tmp_path):
    address, _, _ = put(site, tmp_path)
    found = open_checkpoint(address)
    site.etags[FILE] = '"two"'
    name = "model.layers.0.self_attn.q_proj.weight"
    refused(CheckpointError, "changed while it was read", found.read, name)


def header_of(counts=(0, 0), body=b"", size=0):
    raw = b"GGUF" + struct.pack("<IQQ", 3, *counts) + body
    return raw + bytes(max(0, size - len(raw)))


def texts_array(count, body=b""):
    key = b"k" * 4
    return struct.pack("<Q", 4) + key + struct.pack("<IIQ", 9, 8, count) + body


SIZE = 20_000_000
LYING = {
    "empty": (b"", "is empty"),
    "another kind": (b"<html>" + bytes(9000), "does not start with GGUF"),
    "a few bytes": (b"GG", "inside its header"),
    "cut in the header": (gguf_bytes(model(500), {})[:6000], "inside its header"),
    "cut in the data": (gguf_bytes(model(), TENSORS)[:-40], "ends at"),
    "endless tensors": (header_of((2**63, 0), size=SIZE), "inside its header"),
    "endless values": (header_of((0, 2**63), size=SIZE), "inside its header"),
    "endless texts": (header_of((0, 1), texts_array(2**62), SIZE), "inside its header"),
    "a text past the end": (
        header_of((0, 1), struct.pack("<Q", 2**62), SIZE), "inside its header",
    ),
    "numbers past the end": (
        header_of((0, 1), struct.pack("<Q", 0) + struct.pack("<IIQ", 9, 4, 2**61), SIZE),
        "inside its header",
    ),
    "a tensor past the end": (
        gguf_bytes(model(), {"t": (0, (2**61, 2**61), b"")}), "tensor t ends at",
    ),
    "another architecture": (gguf_bytes({"general.architecture": "rwkv7"}, {}), "rwkv7"),
    "an old version": (gguf_bytes({}, {}, version=1), "version 1"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "match"), LYING.values(), ids=LYING.keys())
def test_lying_files_are_refused_in_one_line_and_few_bytes(site, capsys, raw, match):
    site.files[FILE] = raw
    error = UnsupportedError if match in ("rwkv7", "version 1") else CheckpointError
    message = refused(error, match, audit, site.url + FILE)
    assert message.startswith(site.url + FILE)
    assert site.sent < 20_000
    assert main(["check", site.url + FILE, "--dry-run"]) == (3 if error is UnsupportedError else 2)
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_header_that_takes_the_whole_file_is_not_fetched_for_ever(site, monkeypatch, tmp_path):
    """A text of 2 GB, all of which the server claims to have, is refused before it comes."""
    limit = 1_000_000
    monkeypatch.setattr(remote_gguf, "LONGEST", limit)
    body = struct.pack("<Q", 3) + b"key" + struct.pack("<IQ", 8, 2 * 10**9)
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(header_of((0, 1), body))
        file.truncate(2 * 10**9 + 1000)
    site.files[FILE] = path
    refused(CheckpointError, f"more than {limit} bytes", audit, site.url + FILE)
    assert site.sent < 20_000
    entries = gguf_bytes({}, {})  # texts that come one by one
    body = texts_array(10**6, entries[:0])
    with path.open("r+b") as file:
        file.write(header_of((0, 1), body))
    refused(CheckpointError, f"more than {limit} bytes", audit, site.url + FILE)
    assert site.sent < 3 * limit


def test_values_that_are_not_finite_are_named(site):
    values = model()
    held = TENSORS | {"blk.0.attn_norm.weight": np.full(WIDTH, np.nan)}
    site.files[FILE] = gguf_bytes(values, held)
    refused(CheckpointError, "input_layernorm.weight", audit, site.url + FILE)


def test_bare_weights_are_local(site, tmp_path):
    address, _, _ = put(site, tmp_path)
    refused(ArgumentError, "must be local", open_tensors, address)


def test_the_report_is_the_one_of_the_local_file(site, tmp_path, capsys):
    address, path, _ = put(site, tmp_path)
    found = []
    for source in (address, str(path)):
        assert main(["check", source, "--json", str(tmp_path / "a.json"), "--layers", "0"]) == 0
        report = json.loads((tmp_path / "a.json").read_text())
        found.append(report["heads"])
        assert report["provenance"]["format"] == "gguf"
    assert found[0] == found[1]
    capsys.readouterr()
