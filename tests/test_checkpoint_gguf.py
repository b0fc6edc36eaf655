import math
import pickle
import struct

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import gguf_bytes, gguf_metadata, gguf_text, gguf_value, refused
from dispersion.checkpoint import open_checkpoint, open_tensors, to_float64
from dispersion.errors import CheckpointError, UnsupportedError

HEADS, KEYS, DIM, WIDTH = 4, 2, 8, 16
RNG = np.random.default_rng(2)
Q = RNG.standard_normal((HEADS * DIM, WIDTH)).astype(np.float32)
K = RNG.standard_normal((KEYS * DIM, WIDTH)).astype(np.float32)
TENSORS = {"blk.0.attn_q.weight": Q, "blk.0.attn_k.weight": K, "output_norm.weight": Q[0]}
Q_NAME, K_NAME = (f"model.layers.0.self_attn.{n}_proj.weight" for n in "qk")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.gguf"


def opened(path, metadata=None, tensors=None, **options):
    tensors = TENSORS if tensors is None else tensors
    path.write_bytes(gguf_bytes(metadata or gguf_metadata(), tensors, **options))
    return open_checkpoint(path)


def test_a_file_of_the_reference_writer_is_read(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_context_length(512)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_token_list([f"t{i}" for i in range(5000)])  # longer than what is kept
    values = RNG.standard_normal((8, 64)).astype(np.float32)
    kinds = {k: getattr(gguf.GGMLQuantizationType, k) for k in ("Q8_0", "Q4_1", "Q5_0", "BF16")}
    for name, kind in kinds.items():
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("F32", values)
    writer.add_tensor("F16", values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.gain_is_multiplier) == ("gguf", True)
    assert checkpoint.config["head_dim"] == 32
    assert checkpoint.config["rope_theta"] == 5e5
    reference = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert checkpoint.names == tuple(sorted(reference))
    for name, tensor in reference.items():
        got = checkpoint.read(name)
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(checkpoint.read(name, slice(3, 6)), expected[3:6])
        assert checkpoint.info(name).dtype == tensor.tensor_type.name
        assert checkpoint.info(name).nbytes == tensor.n_bytes
        step = {"F32": 0.0, "F16": 2**-11, "BF16": 2**-8}.get(name, 1 / 8)
        assert np.abs(got - values).max() <= step * np.abs(values).max()


def rotate(x, angles, first, second):
    """Rotate the coordinate pairs (first[i], second[i]) of x by angles[i]."""
    out = x.copy()
    out[first] = np.cos(angles) * x[first] - np.sin(angles) * x[second]
    out[second] = np.sin(angles) * x[first] + np.cos(angles) * x[second]
    return out


def test_llama_rows_turn_neighbouring_pairs_into_halves(path):
    checkpoint = opened(path)
    q, k = checkpoint.read(Q_NAME), checkpoint.read(K_NAME)
    x, y = RNG.standard_normal((2, WIDTH))
    angles = 10000.0 ** (-np.arange(DIM // 2) / (DIM // 2))
    even, odd = np.arange(0, DIM, 2), np.arange(1, DIM, 2)
    low, high = np.arange(DIM // 2), np.arange(DIM // 2, DIM)
    for head in range(HEADS):
        mine, theirs = slice(head * DIM, (head + 1) * DIM), head // 2
        shared = slice(theirs * DIM, (theirs + 1) * DIM)
        stored = rotate(Q[mine] @ x, 5 * angles, even, odd) @ rotate(
            K[shared] @ y, 2 * angles, even, odd
        )
        read = rotate(q[mine] @ x, 5 * angles, low, high) @ rotate(
            k[shared] @ y, 2 * angles, low, high
        )
        assert math.isclose(stored, read, rel_tol=1e-12, abs_tol=1e-12)
    assert not np.array_equal(q, Q)


def test_llama_biases_move_with_their_rows_and_any_rows_can_be_asked(path):
    tensors = TENSORS | {"blk.0.attn_q.bias": Q[:, 3], "blk.0.attn_v.weight": K}
    checkpoint = opened(path, tensors=tensors)
    whole = checkpoint.read(Q_NAME)
    np.testing.assert_array_equal(checkpoint.read(Q_NAME[:-6] + "bias"), whole[:, 3])
    assert checkpoint.config["attention_bias"] is True
    np.testing.assert_array_equal(checkpoint.read("model.layers.0.self_attn.v_proj.weight"), K)
    for start in range(0, HEADS * DIM + 1, 3):
        for stop in range(start, HEADS * DIM + 1, 5):
            rows = slice(start, stop)
            np.testing.assert_array_equal(checkpoint.read(Q_NAME, rows), whole[rows])


def test_gemma_rows_stay_where_they_are(path):
    metadata = gguf_metadata("gemma3", **{"attention.sliding_window": 32, "block_count": 7})
    checkpoint = opened(path, metadata)
    np.testing.assert_array_equal(checkpoint.read(Q_NAME), Q)
    np.testing.assert_array_equal(checkpoint.read(Q_NAME, slice(3, 9)), Q[3:9])
    config = checkpoint.config
    assert config["model_type"] == "gemma3_text"
    kinds = [kind.removesuffix("_attention") for kind in config["layer_types"]]
    assert kinds == ["sliding"] * 5 + ["full", "sliding"]
    assert (config["sliding_window"], config["rope_local_base_freq"]) == (32, 10000.0)
    assert config["query_pre_attn_scalar"] == DIM
    assert "rope_scaling" not in config


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"block_count": 62}, "query_pre_attn_scalar", WIDTH // HEADS),
        ({"attention.sliding_window_pattern": 2}, "layer_types", ["sliding", "full"]),
        ({"attention.sliding_window_pattern": [False, True]}, "layer_types", ["full", "sliding"]),
        ({"attention.sliding_window": None}, "layer_types", ["full", "full"]),
        ({"attention.sliding_window": 0}, "layer_types", ["full", "full"]),
        ({"rope.freq_base_swa": 5.0}, "rope_local_base_freq", 5.0),
        ({"rope.scaling.factor": 8.0}, "rope_scaling", {"rope_type": "linear", "factor": 8.0}),
        ({"attention.scale": DIM**-0.5}, "query_pre_attn_scalar", DIM),
    ],
)
def test_gemma_settings(path, changes, key, expected):
    config = opened(
        path, gguf_metadata("gemma3", **{"attention.sliding_window": 32} | changes)
    ).config
    if key == "layer_types":
        expected = [f"{kind}_attention" for kind in expected]
    assert config[key] == expected


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({}, "head_dim", DIM),
        ({"attention.key_length": None}, "head_dim", WIDTH // HEADS),
        ({"attention.head_count_kv": None}, "num_key_value_heads", HEADS),
        ({"attention.head_count_kv": [2, 2]}, "num_key_value_heads", 2),
        ({"rope.freq_base": None}, "rope_theta", 10000.0),
        ({"expert_count": 8}, "model_type", "mixtral"),
        ({"expert_count": 0}, "model_type", "llama"),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 8.0}, "rope_scaling", None),
        ({"rope.scale_linear": 2.0}, "rope_scaling", {"rope_type": "linear", "factor": 2.0}),
        (
            YARN | {"rope.scaling.original_context_length": 32},
            "rope_scaling",
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 32,
            },
        ),
    ],
)
def test_llama_settings(path, changes, key, expected):
    assert opened(path, gguf_metadata(**changes)).config.get(key) == expected


