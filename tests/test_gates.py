"""Ceilings of gates that read what they multiply."""

import math

import numpy as np
import pytest

from dispersion.gates import gate_ceilings, gated_gain


def drawn(seed):
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    gain, down, up = (
        rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1) for shape in (d, (m, d), (d, m))
    )
    return gain, down, up


def gates(states, gain, down, up):
    """At states of norm 1 at most, shape (n, d)."""
    z = math.sqrt(len(gain)) * gain * states @ down.T
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-(z / (1 + np.exp(-z))) @ up.T))


def climbed(gain, down, up, i):
    """The largest value of one gate that ascent finds."""
    rng = np.random.default_rng(i)
    u = rng.standard_normal((100, len(gain)))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    best = 0.5  # of the state 0
    for _ in range(40):
        best = max(best, gates(u, gain, down, up)[:, i].max())
        z = math.sqrt(len(gain)) * gain * u @ down.T
        with np.errstate(over="ignore"):
            s = 1 / (1 + np.exp(-z))
        slope = ((s + z * s * (1 - s)) * up[i]) @ down * gain
        u = u + 0.5 * slope / (np.linalg.norm(slope, axis=1, keepdims=True) + 1e-300)
        u /= np.maximum(1, np.linalg.norm(u, axis=1, keepdims=True))
    return max(best, gates(u, gain, down, up)[:, i].max())


@pytest.mark.parametrize("seed", range(20))
def test_no_gate_exceeds_its_ceiling(seed):
    parts = drawn(seed)
    ceilings = gate_ceilings(*parts)
    reached = np.array([climbed(*parts, i) for i in range(len(ceilings))])
    assert np.all(reached <= ceilings)
    assert np.all(ceilings <= 1.35 * reached)


def test_small_maps_leave_gates_near_a_half():
    gain, down, up = drawn(0)
    found = gate_ceilings(gain, down * 1e-3, up * 1e-3)
    assert np.all((found >= 0.5) & (found < 0.5001))
    np.testing.assert_allclose(gated_gain(gain, down * 1e-3, up * 1e-3), gain / 2, rtol=1e-3)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-30, 1e30, 1e100])
def test_gains_of_any_size_keep_their_sign_and_never_grow(size):
    gain, down, up = drawn(1)
    gain = gain * size
    found = gated_gain(gain, down, up)
    moduli = np.abs(gain) * gate_ceilings(gain, down, up)
    assert np.all(np.abs(found) <= np.abs(gain))
    assert np.all(np.abs(found) >= moduli)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(gain))


def test_products_with_stored_weights_are_exact():
    gain, down, up = (x.astype(np.float32).astype(np.float64) for x in drawn(2))
    found = gated_gain(gain, down, up)
    np.testing.assert_array_equal(found, found.astype(np.float32))
