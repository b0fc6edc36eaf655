"""SAM's image encoder: windows, padding, and tables that queries are multiplied by."""

from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.architectures.sam import widest
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.norms import projection_ball
from dispersion.spread import spread_bound
from dispersion.verdict import Target

DATA = mechanism_checks.DATA
NAME = "sam_vision_model"
ROUNDING = 2.0**-40


def stored():
    checkpoint = open_checkpoint(DATA / NAME)
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


def heads(arrays, config):
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    return [(layer, index, head) for layer in found.layers for index, _, head in layer.heads()]


def spread(head):
    return check_head(head, [Target(9)]).spread.upper


def some_ball(seed, bias=True):
    rng = np.random.default_rng(seed)
    weight, gain = rng.standard_normal((4, 10)), np.exp(0.4 * rng.standard_normal(10))
    shift = rng.standard_normal(10) if bias else None
    return projection_ball(weight, norm="layer", gain=gain, norm_bias=shift)


@pytest.mark.parametrize("bias", [True, False])
def test_the_widest_difference_is_attained_by_a_query(bias):
    for seed in range(6):
        ball = some_ball(seed, bias)
        table = np.random.default_rng(seed + 50).standard_normal((9, 4))
        image = ball.radius.upper * ball.matrix
        for near in (1, 4, 8, 30):
            best = 0.0
            for i in range(9):
                for j in range(9):
                    apart = table[i] - table[j]
                    if 0 < abs(i - j) <= near:
                        line = 0.0 if ball.offset is None else float(ball.offset @ apart)
                        best = max(best, float(np.linalg.norm(apart @ image)) + line)
            found = widest(ball, table, near)
            assert best * (1 - ROUNDING) <= found <= best * (1 + 1e-11)
    assert widest(some_ball(0), table[:1], 3) == 0.0


def test_errors_of_the_ball_widen_it():

    ball = some_ball(3)
    table = np.random.default_rng(1).standard_normal((5, 4))
    plain = widest(ball, table, 4)
    error = np.full(4, 0.01)
    for wrong in (replace(ball, row_error=error), replace(ball, offset_error=error)):
        assert widest(wrong, table, 4) > plain + 0.01


def test_no_bound_lies_below_what_ascent_reached():
    """What was reached is without tables and padding."""
    mechanism_checks.check_all(NAME)
    arrays, config = stored()
    reached = {(layer, h): value for n, layer, h, value in mechanism_checks.reached(NAME) if n == 8}
    for (layer, index, head), (_, _, whole) in zip(bare(), heads(arrays, config), strict=True):
        value = reached[layer.layer, index]
        # Padding adds a little in windows, and nothing where the whole image is seen.
        most = 1.05 if layer.layer == 0 else 1.0001
        assert value * (1 - ROUNDING) <= spread(head) <= most * value
        assert spread(whole) > spread(head)
        assert not whole.common


def bare():
    """The heads without tables."""
    arrays, config = stored()
    kept = {n: a for n, a in arrays.items() if "rel_pos" not in n}
    return heads(kept, config | {"use_rel_pos": False})


def test_rows_of_real_queries_stay_below_the_bound():
    """The best keys for a query, at the ways of one place, as the real module reads its tables."""
    arrays, config = stored()
    rng = np.random.default_rng(0)
    for (layer, _, plain), (_, _, head) in zip(bare(), heads(arrays, config), strict=True):
        side = 3 if layer.layer == 0 else 4
        tables = [arrays[f"{layer.module}.rel_pos_{way}"].astype(float) for way in "hw"]
        query, key = plain.query, plain.key
        best = 0.0
        for _ in range(300):
            u = rng.standard_normal(query.matrix.shape[1])
            q = query.radius.upper * query.matrix @ (u / np.linalg.norm(u)) + query.offset
            content = 2 * np.linalg.norm(key.matrix.T @ q) * key.radius.upper * plain.scale.upper
            apart = [
                max(np.ptp(t[y - np.arange(side) + side - 1] @ q) for y in range(side))
                for t in tables
            ]
            best = max(best, content + sum(apart))
        assert 0.5 * spread(head) < best < spread(head)


def test_windows_and_whole_images():
    arrays, config = stored()
    found = plan(from_arrays(arrays, config)).layers
    assert [layer.window for layer in found] == [9, None]
    assert [len([n for n in layer.tensors if "rel_pos" in n]) for layer in found] == [2, 2]
    with pytest.raises(CheckpointError, match=r"must have shape \(5, 8\)"):
        plan(from_arrays(arrays, config | {"global_attn_indexes": []}))
    with pytest.raises(CheckpointError, match=r"must have shape \(7, 8\)"):
        plan(from_arrays(arrays, config | {"window_size": 0}))
    for wrong in (3, [1.5], ["x"]):
        with pytest.raises(CheckpointError, match="global_attn_indexes"):
            plan(from_arrays(arrays, config | {"global_attn_indexes": wrong}))


def test_padding_counts_in_windows_alone():
    arrays, config = stored()
    for name in list(arrays):
        if name.endswith("layer_norm1.bias"):
            arrays[name] = arrays[name] * np.float32(20)
    sizes = [head.key.matrix.shape[1] for _, _, head in heads(arrays, config)]
    # A column for the bounded term, and one for the zeros.
    assert sizes == [config["hidden_size"] + 2] * 2 + [config["hidden_size"] + 1] * 2


def test_a_whole_model_has_its_mask_decoder_refused():
    arrays, config = stored()
    more = {
        "mask_decoder.transformer.layers.0.self_attn.q_proj.weight": np.ones((4, 4), np.float32),
        "prompt_encoder.shared_embedding.positional_embedding": np.ones((2, 2), np.float32),
    }
    outer = {"model_type": "sam", "vision_config": config}
    found = plan(from_arrays(arrays | more, outer))
    assert len(found.layers) == 2
    assert [r.name for r in found.refused] == ["mask_decoder.transformer.layers.*.self_attn"]
    assert found.model["model_type"] == "sam"
    with pytest.raises(CheckpointError, match="vision_config"):
        plan(from_arrays(arrays, {"model_type": "sam"}))


def test_the_spread_is_that_of_content_and_tables():
    arrays, config = stored()
    for _, _, head in heads(arrays, config):
        assert spread_bound(head).spread == pytest.approx(spread(head), rel=1e-12)
        one, every = check_head(head, [Target(9), Target(9, retrieval="any")]).results
        assert one.ceiling.upper == every.ceiling.upper