def test_a_yarn_factor_in_the_file_multiplies_the_usual_one(path):
    config = opened(path, gguf_metadata(**YARN | {"rope.scaling.attn_factor": 0.5})).config
    usual = 1.0 + math.log(4.0) / 10
    assert math.isclose(config["rope_scaling"]["attention_factor"], usual / 2, rel_tol=1e-15)


def test_llama3_factors_become_longrope_divisors(path):
    factors = np.array([1.0, 1.5, 4.0, 8.0], np.float32)
    checkpoint = opened(path, tensors=TENSORS | {"rope_freqs.weight": factors})
    assert "rope_freqs.weight" not in checkpoint
    assert checkpoint.config["rope_scaling"] == {
        "rope_type": "longrope",
        "factor": 1.0,
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        "attention_factor": 1.0,
        "original_max_position_embeddings": 128,
    }


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        ({}, [1.0] * 3),
        ({}, [1.0, 1.0, 1.0, 0.0]),
        ({"rope.scaling.factor": 2.0}, [1.0] * 4),
        (YARN, [1.0] * 4),
    ],
)
def test_llama3_factors_that_do_not_fit_are_refused(path, changes, factors):
    tensors = {"rope_freqs.weight": np.array(factors, np.float32)}
    refused(UnsupportedError, "rope_freqs", opened, path, gguf_metadata(**changes), tensors)


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("llama", "token_embd.weight", "model.embed_tokens.weight"),
        ("llama", "output.weight", "lm_head.weight"),
        ("llama", "output_norm.weight", "model.norm.weight"),
        ("llama", "blk.11.attn_norm.weight", "model.layers.11.input_layernorm.weight"),
        ("llama", "blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight"),
        ("llama", "blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight"),
        ("gemma3", "blk.1.ffn_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight"),
        ("gemma3", "blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight"),
        # Unknown tensors beside the projections must be seen by whoever reads the module.
        ("llama", "blk.1.attn_q.scale", "model.layers.1.self_attn.q_proj.scale"),
        ("llama", "blk.1.attn_sinks.weight", "model.layers.1.self_attn.attn_sinks.weight"),
        ("llama", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_gate_exps.weight"),
        ("llama", "blk.x.attn_q.weight", "blk.x.attn_q.weight"),
        ("llama", "strange", "strange"),
    ],
)
def test_names(path, architecture, name, expected):
    assert opened(path, gguf_metadata(architecture), {name: Q}).names == (expected,)


