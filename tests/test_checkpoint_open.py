import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from checkpoints import refused, write_checkpoint, write_index, write_safetensors
from dispersion.checkpoint import from_arrays, open_checkpoint, open_tensors
from dispersion.errors import CheckpointError, UnsafeFileError, UnsupportedError

ARRAYS = {f"w{i}": np.full((2, 3), i, np.float32) for i in range(5)}
CONFIG = {"model_type": "llama", "hidden_size": 3}


def same(tensors):
    assert tensors.names == tuple(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(tensors.read(name), array)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_folder_opens_whole_or_sharded(tmp_path, shards):
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", ARRAYS, CONFIG, shards=shards))
    assert (checkpoint.config, checkpoint.format) == (CONFIG, "safetensors")
    assert checkpoint.source == str(tmp_path / "m")
    assert not checkpoint.gain_is_multiplier
    same(checkpoint)


def test_a_weights_file_and_an_index_open_by_themselves(tmp_path):
    write_checkpoint(tmp_path, ARRAYS, CONFIG, shards=2)
    same(open_checkpoint(str(tmp_path / "model.safetensors.index.json")))
    write_safetensors(tmp_path / "other.safetensors", ARRAYS)
    same(open_checkpoint(tmp_path / "other.safetensors"))
    same(open_checkpoint(tmp_path))  # the index still decides for the folder


def test_a_folder_with_one_file_of_any_name_opens(tmp_path):
    write_checkpoint(tmp_path, ARRAYS, CONFIG)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    same(open_checkpoint(tmp_path))


def test_bare_tensors_need_no_config(tmp_path):
    same(open_tensors(write_safetensors(tmp_path / "x.safetensors", ARRAYS)))
    refused(CheckpointError, "config.json is missing", open_checkpoint, tmp_path)


def test_several_files_without_an_index_are_ambiguous(tmp_path):
    for name in "ab":
        write_safetensors(tmp_path / f"{name}.safetensors", ARRAYS)
    text = refused(CheckpointError, "several .safetensors files", open_checkpoint, tmp_path)
    assert "a.safetensors, b.safetensors" in text


@pytest.mark.parametrize("opener", [open_checkpoint, open_tensors])
def test_paths_that_hold_nothing(tmp_path, opener):
    refused(CheckpointError, "does not exist", opener, tmp_path / "absent")
    refused(CheckpointError, "does not exist", opener, "no/such\nplace")
    refused(CheckpointError, "cannot be read", opener, "nul\0byte")
    refused(CheckpointError, "it holds nothing", opener, tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    refused(CheckpointError, "it holds notes.txt", opener, tmp_path)
    refused(CheckpointError, "no known kind", opener, tmp_path / "notes.txt")
    for name in ("model.bin.part1", "model.gguf.part-01", "model.safetensors.001"):
        (tmp_path / name).write_bytes(b"hello")
        refused(CheckpointError, "Join the pieces", opener, tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a Unix feature")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "p.safetensors")
    refused(CheckpointError, "is a named pipe, not a", open_checkpoint, tmp_path / "p.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "m.npy", "m.npz", "m.gguf"])
def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch, name):
    folder = write_checkpoint(tmp_path / "m", ARRAYS, CONFIG)
    path = folder / name
    path.touch()
    allowed = io.open

    def guarded(file, *args, **kwargs):
        if Path(file) == path:
            raise PermissionError(13, "Permission denied", file)
        return allowed(file, *args, **kwargs)

    # Changing the mode would not do: tests may run as root, who may read everything.
    monkeypatch.setattr(io, "open", guarded)
    opener = open_tensors if path.suffix in (".npy", ".npz") else open_checkpoint
    given = folder if path.suffix in (".safetensors", ".json") else path
    text = refused(CheckpointError, "permission denied", opener, given)
    assert name in text


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"{", "valid JSON"),
        (b"", "valid JSON"),
        (b"[1]", "must be a JSON object. Got a list"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b"null", "must be a JSON object. Got null."),
        (b"true", "must be a JSON object. Got true."),
        (b"1", "must be a JSON object. Got 1."),
        (b'"{}"', "must be a JSON object. Got text."),
        (b'{"a": -' + b"7" * 5000 + b"}", "(it holds an integer of 5000 digits)"),
    ],
)
def test_a_malformed_config_is_named(tmp_path, raw, match):
    folder = write_checkpoint(tmp_path, ARRAYS, CONFIG)
    (folder / "config.json").write_bytes(raw)
    text = refused(CheckpointError, match, open_checkpoint, folder)
    assert "config.json" in text


