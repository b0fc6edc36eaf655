import json
import pickle
import tracemalloc
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from checkpoints import refused, write_checkpoint, write_safetensors
from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint, open_tensors, to_float64
from dispersion.cli import main
from dispersion.errors import CheckpointError, UnsupportedError

DATA = Path(__file__).parent / "data"
E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu
RNG = np.random.default_rng(3)
SHAPE = (10, 7)  # not divisible by the blocks used here
CODES = RNG.standard_normal(SHAPE).astype(E4M3)
NAME = "model.layers.0.self_attn.q_proj.weight"


def scales(*shape):
    return np.abs(RNG.standard_normal(shape)).astype(np.float32) + np.float32(1e-3)


def fp8(**stated):
    return {"model_type": "llama", "quantization_config": {"quant_method": "fp8"} | stated}


def compressed(*weights, **stated):
    groups = {
        f"group_{i}": {"weights": {"type": "float", "num_bits": 8, "symmetric": True} | w}
        for i, w in enumerate(weights)
    }
    method = {"quant_method": "compressed-tensors", "config_groups": groups}
    return {"model_type": "llama", "quantization_config": method | stated}


CHANNEL, TENSOR = compressed({"strategy": "channel"}), compressed({"strategy": "tensor"})
BLOCK = fp8(weight_block_size=[4, 3])


def opened(tmp_path, config, arrays):
    return open_checkpoint(write_checkpoint(tmp_path / "m", arrays, config))


def spread_out(scale, shape, block):
    """The scale of every single weight, entry by entry."""
    full = np.empty(shape)
    for i, j in np.ndindex(shape):
        full[i, j] = scale[i // block[0], j // block[1]]
    return full


LAYOUTS = {
    "tensor": (TENSOR, "_scale", scales(1), (10, 7)),
    "scalar": (fp8(weight_block_size=None), "_scale_inv", scales().reshape(()), (10, 7)),
    "square": (TENSOR, "_scale", scales(1, 1), (10, 7)),
    "channel": (CHANNEL, "_scale", scales(10, 1), (1, 7)),
    "rows": (CHANNEL, "_scale", scales(10), (1, 7)),
    "fbgemm": (
        {"model_type": "llama", "quantization_config": {"quant_method": "fbgemm_fp8"}},
        "_scale",
        scales(10, 1),
        (1, 7),
    ),
    "modelopt": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
        "_scale",
        scales().reshape(()),
        (10, 7),
    ),
    "blocks": (BLOCK, "_scale_inv", scales(3, 3), (4, 3)),
    "compressed blocks": (
        compressed({"strategy": "block", "block_structure": [4, 3]}),
        "_scale",
        scales(3, 3),
        (4, 3),
    ),
    "usual blocks": (fp8(), "_scale_inv", scales(1, 1), (128, 128)),
    "half": (BLOCK, "_scale_inv", scales(3, 3).astype(np.float16), (4, 3)),
    "bfloat": (BLOCK, "_scale_inv", scales(3, 3).astype(ml_dtypes.bfloat16), (4, 3)),
    "exponents": (BLOCK, "_scale_inv", scales(3, 3).astype(E8M0), (4, 3)),
}


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_values_are_exact_products_in_every_layout_and_any_rows(tmp_path, layout, dtype):
    config, suffix, scale, block = layout
    codes = CODES.astype(dtype)
    checkpoint = opened(tmp_path, config, {NAME: codes, NAME + suffix: scale})
    assert checkpoint.names == (NAME,)
    assert checkpoint.info(NAME).dtype == ("F8_E4M3" if dtype is E4M3 else "F8_E5M2")
    got = checkpoint.read(NAME)
    assert got.dtype == np.float64
    grid = np.asarray(scale, np.float64)
    grid = grid.reshape(-1, 1) if grid.ndim < 2 else grid
    factors = spread_out(grid, SHAPE, block)
    for index in np.ndindex(SHAPE):
        product = Fraction(float(codes[index])) * Fraction(float(factors[index]))
        assert Fraction(got[index]) == product
    # A program that multiplies in float32 rounds these very products.
    single = codes.astype(np.float32) * factors.astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), single)
    for start in range(SHAPE[0] + 1):
        for stop in range(start, SHAPE[0] + 1):
            part = checkpoint.read(NAME, slice(start, stop))
            np.testing.assert_array_equal(part, got[start:stop])
    sent = pickle.loads(pickle.dumps(checkpoint))
    np.testing.assert_array_equal(sent.read(NAME), got)


