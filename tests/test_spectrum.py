"""Certified singular values of heads, and what they say about any-token retrieval."""

import dataclasses

import numpy as np
import pytest

from dispersion import spectrum as module
from dispersion.ceilings import Bounds
from dispersion.checking import check_head
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage, Head
from dispersion.head_contexts import head_context
from dispersion.norms import qk_norm_ball
from dispersion.reach import Reach
from dispersion.rotary import rotary
from dispersion.spectrum import spectrum
from dispersion.spread import spread_bound
from dispersion.verdict import Target, Verdict

DIM, WIDTH = 6, 9
TURNS = {
    "none": None,
    "all": rotary([1.0, 0.4, 0.05], DIM),
    "partly": rotary([1.0, 0.1], DIM, rotated=4),
    "interleaved": rotary([1.0, 0.4, 0.05], DIM, interleaved=True),
}


def head_of(seed, turn, *, bias=(0.0, 0.0), rank=DIM, size=1.0, own=False):
    rng = np.random.default_rng(seed)
    query = size * rng.standard_normal((DIM, rank)) @ rng.standard_normal((rank, WIDTH)) / 3
    key = rng.standard_normal((DIM, rank)) @ rng.standard_normal((rank, WIDTH)) / 3
    offsets = [b * rng.standard_normal(DIM) if b else None for b in bias]
    return Head(
        BallImage(query, offset=offsets[0]),
        BallImage(key, offset=offsets[1]),
        Enclosure.exact(0.5),
        rotary=TURNS[turn],
        self_attention=own,
        reach=Reach(WIDTH, 1.0),
    )


