"""Formats that are not read are named, with a reason and a way out."""

import zipfile

import numpy as np
import pytest

from checkpoints import refused, write_checkpoint
from dispersion.checkpoint import open_checkpoint, open_tensors
from dispersion.cli import main
from dispersion.errors import CheckpointError, UnsafeFileError, UnsupportedError

FILES = [
    ("flax_model.msgpack", UnsupportedError, "a Flax checkpoint", "from_flax=True"),
    ("flax_model-00001-of-00002.msgpack", UnsupportedError, "Flax", "arrays and a config"),
    ("manifest.ocdbt", UnsupportedError, "an Orbax checkpoint", "orbax-checkpoint"),
    ("_CHECKPOINT_METADATA", UnsupportedError, "an Orbax checkpoint", "arrays and a config"),
    ("__0_0.distcp", UnsafeFileError, "a distributed PyTorch", "dcp_to_torch_save"),
    ("tf_model.h5", UnsafeFileError, "a Keras or TensorFlow model", "from_tf=True"),
    ("model.keras", UnsafeFileError, "a Keras or TensorFlow model", "arrays and a config"),
    ("model.onnx", UnsupportedError, "an ONNX graph", "exported from"),
]


@pytest.mark.parametrize(("name", "error", "match", "remedy"), FILES)
@pytest.mark.parametrize("opener", [open_checkpoint, open_tensors])
def test_file_and_folder_are_refused_with_reason_and_remedy(
    tmp_path, name, error, match, remedy, opener
):
    path = tmp_path / name
    path.write_bytes(b"\x82\x00" * 40)
    (tmp_path / "config.json").write_text("{}")
    for given in (path, tmp_path):
        text = refused(error, match, opener, given)
        assert remedy in text
        assert str(given) in text


def test_an_orbax_folder_within_a_folder_is_seen(tmp_path):
    (tmp_path / "_METADATA").mkdir()
    refused(UnsupportedError, "Orbax", open_checkpoint, tmp_path)


def test_safetensors_beside_such_files_are_read(tmp_path):
    write_checkpoint(tmp_path, {"w": np.ones((2, 2), np.float32)})
    for name, *_ in FILES:
        (tmp_path / name).touch()
    assert open_checkpoint(tmp_path).names == ("w",)


@pytest.mark.parametrize(("name", "error", "match", "remedy"), FILES)
def test_the_command_line_answers_in_one_line(tmp_path, capsys, name, error, match, remedy):
    (tmp_path / name).write_bytes(bytes(8))
    assert main(["check", str(tmp_path)]) == error.exit_code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert match in line


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compression_than_numpys_is_refused_unopened(tmp_path, method):
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("w.npy", bytes(1000))
    refused(CheckpointError, "must be stored or deflated", open_tensors, path)


def test_a_bomb_is_refused_by_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("dispersion.checkpoint.numpy_files.LARGEST_SQUEEZED", 1 << 16)
    path = tmp_path / "w.npz"
    np.savez_compressed(path, w=np.zeros(1 << 16, np.float32))
    refused(CheckpointError, "would inflate", open_tensors, path)
    np.savez_compressed(path, w=np.random.default_rng(0).standard_normal(1 << 16))
    assert open_tensors(path).read("w").shape == (1 << 16,)


@pytest.mark.parametrize("opener", [open_checkpoint, open_tensors])
def test_a_ctranslate2_model_is_no_pickle(tmp_path, opener):
    start = b"\6\0\0\0" + b"\x0c\0" + b"WhisperSpec\0" + b"\3\0\0\0"
    (tmp_path / "config.json").write_text("{}")
    path = tmp_path / "model.bin"
    path.write_bytes(start + bytes(80))
    for given in (path, tmp_path):
        assert "converted from" in refused(UnsupportedError, "a CTranslate2 model", opener, given)
    for other in (start[:10], bytes(80), b"\x80\2" + start, start.replace(b"Spec", b"Nope")):
        path.write_bytes(other)
        for given in (path, tmp_path):
            refused(UnsafeFileError, "pickle", opener, given)
