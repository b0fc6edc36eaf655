"""Masks made row by row, and recognised, without the square of the length. Needs torch."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import masking_utils  # noqa: E402

from dispersion.measure import masks  # noqa: E402
from dispersion.measure.documents import Document  # noqa: E402
from dispersion.measure.running import Model  # noqa: E402

DATA = Path(__file__).parent / "data"
N = 1100  # more than two blocks of queries


def made(function, *, whole=False, n=N, **options):
    return masks.make_mask(
        whole=whole, batch_size=1, q_length=n, kv_length=n, mask_function=function, **options
    )


KINDS = {
    "causal": (masking_utils.causal_mask_function, {"causal": True}),
    "window": (
        masking_utils.sliding_window_causal_mask_function(100),
        {"causal": True, "window": 100},
    ),
    "wide window": (masking_utils.sliding_window_causal_mask_function(5000), {"causal": True}),
    "bidirectional": (masking_utils.bidirectional_mask_function, {"causal": False}),
    "chunks": (masking_utils.chunked_causal_mask_function(300, torch.zeros(1, dtype=int)), None),
}


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_those_of_the_whole_mask(name):
    function, expected = KINDS[name]
    lazy, whole = made(function), made(function, whole=True)
    assert isinstance(lazy, masks.LazyMask)
    assert lazy.shape == tuple(whole.shape)
    assert lazy.dtype == whole.dtype
    for start, stop in ((0, 1), (0, 512), (700, 1100), (1099, 1100)):
        for keys in (slice(0, N), slice(5, 900)):
            part = masks.rows_of(lazy, start, stop, keys)
            assert torch.equal(part, whole[:, :, start:stop, keys])
            assert torch.equal(masks.rows_of(whole, start, stop, keys), part)
    found = masks.what_is_seen(lazy, N)
    again = masks.what_is_seen(whole, N)
    if expected is None:
        assert found.keys() == again.keys() == {"causal", "mask"}
        np.testing.assert_array_equal(found["mask"], (whole[0, 0] == 0).numpy())
        np.testing.assert_array_equal(again["mask"], found["mask"])
    else:
        assert found == again == expected


def test_a_window_on_both_sides_is_recognised():
    two_sided = masking_utils.sliding_window_bidirectional_mask_function(100)
    table = made(two_sided, whole=True)[0, 0] == 0
    distance = np.abs(np.arange(N)[:, None] - np.arange(N)[None, :])
    found = masks.what_is_seen(made(two_sided), N)
    assert found["causal"] is False
    np.testing.assert_array_equal(table.numpy(), distance < found["window"])


def test_a_mask_that_hides_nothing_is_left_out_where_transformers_leaves_it_out():
    full = masking_utils.bidirectional_mask_function
    assert made(full, allow_is_bidirectional_skip=True) is None
    assert masks.what_is_seen(None, N) == {"causal": False}
    assert masks.rows_of(None, 0, 1, slice(0, N)) is None


def test_what_is_no_mask_is_said():
    bias = made(masking_utils.causal_mask_function, whole=True)
    bias[0, 0, 900, 5] = -1.5
    assert masks.what_is_seen(bias, N) == "adds a bias to its logits through the mask"
    assert "mask of shape" in masks.what_is_seen(bias[0], N)
    assert "torch.bool mask" in masks.what_is_seen(bias == 0, N)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama", "modernbert"])
def test_models_see_the_same_with_whole_masks(name, monkeypatch):
    model = Model(DATA / name)
    size = model.model.config.vocab_size
    document = Document("x", tuple(int(x) for x in np.random.default_rng(0).integers(0, size, 60)))
    lazy = model.measure(document)
    asked = []

    def whole(*, whole, **options):
        asked.append(whole)
        return masks.eager_mask(**options)

    monkeypatch.setattr(sys.modules["dispersion.measure.hooks"], "make_mask", whole)
    again = model.measure(document)
    assert not any(asked)
    for layer, found in lazy.items():
        np.testing.assert_array_equal(found.chosen.entropy, again[layer].chosen.entropy)


def test_a_model_that_computes_with_its_mask_gets_a_whole_one(monkeypatch):
    model = Model(DATA / "llama")
    document = Document("x", (1, 2, 3) * 13)
    expected = model.measure(document)
    forward = type(model.model.layers[0]).forward

    def computes(self, hidden_states, attention_mask=None, **options):
        return forward(self, hidden_states, attention_mask=attention_mask + 0, **options)

    monkeypatch.setattr(type(model.model.layers[0]), "forward", computes)
    found = model.measure(document)
    np.testing.assert_array_equal(found[1].chosen.spread, expected[1].chosen.spread)


def test_no_mask_of_all_queries_by_all_keys_is_made(monkeypatch):
    model = Model(DATA / "llama")
    largest = []
    original = masks.eager_mask

    def watched(**options):
        largest.append(options["q_length"])
        return original(**options)

    monkeypatch.setattr(masks, "eager_mask", watched)
    model.measure(Document("x", (1, 2, 3) * 400))
    assert 0 < max(largest) <= masks.BLOCK < 1200
