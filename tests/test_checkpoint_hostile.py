"""Files that would block, fill the memory, or answer in a parser's words."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

import dispersion
from checkpoints import refused, write_checkpoint, write_index, write_safetensors
from dispersion.checkpoint import open_checkpoint, open_tensors
from dispersion.checkpoint.regular import LARGEST_TEXT
from dispersion.checkpoint.text import as_json, shown
from dispersion.errors import ArgumentError, CheckpointError
from dispersion.pairs import PairOptions, audit_pair
from dispersion.verdict import Target

ARRAYS = {f"w{i}": np.full((2, 3), i, np.float32) for i in range(2)}
CONFIG = {"model_type": "llama"}
INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00002.safetensors"
unix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a Unix feature")


def damaged(folder, name):
    """A sharded checkpoint without one of its files, and the place of that file."""
    write_checkpoint(folder, ARRAYS, CONFIG, shards=2)
    path = folder / name
    path.unlink()
    return path


@unix
@pytest.mark.parametrize("name", ["config.json", INDEX, SHARD])
def test_a_pipe_in_place_of_a_file_is_refused_unopened(tmp_path, name):
    path = damaged(tmp_path, name)
    os.mkfifo(path)
    text = refused(
        CheckpointError, "is a named pipe, not a regular file", open_checkpoint, tmp_path
    )
    assert str(path) in text


@unix
@pytest.mark.parametrize("name", ["model.safetensors", "other.safetensors", "m.gguf"])
def test_a_pipe_as_the_only_weights_of_a_folder_is_named(tmp_path, name):
    os.mkfifo(tmp_path / name)
    text = refused(
        CheckpointError, "is a named pipe, not a regular file", open_checkpoint, tmp_path
    )
    assert name in text


@unix
@pytest.mark.parametrize("name", ["config.json", INDEX, SHARD])
def test_an_endless_device_is_refused_unopened(tmp_path, name):
    damaged(tmp_path, name).symlink_to("/dev/zero")
    refused(CheckpointError, f"{name} is a device, not a regular file", open_checkpoint, tmp_path)


@unix
@pytest.mark.parametrize("name", ["config.json", INDEX, SHARD])
def test_links_that_lead_to_no_file_are_told_from_missing_files(tmp_path, name):
    path = damaged(tmp_path, name)
    path.symlink_to(path.name)
    refused(
        CheckpointError, f"{name} is a symbolic link that leads round", open_checkpoint, tmp_path
    )
    path.unlink()
    path.symlink_to("gone")
    refused(CheckpointError, "is a symbolic link to gone, which is", open_checkpoint, tmp_path)


@unix
def test_a_link_given_by_itself_is_told_from_a_missing_file(tmp_path):
    path = tmp_path / "w.safetensors"
    path.symlink_to(path.name)
    refused(CheckpointError, "leads round in a circle", open_tensors, path)


@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_an_oversized_text_file_is_refused_unread(tmp_path, monkeypatch, name):
    path = damaged(tmp_path, name)
    with path.open("wb") as file:
        file.truncate(LARGEST_TEXT + 1)  # sparse: takes no room on disk
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda _: pytest.fail("read"))
    if name == "config.json":  # the index is read first
        (tmp_path / INDEX).unlink()
        (tmp_path / SHARD).rename(tmp_path / "model.safetensors")
    match = f"{name} has {LARGEST_TEXT + 1} bytes, more than the {LARGEST_TEXT} that"
    refused(CheckpointError, match, open_checkpoint, tmp_path)


def squeezed(path, name, shape, count=None):
    """An .npz member of zeros, written in pieces; `count` bytes in place of its own."""
    head = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, header)
    count = 4 * int(np.prod(shape)) if count is None else count
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(f"{name}.npy", "w") as member,
    ):
        member.write(head.getvalue())
        while count:
            count -= member.write(bytes(min(count, 1 << 20)))
    return path


def test_a_compressed_array_is_not_inflated_before_shapes_are_known_to_fit(tmp_path):
    size = 1 << 25  # bytes
    query = squeezed(tmp_path / "q.npz", "q", (1 << 12, 1 << 11))
    np.save(tmp_path / "k.npy", np.ones((4, 3), np.float32))
    tracemalloc.start()
    try:
        assert open_tensors(query).info("q").nbytes == size
        with pytest.raises(ArgumentError, match="W_K must have head_dim"):
            audit_pair(query, tmp_path / "k.npy", [Target(64)], PairOptions())
        with pytest.raises(ArgumentError, match="inputs of one width"):
            audit_pair(query, tmp_path / "k.npy", [Target(64)], PairOptions(query_heads=1 << 10))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 8


@pytest.mark.parametrize(("count", "match"), [(20, "is truncated"), (28, "has bytes after")])
def test_an_npz_member_must_have_the_bytes_of_its_shape(tmp_path, count, match):
    path = squeezed(tmp_path / "w.npz", "w", (2, 3), count)
    text = refused(CheckpointError, match, open_tensors, path)
    assert "array w" in text
    assert "takes 24 bytes" in text


def test_an_array_name_twice_in_an_npz_is_refused(tmp_path):
    path = squeezed(tmp_path / "w.npz", "w", (2, 3))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("w.npy", b"")
    refused(CheckpointError, "the array w occurs twice", open_tensors, path)


def test_trailing_bytes_after_an_npy_array_are_refused(tmp_path):
    path = tmp_path / "w.npy"
    np.save(path, np.ones((2, 3)))
    with path.open("ab") as file:
        file.write(b"x")
    text = refused(CheckpointError, "has bytes after its array", open_tensors, path)
    assert "takes 48 bytes. Got 49" in text


def header(text, version=1):
    raw = text.encode("latin1")
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(raw).to_bytes(width, "little") + raw


SHAPED = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}\n"
WRITTEN = "its header must give descr, fortran_order and shape as NumPy writes them"


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "it is empty"),
        (b"\x93NUMPY", "version of the format"),
        (b"\x93NUMPY\x09\x00", "version of the format"),
        (header(SHAPED % "(1,)")[:30], "it ends inside its header"),
        (header(SHAPED % "open('x')"), WRITTEN),
        (header(SHAPED % "(1.5,)"), WRITTEN),
        (header("[1]\n"), WRITTEN),
        (header("{\n"), WRITTEN),
        (header("(" * 5000 + "\n"), WRITTEN),
        (header(SHAPED.replace("<f4", "nonsense") % "()"), WRITTEN),
        (header(SHAPED % "(-1,)"), "no array can have its shape (-1,)"),
        (header(SHAPED % "(True,)"), "no array can have its shape (True,)"),
        (header(SHAPED % f"({'9' * 4000}, 1)"), "no array can have its shape"),
        (header(SHAPED % f"({'1,' * 65})"), "no array can have its shape"),
        (header(SHAPED % f"({str(2**62) + ','} {str(2**62) + ','})"), "is truncated"),
        (header(" " * 20_000, version=2), "at most 10000 bytes, got 20000"),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_bad_numpy_header_is_refused_in_plain_words(tmp_path, suffix, raw, match):
    path = tmp_path / f"w.{suffix}"
    if suffix == "npy":
        path.write_bytes(raw)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", raw)
    text = refused(CheckpointError, match, open_tensors, path)
    assert not any(word in text for word in ("object at 0x", "max_header_size", "Exceeds", "EOF"))


@pytest.mark.parametrize("name", ["w.gguf", "w.npy", "w.npz", "w.safetensors"])
def test_an_empty_file_is_refused_without_words_about_maps(tmp_path, name):
    (tmp_path / name).touch()
    assert "mmap" not in refused(CheckpointError, name, open_tensors, tmp_path / name)


def test_a_file_emptied_after_opening_is_reported_with_both_sizes(tmp_path):
    path = write_safetensors(tmp_path / "w.safetensors", ARRAYS)
    tensors, size = open_tensors(path), path.stat().st_size
    path.write_bytes(b"")
    text = refused(CheckpointError, "it has 0 bytes, the tensor ends at", tensors.read, "w1")
    assert str(size) in text


def test_one_array_file_is_answered_with_the_need_for_two(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    text = refused(
        CheckpointError, "Two weight files are needed", open_checkpoint, tmp_path / "a.npy"
    )
    assert "W_Q and W_K" in text


def test_a_shape_too_large_to_print_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    shape = ", ".join([str(2**63)] * 400)
    raw = f'{{"w": {{"dtype": "F32", "shape": [{shape}], "data_offsets": [0, 0]}}}}'.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    refused(CheckpointError, "takes a number of thousands of digits bits", open_tensors, path)


def test_values_are_shown_as_json_has_them():
    assert [as_json(v) for v in (None, True, [1, None], {"a": 2}, "F31")] == [
        "null", "true", "[1, null]", '{"a": 2}', "F31",
    ]  # fmt: skip
    assert shown("x" * 500).endswith("…")


def test_null_in_an_index_is_shown_as_null(tmp_path):
    write_index(tmp_path, {"w": None})
    refused(CheckpointError, "maps w to null", open_checkpoint, tmp_path)


@pytest.mark.parametrize(
    ("source", "got"), [(None, "None"), (5, "int"), (b"x", "bytes"), (["a"], "list")]
)
def test_a_source_that_is_no_path_and_no_mapping_is_an_argument_error(source, got):
    match = f"source must be the path of a folder.*mapping from tensor names.*Got {got}"
    with pytest.raises(ArgumentError, match=match):
        dispersion.audit(source)