def test_two_tensors_of_one_meaning_are_refused(path):
    twice = {"output.weight": Q, "lm_head.weight": Q}
    refused(CheckpointError, "mean one tensor", opened, path, None, twice)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"attention.clamp_kqv": 8.0}, "attention.clamp_kqv"),
        ({"attention.causal": False}, "attention.causal"),
        ({"rope.dimension_count": 4}, "rotates only a part"),
        ({"attention.scale": 1.0}, "logit scale"),
        ({"attention.head_count_kv": [2, 1]}, "differs between layers"),
        ({"rope.scaling.type": "longrope"}, "longrope"),
        ({"rope.scaling.attn_factor": 1.5}, "attention factor 1.5"),
    ],
)
def test_settings_without_a_bound_are_refused(path, changes, match):
    refused(UnsupportedError, match, opened, path, gguf_metadata(**changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"block_count": None},
            "llama.block_count must be a positive integer, at most 100000. Got None",
        ),
        ({"attention.head_count": 0}, "llama.attention.head_count must be"),
        ({"attention.head_count": "4"}, "llama.attention.head_count must be"),
        ({"attention.head_count": True}, "llama.attention.head_count must be"),
        ({"embedding_length": 3, "attention.key_length": None}, "must divide embedding_length=3"),
        ({"rope.freq_base": math.nan}, "llama.rope.freq_base must be a positive number"),
        ({"rope.freq_base": -1.0}, "llama.rope.freq_base must be a positive number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(path, changes, match):
    refused(CheckpointError, match, opened, path, gguf_metadata(**changes))


def test_other_architectures_are_refused_by_name(path):
    refused(UnsupportedError, "architecture mamba2", opened, path, gguf_metadata("mamba2"))
    refused(CheckpointError, "general.architecture", opened, path, {"a": 1})


def test_projections_of_another_size_are_refused(path):
    checkpoint = opened(path, tensors={"blk.0.attn_q.weight": K})
    refused(CheckpointError, "4 x 8 rows", checkpoint.read, Q_NAME)


def test_types_that_cannot_be_read_are_refused_by_name(path):
    integers, exotic = gguf.GGMLQuantizationType.I32, gguf.GGMLQuantizationType.Q8_1
    block, size = gguf.GGML_QUANT_SIZES[exotic]
    checkpoint = opened(
        path,
        tensors={"i": (int(integers), (2,), bytes(8)), "x": (int(exotic), (block,), bytes(size))},
    )
    refused(UnsupportedError, "tensor i holds I32 integers", checkpoint.read, "i")
    refused(UnsupportedError, "tensor x is quantised as Q8_1", checkpoint.read, "x")


def test_weights_that_are_not_finite_are_named(path):
    block = struct.pack("<e", math.inf) + bytes([1] * 32)
    checkpoint = opened(path, tensors={"w": (8, (2, 32), block * 2)})  # type 8 is Q8_0
    values = checkpoint.read("w")
    refused(CheckpointError, "tensor w[0, 0] is inf", lambda: to_float64(values, tensor="w"))


def test_an_empty_tensor_is_read(path):
    assert opened(path, tensors={"e": np.zeros((0, 4), np.float32)}).read("e").shape == (0, 4)


def test_endless_rows_of_nothing_take_no_memory(path):
    checkpoint = opened(path, tensors={"blk.0.attn_q.weight": (0, (2**60, 0), b"")})
    assert checkpoint.read(Q_NAME).shape == (2**60, 0)
    assert checkpoint.read(Q_NAME, slice(5, 2**50)).shape == (2**50 - 5, 0)


def test_a_checkpoint_can_be_sent_to_another_process(path):
    checkpoint = opened(path)
    sent = pickle.loads(pickle.dumps(checkpoint))
    assert sent.config == checkpoint.config
    np.testing.assert_array_equal(sent.read(Q_NAME), checkpoint.read(Q_NAME))


def test_a_folder_with_one_gguf_opens_and_several_do_not(tmp_path):
    (tmp_path / "a.gguf").write_bytes(gguf_bytes(gguf_metadata(), TENSORS))
    assert open_checkpoint(tmp_path).source == str(tmp_path)
    assert Q_NAME in open_tensors(tmp_path)
    (tmp_path / "b.gguf").write_bytes(b"")
    refused(CheckpointError, "several .gguf files", open_checkpoint, tmp_path)


VALID = gguf_bytes(gguf_metadata() | {"names": ["a", "b"], "numbers": [1, 2]}, TENSORS)


def values(pairs, **options):
    return gguf_bytes([*gguf_metadata().items(), *pairs], {}, **options)


def array(kind, count, body=b""):
    return struct.pack("<IIQ", 9, kind, count) + body


def with_offsets(first, second):
    """Two tensors of 32 bytes whose stated offsets are replaced."""
    raw = gguf_bytes(gguf_metadata(), {"t": Q[0, :8], "u": Q[0, :8]})
    for name, old, new in (("u", 32, second), ("t", 0, first)):
        entry = gguf_text(name) + struct.pack("<IQI", 1, 8, 0)
        raw = raw.replace(entry + struct.pack("<Q", old), entry + struct.pack("<Q", new))
    return raw


MALFORMED = {
    "empty": (b"", "is empty; it is truncated"),
    "another kind of file": (b"GGML" + VALID[4:], "does not start with GGUF"),
    "cut in the counts": (VALID[:12], "inside its header"),
    "cut in the data": (VALID[:-1], "ends at"),
    "more tensors than there are": (gguf_bytes({}, {}, counts=(2**63, 0)), "inside its header"),
    "more values than there are": (gguf_bytes({}, {}, counts=(0, 2**63)), "inside its header"),
    "text past the end": (values([(b"k", struct.pack("<IQ", 8, 2**63))]), "inside its header"),
    "text that is not UTF-8": (values([(b"\xff", 1)]), "not UTF-8"),
    "array past the end": (values([("k", array(4, 2**62))]), "inside its header"),
    "array of endless text": (values([("k", array(8, 2**62))]), "inside its header"),
    "array of arrays": (values([("k", array(9, 1, array(4, 0)))]), "array of type 9"),
    "unknown value type": (values([("k", struct.pack("<I", 13))]), "unknown type 13"),
    "a key twice": (values([("k", 1), ("k", 2)]), "key k twice"),
    "alignment 0": (values([("general.alignment", 0)]), "power of two"),
    "alignment 24": (values([("general.alignment", 24)]), "power of two"),
    "alignment text": (values([("general.alignment", "32")]), "power of two"),
    "a tensor twice": (gguf_bytes({}, [("t", Q), ("t", Q)]), "tensor t twice"),
    "no axes": (gguf_bytes({}, {"t": (0, (), b"")}), "0 axes"),
    "five axes": (gguf_bytes({}, {"t": (0, (1,) * 5, bytes(4))}), "5 axes"),
    "half a block": (gguf_bytes({}, {"t": (8, (33,), bytes(68))}), "needs 32s"),
    "a shape past 64 bits": (gguf_bytes({}, {"t": (0, (2**63, 2**63), b"")}), "tensor t ends at"),
    "overlap": (with_offsets(0, 0), "over another"),
    "off its alignment": (with_offsets(0, 33), "off its alignment"),
    "past the end": (with_offsets(0, 2**63), "tensor u ends at"),
}


@pytest.mark.parametrize(("raw", "match"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_is_refused_in_one_line_that_names_it(path, raw, match):
    path.write_bytes(raw)
    assert str(path) in refused(CheckpointError, match, open_checkpoint, path)


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (gguf_bytes({}, {}, version=1), "version 1"),
        (gguf_bytes({}, {}, version=3 << 24), "big-endian"),
    ],
)
def test_files_of_another_kind_are_unsupported(path, raw, match):
    path.write_bytes(raw)
    refused(UnsupportedError, match, open_checkpoint, path)


def outcome(path):
    """The checkpoint, or the message that refuses it."""
    try:
        return open_checkpoint(path)
    except (CheckpointError, UnsupportedError) as error:
        return str(error)


@given(
    st.lists(
        st.tuples(st.integers(0, len(VALID)), st.integers(0, 4), st.binary(max_size=4)),
        min_size=1,
        max_size=3,
    )
)
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, edits):
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    raw = VALID
    for at, cut, new in edits:
        raw = raw[:at] + new + raw[at + cut :]
    path.write_bytes(raw)
    result = outcome(path)
    if isinstance(result, str):
        assert result.isprintable()
        return
    for name in result.names:
        try:
            got = result.read(name)
        except (CheckpointError, UnsupportedError) as error:
            message = str(error)
        else:
            message = str(got.shape)
            assert got.shape == result.info(name).shape
        assert message.isprintable()


def test_the_value_writer_used_here_agrees_with_the_reference_reader(path):
    path.write_bytes(VALID)
    fields = gguf.GGUFReader(path).fields
    assert fields["names"].contents() == ["a", "b"]
    assert fields["numbers"].contents() == [1, 2]
    assert gguf_value(True) == struct.pack("<I?", 7, True)
