import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import data_of, header_of, refused, safetensors_bytes, write_safetensors
from dispersion.checkpoint import open_tensors, to_float64
from dispersion.checkpoint.dtypes import BITS
from dispersion.checkpoint.safetensors import LONGEST_HEADER
from dispersion.errors import (
    ArgumentError,
    CheckpointError,
    UnsafeFileError,
    UnsupportedError,
)

RNG = np.random.default_rng(1)
ARRAYS = {
    "b.weight": RNG.standard_normal((6, 4)).astype(ml_dtypes.bfloat16),
    "a.weight": RNG.standard_normal((5, 3)).astype(np.float16),
    "c": RNG.standard_normal((2, 2, 3)).astype(np.float32),
    "d": RNG.standard_normal(7),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("pad", [b"", b" ", b"  \n", b" " * 7])
def test_every_dtype_comes_back_as_written_whatever_the_padding(path, pad):
    tensors = open_tensors(write_safetensors(path, ARRAYS, pad=pad))
    assert tensors.names == tuple(sorted(ARRAYS))
    for name, array in ARRAYS.items():
        info, got = tensors.info(name), tensors.read(name)
        assert (info.shape, info.nbytes) == (array.shape, array.nbytes)
        assert info.file == str(path)
        assert got.dtype == array.dtype
        assert not got.flags.writeable
        np.testing.assert_array_equal(got, array)
        np.testing.assert_array_equal(to_float64(got, tensor=name), array.astype(float))


@pytest.mark.parametrize(
    "rows", [slice(1, 3), slice(None), slice(-2, None), slice(4, 2), slice(2, 99)]
)
def test_rows_are_those_of_the_whole_tensor(path, rows):
    tensors = open_tensors(write_safetensors(path, ARRAYS))
    for name in ("a.weight", "b.weight", "c", "d", "empty"):
        np.testing.assert_array_equal(tensors.read(name, rows), ARRAYS[name][rows])


def test_rows_map_only_their_own_bytes(path):
    tall = {"w": np.arange(4096 * 64, dtype=np.float32).reshape(4096, 64)}  # 1 MiB
    tensors = open_tensors(write_safetensors(path, tall))
    base = tensors.read("w", slice(1000, 1002)).base
    while not isinstance(base, np.memmap):
        base = base.base
    assert base.nbytes == 2 * 64 * 4


@pytest.mark.parametrize(("name", "rows"), [("a.weight", slice(0, 4, 2)), ("scalar", slice(0, 1))])
def test_rows_that_make_no_sense_are_refused(path, name, rows):
    tensors = open_tensors(write_safetensors(path, ARRAYS))
    refused(ArgumentError, "rows", tensors.read, name, rows)


def test_an_absent_tensor_is_named_with_the_nearest(path):
    tensors = open_tensors(write_safetensors(path, ARRAYS))
    text = refused(CheckpointError, "no tensor b.wieght", tensors.read, "b.wieght")
    assert "b.weight?" in text


@pytest.mark.parametrize("dtype", sorted(set(BITS) - {"F64", "F32", "F16", "BF16"}))
def test_other_dtypes_are_listed_but_not_read_as_weights(path, dtype):
    size = 8 * BITS[dtype] // 8
    header = {"w": {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, size]}}
    path.write_bytes(safetensors_bytes(header, bytes(size)))
    tensors = open_tensors(path)
    assert tensors.info("w").dtype == dtype
    refused(UnsupportedError, f"tensor w has dtype {dtype}", tensors.read, "w")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_metadata_may_be_null_or_text(path, metadata):
    path.write_bytes(safetensors_bytes({"__metadata__": metadata, "w": ENTRY}, bytes(4)))
    assert open_tensors(path).names == ("w",)


def changed(**changes):
    return safetensors_bytes({"w": ENTRY | changes}, bytes(4))


def two(first, second, size):
    entries = {
        name: {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}
        for name, (begin, end) in (("u", first), ("v", second))
    }
    return safetensors_bytes(entries, bytes(size))


