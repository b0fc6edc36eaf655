"""LiLT: logits of two streams of states in one sum."""

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.verdict import Target

DATA = mechanism_checks.DATA


def changed(config=(), times=(), drop=()):
    checkpoint = open_checkpoint(DATA / "lilt")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names if n not in drop}
    for part, factor in times:
        arrays = {n: a * np.float32(factor) if part in n else a for n, a in arrays.items()}
    return plan(from_arrays(arrays, {**checkpoint.config, **dict(config)}))


def spreads(found):
    return np.array(
        [
            check_head(head, [Target(9)]).spread.upper
            for layer in found.layers
            for _, _, head in layer.heads()
        ]
    )


def test_bounds_are_what_ascent_on_both_streams_reached():
    mechanism_checks.check_all("lilt")
    certified = mechanism_checks.certified("lilt")
    for n, layer, head, value in mechanism_checks.reached("lilt"):
        found = certified[n, layer, head]
        assert found.spread.upper <= 1.001 * value
        assert found.spread.lower == 0


def test_a_bound_is_the_sum_of_those_of_the_two_streams():
    # A stream whose keys are 0 adds nothing.
    text, places = (changed(times=((part, 0.0),)) for part in ("layout_key", "self.key"))
    whole = spreads(changed())
    np.testing.assert_allclose(spreads(text) + spreads(places), whole, rtol=1e-5)
    assert np.all(spreads(text) > 0)
    assert np.all(spreads(places) > 0)


def test_streams_read_norms_of_their_own():
    whole = spreads(changed())
    for name in ("layout_embeddings.LayerNorm", "encoder.layer.0.layout_output.LayerNorm"):
        moved = spreads(changed(times=((name, 2.0),)))
        first = name.startswith("layout_embeddings")
        assert np.all((moved > whole)[:2] == first)
        assert np.all((moved > whole)[2:] != first)


def test_any_token_is_bounded_as_one_token_is():
    for layer in changed().layers:
        for _, _, head in layer.heads():
            one, every = check_head(head, [Target(9), Target(9, retrieval="any")]).results
            assert one.ceiling.upper == every.ceiling.upper


def test_sizes_of_the_narrower_stream():
    found = changed()
    shapes = {
        n.rpartition("self.")[2]: open_checkpoint(DATA / "lilt").info(n).shape
        for layer in found.layers[:1]
        for n in layer.tensors
    }
    assert shapes["query.weight"] == (12, 12)
    assert shapes["layout_query.weight"] == shapes["layout_key.weight"] == (4, 4)
    assert found.learned_positions == 30
    with pytest.raises(CheckpointError, match=r"must have shape \(6, 6\)"):
        changed({"channel_shrink_ratio": 2})
    with pytest.raises(CheckpointError, match="channel_shrink_ratio must divide"):
        changed({"channel_shrink_ratio": 5})
    name = next(n for n in found.layers[0].tensors if n.endswith("layout_key.bias"))
    with pytest.raises(CheckpointError, match="layout_key"):
        changed(drop=(name,))
