"""Clamped queries and keys: the covers, their families, their witnesses."""

from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion import clipping, witness
from dispersion.architectures import attention, attention_heads, plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.clipping import clipped_head, largest_coordinates
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.head import BallImage, Head
from dispersion.rotary import rotary
from dispersion.spread import spread_bound

DATA = mechanism_checks.DATA
NAMES = ["olmo__clip", "olmoe__clip", "mpt__clip", "dbrx__clip"]


def random_head(seed, *, size=6, turning=True, biased=False):
    rng = np.random.default_rng(seed)

    def ball():
        matrix = rng.standard_normal((size, 9)) * np.exp(rng.standard_normal((size, 1)))
        offset = rng.standard_normal(size) if biased else None
        return BallImage(matrix=matrix, offset=offset, radius=Enclosure.exact(1.5))

    turn = rotary([1.0, 0.3, 0.02][: size // 2], size) if turning else None
    return rng, Head(query=ball(), key=ball(), scale=Enclosure.exact(0.5), rotary=turn)


def points(rng, ball, count, limit):
    """Extreme points of a ball image, their coordinates clamped."""
    u = rng.standard_normal((count, ball.matrix.shape[1]))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    x = ball.radius.upper * u @ ball.matrix.T
    return np.clip(x if ball.offset is None else x + ball.offset, -limit, limit)


def attack(rng, head, limit, rounds=4):
    """The largest |logit| over clamped points and free phases found by coordinate ascent."""
    best = 0.0
    for _ in range(rounds):
        u, v = rng.standard_normal((2, 9))
        value = -1.0
        step = 1.0
        for _ in range(80):
            candidates = [
                (a / np.linalg.norm(a), b / np.linalg.norm(b))
                for a, b in (
                    (u + step * rng.standard_normal(9), v + step * rng.standard_normal(9))
                    for _ in range(8)
                )
            ]
            found = [free_logit(head, a, b, limit) for a, b in candidates]
            if max(found) > value:
                value = max(found)
                u, v = candidates[int(np.argmax(found))]
            else:
                step *= 0.9
        best = max(best, value)
    return best


def free_logit(head, u, v, limit):
    q, k = (
        np.clip(
            ball.radius.upper * ball.matrix @ x + (0 if ball.offset is None else ball.offset),
            -limit,
            limit,
        )
        for ball, x in ((head.query, u), (head.key, v))
    )
    if head.rotary is None:
        return head.scale.upper * abs(q @ k)
    first, second = head.rotary.pairs.T
    sizes = [np.hypot(x[first], x[second]) for x in (q, k)]
    return head.scale.upper * float(sizes[0] @ sizes[1])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.parametrize("limit", [0.3, 1.0, 3.0])
def test_covers_hold_every_clamped_point_and_bounds_every_attack(turning, biased, limit):
    rng, head = random_head(4, turning=turning, biased=biased)
    found = clipped_head(head, limit)
    for before, after in ((head.query, found.query), (head.key, found.key)):
        x = points(rng, before, 2000, limit)
        assert np.all(((x / np.diag(after.matrix)) ** 2).sum(axis=1) <= 1)
    reached = attack(rng, head, limit)
    bound = spread_bound(found).spread / 2
    assert bound >= reached
    box = [np.minimum(largest_coordinates(b), limit) for b in (head.query, head.key)]
    sizes = box if head.rotary is None else [np.hypot(*b[head.rotary.pairs.T]) for b in box]
    assert bound <= 0.5 * float(sizes[0] @ sizes[1]) * 1.0001  # never looser than the boxes


def test_a_clamped_logit_can_exceed_what_the_ellipsoids_allow():
    """Queries along (2, 1) and keys along (1, −2)/2 are orthogonal; clamped to 1 they are not."""
    query, key = BallImage(matrix=np.array([[2.0], [1.0]])), BallImage(np.array([[0.5], [-1.0]]))
    head = Head(query=query, key=key, scale=Enclosure.exact(1.0))
    clamped = np.clip([2.0, 1.0], -1, 1) @ np.clip([0.5, -1.0], -1, 1)
    assert abs(clamped) == 0.5
    assert spread_bound(head).spread < 1e-6
    assert spread_bound(clipped_head(head, 1.0)).spread >= 2 * 0.5


def test_what_no_clamp_reaches_stays_as_it_is():
    _, head = random_head(5)
    largest = max(largest_coordinates(b).max() for b in (head.query, head.key))
    assert clipped_head(head, largest * 1.01) is head
    assert clipped_head(head, largest * 0.99) is not head
    unbounded = replace(head, query=None)
    assert clipped_head(unbounded, 1e-3) is unbounded
    with pytest.raises(ArgumentError, match="limit must be positive"):
        clipped_head(head, 0.0)


def test_the_smaller_of_both_covers_is_taken():
    taken = set()
    for seed in range(12):
        _, head = random_head(seed)
        limit = 0.6 * max(largest_coordinates(b).max() for b in (head.query, head.key))
        found = clipped_head(head, limit)
        boxes = [np.minimum(largest_coordinates(b), limit) for b in (head.query, head.key)]
        bounds = []
        for sizes in (
            clipping._scaled_sizes(head, head.query, head.key),
            clipping._box_sizes(head, *boxes),
        ):
            query, key = (BallImage(matrix=np.diag(s)) for s in sizes)
            bounds.append(spread_bound(replace(head, query=query, key=key)).spread)
        assert spread_bound(found).spread == min(bounds)
        taken.add(int(np.argmin(bounds)))
    assert taken == {0, 1}


# --- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_clamp_acts_in_the_checkpoint_and_the_bound_is_not_far_off(name):
    found = mechanism_checks.certified(name)
    heads = [h for layer in plan(open_checkpoint(DATA / name)).layers for *_, h in layer.heads()]
    assert all("clip" in h.cap for h in heads)
    ratios = [
        found[n, layer, head].spread.upper / spread
        for n, layer, head, spread in mechanism_checks.reached(name)
        if n == max(n for n, *_ in mechanism_checks.reached(name))
    ]
    assert min(ratios) >= 1
    assert max(ratios) <= 2.5


@pytest.mark.parametrize("name", ["olmo__clip", "mpt__clip", "dbrx__clip"])
def test_witnesses_stay_within_the_clamp(name):
    claims = []
    for layer in plan(open_checkpoint(DATA / name)).layers:
        for _, _, head in layer.heads():
            inner = head.inner
            assert inner is not None
            for ball in (inner.query, inner.key):
                assert largest_coordinates(ball).max() <= float(head.cap.rpartition(" ")[2])
            found = witness.build(inner, 8)
            assert found.spread(8) <= spread_bound(head).spread
            claims.append(found.coefficient(8))
    assert max(claims) > 0.3


def test_no_witness_where_a_norm_fixes_the_size_of_queries():
    for layer in plan(open_checkpoint(DATA / "olmoe__clip")).layers:
        assert all(h.reach is None and h.inner is None for *_, h in layer.heads())


def caught(name):
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached(name)


def test_a_bound_that_clamps_the_half_widths_alone_of_one_side_is_caught(monkeypatch):
    """Boxes of half the clamp: too small."""
    real = attention_heads.clipped_head
    monkeypatch.setattr(attention_heads, "clipped_head", lambda head, limit: real(head, limit / 2))
    caught("olmo__clip")
    caught("dbrx__clip")


def test_covers_not_enlarged_to_hold_their_box_are_caught(monkeypatch):
    monkeypatch.setattr(clipping, "_covering", lambda box, sizes: sizes * 0.6)
    caught("olmoe__clip")


def test_a_clamp_that_is_no_number_is_named():
    checkpoint = open_checkpoint(DATA / "olmo__clip")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    with pytest.raises(CheckpointError, match="clip_qkv"):
        plan(from_arrays(arrays, checkpoint.config | {"clip_qkv": -1.0}))
    free = plan(from_arrays(arrays, checkpoint.config | {"clip_qkv": None}))
    assert next(iter(free.layers[0].heads()))[2].cap == "input LayerNorm"


def test_two_bases_of_rotation_must_agree():
    checkpoint = open_checkpoint(DATA / "dbrx__clip")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    inner = checkpoint.config["attn_config"] | {"rope_theta": 1e4}
    with pytest.raises(UnsupportedError, match="rope_theta in attn_config"):
        plan(from_arrays(arrays, checkpoint.config | {"attn_config": inner}))


def test_a_factor_on_cos_and_sin_does_not_go_with_a_clamp():
    """Clamping comes first; the heads' factor would come before it."""
    side = attention.Projection("w", None, 1)
    given = ("m", 0, 8, 8, side, side, None, Enclosure.exact(1.0))
    attention.Attention(*given, clip=2.0)
    attention.Attention(*given, rotated_factor=Enclosure.exact(1.5))
    with pytest.raises(UnsupportedError, match="clip_qkv=2 and a factor"):
        attention.Attention(*given, clip=2.0, rotated_factor=Enclosure.exact(1.5))
