"""A checkpoint of 30 GB on a laptop: a few layers audited, and a dry run, in bounded memory.

The file is that large only by name: its header is a 30 GB model's, and what no audit of layers 0
and 40 reads is holes, which take no disk.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dispersion import demo
from range_server import serving

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
WIDTH, HEADS, KEY_HEADS, HEAD_DIM, INNER, VOCABULARY = 1024, 8, 2, 128, 28672, 128256
LAYERS, REAL = 164, (0, 40)
SIZE = 30e9
MB = 2.0**20
READ = len(REAL) * (HEADS + KEY_HEADS) * HEAD_DIM * WIDTH * 2  # bytes of Q and K on disk
NORMS = len(REAL) * WIDTH * 2
MOST = 40 * MB  # a header of 1479 tensors, and a few heads in float64; about 16 are needed

AUDIT = """
import sys
import peak_memory
from dispersion import audit, demo, dry_run
audit(demo.path("headwise"))  # imports everything first
dry_run(demo.path("headwise"))
before = peak_memory.start()
if sys.argv[2] == "dry":
    found = dry_run(sys.argv[1], layers=[0, 40])
    print(peak_memory.above(before), found.heads, found.total_bytes, found.checkpoint_bytes)
elif sys.argv[2] == "careless":
    import numpy as np
    from pathlib import Path
    file = Path(sys.argv[1]) / "model.safetensors"
    taken = np.fromfile(file, np.uint8, 100_000_000)
    print(peak_memory.above(before), taken.size)
else:
    audit(sys.argv[3])  # the same for addresses
    before = peak_memory.start()
    found = audit(sys.argv[1], layers=[0, 40], jobs=1)
    finite = sum(head.spread.lower > 0 for head in found.heads)
    print(peak_memory.above(before), len(found.heads), finite, len(found.skipped))
"""


def shapes():
    """A model of 30 GB in bfloat16: most of it feed-forward, as in real ones."""
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, WIDTH)
        yield at + "self_attn.k_proj.weight", (KEY_HEADS * HEAD_DIM, WIDTH)
        yield at + "self_attn.v_proj.weight", (KEY_HEADS * HEAD_DIM, WIDTH)
        yield at + "self_attn.o_proj.weight", (WIDTH, HEADS * HEAD_DIM)
        yield at + "mlp.gate_proj.weight", (INNER, WIDTH)
        yield at + "mlp.up_proj.weight", (INNER, WIDTH)
        yield at + "mlp.down_proj.weight", (WIDTH, INNER)
        yield at + "input_layernorm.weight", (WIDTH,)
        yield at + "post_attention_layernorm.weight", (WIDTH,)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (VOCABULARY, WIDTH)


def has_data(name):
    layers = tuple(f"model.layers.{i}." for i in REAL)
    return name.startswith(layers) and ("q_proj" in name or "k_proj" in name or "input_" in name)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    header, at, real = {}, 0, []
    for name, shape in shapes():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        if has_data(name):
            real.append((name, shape, at))
        at = end
    raw = json.dumps(header).encode()
    rng = np.random.default_rng(0)
    file = folder / "model.safetensors"
    with file.open("wb") as stream:
        stream.write(len(raw).to_bytes(8, "little") + raw)
        try:
            stream.truncate(8 + len(raw) + at)
        except OSError as error:
            pytest.skip(f"the file system holds no file of {at} bytes ({error})")
        for _, shape, start in real:
            stream.seek(8 + len(raw) + start)
            values = 0.02 * rng.standard_normal(shape, np.float32) + (len(shape) == 1)
            stream.write(values.astype(ml_dtypes.bfloat16).tobytes())
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "vocab_size": VOCABULARY,
    }
    (folder / "config.json").write_text(json.dumps(config))
    found = file.stat()
    assert found.st_size > SIZE
    if found.st_blocks * 512 > 4 * READ:
        file.unlink()
        pytest.skip("the file system keeps no holes")
    yield folder
    file.unlink()  # temporary folders are kept for a while, and copies may fill the holes


def peak(measure, checkpoint, how):
    paths = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
    with serving() as site:
        small = site.add_folder(demo.path("headwise"), "/small")
        return measure.printed(["-c", paths + AUDIT, str(checkpoint), how, small])


def test_a_few_layers_of_30_gb_take_little_memory(peak_memory, checkpoint):
    memory, heads, finite, skipped = peak(peak_memory, checkpoint, "audit")
    assert heads == finite == len(REAL) * HEADS
    assert skipped > 0
    assert memory <= MOST


def test_at_an_address_they_take_as_little_and_nothing_else_is_fetched(peak_memory, checkpoint):
    file, config = checkpoint / "model.safetensors", checkpoint / "config.json"
    with serving() as site:
        site.files = {"/m/model.safetensors": file, "/m/config.json": config.read_bytes()}
        memory, heads, finite, _ = peak(peak_memory, f"{site.url}/m", "audit")
        with file.open("rb") as stream:
            header = 8 + int.from_bytes(stream.read(8), "little")
        # Q, K and norms of two layers, of 30 GB: every byte once.
        assert site.sent == len(site.files["/m/config.json"]) + header + READ + NORMS
    assert heads == finite == len(REAL) * HEADS
    assert memory <= MOST


def test_a_dry_run_of_30_gb_takes_little_memory(peak_memory, checkpoint):
    memory, heads, read, whole = peak(peak_memory, checkpoint, "dry")
    assert heads == len(REAL) * HEADS
    assert read == READ + NORMS
    assert whole > SIZE
    assert memory <= MOST


def test_reading_a_part_of_the_file_would_be_noticed(peak_memory, checkpoint):
    memory, taken = peak(peak_memory, checkpoint, "careless")
    assert taken == 100_000_000  # of 30 GB
    assert memory > MOST
