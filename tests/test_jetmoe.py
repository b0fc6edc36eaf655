"""JetMoE: the queries of all experts as heads, whatever a router picks."""

import json

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import CheckpointError
from dispersion.verdict import Target

DATA = mechanism_checks.DATA
EXPERTS = "model.layers.0.self_attention.experts.input_linear.weight"


def stored():
    checkpoint = open_checkpoint(DATA / "jetmoe")
    return {n: checkpoint.read(n) for n in checkpoint.names}, dict(checkpoint.config)


def heads(arrays, config):
    found = plan(from_arrays(arrays, config))
    assert not found.refused
    return [(kv, head) for layer in found.layers[:1] for _, kv, head in layer.heads()]


@pytest.mark.parametrize("offsets", ["free", "exact"])
def test_no_bound_lies_below_what_ascent_reached_with_any_expert(offsets):
    mechanism_checks.check_reached("jetmoe", offsets)


def test_bounds_are_near_what_free_angles_reach():
    record = json.loads((DATA / "jetmoe" / "adversarial.json").read_text())
    certified = mechanism_checks.certified("jetmoe")
    for h in record["heads"]:
        found = certified[8, h["layer"], h["head"]]
        assert h["free_phase"] * (1 - 2.0**-40) <= found.spread.upper <= 1.02 * h["free_phase"]
        assert found.spread.lower == 0  # the router need not pick that expert


def test_an_experts_rows_make_its_heads_and_no_others():
    arrays, config = stored()
    plain = heads(arrays, config)
    assert [kv for kv, _ in plain] == [0, 0, 0, 1, 1, 1]
    size = config["kv_channels"]
    for expert in range(3):
        for kv in range(2):
            moved = dict(arrays)
            moved[EXPERTS] = arrays[EXPERTS].copy()
            moved[EXPERTS][expert, kv * size : (kv + 1) * size] *= 2
            ratios = [
                check_head(new, [Target(8)]).spread.upper
                / check_head(old, [Target(8)]).spread.upper
                for (_, old), (_, new) in zip(plain, heads(moved, config), strict=True)
            ]
            expected = np.ones(6)
            expected[3 * kv + expert] = 2.0
            np.testing.assert_allclose(ratios, expected, rtol=0.01)


def test_keys_come_before_values():
    arrays, config = stored()
    plain = [head.key.matrix for _, head in heads(arrays, config)]
    name = "model.layers.0.self_attention.kv_proj.weight"
    arrays[name] = arrays[name].copy()
    arrays[name][len(arrays[name]) // 2 :] = 7.0
    for old, (_, head) in zip(plain, heads(arrays, config), strict=True):
        np.testing.assert_array_equal(old, head.key.matrix)


def test_older_configs_and_wrong_ones():
    arrays, config = stored()
    plain = heads(arrays, config)
    old = {k: v for k, v in config.items() if k != "rope_parameters"} | {"rope_theta": 40000.0}
    for (_, one), (_, other) in zip(plain, heads(arrays, old), strict=True):
        np.testing.assert_array_equal(one.rotary.frequencies, other.rotary.frequencies)
    with pytest.raises(CheckpointError, match=r"must have shape \(4, 16, 16\)"):
        plan(from_arrays(arrays, config | {"num_local_experts": 4}))
    arrays[EXPERTS] = arrays[EXPERTS].copy()
    arrays[EXPERTS][2, 9, 1] = np.nan
    with pytest.raises(CheckpointError, match=r"input_linear\.weight\[2\]"):
        heads(arrays, config)
