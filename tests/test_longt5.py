"""LongT5: near keys, sums over blocks of tokens, and what T5's code makes of the rest."""

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.verdict import Target

DATA = mechanism_checks.DATA
ROUNDING = 2.0**-40
NEAR, SUMS = "LocalSelfAttention", "TransientGlobalSelfAttention"
TABLE = f"encoder.block.0.layer.0.{NEAR}.relative_attention_bias.weight"


def stored():
    checkpoint = open_checkpoint(DATA / "longt5")
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


def with_sums(seed=0, gain=1.0):
    """The checkpoint with sums over blocks beside near keys."""
    arrays, config = stored()
    rng = np.random.default_rng(seed)
    arrays = {n.replace(NEAR, SUMS): a for n, a in arrays.items()}
    width, heads = config["d_model"], config["num_heads"]
    for i in range(config["num_layers"]):
        root = f"encoder.block.{i}.layer.0."
        own = arrays[f"{root}layer_norm.weight"]
        norm = f"{root}{SUMS}.global_input_layer_norm.weight"
        arrays[norm] = (own * gain * np.sign(rng.standard_normal(width))).astype(np.float32)
    table = f"encoder.block.0.layer.0.{SUMS}.global_relative_attention_bias.weight"
    arrays[table] = rng.standard_normal((8, heads)).astype(np.float32)
    return arrays, config | {"encoder_attention_type": "transient-global"}


def heads(arrays, config):
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    return {(layer.layer, i): head for layer in found.layers for i, _, head in layer.heads()}


def spread(head):
    return check_head(head, [Target(9)]).spread.upper


def test_no_bound_lies_below_what_ascent_reached():
    mechanism_checks.check_all("longt5")


def test_bounds_are_the_sum_of_what_ascent_reached_and_the_biases_within_reach():
    """What was reached is without biases; of these a query meets those up to 6 tokens away."""
    arrays, config = stored()
    assert (config["local_radius"], config["relative_attention_max_distance"]) == (6, 20)
    table = arrays[TABLE].astype(float)
    assert table.shape == (8, 3)
    # Distances of up to 6 keep the last of four buckets of a direction, which begins at 7.
    apart = np.ptp(table[near_buckets()], axis=0)
    certified = mechanism_checks.certified("longt5")
    for n, layer, head, value in mechanism_checks.reached("longt5"):
        found, whole = certified[n, layer, head], value + apart[head]
        assert whole * (1 - ROUNDING) <= found.spread.upper
        assert found.spread.upper <= (value + np.ptp(table[:, head])) * 1.0001
        assert (found.window, found.spread.lower) == (7, 0.0)


def near_buckets():
    """Rows of the table that keys up to 6 away on either side have."""
    reached = {mechanism_checks.t5_bucket(d, 4, 20) for d in range(7)}
    return [b + 4 * side for b in reached for side in (0, 1)]


@pytest.mark.parametrize("gain", [0.25, 1.0, 3.0])
def test_sums_over_blocks_are_keys_behind_a_norm_of_their_own(gain):
    """As near keys where their gains are the same or smaller, in proportion where larger."""
    plain, (arrays, config) = heads(*stored()), with_sums(gain=gain)
    near = TABLE.replace(NEAR, SUMS)
    used = near_buckets()
    both = np.concatenate([arrays[near][used], arrays[near.replace("relative", "global_relative")]])
    own = stored()[0][TABLE][used].astype(float)
    both = both.astype(float)
    for (layer, index), head in heads(arrays, config).items():
        content = spread(plain[layer, index]) - np.ptp(own[:, index])
        expected = content * max(1.0, gain) + np.ptp(both[:, index])
        assert spread(head) == pytest.approx(expected, rel=1e-5)
        assert (head.window, head.reach) == (7, None)


def test_points_of_both_kinds_of_keys_lie_within_one_ball():
    arrays, config = with_sums()
    rng = np.random.default_rng(5)
    root = "encoder.block.1.layer.0."
    names = f"{root}layer_norm.weight", f"{root}{SUMS}.global_input_layer_norm.weight"
    weight = arrays[f"{root}{SUMS}.k.weight"].astype(float)
    ball = heads(arrays, config)[1, 0].key
    for name in names:
        arrays[name] = rng.standard_normal(config["d_model"]).astype(np.float32)
    ball = heads(arrays, config)[1, 0].key
    inner = ball.radius.upper * ball.matrix[:8]
    for name in names:
        states = rng.standard_normal((50, config["d_model"]))
        states *= np.sqrt(config["d_model"]) / np.linalg.norm(states, axis=1, keepdims=True)
        keys = (states * arrays[name].astype(float)) @ weight[:8].T
        u = np.linalg.lstsq(inner, keys.T)[0]
        assert np.linalg.norm(u, axis=0).max() <= 1 + ROUNDING


def test_decoders_and_what_they_make_of_the_encoder_are_those_of_t5():
    t5 = open_checkpoint(DATA / "t5__decoder")
    whole = {n: t5.read(n) for n in t5.names}
    kind = {"model_type": "longt5", "encoder_attention_type": "local", "local_radius": 3}
    longer = {n.replace("0.SelfAttention", f"0.{NEAR}") if n.startswith("encoder") else n: a
              for n, a in whole.items()}  # fmt: skip
    found = plan(from_arrays(longer, {**t5.config, **kind}))
    plain = plan(from_arrays(whole, t5.config))
    assert not found.refused
    for one, other in zip(found.layers, plain.layers, strict=True):
        near = one.module.endswith(NEAR)
        assert near == (one.module.startswith("encoder"))
        for (_, _, a), (_, _, b) in zip(one.heads(), other.heads(), strict=True):
            if near:
                assert (a.window, b.window) == (4, None)
            else:
                np.testing.assert_array_equal(a.key.matrix, b.key.matrix)
                assert a.causal == b.causal


def test_another_kind_of_attention_is_refused():
    arrays, config = stored()
    with pytest.raises(UnsupportedError, match="encoder_attention_type"):
        plan(from_arrays(arrays, config | {"encoder_attention_type": "sparse"}))
    with pytest.raises(CheckpointError, match="TransientGlobalSelfAttention"):
        plan(from_arrays(arrays, config | {"encoder_attention_type": "transient-global"}))
    arrays.pop(TABLE)
    with pytest.raises(CheckpointError, match="relative_attention_bias"):
        plan(from_arrays(arrays, config))