TWICE = b'{"w":' + json.dumps(ENTRY).encode() + b',"w":' + json.dumps(ENTRY).encode() + b"}"
INNER = b'{"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}'
MALFORMED = {
    "no bytes": (b"", "truncated"),
    "seven bytes": (bytes(7), "truncated"),
    "length past the end": (safetensors_bytes({}, length=3), "length asks for 11"),
    "length 2**64-1": (safetensors_bytes({}, length=2**64 - 1), "truncated"),
    "not JSON": (safetensors_bytes(b"{nope}"), "valid JSON"),
    "empty header": (safetensors_bytes(b""), "valid JSON"),
    "NaN": (changed(shape=[float("nan")]), "NaN is not JSON"),
    "not UTF-8": (safetensors_bytes(b'{"\xff": 1}'), "UTF-8"),
    "deep": (safetensors_bytes(b'{"a":' + b"[" * 100_000), "nested"),
    "a huge number": (safetensors_bytes(b'{"a":' + b"9" * 9999 + b"}"), "valid JSON"),
    "a list": (safetensors_bytes(b"[]"), "must be a JSON object. Got a list"),
    "a tensor twice": (safetensors_bytes(TWICE, bytes(4)), "key w occurs twice"),
    "a field twice": (safetensors_bytes(INNER, bytes(4)), "key shape occurs twice"),
    "metadata of numbers": (safetensors_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata a list": (safetensors_bytes({"__metadata__": []}), "__metadata__"),
    "entry a number": (safetensors_bytes({"w": 3}), "must be an object"),
    "no dtype": (safetensors_bytes({"w": {"shape": [], "data_offsets": [0, 4]}}), "lacks dtype"),
    "only dtype": (safetensors_bytes({"w": {"dtype": "F32"}}), "lacks shape, data_offsets"),
    "unknown dtype": (changed(dtype="F31"), "unknown dtype F31"),
    "dtype a list": (changed(dtype=["F32"]), "unknown dtype"),
    "negative shape": (changed(shape=[-1, -1]), "shape must be"),
    "fractional shape": (changed(shape=[1.0]), "shape must be"),
    "boolean shape": (changed(shape=[True]), "shape must be"),
    "shape past 64 bits": (changed(shape=[2**64]), "shape must be"),
    "shape a number": (changed(shape=1), "shape must be"),
    "one offset": (changed(data_offsets=[0]), "data_offsets must be"),
    "text offsets": (changed(data_offsets=["0", "4"]), "data_offsets must be"),
    "negative offset": (changed(data_offsets=[-4, 0]), "data_offsets must be"),
    "offsets reversed": (changed(data_offsets=[4, 0]), "span -4 bytes"),
    "too few bytes": (changed(shape=[2]), "takes 64 bits"),
    "a product past 64 bits": (changed(shape=[2**33, 2**33]), "takes 2361183241434822606848 bits"),
    "half a byte": (changed(dtype="F4", shape=[7]), "takes 28 bits"),
    "data past the end": (safetensors_bytes({"w": ENTRY}, bytes(3)), "is truncated"),
    "trailing bytes": (safetensors_bytes({"w": ENTRY}, bytes(5)), "1 bytes after its last"),
    "trailing bytes, no tensors": (safetensors_bytes({}, bytes(5)), "5 bytes after"),
    "a gap first": (changed(data_offsets=[4, 8]), "tensor w leaves a gap"),
    "a gap between": (two((0, 4), (8, 12), 12), "tensor v leaves a gap"),
    "an overlap": (two((0, 8), (4, 12), 12), "tensor v overlaps"),
    "the same bytes twice": (two((0, 4), (0, 4), 4), "overlaps"),
    "a name with a newline": (safetensors_bytes({"a\nb": 1}), "tensor a\\nb"),
    "a name of half a surrogate": (safetensors_bytes(b'{"\\ud800": 1}'), "tensor \\ud800"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid x", "git lfs pull"),
}


@pytest.mark.parametrize(("raw", "match"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_is_refused_in_one_line_that_names_it(path, raw, match):
    path.write_bytes(raw)
    message = refused(CheckpointError, match, open_tensors, path)
    assert str(path) in message


def test_a_header_over_the_limit_is_refused_before_it_is_read(path):
    length = LONGEST_HEADER + 1
    with path.open("wb") as file:  # sparse: takes no room on disk
        file.write(length.to_bytes(8, "little"))
        file.truncate(length + 8)
    refused(CheckpointError, "at most 100000000 bytes", open_tensors, path)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x02}q\x00.padding",
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.",
        b"PK\x03\x04" + bytes(20),
    ],
)
def test_a_pickle_under_a_safetensors_name_is_unsafe(path, raw):
    path.write_bytes(raw)
    refused(UnsafeFileError, "python -c", open_tensors, path)


def test_a_header_length_that_looks_like_a_pickle_is_no_pickle(path):
    header = json.dumps({"w": ENTRY}).encode()
    path.write_bytes(safetensors_bytes(header, bytes(4), pad=b" " * (0x0280 - len(header))))
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert open_tensors(path).names == ("w",)


def test_a_file_cut_after_opening_is_reported(path):
    tensors = open_tensors(write_safetensors(path, ARRAYS))
    path.write_bytes(path.read_bytes()[:64])
    refused(CheckpointError, "changed while in use", tensors.read, "c")


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62]])
def test_a_shape_numpy_cannot_hold_is_reported(path, shape):
    size = 0 if 0 in shape else 4
    header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    path.write_bytes(safetensors_bytes(header, bytes(size)))
    refused(CheckpointError, "tensor w", open_tensors(path).read, "w")


