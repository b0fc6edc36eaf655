"""An audit never holds more than a few heads' weights, whatever the number of layers.

A checkpoint of 3 layers is audited in a process of its own and its peak memory compared with one
layer's Q and K in float64. A planted leak shows that the measurement would notice.
"""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
WIDTH, HEADS, KEY_HEADS, HEAD_DIM, LAYERS = 2048, 16, 4, 128, 3
ONE_LAYER = (HEADS + KEY_HEADS) * HEAD_DIM * WIDTH * 8  # bytes of Q and K in float64
MOST = 2.0  # in layers of Q and K; about 0.8 is needed

WRITE = """
import sys
from pathlib import Path
from synthetic import write_checkpoint
write_checkpoint(Path(sys.argv[1]), layers={layers}, width={width}, query_heads={heads},
                 key_heads={key_heads}, head_dim={head_dim})
"""

AUDIT = """
import sys
import peak_memory
from dispersion import audit, demo
from dispersion.checkpoint import to_float64
from dispersion.architectures import head_rows
audit(demo.path("headwise"))  # imports everything first
kept = []
if sys.argv[2] == "leak":
    original = head_rows.to_float64
    def leaking(*args, **kwargs):
        kept.append(original(*args, **kwargs))
        return kept[-1]
    head_rows.to_float64 = leaking
before = peak_memory.start()
found = audit(sys.argv[1], jobs=1)
print(peak_memory.above(before), len(found.heads))
"""


def program(code, **values):
    paths = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
    return ["-c", paths + (code.format(**values) if values else code)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "synthetic"
    sizes = {
        "layers": LAYERS,
        "width": WIDTH,
        "heads": HEADS,
        "key_heads": KEY_HEADS,
        "head_dim": HEAD_DIM,
    }
    subprocess.run([sys.executable, *program(WRITE, **sizes), str(folder)], check=True)
    return folder


def peak(measure, checkpoint, how):
    """Peak bytes of an audit above the imported interpreter, in layers of Q and K."""
    memory, heads = measure.printed([*program(AUDIT), str(checkpoint), how])
    assert heads == LAYERS * HEADS
    return memory / ONE_LAYER


def test_an_audit_holds_fewer_weights_than_two_layers(peak_memory, checkpoint):
    assert 0.01 < peak(peak_memory, checkpoint, "plain") <= MOST


def test_a_planted_leak_is_noticed(peak_memory, checkpoint):
    """With every layer's float64 weights kept, the layers themselves are too many."""
    assert peak(peak_memory, checkpoint, "leak") >= LAYERS > MOST
