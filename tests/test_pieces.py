"""Layers cut in pieces: nothing is lost, and none waits while there is something to do."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.pieces import Piece, Pieces


@dataclass
class Layer:
    query_heads: int
    key_heads: int


def places(pieces, count):
    """All places of a layer of `count` heads that pieces hold, in order."""
    ordered = sorted(pieces, key=lambda piece: piece.first)
    return [place for p in ordered for place in range(count)[p.first : p.last]]


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_every_place_is_taken_once_and_layers_come_back_in_order(sizes, jobs, seed):
    rng = random.Random(seed)
    layers = [Layer(keys * group, keys) for keys, group in sizes]
    pieces = Pieces(layers, range(len(layers)), jobs)
    taken, held, finished = {i: [] for i in range(len(layers))}, [], {}
    while pieces.unfinished:
        if held and (not pieces.waiting or rng.random() < 0.4):
            piece = held.pop(rng.randrange(len(held)))
            if rng.random() < 0.1:
                pieces.give_back(piece)
                continue
            taken[piece.index].append(piece)
            found = [*range(layers[piece.index].query_heads)][piece.first : piece.last]
            heads = pieces.finish(piece, found)
            if heads is not None:
                assert piece.index not in finished
                finished[piece.index] = heads
        else:
            held.append(pieces.take(last=rng.random() < 0.5))
            assert held[-1] is not None
    assert not held
    assert finished == {i: [*range(layer.query_heads)] for i, layer in enumerate(layers)}
    for index, parts in taken.items():
        layer = layers[index]
        # Plans may have more heads than they say.
        for count in (layer.query_heads, layer.query_heads + 3):
            assert places(parts, count) == [*range(count)]
        group = layer.query_heads // layer.key_heads
        assert all(part.first % group == 0 for part in parts)


def test_layers_are_cut_where_fewer_wait_than_there_are_processes():
    pieces = Pieces([Layer(32, 8)] * 3, [0, 1, 2], 2)
    assert pieces.take() == Piece(0)
    assert pieces.take(last=True) == Piece(2)
    assert pieces.take() == Piece(1, 0, 16)
    assert pieces.take(last=True) == Piece(1, 16, 24)
    assert pieces.take() == Piece(1, 24)
    assert pieces.take() is None


@pytest.mark.parametrize("layer", [Layer(4, 1), Layer(1, 1), Layer(0, 0)])
def test_heads_that_share_a_key_stay_together(layer):
    pieces = Pieces([layer], [0], 4)
    assert pieces.take() == Piece(0)
    assert pieces.take() is None
    assert pieces.finish(Piece(0), []) == []
    assert not pieces.unfinished