def heads(turn):
    for seed in range(3):
        for bias in ((0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (2.0, 3.0)):
            for rank, size in ((DIM, 1.0), (1, 2.0), (2, 3.0)):
                yield head_of(seed, turn, bias=bias, rank=rank, size=size)


def check_contexts(turn, lengths=(2, 5, 9), find=spectrum):
    """No context that ascent finds gives all its tokens more than the ceiling."""
    for head in heads(turn):
        found = find(head)
        for n in lengths:
            context = head_context(head, n, steps=60)
            assert context is not None
            assert context.coefficient <= found.any_token_ceiling(n), (n, head)


@pytest.mark.parametrize("turn", TURNS)
def test_no_context_exceeds_the_ceiling(turn):
    check_contexts(turn)


def test_values_without_rotation_are_the_singular_values():
    rng = np.random.default_rng(5)
    for scale in (1e-12, 1.0, 1e9):
        query, key = scale * rng.standard_normal((DIM, 40)), rng.standard_normal((DIM, 30))
        key *= np.geomspace(1, 1e-6, DIM)[:, None]
        head = Head(BallImage(query), BallImage(key, offset=np.ones(DIM)), Enclosure.exact(0.25))
        exact = 0.25 * np.linalg.svd(query.T @ key, compute_uv=False)[:DIM]
        values = spectrum(head).values
        assert np.all(values >= exact * (1 - 1e-12))
        # Squares of the small ones drown in the rounding of the large ones.
        assert np.all(values <= exact + 1e-5 * exact[0])


def test_gain_only_heads_have_their_closed_form():
    rng = np.random.default_rng(7)
    gains = rng.standard_normal((2, DIM))
    balls = [qk_norm_ball(g, kind="rms", head_dim=DIM) for g in gains]
    head = Head(*balls, Enclosure.exact(0.5), rotary=TURNS["all"])
    pair = np.abs(gains[1]).reshape(2, -1).max(axis=0)
    expected = np.sort(0.5 * DIM * np.abs(gains[0]) * np.concatenate([pair, pair]))[::-1]
    np.testing.assert_allclose(spectrum(head).values, expected, rtol=1e-7)


def test_the_largest_value_is_half_the_plain_spread_without_biases():
    for turn in ("none", "all"):
        head = head_of(11, turn)
        bound = spread_bound(head)
        assert 2 * spectrum(head, bound.scales).largest >= bound.spread * (1 - 1e-12)
        assert 2 * spectrum(head, bound.scales).largest <= bound.spread * 1.06


def test_row_errors_widen_every_value():
    for turn in TURNS:
        head = head_of(13, turn, bias=(0.0, 1.0))
        wide = dataclasses.replace(
            head,
            query=dataclasses.replace(head.query, row_error=np.full(DIM, 0.05)),
            key=dataclasses.replace(head.key, row_error=np.full(DIM, 0.05)),
        )
        rng = np.random.default_rng(1)
        values = spectrum(wide).values
        for _ in range(20):
            moved = []
            for ball in (head.query, head.key):
                shift = rng.standard_normal(ball.matrix.shape)
                shift *= 0.05 / np.linalg.norm(shift, axis=1, keepdims=True)
                moved.append(dataclasses.replace(ball, matrix=ball.matrix + shift))
            if turn == "none":
                exact = np.linalg.svd(moved[0].matrix.T @ moved[1].matrix, compute_uv=False)[:DIM]
                assert np.all(values >= 0.5 * exact * (1 - 1e-12))
            other = spectrum(dataclasses.replace(head, query=moved[0], key=moved[1]))
            assert other.values[0] <= values[0] * 1.05


def test_a_key_bias_under_rotation_is_enough_to_retrieve():
    """C = 0 and c = (10, 0): the keys are the bias at three angles, and each can be found."""
    turn = rotary([2 * np.pi / 3], 2)
    key = BallImage(np.zeros((2, 2)), offset=np.array([10.0, 0.0]))
    head = Head(BallImage(np.eye(2)), key, Enclosure.exact(1.0), rotary=turn, self_attention=False)
    assert spectrum(head).any_token_ceiling(3) > 0.9999
    plain = dataclasses.replace(head, rotary=None)
    assert spectrum(plain).any_token_ceiling(3) == pytest.approx(1 / 3)


def dropped_bias(head):
    """What the spectrum would be if a key bias cancelled under rotation too."""
    return spectrum(dataclasses.replace(head, key=dataclasses.replace(head.key, offset=None)))


def unrotated(head):
    """Singular values of AᵀC used under rotation."""
    return spectrum(dataclasses.replace(head, rotary=None))


def halved(head):
    found = spectrum(head)
    return dataclasses.replace(found, values=found.values / 2, largest=found.largest / 2)


@pytest.mark.parametrize(
    ("turn", "mutant"), [("all", dropped_bias), ("all", unrotated), ("none", halved)]
)
def test_planted_errors_are_caught(turn, mutant):
    with pytest.raises(AssertionError):
        check_contexts(turn, find=mutant)


def test_a_cover_made_for_capacity_is_no_worse():
    for seed in range(4):
        head = head_of(seed, "all", size=2.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_WORTHWHILE", 0.0)
            plain = spectrum(head).log_capacity.upper
        assert spectrum(head).log_capacity.upper <= plain * (1 + 1e-12)


def test_verdicts_of_every_token():
    head = head_of(3, "all", size=4.0, own=True)
    targets = [Target(n, 0.5, "any") for n in (2, 4, 12, 4096)]
    found = check_head(head, targets)
    uppers = [r.ceiling.upper for r in found.results]
    assert uppers == sorted(uppers, reverse=True)
    assert found.results[-1].verdict is Verdict.RULED_OUT
    assert found.capacity is not None
    at = int(found.largest_length)
    bounds = Bounds(head, spread_bound(head).spread, 0.0, spectrum(head, spread_bound(head).scales))
    assert bounds.ceiling(Target(at, 0.5, "any")) >= 0.5
    assert bounds.ceiling(Target(at + 1, 0.5, "any")) < 0.5
    one = check_head(head, [dataclasses.replace(t, retrieval="one") for t in targets])
    for every, single in zip(found.results, one.results, strict=True):
        assert every.ceiling.upper <= single.ceiling.upper


def test_a_soft_cap_keeps_half():
    """Under a soft cap the bound speaks only of tokens that are largest in their row."""
    head = dataclasses.replace(head_of(3, "all", size=4.0), soft_cap=50.0)
    found = check_head(head, [Target(300, 0.5, "any")])
    assert found.results[0].ceiling.upper >= 0.5
