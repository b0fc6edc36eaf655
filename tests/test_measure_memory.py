"""Measuring a layer never holds the attention matrix.

8192 queries and keys have a matrix of 268 MB in float32; the peak above the inputs must stay far
below. A planted matrix shows that the measurement would notice. Larger sizes and times:
`benchmarks/measure_layer.py`.
"""

from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LENGTH = 8192
MATRIX = 4 * LENGTH**2
MOST = MATRIX / 2  # a few blocks of logits, whole rows for the gaps, and what XLA keeps

PROGRAM = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import measure_layer
if sys.argv[1] == "matrix":
    import dispersion.measure.layer as layer
    original = layer.layer_statistics
    def planted(q, k, **options):
        import jax
        kept = jax.block_until_ready(q[0] @ k[0].T)
        return original(q, k, **options)
    import dispersion.measure
    dispersion.measure.layer_statistics = planted
print(measure_layer.peak(1, {LENGTH}, 16), 1)
"""


def test_the_peak_is_far_below_the_matrix(peak_memory):
    peak, _ = peak_memory.printed(["-c", PROGRAM, "plain"])
    assert 0 < peak < MOST


def test_a_matrix_would_show(peak_memory):
    peak, _ = peak_memory.printed(["-c", PROGRAM, "matrix"])
    assert peak > MATRIX