def test_a_config_that_is_a_folder_is_named(tmp_path):
    folder = write_checkpoint(tmp_path, ARRAYS, CONFIG)
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refused(CheckpointError, "config.json is a folder, not a regular", open_checkpoint, folder)


def test_infinity_in_a_config_is_read_as_transformers_reads_it(tmp_path):
    folder = write_checkpoint(tmp_path, ARRAYS, {"limit": float("inf")})
    assert open_checkpoint(folder).config == {"limit": float("inf")}


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return open, (str(self.place), "w")


@pytest.mark.parametrize("opener", [open_checkpoint, open_tensors])
@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "m.pt", "m.PTH", "m.ckpt", "m.pkl", "m.safetensors", "m", "m.x"]
)
def test_pickles_are_never_opened(tmp_path, opener, name):
    place = tmp_path / "ran"
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(place), protocol=2))
    text = refused(UnsafeFileError, "python -c", opener, tmp_path / name)
    assert name in text
    assert not place.exists()


def test_a_pytorch_archive_is_recognised_by_its_bytes(tmp_path):
    with zipfile.ZipFile(tmp_path / "weights", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    refused(UnsafeFileError, "holds a pickle", open_checkpoint, tmp_path / "weights")


def test_a_folder_of_pickles_gets_one_conversion_for_all_its_shards(tmp_path):
    for number in (1, 2):
        (tmp_path / f"pytorch_model-{number}-of-2.bin").write_bytes(b"x")
    (tmp_path / "training_args.bin").write_bytes(b"x")
    text = refused(UnsafeFileError, "pytorch_model-*-of-*.bin", open_checkpoint, tmp_path)
    command = text.split("python -c ")[1]
    assert command.startswith("'")
    assert command.endswith("'")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    text = refused(UnsafeFileError, "python -c", open_checkpoint, tmp_path)
    assert "glob" not in text


def test_pickles_of_several_models_are_not_put_together(tmp_path):
    for name in ("small.pt", "large.pt"):
        (tmp_path / name).write_bytes(b"x")
    text = refused(UnsafeFileError, "several pickles", open_checkpoint, tmp_path)
    assert "(large.pt, small.pt)" in text
    assert "python -c" not in text
    text = refused(UnsafeFileError, "python -c", open_checkpoint, tmp_path / "small.pt")
    assert "large.pt" not in text


def test_trainer_pickles_beside_safetensors_do_not_matter(tmp_path):
    folder = write_checkpoint(tmp_path, ARRAYS, CONFIG)
    (folder / "training_args.bin").write_bytes(b"x")
    same(open_checkpoint(folder))


@pytest.mark.parametrize(
    ("weight_map", "match"),
    [
        (None, "to shard files. Got null."),
        ([], "to shard files. Got []."),
        ({}, "must hold a weight_map"),
        ({"w0": 3}, "maps w0 to 3"),
        ({"w0": "../x.safetensors"}, "plain name"),
        ({"w0": "/etc/x.safetensors"}, "plain name"),
        ({"w0": "..\\x.safetensors"}, "plain name"),
        ({"w0": "C:x.safetensors"}, "plain name"),
        ({"w0": ".."}, "plain name"),
        ({"w0": ""}, "plain name"),
        ({"w0": "a\0b"}, "plain name"),
        ({"w0": "gone.safetensors"}, "gone.safetensors is missing, but"),
        ({"w0": "a.safetensors", "w1": "a.safetensors", "w9": "a.safetensors"}, "tensor w9 should"),
        ({"w0": "a.safetensors"}, "tensor w1 is in"),
        ({f"w{i}": "a.safetensors" for i in range(2)} | {"w2": "b.safetensors"}, "two shards"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path, weight_map, match):
    some = {name: ARRAYS[name] for name in ("w0", "w1")}
    write_safetensors(tmp_path / "a.safetensors", some)
    write_safetensors(tmp_path / "b.safetensors", {n: ARRAYS[n] for n in ("w1", "w2")})
    write_index(tmp_path, weight_map)
    refused(CheckpointError, match, open_checkpoint, tmp_path)


def test_an_index_that_swaps_two_shards_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path, {n: ARRAYS[n] for n in ("w0", "w1")}, CONFIG, shards=2)
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    write_index(folder, {"w0": names["w1"], "w1": names["w0"]})
    refused(CheckpointError, "should be in the shard", open_checkpoint, folder)


def test_an_index_with_one_tensor_twice_is_refused(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w0": "a.safetensors", "w0": "b.safetensors"}}')
    refused(CheckpointError, "key w0 occurs twice", open_checkpoint, tmp_path)


def test_an_index_of_pickles_is_unsafe(tmp_path):
    index = write_index(tmp_path, {"w0": "pytorch_model-1-of-1.bin"})
    refused(UnsafeFileError, "python -c", open_checkpoint, index)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_holds_one_array_under_its_stem(tmp_path, order):
    array = np.asarray(np.arange(12.0).reshape(4, 3), order=order)
    np.save(tmp_path / "W_Q.npy", array)
    tensors = open_tensors(tmp_path / "W_Q.npy")
    assert (tensors.names, tensors.format) == (("W_Q",), "npy")
    assert tensors.info("W_Q").dtype == "F64"
    np.testing.assert_array_equal(tensors.read("W_Q"), array)
    np.testing.assert_array_equal(tensors.read("W_Q", slice(1, 3)), array[1:3])


def test_an_empty_npy_array_is_read(tmp_path):
    np.save(tmp_path / "e.npy", np.zeros((0, 3)))
    assert open_tensors(tmp_path / "e.npy").read("e").shape == (0, 3)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_members_are_listed_and_read(tmp_path, save):
    save(tmp_path / "w.npz", **ARRAYS)
    tensors = open_tensors(tmp_path / "w.npz")
    same(tensors)
    np.testing.assert_array_equal(tensors.read("w3", slice(0, 1)), ARRAYS["w3"][:1])
    assert tensors.info("w1").dtype == "F32"


def test_objects_in_numpy_files_are_unsafe(tmp_path):
    place = tmp_path / "ran"
    objects = np.array([Bomb(place)], dtype=object)
    np.save(tmp_path / "o.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "o.npz", fine=np.ones(2), bad=objects)
    refused(UnsafeFileError, "array o holds Python objects", open_tensors, tmp_path / "o.npy")
    refused(UnsafeFileError, "array bad holds Python objects", open_tensors, tmp_path / "o.npz")
    assert not place.exists()


def test_integers_in_numpy_files_are_listed_but_not_read(tmp_path):
    np.save(tmp_path / "i.npy", np.arange(3))
    refused(UnsupportedError, "dtype int64", open_tensors(tmp_path / "i.npy").read, "i")


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_cut_or_false_numpy_files_are_refused(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, np.arange(64.0))
    raw = path.read_bytes()
    for size in [0, 3, 8, 40, len(raw) - 8]:
        path.write_bytes(raw[:size])
        refused(CheckpointError, str(path), open_tensors, path)
    path.write_bytes(b"not numpy at all")
    refused(CheckpointError, str(path), open_tensors, path)
    # Bare arrays are no model.
    refused(CheckpointError, "Two weight files are needed", open_checkpoint, path)


def test_arrays_in_memory_make_a_checkpoint():
    checkpoint = from_arrays(ARRAYS, CONFIG)
    same(checkpoint)
    assert checkpoint.config == CONFIG
    np.testing.assert_array_equal(checkpoint.read("w2", slice(1, 2)), ARRAYS["w2"][1:])
    assert "w2" in checkpoint
    assert "w9" not in checkpoint


@pytest.mark.parametrize("suffix", ["safetensors", "npy", "npz"])
def test_tensors_can_be_sent_to_another_process(tmp_path, suffix):
    path = tmp_path / f"w0.{suffix}"
    save = {"npy": np.save, "npz": lambda p, a: np.savez(p, w0=a)}.get(
        suffix, lambda p, a: write_safetensors(p, {"w0": a})
    )
    save(path, ARRAYS["w0"])
    sent = pickle.loads(pickle.dumps(open_tensors(path)))
    np.testing.assert_array_equal(sent.read("w0"), ARRAYS["w0"])


def test_opening_safetensors_does_not_import_gguf(tmp_path):
    folder = write_checkpoint(tmp_path, ARRAYS, CONFIG)
    code = (
        "import sys; from dispersion.checkpoint import open_checkpoint; "
        "open_checkpoint(sys.argv[1]); print('gguf' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