@pytest.mark.parametrize(("dtype", "exponents", "bias"), [(E4M3, 4, 7), (E5M2, 5, 15)])
def test_every_code_follows_the_definition_of_its_format(tmp_path, dtype, exponents, bias):
    bits = np.arange(256, dtype=np.uint8)
    fraction_bits = 7 - exponents
    exponent = (bits >> fraction_bits).astype(int) & (2**exponents - 1)
    fraction = (bits & (2**fraction_bits - 1)) / 2.0**fraction_bits
    size = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias)
    )
    top = exponent == 2**exponents - 1
    finite = ~top if dtype is E5M2 else (bits & 0x7F) != 0x7F
    values = np.where(bits >> 7, -size, size)[finite]
    arrays = {NAME: bits[finite].view(dtype)[:, None], f"{NAME}_scale": np.float32([3.0])}
    got = opened(tmp_path, TENSOR, arrays).read(NAME)
    np.testing.assert_array_equal(got[:, 0], 3.0 * values)
    for code in bits[~finite]:
        folder = tmp_path / str(code)
        bad = np.ones((3, 2), dtype)
        bad.view(np.uint8)[2, 1] = code
        checkpoint = opened(folder, TENSOR, {NAME: bad, f"{NAME}_scale": np.float32([2.0])})
        part = checkpoint.read(NAME, slice(1, 3))
        refused(
            CheckpointError,
            "q_proj.weight[2, 1] is",
            lambda read=part: to_float64(read, tensor=NAME, first_row=1),
        )


