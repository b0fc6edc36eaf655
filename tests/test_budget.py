"""`dispersion.budget`: the caps of T11 hold for every pair of tokens and are attained."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from dispersion import ArgumentError
from dispersion.budget import layerwise_budget
from dispersion.enclosure import Enclosure

ROUNDING = 2.0**-44  # a float evaluation of sums over some hundred coordinates
GROUPS = [(1,), (4,), (1, 1, 1), (4, 4), (2,) * 8, (3, 1), (5, 1, 1), (1, 6, 2)]


def moduli(queries, keys, groups):
    """|logit| of every head after layerwise RMS norm with unit gains.

    queries: (H, d) for one token; keys: (H, H_kv, d), one token for each head, or (H_kv, d).
    """
    d = queries.shape[-1]
    queries = queries * math.sqrt(queries.size) / np.linalg.norm(queries)
    keys = np.broadcast_to(keys, (sum(groups), len(groups), d))
    sizes = np.sqrt(np.sum(keys**2, axis=(1, 2), keepdims=True) / (len(groups) * d))
    keys = keys / sizes
    owner = np.repeat(np.arange(len(groups)), groups)
    own = keys[np.arange(sum(groups)), owner]
    return np.abs(np.sum(queries * own, axis=1)) / math.sqrt(d)


@settings(max_examples=200)
@given(
    groups=st.sampled_from(GROUPS),
    d=st.sampled_from([1, 2, 16]),
    aligned=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**20),
)
def test_no_pair_of_tokens_exceeds_the_budget(groups, d, aligned, seed):
    rng = np.random.default_rng(seed)
    heads, budget = sum(groups), layerwise_budget(groups, d)
    owner = np.repeat(np.arange(len(groups)), groups)
    keys = rng.standard_normal((len(groups), d)) * 10 ** rng.uniform(-2, 2, (len(groups), 1))
    queries = aligned * keys[owner] + (1 - aligned) * rng.standard_normal((heads, d))
    found = moduli(queries, keys, groups)
    assert found.sum() <= budget.total.upper * (1 + ROUNDING)
    assert found.mean() <= budget.mean.upper * (1 + ROUNDING)
    assert found.max() <= budget.single.upper * (1 + ROUNDING)
    target(found.sum() / budget.total.upper)
    apart = np.zeros((heads, len(groups), d))
    apart[np.arange(heads), owner] = queries
    assert moduli(queries, apart, groups).sum() <= budget.apart.upper * (1 + ROUNDING)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("d", [1, 16])
def test_every_cap_is_attained(groups, d):
    budget, heads = layerwise_budget(groups, d), sum(groups)
    owner = np.repeat(np.arange(len(groups)), groups)
    e = np.eye(d)[0]
    largest = int(np.argmax(groups))
    # All norm in the largest group, shared evenly within it.
    keys = np.zeros((len(groups), d))
    keys[largest] = e
    queries = np.outer(owner == largest, e)
    total = moduli(queries, keys, groups).sum()
    assert total == pytest.approx(budget.total.upper, rel=ROUNDING)
    assert total / heads == pytest.approx(budget.mean.upper, rel=ROUNDING)
    # One head takes everything.
    alone = np.zeros((heads, d))
    alone[0] = e
    keys = np.zeros((len(groups), d))
    keys[owner[0]] = e
    assert moduli(alone, keys, groups).max() == pytest.approx(budget.single.upper, rel=ROUNDING)
    # Every head its own key token, whose norm lies in that head's group.
    apart = np.zeros((heads, len(groups), d))
    apart[np.arange(heads), owner] = e
    found = moduli(np.tile(e, (heads, 1)), apart, groups).sum()
    assert found == pytest.approx(budget.apart.upper, rel=ROUNDING)


def test_equal_groups_cap_the_mean_at_what_headwise_norm_allows():
    for groups, d in [((4,) * 8, 64), ((1,) * 3, 16), ((12,), 256)]:
        budget = layerwise_budget(groups, d)
        assert math.sqrt(d) in budget.mean
        assert sum(groups) * math.sqrt(d) in budget.total
        assert budget.mean.upper - budget.mean.lower <= 2 * math.ulp(math.sqrt(d))
        assert math.sqrt(sum(groups) * len(groups)) * math.sqrt(d) in budget.single
    assert layerwise_budget((2, 2), 16).total == Enclosure(16.0, 16.0)


def test_unequal_groups_cost_more_than_the_headwise_mean():
    assert layerwise_budget((3, 1), 16).mean.lower > 4
    assert layerwise_budget((3, 1), 16).total.upper == pytest.approx(math.sqrt(3 * 4 * 2 * 16))


def test_gain_and_scale_multiply():
    plain = layerwise_budget((2, 2), 16)
    gained = layerwise_budget((2, 2), 16, gain=Enclosure(1.5, 3.0), scale=0.25)
    for name in ("total", "mean", "single", "apart"):
        assert getattr(gained, name).upper == pytest.approx(3 * getattr(plain, name).upper)
        assert getattr(gained, name).lower == pytest.approx(1.5 * getattr(plain, name).lower)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (((), 16), {}, "groups must have an entry"),
        (((0, 2), 16), {}, "groups must be a whole number of at least 1. Got 0"),
        (((2,), 1.5), {}, "head_dim must be a whole number"),
        (((2,), 4), {"gain": -1.0}, "scale must be 0 or more"),
        (((2,), 4), {"scale": math.inf}, "scale must be 0 or more and finite"),
    ],
)
def test_a_broken_rule_is_named(arguments, keywords, message):
    with pytest.raises(ArgumentError, match=message):
        layerwise_budget(*arguments, **keywords)
