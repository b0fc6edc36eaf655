"""Every block type of GGUF files, for queries and keys, as the `gguf` package dequantises it."""

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

from checkpoints import gguf_bytes, gguf_metadata, refused
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError

HEADS, KEYS, DIM, WIDTH = 4, 2, 8, 512
INTEGERS = (Type.I8, Type.I16, Type.I32, Type.I64)
# Types of intermediate values, which no file holds weights in, and one that gguf cannot read.
UNREADABLE = (Type.Q8_1, Type.Q8_K, Type.Q1_0)
PLAIN = (Type.F32, Type.F16, Type.F64)
READABLE = [kind for kind in Type if kind not in (*INTEGERS, *UNREADABLE, *PLAIN)]
Q_NAME, K_NAME = (f"model.layers.0.self_attn.{side}_proj.weight" for side in "qk")
CALM = 0x3C  # bytes below it make no scale that is infinite or no number


def packed(kind, rows, largest):
    """Random bytes as rows of WIDTH values."""
    block, size = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng([int(kind), rows, largest])
    return rng.integers(0, largest, (rows, WIDTH // block * size), dtype=np.uint8)


def held(kind, largest=256):
    """A layer whose queries and keys are of this type; the bytes of both."""
    raw = {"q": packed(kind, HEADS * DIM, largest), "k": packed(kind, KEYS * DIM, largest)}
    tensors = {
        f"blk.0.attn_{side}.weight": (int(kind), (len(rows), WIDTH), rows.tobytes())
        for side, rows in raw.items()
    }
    return tensors | {"blk.0.attn_norm.weight": np.ones(WIDTH)}, raw


def opened(tmp_path, tensors, architecture="qwen2"):
    path = tmp_path / "m.gguf"
    metadata = gguf_metadata(architecture, block_count=1, embedding_length=WIDTH)
    path.write_bytes(gguf_bytes(metadata, tensors))
    return open_checkpoint(path)


def test_types_are_those_that_the_package_can_dequantise():
    """A new type of the package appears here by itself, and is then read or refused."""
    for kind in Type:
        block, size = GGML_QUANT_SIZES[kind]
        raw = np.zeros((1, size), np.uint8)
        if kind in (*READABLE, *PLAIN):
            values = raw.view("<f8") if kind is Type.F64 else gguf.quants.dequantize(raw, kind)
            assert values.shape == (1, block)
        else:
            with pytest.raises(NotImplementedError):
                gguf.quants.dequantize(raw, kind)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of gguf on what it is given
def test_any_bytes_are_read_as_the_package_dequantises_them(tmp_path, kind):
    tensors, raw = held(kind)
    found = opened(tmp_path, tensors)
    for name, side in ((Q_NAME, "q"), (K_NAME, "k")):
        assert found.info(name).dtype == kind.name
        assert found.info(name).nbytes == raw[side].nbytes
        expected = gguf.quants.dequantize(raw[side], kind)
        whole = found.read(name)
        assert whole.dtype == np.float32
        np.testing.assert_array_equal(whole, expected)
        for rows in (slice(0, 0), slice(0, 1), slice(3, 9), slice(DIM, 2 * DIM)):
            np.testing.assert_array_equal(found.read(name, rows), expected[rows])


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_heads_are_those_of_the_dequantised_rows(tmp_path, kind):
    tensors, raw = held(kind, CALM)
    plain = {
        f"blk.0.attn_{side}.weight": gguf.quants.dequantize(rows, kind)
        for side, rows in raw.items()
    }
    assert all(np.isfinite(values).all() and np.ptp(values) for values in plain.values())
    (tmp_path / "plain").mkdir()
    heads = [
        [head for layer in plan(checkpoint).layers for _, _, head in layer.heads()]
        for checkpoint in (
            opened(tmp_path, tensors, "llama"),
            opened(tmp_path / "plain", tensors | plain, "llama"),
        )
    ]
    assert len(heads[0]) == HEADS
    for mine, theirs in zip(*heads, strict=True):
        assert mine.scale == theirs.scale
        np.testing.assert_array_equal(mine.query.matrix, theirs.query.matrix)
        np.testing.assert_array_equal(mine.key.matrix, theirs.key.matrix)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_neighbouring_pairs_are_put_apart_whatever_the_type(tmp_path, kind):
    """Rows of llama.cpp's Llama lie pair by pair."""
    tensors, raw = held(kind, CALM)
    found = opened(tmp_path, tensors, "llama")
    values = gguf.quants.dequantize(raw["q"], kind)
    pairs = values.reshape(HEADS, DIM // 2, 2, WIDTH)
    np.testing.assert_array_equal(found.read(Q_NAME), pairs.swapaxes(1, 2).reshape(-1, WIDTH))


@pytest.mark.parametrize("kind", UNREADABLE, ids=lambda kind: kind.name)
def test_a_type_that_the_package_cannot_read_is_refused_by_name(tmp_path, kind):
    found = opened(tmp_path, held(kind)[0])
    refused(UnsupportedError, f"q_proj.weight is quantised as {kind.name}", found.read, Q_NAME)


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.name)
def test_integers_are_no_weights(tmp_path, kind):
    found = opened(tmp_path, held(kind)[0])
    refused(UnsupportedError, f"holds {kind.name} integers", found.read, Q_NAME)


@pytest.mark.parametrize("number", [4, 5, 31, 36, 139, 2**32 - 1])
def test_a_type_that_the_package_does_not_know_is_refused_by_its_number(tmp_path, number):
    """Types that llama.cpp has dropped, and those of other programs."""
    assert number not in list(Type)
    tensors = held(Type.F16)[0] | {"blk.0.attn_q.weight": (number, (32, WIDTH), bytes(2**15))}
    refused(UnsupportedError, f"has the type {number}", opened, tmp_path, tensors)


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path):
    for kind in READABLE:
        block, size = GGML_QUANT_SIZES[kind]
        if block == 1:
            continue
        tensors = {"blk.0.attn_q.weight": (int(kind), (32, block + 1), bytes(64 * size))}
        refused(CheckpointError, f"{kind.name} needs {block}s", opened, tmp_path, tensors)


@pytest.mark.parametrize("kind", [Type.NVFP4, Type.Q4_K], ids=lambda kind: kind.name)
def test_a_scale_beside_a_projection_refuses_its_layer(tmp_path, kind):
    """llama.cpp multiplies what comes of some tensors by a number of its own."""
    tensors = held(kind, CALM)[0] | {"blk.0.attn_q.scale": np.ones(1)}
    found = plan(opened(tmp_path, tensors, "llama"))
    assert not found.layers
    (module,) = found.refused
    assert "q_proj.scale" in module.reason
