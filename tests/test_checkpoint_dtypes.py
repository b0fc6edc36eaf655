import ml_dtypes
import numpy as np
import pytest

from checkpoints import refused
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.dtypes import CHUNK
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

EVERY = np.arange(1 << 16, dtype=np.uint32)


def test_every_finite_bfloat16_is_the_float32_with_the_same_upper_half():
    bits = EVERY[(EVERY >> 7) & 0xFF != 0xFF]
    stored = bits.astype(np.uint16).view(ml_dtypes.bfloat16)
    expected = (bits << 16).view(np.float32).astype(np.float64)
    got = to_float64(stored, tensor="w")
    assert got.tobytes() == expected.tobytes()  # the sign of zero too


def test_every_finite_float16_follows_its_definition():
    bits = EVERY[(EVERY >> 10) & 0x1F != 0x1F]
    exponent, fraction = ((bits >> 10) & 0x1F).astype(int), (bits & 0x3FF).astype(float)
    size = np.where(
        exponent == 0, fraction * 2.0**-24, (1024 + fraction) * np.exp2(exponent - 25.0)
    )
    expected = np.where(bits >> 15, -size, size)
    got = to_float64(bits.astype(np.uint16).view(np.float16), tensor="w")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
def test_conversion_is_exact_over_several_chunks_and_layouts(dtype):
    values = np.random.default_rng(0).standard_normal((3, CHUNK // 2 + 5)).astype(dtype)
    for array in (values, values.T, values[:, ::3], values[0, 0], values[:0]):
        got = to_float64(array, tensor="w")
        assert got.flags.c_contiguous
        assert not np.shares_memory(got, array)
        np.testing.assert_array_equal(got, np.asarray(array.tolist(), float).reshape(array.shape))


def test_out_is_filled_and_returned():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.full((2, 3), np.nan)
    assert to_float64(values, tensor="w", out=out) is out
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize(
    "out",
    [np.empty((3, 2)), np.empty((2, 3), np.float32), np.empty((3, 2)).T],
    ids=["shape", "dtype", "layout"],
)
def test_an_out_that_does_not_fit_is_refused(out):
    values = np.zeros((2, 3), np.float32)
    refused(ArgumentError, "out must be", lambda: to_float64(values, tensor="w", out=out))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_value_that_is_not_finite_is_named_with_its_index(dtype, bad):
    values = np.ones((3, CHUNK), dtype)
    values[1, 7] = values[2, 9] = bad
    text = refused(CheckpointError, f"a.b[1, 7] is {bad}", lambda: to_float64(values, tensor="a.b"))
    assert "finite" in text
    part = values[1:]
    refused(CheckpointError, "w[5, 7]", lambda: to_float64(part, tensor="w", first_row=5))


@pytest.mark.parametrize(("bits", "dtype"), [(0x7F800001, "<u4"), (0x7C01, "<u2")])
def test_a_signalling_nan_is_reported_and_nothing_is_warned_of(bits, dtype):
    values = np.array([0, bits], dtype).view(f"<f{dtype[-1]}")
    refused(CheckpointError, "w[1] is nan", lambda: to_float64(values, tensor="w"))


def test_infinities_that_cancel_are_found():
    values = np.array([np.inf, -np.inf], np.float32)
    refused(CheckpointError, "w[0] is inf", lambda: to_float64(values, tensor="w"))


def test_a_finite_array_whose_sum_overflows_is_accepted():
    values = np.full(8, np.finfo(np.float64).max)
    np.testing.assert_array_equal(to_float64(values, tensor="w"), values)


@pytest.mark.parametrize(
    "dtype", ["int32", "bool", "complex64", ml_dtypes.float8_e4m3fn, np.longdouble, object]
)
def test_other_dtypes_are_refused_by_name(dtype):
    array = np.zeros(2, dtype)
    refused(UnsupportedError, f"Got {np.dtype(dtype)}", lambda: to_float64(array, tensor="w"))
