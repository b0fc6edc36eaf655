"""Longformer's windows and marked tokens, and BigBird's blocks: BERT with keys out of sight."""

import math

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.picked import PickedHead
from dispersion.verdict import Target

DATA = mechanism_checks.DATA


def changed(name, config=(), rename=()):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    for old, new in rename:
        swapped = {n: n.replace(old, "?").replace(new, old).replace("?", new) for n in arrays}
        arrays = {swapped[n]: a for n, a in arrays.items()}
    return plan(from_arrays(arrays, {**checkpoint.config, **dict(config)}))


def heads(found):
    return [[head for _, _, head in layer.heads()] for layer in found.layers]


def flat(found):
    return [head for layer in heads(found) for head in layer]


def spread(head):
    return check_head(head, [Target(9)]).spread.upper


@pytest.mark.parametrize("name", ["big_bird", "longformer"])
def test_no_bound_lies_below_what_ascent_reached_and_none_far_above(name):
    mechanism_checks.check_all(name)
    certified = mechanism_checks.certified(name)
    for n, layer, head, value in mechanism_checks.reached(name):
        assert certified[n, layer, head].spread.upper <= 1.0001 * value


def test_marked_tokens_have_heads_of_their_own_projections():
    """With both kinds of projections exchanged the two halves of the heads change places."""
    plain = heads(changed("longformer"))
    names = (("query.", "query_global."), ("key.", "key_global."))
    other = heads(changed("longformer", rename=names))
    for one, two in zip(plain, other, strict=True):
        assert [h.window for h in one] == [9, 9, None, None]
        assert [spread(h) for h in one] == [spread(h) for h in two[2:] + two[:2]]
        assert len({spread(h) for h in one}) == 4
        assert not any(h.causal or h.reach for h in one)
        found = [check_head(h, [Target(4096)]).results[0].ceiling.upper for h in one]
        keys = [9, 9, 4096, 4096]
        exact = [1 / (1 + (k - 1) * math.exp(-spread(h))) for k, h in zip(keys, one, strict=True)]
        np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize(
    ("window", "seen"), [(62, [32, 32]), ([4, 10], [3, 6]), ([2, 2, 2], [2, 2])]
)
def test_windows_reach_half_their_size_to_one_side(window, seen):
    found = heads(changed("longformer", {"attention_window": window}))
    assert [layer[0].window for layer in found] == seen


@pytest.mark.parametrize(
    ("window", "words"), [(7, "must be even"), ([62], "an entry for layer 1"), ([0, 2], "number")]
)
def test_windows_that_cannot_be_are_refused(window, words):
    with pytest.raises(CheckpointError, match=words):
        changed("longformer", {"attention_window": window})


def test_positions_of_longformer_begin_behind_those_of_padding():
    found = changed("longformer")
    table = "embeddings.position_embeddings.weight"
    checkpoint = open_checkpoint(DATA / "longformer")
    rows = next(checkpoint.info(n).shape[0] for n in checkpoint.names if n.endswith(table))
    assert found.learned_positions == rows - 2 == 30
    assert changed("big_bird").learned_positions == 32


def test_blocks_of_bigbird_that_every_query_sees():
    whole, sparse = (
        flat(changed("big_bird", {"attention_type": kind}))
        for kind in ("original_full", "block_sparse")
    )
    for full, some in zip(whole, sparse, strict=True):
        assert spread(full) == spread(some)
        assert (full.window, some.window) == (None, 8)
        assert full.reach is not None
        assert isinstance(some, PickedHead)
    # A decoder without a cache leaves out keys as well.
    for kind, seen in (("original_full", None), ("block_sparse", 8)):
        decoder = {"attention_type": kind, "is_decoder": True}
        assert {h.window for h in flat(changed("big_bird", decoder))} == {seen}


def fewest(blocks, size, real, front):
    """The fewest real keys that a real query sees in blocks without the random ones.

    `front` tokens of padding stand before `real` tokens, the rest behind.
    """
    at = np.arange(blocks * size)
    own = (at >= front) & (at < front + real)
    held = own.reshape(blocks, size).sum(axis=1)
    found = []
    for i in range(blocks):
        if not held[i]:
            continue
        seen = {0, i - 1, i, i + 1, blocks - 1} & set(range(blocks))
        if i in (0, blocks - 1):
            seen = set(range(blocks))
        found.append(sum(held[j] for j in seen))
    return min(found)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_no_padding_leaves_fewer_keys_than_are_counted(size):
    counts = {
        (real, fewest(blocks, size, real, front))
        for blocks in range(6, 10)
        for real in range(1, blocks * size + 1)
        for front in (0, blocks * size - real)
    }
    assert all(count >= min(real, 2 * size) for real, count in counts)
    assert any(count < min(real, 3 * size) for real, count in counts) == (size > 1)


@pytest.mark.parametrize("config", [{"attention_type": "whole"}, {"use_bias": False}])
def test_other_attention_of_bigbird_is_refused(config):
    with pytest.raises(UnsupportedError, match=next(iter(config))):
        changed("big_bird", config)