def block_quantised(weight, block):
    """Codes and scales of a weight, as quantisers make them: the largest value becomes 448."""
    tall, wide = block
    rows, columns = weight.shape
    grid = np.empty((-(-rows // tall), -(-columns // wide)), np.float32)
    codes = np.empty(weight.shape, E4M3)
    for i, j in np.ndindex(grid.shape):
        part = np.s_[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide]
        grid[i, j] = np.abs(weight[part]).max() / 448
        codes[part] = (weight[part] / grid[i, j]).astype(E4M3)
    return codes, grid


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "gpt_neox"])
def test_heads_are_those_of_the_dequantised_matrices(tmp_path, name):
    source = open_checkpoint(DATA / name)
    stored, plain = {}, {}
    for tensor in source.names:
        values = source.read(tensor)
        if values.ndim != 2 or ".layers." not in tensor:
            stored[tensor] = plain[tensor] = values
            continue
        codes, grid = block_quantised(values, (8, 5))
        stored |= {tensor: codes, f"{tensor}_scale_inv": grid}
        plain[tensor] = codes.astype(float) * spread_out(grid, values.shape, (8, 5))
        stored[tensor.removesuffix("weight") + "input_scale"] = np.ones((), np.float32)
    method = {"quant_method": "fp8", "weight_block_size": [8, 5]}
    config = source.config | {"quantization_config": method}
    found = plan(opened(tmp_path, config, stored))
    expected = plan(from_arrays(plain, source.config))
    assert not found.refused
    assert "F8_E4M3" in found.model["dtype"]
    assert any("run time" in s.reason for s in found.skipped)
    assert len(found.layers) == len(expected.layers)
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        for (_, _, got), (_, _, want) in zip(mine.heads(), theirs.heads(), strict=True):
            for a, b in ((got.query, want.query), (got.key, want.key)):
                np.testing.assert_array_equal(a.matrix, b.matrix)
            if want.reach.query_norm is not None:
                np.testing.assert_array_equal(
                    got.reach.query_norm.weight, want.reach.query_norm.weight
                )


def test_one_heads_rows_are_read_not_the_whole_matrix(tmp_path):
    size = 2048
    codes = np.ones((size, size), E4M3)
    checkpoint = opened(
        tmp_path, fp8(weight_block_size=[128, 128]),
        {NAME: codes, f"{NAME}_scale_inv": np.ones((16, 16), np.float32)},
    )  # fmt: skip
    tracemalloc.start()
    try:
        checkpoint.read(NAME, slice(64, 128))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 64 * size * 8  # of the rows' float64 image, not of 32 times as much


def with_scale(scale, suffix="_scale_inv"):
    return {NAME: CODES, NAME + suffix: scale}


def bad(value, shape=(3, 3)):
    scale = np.ones(shape, np.float32)
    scale[-1, -1] = value
    return scale


PLAIN = np.ones((3, 3), np.float32)
HOSTILE = {
    "no scale": (BLOCK, {NAME: CODES}, UnsupportedError, "needs its scale"),
    "other spelling": (BLOCK, with_scale(PLAIN, ".scale_weight"), UnsupportedError, "needs its"),
    "two scales": (
        BLOCK, with_scale(PLAIN) | {f"{NAME}_scale": PLAIN}, UnsupportedError, "one scale",
    ),
    "zero points": (
        CHANNEL,
        with_scale(np.ones((10, 1), np.float32), "_scale")
        | {f"{NAME}_zero_point": np.ones((10, 1), np.float32)},
        UnsupportedError,
        "nothing else",
    ),
    "grid for another block": (BLOCK, with_scale(PLAIN[:2]), CheckpointError, "(3, 3)"),
    "grid turned": (
        fp8(weight_block_size=[3, 4]), with_scale(np.ones((2, 4), np.float32)),
        CheckpointError, "(4, 2)",
    ),
    "one number for blocks": (BLOCK, with_scale(PLAIN[0, :1]), CheckpointError, "(3, 3)"),
    "columns": (
        CHANNEL, with_scale(np.ones((1, 7), np.float32), "_scale"), CheckpointError, "(10, 1)",
    ),
    "empty": (BLOCK, with_scale(PLAIN[:0]), CheckpointError, "(3, 3)"),
    "three axes": (BLOCK, with_scale(PLAIN[None]), CheckpointError, "(3, 3)"),
    "channel where a tensor's is stated": (
        TENSOR, with_scale(np.ones((10, 1), np.float32), "_scale"), CheckpointError, "(1,)",
    ),
    "float64": (BLOCK, with_scale(PLAIN.astype(float)), UnsupportedError, "dtype F64"),
    "integers": (BLOCK, with_scale(PLAIN.astype(np.uint8)), UnsupportedError, "dtype U8"),
    "no method": ({"model_type": "llama"}, with_scale(PLAIN), UnsupportedError, "quantization"),
    "other method": (
        {"quantization_config": {"quant_method": "quark"}}, with_scale(PLAIN), UnsupportedError,
        "quark",
    ),
    "other algorithm": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}},
        with_scale(PLAIN), UnsupportedError, "modelopt",
    ),
    "method no object": (
        {"quantization_config": ["fp8"]}, with_scale(PLAIN), UnsupportedError, "['fp8']",
    ),
    "blocks of zero": (fp8(weight_block_size=[0, 3]), with_scale(PLAIN), CheckpointError, "[0, 3]"),
    "blocks without end": (
        fp8(weight_block_size=[10**400, 3]), with_scale(PLAIN), CheckpointError, "weight_block_size"
    ),
    "blocks of truth": (
        fp8(weight_block_size=[True, 3]), with_scale(PLAIN), CheckpointError, "[True, 3]",
    ),
    "blocks of text": (fp8(weight_block_size="4x3"), with_scale(PLAIN), CheckpointError, "4x3"),
    "no groups": (
        {"quantization_config": {"quant_method": "compressed-tensors"}}, with_scale(PLAIN),
        CheckpointError, "config_groups",
    ),
    "groups of nothing": (
        compressed() | {}, with_scale(PLAIN), CheckpointError, "config_groups",
    ),
    "a group that is no object": (
        {
            "quantization_config": {
                "quant_method": "compressed-tensors", "config_groups": {"a": [1]},
            }
        },
        with_scale(PLAIN), UnsupportedError, "no group of 8-bit",
    ),
    "token by token": (
        compressed({"strategy": "token"}), with_scale(PLAIN), UnsupportedError, "token",
    ),
    "asymmetric": (
        compressed({"strategy": "channel", "symmetric": False}), with_scale(PLAIN),
        UnsupportedError, "symmetric",
    ),
    "rotated inputs": (
        compressed({"strategy": "channel"}, transform_config={"a": 1}), with_scale(PLAIN),
        UnsupportedError, "transform_config",
    ),
    "two sizes of blocks": (
        compressed(
            {"strategy": "block", "block_structure": [4, 3]},
            {"strategy": "block", "block_structure": [4, 4]},
        ),
        with_scale(PLAIN), UnsupportedError, "several sizes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE.keys())
def test_weights_whose_scale_is_not_certain_are_refused_before_values_are_read(tmp_path, case):
    config, arrays, error, match = case
    checkpoint = opened(tmp_path, {"model_type": "llama"} | config, arrays)
    assert refused(error, match, checkpoint.check, NAME)
    refused(error, match, checkpoint.read, NAME)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, -np.inf, -0.0])
