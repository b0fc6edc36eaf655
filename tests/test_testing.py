"""`dispersion.testing`: right softmax functions pass, wrong ones are named, strategies cover."""

import builtins
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis.errors import NoSuchExample

from dispersion import UnsupportedError, row, testing
from dispersion.head import Head
from dispersion.testing import (
    adversarial_rows,
    assert_attention_within_bounds,
    assert_within_bounds,
)

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def softmax(logits, *, temperature=1.0):
    """As kernels do it: half precision in and out, float32 in between."""
    wide = logits.astype(np.promote_types(logits.dtype, np.float32)) / temperature
    weights = np.exp(wide - wide.max())
    return (weights / weights.sum()).astype(logits.dtype)


def with_sink(logits, sink=0.0):
    top = max(float(logits.max()), sink)
    weights = np.exp(logits - logits.dtype.type(top))
    return weights / (weights.sum() + np.exp(logits.dtype.type(sink - top)))


def attention(query, keys, *, scale=None):
    wide = np.promote_types(query.dtype, np.float32)
    scale = len(query) ** -0.5 if scale is None else scale
    return softmax(keys.astype(wide) @ query.astype(wide) * wide.type(scale)).astype(query.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_softmax_passes_in_every_precision(dtype):
    assert_within_bounds(softmax, dtype=dtype)
    assert_within_bounds(lambda x: softmax(x, temperature=2.0), dtype=dtype, temperature=2.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_attention_passes_in_every_precision(dtype):
    assert_attention_within_bounds(attention, dtype=dtype)
    assert_attention_within_bounds(
        lambda q, k: attention(q, k, scale=0.5), head_dim=12, scale=0.5, dtype=dtype
    )


@pytest.mark.parametrize("sink", [-3.0, 0.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_softmax_with_sink_passes(sink, dtype):
    assert_within_bounds(lambda x: with_sink(x, sink), sink=sink, dtype=dtype)


WRONG = {
    "sharper by a percent": (lambda x: softmax(1.01 * x), "items above T1"),
    "flatter by a percent below": (lambda x: softmax(x) * 0.99, "items below T1"),
    "does not add up": (lambda x: softmax(x) * np.float32(1.0001), "items above T"),
    "overflows": (lambda x: np.exp(x) / np.exp(x).sum(), "finite and not negative"),
    "a wrong shape": (lambda x: softmax(x)[:-1], r"one coefficient per logit, shape \(1,\)"),
    "top one only": (lambda x: np.eye(len(x), dtype=x.dtype)[x.argmax()], "above T1"),
    "half precision sums": (
        lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(),
        "above T",
    ),
    "an epsilon in the denominator": (
        lambda x: np.exp(x - x.max()) / (np.exp(x - x.max()).sum() + np.float32(1e-3)),
        "below T",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_softmax_is_named(name):
    function, message = WRONG[name]
    dtype = ml_dtypes.bfloat16 if name == "half precision sums" else np.float32
    with pytest.raises(AssertionError, match=message):
        assert_within_bounds(function, dtype=dtype)


def test_a_forgotten_sink_scale_or_temperature_is_named():
    with pytest.raises(AssertionError, match="largest coefficient above T7"):
        assert_within_bounds(softmax, sink=0.0)
    with pytest.raises(AssertionError, match="sink's share above T7"):
        assert_within_bounds(lambda x: with_sink(x, 1.0), sink=0.0)
    with pytest.raises(AssertionError, match="above T"):
        assert_attention_within_bounds(lambda q, k: softmax(k @ q))
    with pytest.raises(AssertionError, match="above T"):
        assert_within_bounds(softmax, temperature=1.5)


def test_the_message_names_bound_value_and_row():
    with pytest.raises(
        AssertionError,
        match=r"got .*, bound .*, allowance .* \(n=2, spread=0\.5, row 'one at the top', "
        r"logits \[ 0\.  -0\.5\]\)",
    ):
        assert_within_bounds(lambda x: softmax(2 * x))


def test_given_rows_are_checked_too():
    def wrong(x):
        return softmax(2 * x if x[0] == 7.0 else x)

    assert_within_bounds(wrong)
    with pytest.raises(AssertionError, match="row 'given'"):
        assert_within_bounds(wrong, rows=[np.array([7.0, 5.0, 5.0])])


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("spread", [0.0, 2.0, 30.0])
def test_adversarial_rows_have_the_spread_and_reach_the_bounds(n, spread):
    rows = adversarial_rows(n, spread)
    for name, logits in rows.items():
        assert logits.shape == (n,)
        assert np.ptp(logits) <= spread, name
    room = {"rel": (n + 8) * 2.0**-52, "abs": 0}
    top = np.exp(rows["one at the top"])
    assert top.max() / top.sum() == pytest.approx(row.max_coefficient(n, spread), **room)
    bottom = np.exp(rows["one at the bottom"])
    assert bottom.min() / bottom.sum() == pytest.approx(row.min_coefficient(n, spread), **room)
    lowest = row.row_entropy(rows["k at the top"])
    assert lowest == pytest.approx(row.min_entropy(n, spread), **room)


KINDS = {
    "no offset": lambda h: h.query.offset is None,
    "an offset": lambda h: h.key.offset is not None,
    "no rotation": lambda h: h.rotary is None,
    "some pairs rotated": lambda h: h.rotary and 0 < 2 * len(h.rotary.pairs) < h.key.head_dim,
    "half-split pairs": lambda h: h.rotary and len(h.rotary.pairs) > 1 and h.rotary.pairs[0, 1] > 1,
    "a soft cap": lambda h: h.soft_cap is not None,
    "a sink": lambda h: h.sink is not None,
    "a window": lambda h: h.window is not None,
    "cross attention": lambda h: not h.self_attention and not h.causal,
    "a rank above one": lambda h: min(h.query.matrix.shape) > 1 and np.any(h.query.matrix),
}


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_every_kind_are_drawn(kind):
    unshrunk = settings(phases=[Phase.generate], max_examples=500)
    assert isinstance(find(testing.heads(), KINDS[kind], settings=unshrunk), Head)


def test_the_search_for_a_kind_can_fail():
    with pytest.raises(NoSuchExample):
        find(testing.heads(), lambda h: h.key.head_dim % 2 == 1, settings=settings(max_examples=20))


@given(testing.heads(max_head_dim=4, max_rank=2))
def test_heads_stay_within_their_limits(head):
    assert head.bounded
    assert head.query.head_dim == head.key.head_dim in (2, 4)
    assert head.query.matrix.shape[1] <= 2
    assert np.abs(head.key.matrix).max() <= 4.0


@given(testing.lengths(max_value=50), testing.spreads(max_value=3.0), testing.rows(max_size=5))
def test_lengths_spreads_and_rows_stay_within_their_limits(n, spread, logits):
    assert 1 <= n <= 50
    assert 0 <= spread <= 3.0
    assert 1 <= len(logits) <= 5
    # top - spread·share rounds once at each end, at levels up to 160.
    assert np.ptp(logits) <= 60.0 + 2 * math.ulp(160.0) or logits[0] >= 2.0**13


def test_infinite_spreads_come_when_asked_for():
    assert find(testing.spreads(allow_infinity=True), math.isinf) == math.inf


@pytest.mark.parametrize("strategy", ["rows", "heads", "lengths", "spreads"])
def test_without_hypothesis_the_remedy_is_named(strategy, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **keywords):
        if name == "hypothesis":
            raise ImportError(name)
        return real(name, *rest, **keywords)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UnsupportedError, match=r"pip install 'dispersion\[testing\]'"):
        getattr(testing, strategy)()
    assert_within_bounds(softmax, lengths=(4,))
