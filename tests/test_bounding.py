import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispersion import errors, rigor
from dispersion.bounding import Row, bound_row


def found(**numbers) -> dict[str, float]:
    return {each.name: each.value for each in bound_row(Row(**numbers)).statements}


def test_each_pair_of_numbers_gives_the_third():
    assert found(length=32768, spread=10.0)["ceiling"] == pytest.approx(0.40199073877)
    assert found(length=32768, spread=10.0)["published_ceiling"] == pytest.approx(0.67219439065)
    assert found(length=1000, spread=8.0)["entropy"] == pytest.approx(1.995063, rel=1e-6)
    assert found(length=32768, coefficient=0.5) == {
        "required_spread": rigor.required_spread(32768, 0.5).lower
    }
    assert found(spread=10.0, coefficient=0.5) == {"reachable_length": 22027.0}


def test_a_temperature_stretches_every_number():
    assert found(length=99, spread=6.0, temperature=2.0) == found(length=99, spread=3.0)
    warm = found(length=99, coefficient=0.5, temperature=2.0)
    assert warm["required_spread"] == 2 * found(length=99, coefficient=0.5)["required_spread"]


@settings(max_examples=30)
@given(
    st.integers(3, 10**6), st.floats(0.5, 30), st.floats(0.05, 0.95), st.sampled_from([None, 9.0])
)
def test_the_temperature_found_is_the_highest(length, spread, p, cap):
    row = Row(length=length, spread=spread, coefficient=p, soft_cap=cap)
    highest = found(length=length, spread=spread, coefficient=p, soft_cap=cap)["temperature"]
    if p <= 1 / length:
        assert highest == math.inf
        return
    verdicts = [
        bound_row(dataclasses.replace(row, temperature=highest * factor)).verdict
        for factor in (0.999, 1.0, 1.001)
    ]
    assert verdicts == ["reached", "ruled_out", "ruled_out"]


def test_the_spread_needed_before_a_cap_is_the_cap_turned_back():
    numbers = {"length": 32768, "coefficient": 0.5, "soft_cap": 10.0}
    before = found(**numbers)["required_spread_before_cap"]
    after = found(**numbers)["required_spread"]
    assert rigor.capped_spread(before, 10.0).upper == pytest.approx(after, rel=1e-9)
    assert rigor.capped_spread(before, 10.0).lower < after
    assert found(**{**numbers, "soft_cap": 5.0})["required_spread_before_cap"] == math.inf


def test_a_norm_bounds_through_its_own_theorem():
    both = found(length=2**20, norm=12.0, spread=30.0)
    alone = found(length=2**20, norm=12.0)
    assert both["ceiling"] == alone["ceiling"] == rigor.norm_max_coefficient(2**20, 12.0).upper
    assert both["entropy"] == alone["entropy"] == rigor.norm_min_entropy(2**20, 12.0).lower
    longest = int(found(norm=12.0, coefficient=0.3)["reachable_length"])
    assert rigor.norm_max_coefficient(longest, 12.0).upper >= 0.3
    assert rigor.norm_max_coefficient(longest + 1, 12.0).upper < 0.3


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"spread": 10.0}, "ruled_out"),
        ({"spread": 11.0}, "reached"),
        ({"spread": 10.0, "items": 2}, "reached"),
        ({"soft_cap": 5.0}, "ruled_out"),
        ({"soft_cap": 6.0}, "reached"),
        ({"norm": 11.0}, "reached"),
        ({"norm": 10.0}, "ruled_out"),
        ({"norm": 11.0, "spread": 11.0}, "not_ruled_out"),
    ],
)
def test_all_three_numbers_give_a_verdict(numbers, verdict):
    assert bound_row(Row(length=32768, coefficient=0.5, **numbers)).verdict == verdict


def test_a_verdict_takes_all_three():
    assert bound_row(Row(length=32768, spread=10.0)).verdict is None


def test_without_a_cap_or_spread_nothing_is_said_about_half():
    assert found(length=2, spread=0.0, coefficient=0.5)["temperature"] == math.inf
    assert found(length=3, spread=0.0, coefficient=0.5)["temperature"] == 0.0


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, "at least two"),
        ({"length": 8}, "at least two"),
        ({"coefficient": 0.5}, "at least two"),
        ({"spread": 1.0, "norm": 1.0, "soft_cap": 1.0}, "at least two"),
        ({"length": 4, "spread": 1.0, "items": 5}, "items must not exceed length"),
        ({"coefficient": 1.0, "spread": 1.0}, "target must lie"),
        ({"length": 4, "spread": -1.0}, "spread must be 0 or more"),
        ({"length": 4, "spread": math.nan}, "spread must be 0 or more"),
        ({"length": 4, "norm": -1.0}, "norm must be 0 or more"),
        ({"length": 4, "spread": 1.0, "temperature": 0.0}, "temperature must be positive"),
        ({"length": 4, "soft_cap": 0.0}, "soft-cap must be positive"),
        ({"length": 4, "norm": 1.0, "items": 2}, "one item"),
    ],
)
def test_rows_without_meaning_are_refused(numbers, words):
    with pytest.raises(errors.ArgumentError) as caught:
        Row(**numbers)
    assert words in str(caught.value)