def test_a_scale_that_is_not_positive_and_finite_is_named_with_its_index(tmp_path, value):
    checkpoint = opened(tmp_path, BLOCK, with_scale(bad(value)))
    match = "weight_scale_inv[2, 2] is" if not np.isnan(value) and np.isfinite(value) else "[2, 2]"
    refused(CheckpointError, match, checkpoint.read, NAME)
    # Nothing but the whole scale is trusted, whichever rows are asked for.
    refused(CheckpointError, match, checkpoint.read, NAME, slice(0, 1))


def test_an_exponent_that_means_nan_is_refused(tmp_path):
    scale = np.full((3, 3), 127, np.uint8)
    scale[1, 0] = 255
    checkpoint = opened(tmp_path, BLOCK, with_scale(scale.view(E8M0)))
    refused(CheckpointError, "weight_scale_inv[1, 0] is nan", checkpoint.read, NAME)


def test_stacked_matrices_are_refused(tmp_path):
    arrays = {NAME: np.ones((2, 3, 3), E4M3), f"{NAME}_scale_inv": PLAIN}
    refused(UnsupportedError, "must be a matrix", opened(tmp_path, BLOCK, arrays).read, NAME)


def test_bare_weights_take_a_single_or_a_row_scale_and_no_blocks(tmp_path):
    for scale in (scales(1), scales(10, 1)):
        path = write_safetensors(tmp_path / "w.safetensors", {"w": CODES, "w_scale": scale})
        tensors = open_tensors(path)
        assert tensors.names == ("w",)
        np.testing.assert_array_equal(tensors.read("w"), CODES.astype(float) * scale.astype(float))
    path = write_safetensors(tmp_path / "w.safetensors", {"w": CODES, "w_scale": PLAIN})
    refused(CheckpointError, "nothing states the size of blocks", open_tensors(path).read, "w")


def audited(tmp_path, capsys, change):
    """Exit code and standard error of the audit of a small model in 8-bit floats."""
    source = open_checkpoint(DATA / "llama")
    stored = {}
    for tensor in source.names:
        values = source.read(tensor)
        stored[tensor] = values
        if "self_attn" in tensor:
            codes, grid = block_quantised(values, (8, 8))
            stored |= {tensor: codes, f"{tensor}_scale_inv": grid}
    config = source.config | {
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8]}
    }
    change(stored, config)
    folder = write_checkpoint(tmp_path / "m", stored, config)
    code = main(["check", str(folder), "--length", "64"])
    return code, capsys.readouterr()


SCALE = "model.layers.1.self_attn.k_proj.weight_scale_inv"


@pytest.mark.parametrize(
    ("change", "code", "match"),
    [
        (lambda stored, config: None, 0, None),
        (lambda stored, config: stored.pop(SCALE), 3, "k_proj.weight has dtype F8_E4M3 and needs"),
        (lambda stored, config: stored.update({SCALE: PLAIN}), 2, "k_proj.weight_scale_inv must"),
        (lambda stored, config: stored[SCALE].fill(np.nan), 2, "k_proj.weight_scale_inv[0, 0]"),
        (lambda stored, config: stored[SCALE].fill(0), 2, "k_proj.weight_scale_inv[0, 0]"),
        (lambda stored, config: config.pop("quantization_config"), 3, "quantization_config"),
        (
            lambda stored, config: stored[SCALE.removesuffix("_scale_inv")]
            .view(np.uint8).fill(0x7F),
            2,
            "k_proj.weight[0, 0] is nan",
        ),
    ],
)  # fmt: skip
def test_the_command_line_answers_in_one_line(tmp_path, capsys, change, code, match):
    got, printed = audited(tmp_path, capsys, change)
    assert got == code
    if match:
        (line,) = printed.err.strip().splitlines()
        assert match in line
        assert "Traceback" not in printed.err
    else:
        assert json.dumps(printed.out)
        assert "llama" in printed.out


def test_a_truncated_file_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m", with_scale(PLAIN), BLOCK)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    refused(CheckpointError, "is truncated", open_checkpoint, folder)
