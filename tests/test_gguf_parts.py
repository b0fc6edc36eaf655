"""GGUF models split into parts: read as one, and refused where they do not belong together."""

import gguf
import numpy as np
import pytest

from checkpoints import gguf_bytes, gguf_metadata, gguf_shapes, refused
from dispersion import ArgumentError, CheckpointError, UnsupportedError, audit, dry_run
from dispersion.checkpoint import open_checkpoint
from dispersion.checkpoint.gguf_parts import first_part, part_name
from dispersion.checkpoint.token_text import token_texts
from dispersion.cli import main
from dispersion.measure.opening import find

WIDTH, HEADS, KEYS, DIM, LAYERS = 16, 4, 2, 8, 2


def model():
    """Tensors of a small Qwen 3."""
    rng = np.random.default_rng(7)
    shapes = gguf_shapes(WIDTH, HEADS, KEYS, DIM, LAYERS)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


TENSORS = model()
METADATA = gguf_metadata("qwen3", block_count=LAYERS)


def split_values(index, count, total=14):
    return {"split.no": index, "split.count": count, "split.tensors.count": total}


def write_parts(folder, count=3, *, stem="m", tensors=TENSORS, metadata=METADATA, **changed):
    """Parts as llama.cpp writes them; `changed` by part (p0, p1, …): metadata or None for no file.

    Returns the paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names, paths = list(tensors), []
    for index in range(count):
        path = folder / part_name(stem, index, count)
        values = (metadata if index == 0 else {}) | split_values(index, count, len(tensors))
        change = changed.get(f"p{index}", {})
        paths.append(path)
        if change is None:
            continue
        values = {k: v for k, v in (values | change).items() if v is not None}
        held = {name: tensors[name] for name in names[index::count]}
        path.write_bytes(gguf_bytes(values, held))
    return paths


def whole(folder):
    folder.mkdir(exist_ok=True)
    path = folder / "whole.gguf"
    path.write_bytes(gguf_bytes(METADATA, TENSORS))
    return path


def read_bytes(path):
    found = dry_run(path)
    return found.checkpoint_bytes, sorted((each.name, each.nbytes) for each in found.tensors)


@pytest.mark.parametrize("count", [2, 3, len(TENSORS) + 1])
def test_any_part_or_their_folder_is_the_model(tmp_path, count):
    paths = write_parts(tmp_path / "parts", count)
    want = audit(whole(tmp_path))
    assert want.heads
    for given in (paths[0], paths[1], paths[-1], tmp_path / "parts"):
        found = audit(given)
        assert found.source == str(given)
        assert found.heads == want.heads
        assert found.skipped == want.skipped
        assert read_bytes(given) == read_bytes(tmp_path / "whole.gguf")
    checkpoint = open_checkpoint(paths[1])
    for name in checkpoint.names:
        assert checkpoint.info(name).file in {str(path) for path in paths}
    whole_one = open_checkpoint(tmp_path / "whole.gguf")
    assert checkpoint.names == whole_one.names
    for name in checkpoint.names:
        np.testing.assert_array_equal(checkpoint.read(name), whole_one.read(name))


def test_parts_of_the_reference_writer_are_read(tmp_path):
    writer = gguf.GGUFWriter(
        tmp_path / "ref.gguf", "qwen3", split_max_tensors=3, small_first_shard=True
    )
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_context_length(128)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_key_length(DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    for name, values in TENSORS.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("ref-*.gguf"))
    assert len(parts) == 1 + -(-len(TENSORS) // 3)
    assert not (tmp_path / "ref.gguf").exists()
    assert audit(tmp_path).heads == audit(whole(tmp_path / "w")).heads
    assert audit(parts[-1]).heads == audit(tmp_path / "w" / "whole.gguf").heads


def test_a_merged_file_says_that_it_has_no_parts(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(METADATA | split_values(0, 0), TENSORS))
    assert audit(path).heads == audit(whole(tmp_path)).heads


def test_token_texts_come_from_the_first_part(tmp_path):
    texts = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(20)]}
    tensors = dict(reversed(TENSORS.items()))  # the embedding is not in the first part
    paths = write_parts(tmp_path, metadata=METADATA | texts, tensors=tensors)
    info = open_checkpoint(tmp_path).info("model.embed_tokens.weight")
    assert info.file != str(paths[0])
    assert token_texts(info)[3] == "t3"
    assert first_part(tmp_path / "plain.gguf") == tmp_path / "plain.gguf"


REFUSED = {
    "first part missing": ({"p0": None}, 1, "m-00001-of-00003.gguf is missing; it is part 1 of 3"),
    "last part missing": ({"p2": None}, 0, "m-00003-of-00003.gguf is missing; it is part 3 of 3"),
    "count too large": ({"p0": {"split.count": 4}}, 0, "must be named as they are numbered"),
    "huge count": ({"p0": {"split.count": 2**32 - 1}}, 0, "must be named as they are numbered"),
    "count of another part": ({"p1": {"split.count": 2}}, 0, "its split.count is 2"),
    "a part without count": ({"p1": {"split.count": None}}, 0, "its split.count is 0"),
    "count zero": ({"p0": {"split.count": 0}}, 0, "the model has 14 tensors"),
    "count zero in another part": ({"p1": {"split.count": 0}}, 0, "its split.count is 0"),
    "count zero of the second part": ({"p1": {"split.count": 0}}, 1, "its split.no is 1, not 0"),
    "count as text": ({"p0": {"split.count": "3"}}, 0, "split.count must be an integer"),
    "count below zero": ({"p0": {"split.count": -1.0}}, 0, "split.count must be an integer"),
    "count true": ({"p0": {"split.count": True}}, 0, "split.count must be an integer"),
    "number of another part": ({"p1": {"split.no": 2}}, 0, "its split.no is 2, not 1"),
    "number as text": ({"p1": {"split.no": "1"}}, 0, "split.no must be an integer"),
    "number of the named part": ({"p0": {"split.no": 1}}, 0, "says that it is part 2 of 3"),
    "no number": ({"p0": {"split.no": None}}, 0, "split.no must be an integer from 0 on. Got None"),
    "other total": ({"p2": {"split.tensors.count": 15}}, 0, "parts of different models"),
    "wrong total": (
        {f"p{i}": {"split.tensors.count": 13} for i in range(3)}, 0, "but 14 were found",
    ),
    "total as text": (
        {f"p{i}": {"split.tensors.count": "14"} for i in range(3)}, 0, "must be an integer",
    ),
    "no total": (
        {f"p{i}": {"split.tensors.count": None} for i in range(3)}, 0, "split.tensors.count must",
    ),
    "other architecture": ({"p1": {"general.architecture": "llama"}}, 0, "of different models"),
    "other setting": ({"p1": {"qwen3.rope.freq_base": 5.0}}, 0, "of different models"),
    "a setting of its own": ({"p1": {"qwen3.attention.scale": 5.0}}, 0, "has no such key"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "named", "match"), REFUSED.values(), ids=REFUSED.keys())
def test_parts_that_do_not_fit_are_refused(tmp_path, capsys, changes, named, match):
    paths = write_parts(tmp_path, **changes)
    message = refused(CheckpointError, match, open_checkpoint, paths[named])
    assert str(tmp_path) in message
    assert main(["check", str(paths[named]), "--dry-run"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_part_of_another_model_doubles_tensors_or_changes_their_count(tmp_path):
    paths = write_parts(tmp_path / "a")
    other = write_parts(tmp_path / "b", tensors=dict(reversed(TENSORS.items())))
    paths[1].write_bytes(other[1].read_bytes())
    assert len(TENSORS) % 3 != 0
    message = refused(CheckpointError, "is in two parts", open_checkpoint, paths[0])
    assert str(paths[0]) in message
    assert str(paths[1]) in message
    renamed = {name.replace("blk", "xyz"): values for name, values in TENSORS.items()}
    other = write_parts(tmp_path / "c", tensors=renamed | {"more": np.ones(4)})
    paths[1].write_bytes(other[1].read_bytes())
    refused(CheckpointError, "of different models", open_checkpoint, paths[0])


def test_measuring_takes_models_in_one_file(tmp_path):
    paths = write_parts(tmp_path)
    refused(ArgumentError, "a part of one; merge the parts", find, paths[1])
    single = paths[1].rename(tmp_path / part_name("m", 0, 1))
    assert find(single).gguf == single.name


def test_parts_under_other_names_are_refused(tmp_path):
    paths = write_parts(tmp_path)
    renamed = paths[0].rename(tmp_path / "model.gguf")
    message = refused(CheckpointError, "NAME-00001-of-00003.gguf", open_checkpoint, renamed)
    assert str(renamed) in message


@pytest.mark.parametrize("cut", [8, 40, -4])
def test_a_damaged_part_is_named(tmp_path, cut):
    paths = write_parts(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:cut])
    message = refused(CheckpointError, "truncated or malformed", open_checkpoint, paths[0])
    assert message.startswith(str(paths[2]))


def test_a_part_of_an_old_version_is_named(tmp_path):
    paths = write_parts(tmp_path)
    paths[1].write_bytes(gguf_bytes({}, {}, version=1))
    assert str(paths[1]) in refused(UnsupportedError, "version 1", open_checkpoint, paths[0])


def test_a_part_that_is_no_file_is_not_opened(tmp_path):
    paths = write_parts(tmp_path)
    paths[1].unlink()
    paths[1].mkdir()
    refused(CheckpointError, "is a folder", open_checkpoint, paths[0])


@pytest.mark.parametrize("other", ["mmproj.gguf", "n-00001-of-00003.gguf", "m-00001-of-00002.gguf"])
def test_a_folder_with_more_than_one_model_must_be_told_which(tmp_path, other):
    write_parts(tmp_path)
    (tmp_path / other).write_bytes(b"")
    refused(CheckpointError, "holds several .gguf files", open_checkpoint, tmp_path)


def test_what_is_missing_of_the_only_model_of_a_folder_is_named(tmp_path):
    write_parts(tmp_path, p1=None)
    refused(CheckpointError, "m-00002-of-00003.gguf is missing", open_checkpoint, tmp_path)
