"""Heads whose keys an indexer picks: what may be said of them, and how configs say so."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dispersion import rigor
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.head import Head
from dispersion.picked import PickedHead
from dispersion.verdict import Target

DATA = Path(__file__).parent / "data"
LOGITS = json.loads((DATA / "logits.json").read_text())["logits"]
PICKS, LENGTH = 4, 40


def planned(name, **changes):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    return plan(from_arrays(arrays, checkpoint.config | changes))


def first_head(name, **changes):
    return next(iter(planned(name, **changes).layers[0].heads()))[2]


def plain(head):
    """The same head that sees all keys."""
    values = {k: v for k, v in vars(head).items() if k in Head.__dataclass_fields__}
    return Head(**values | {"window": None})


@pytest.fixture(params=["deepseek_v32", "glm_moe_dsa"])
def head(request):
    found = first_head(request.param, index_topk=PICKS)
    assert isinstance(found, PickedHead)
    return found


def test_a_row_has_as_many_keys_as_are_picked(head):
    for length in (PICKS - 1, PICKS, LENGTH):
        result = check_head(head, [Target(length)])
        seen = min(length, PICKS)
        ceiling = rigor.max_coefficient(seen, result.spread.upper).upper
        assert result.results[0].ceiling.upper == pytest.approx(ceiling, rel=1e-12)
    of_all = check_head(plain(head), [Target(LENGTH)]).results[0].ceiling.upper
    assert check_head(head, [Target(LENGTH)]).results[0].ceiling.upper > of_all


def test_picked_keys_may_stand_anywhere(head):
    """At the lags of all keys, not at those of a window, whose bound lies below."""
    spreads = [
        check_head(h, [Target(LENGTH)], offsets="exact").spread.upper
        for h in (head, plain(head), replace(plain(head), window=PICKS))
    ]
    assert spreads[0] == spreads[1] > spreads[2] * 1.001


def test_queries_that_pick_have_no_keys_in_common(head):
    any_token, one = (check_head(head, [Target(LENGTH, retrieval=r)]) for r in ("any", "one"))
    assert any_token.results[0].ceiling.upper == one.results[0].ceiling.upper
    assert any_token.capacity is None
    shared = check_head(plain(head), [Target(LENGTH, retrieval="any")])
    assert shared.capacity is not None


def test_nothing_is_witnessed_where_an_indexer_decides(head):
    found = check_head(head, [Target(LENGTH)])
    assert found.spread.lower == found.results[0].ceiling.lower == 0.0
    with pytest.raises(ArgumentError, match=r"reach and inner must not be set"):
        replace(head, inner=plain(head))


def test_a_length_past_the_picked_keys_is_as_good_as_any(head):
    found = check_head(head, [Target(LENGTH, coefficient=0.3)])
    assert found.largest_length in (math.inf, *range(PICKS))


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_configs_say_how_many_keys_are_picked(name):
    assert first_head(name).window == 64
    assert first_head(name, index_topk=None).window == 2048  # the class's own default
    with pytest.raises(CheckpointError, match=r"index_topk in config.json must be"):
        planned(name, index_topk=0)
    with pytest.raises(UnsupportedError, match=r"rope_interleave=False in config.json"):
        planned(name, rope_interleave=False)
    with pytest.raises(UnsupportedError, match=r"q_lora_rank=None in config.json"):
        planned(name, q_lora_rank=None)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_indexers_are_skipped_with_a_reason(name):
    skipped = [s for s in planned(name).skipped if ".indexer." in s.name]
    assert skipped
    assert all("indexer that picks the keys" in s.reason for s in skipped)


def rms(x, gain, eps):
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def test_latents_alone_give_the_logits_of_glm5_next():
    """Queries and keys from their definition: logits of the real module, and within the balls."""
    checkpoint = open_checkpoint(DATA / "glm5_next_text")
    layer = plan(checkpoint).layers[0]
    read = {n.removeprefix(f"{layer.module}."): n for n in layer.tensors}
    read = {n: checkpoint.read(full).astype(np.float64) for n, full in read.items()}
    gain = read[f"layers.{layer.layer}.input_layernorm.weight"]
    x = np.sin(1.0 + np.arange(6 * len(gain)) ** 1.5).reshape(6, -1)
    states = gain * math.sqrt(len(gain)) * x / np.linalg.norm(x, axis=1, keepdims=True)
    latents = [
        rms(states @ read[f"{a}.weight"].T, read[f"{b}.weight"], checkpoint.config["rms_norm_eps"])
        for a, b in (("q_a_proj", "q_a_layernorm"), ("kv_a_proj_with_mqa", "kv_a_layernorm"))
    ]
    queries, both = (
        (h @ read[f"{n}.weight"].T).reshape(6, layer.query_heads, -1)
        for h, n in zip(latents, ("q_b_proj", "kv_b_proj"), strict=True)
    )
    keys = both[:, :, : layer.head_dim]
    for index, _, head in layer.heads():
        row = head.scale.upper * keys[:, index] @ queries[-1, index]
        expected = np.array(LOGITS["glm5_next_text"][layer.layer][index])
        np.testing.assert_allclose(row, expected, atol=1e-9 * np.abs(expected).max())
        for ball, points in ((head.query, queries), (head.key, keys)):
            solved = np.linalg.lstsq(ball.radius.upper * ball.matrix, points[:, index].T)[0]
            assert np.linalg.norm(solved, axis=0).max() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail in config"),
        ({"qk_rope_head_dim": 4}, "qk_rope_head_dim in config.json must be 0"),
    ],
)
def test_what_glm5_next_does_not_cover_is_refused(changes, words):
    with pytest.raises(UnsupportedError, match=words):
        planned("glm5_next_text", **changes)


def test_glm5_next_picks_whole_groups():
    with pytest.raises(CheckpointError, match=r"index_topk in config.json must be a multiple"):
        planned("glm5_next_text", index_topk=20, index_kpool=16)