SMALL = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float16)}
VALID = safetensors_bytes(header_of(SMALL) | {"__metadata__": {"k": "v"}}, data_of(SMALL))
SNIPPETS = [b"", b"{", b"}", b"[", b"]", b'"', b",", b"-", b"9", b"\xff", b"null", b"1e9", b"\x00"]


def edit(raw, edits):
    for at, cut, new in edits:
        place = at % (len(raw) + 1)
        raw = raw[:place] + new + raw[place + cut :]
    return raw


def opened(path):
    """The tensors, or the message that refuses them."""
    try:
        return open_tensors(path)
    except CheckpointError as error:
        return str(error)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(VALID)),
            st.integers(0, 3),
            st.sampled_from(SNIPPETS) | st.binary(max_size=2),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_mutated_file_is_refused_or_read_as_its_header_says(tmp_path_factory, edits):
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    raw = edit(VALID, edits)
    path.write_bytes(raw)
    tensors = opened(path)
    if isinstance(tensors, str):
        assert tensors.isprintable()
        return
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    assert tensors.names == tuple(sorted(header))
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        try:
            got = tensors.read(name)
        except UnsupportedError:
            assert entry["dtype"] not in ("F64", "F32", "F16", "BF16")
        else:
            assert got.tobytes() == raw[start + begin : start + end]
            assert list(got.shape) == entry["shape"]


MAPS = """
import sys
from dispersion.checkpoint import open_tensors, to_float64
tensors = open_tensors(sys.argv[1])
def maps():
    with open("/proc/self/maps") as file:
        return sum(sys.argv[1] in line for line in file)
held = [tensors.read(name) for name in tensors.names[:3]]
print(maps())
del held
for name in tensors.names:
    to_float64(tensors.read(name), tensor=name)
print(maps())
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="/proc lists maps on Linux only")
def test_a_map_lives_as_long_as_its_array(path):
    write_safetensors(path, {f"t{i}": np.ones(4096, np.float32) for i in range(40)})
    done = subprocess.run(
        [sys.executable, "-c", MAPS, str(path)],
        capture_output=True, text=True, check=True, env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout.split() == ["3", "0"]
