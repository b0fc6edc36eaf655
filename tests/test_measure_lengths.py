"""Dispersion exponents and predictions: exact laws, coverage by simulation, streamed statistics."""

import math

import numpy as np
import pytest

from dispersion import ArgumentError, Enclosure, Estimate
from dispersion.measure import layer_statistics
from dispersion.measure.lengths import dispersion_exponent, predict

LENGTHS = np.array([64, 128, 256, 512])


def documents(rng, count, gamma, noise=0.3):
    """Log odds of documents that differ in level, slope and by noise."""
    level = rng.normal(2.0, 0.5, (count, 1))
    slope = gamma + rng.normal(0, 0.1, (count, 1))
    return level - slope * np.log(LENGTHS / 64) + noise * rng.normal(size=(count, len(LENGTHS)))


@pytest.mark.parametrize("gamma", [-0.2, 0.0, 0.45, 1.0, 1.3])
def test_an_exact_law_is_found_and_continued(gamma):
    values = 1.5 - gamma * np.log(LENGTHS)
    found = dispersion_exponent(LENGTHS, values)
    assert found.units == "lengths"
    assert found.value.value == pytest.approx(gamma, abs=1e-12)
    assert found.upper.value - found.lower.value < 1e-10
    ahead = predict(LENGTHS, values, 4096)
    clipped = min(max(gamma, 0), 1)
    # A line held to another slope goes through the middle of the data.
    middle = values.mean() - clipped * (math.log(4096) - np.log(LENGTHS).mean())
    assert ahead.value.value == pytest.approx(1 / (1 + math.exp(-middle)), rel=1e-12)
    assert ahead.constant.value == pytest.approx(1 / (1 + math.exp(-values[-1])), rel=1e-12)
    odds = math.exp(values[-1]) / 8
    assert ahead.dispersed.value == pytest.approx(odds / (1 + odds), rel=1e-12)


def test_equal_logits_have_exponent_one():
    n = 300
    q, k = np.zeros((1, n, 4), np.float32), np.zeros((1, n, 4), np.float32)
    rows = layer_statistics(q, k, positions=range(1, n)).chosen
    # p = 1/n: the odds are exactly 1/(n-1).
    np.testing.assert_allclose(rows.log_odds[0], -np.log(rows.items[0] - 1), atol=1e-6)
    late = rows.items[0] >= 100
    found = dispersion_exponent(rows.items[0][late], rows.log_odds[0][late])
    assert found.value.value == pytest.approx(1.0, abs=0.02)


def test_the_interval_covers_the_exponent_as_often_as_it_says():
    rng = np.random.default_rng(0)
    trials, level, inside = 600, 0.9, 0
    for _ in range(trials):
        found = dispersion_exponent(LENGTHS, documents(rng, 6, 0.45), level=level)
        inside += found.lower.value <= 0.45 <= found.upper.value
    # Slopes are exactly normal here, so that coverage is exact: four standard errors.
    assert abs(inside / trials - level) <= 4 * math.sqrt(level * (1 - level) / trials)


def test_the_interval_of_one_document_takes_lengths_for_independent():
    rng = np.random.default_rng(1)
    trials, level, inside = 600, 0.9, 0
    for _ in range(trials):
        values = 1 - 0.45 * np.log(LENGTHS) + rng.normal(size=4)
        found = dispersion_exponent(LENGTHS, values, level=level)
        inside += found.lower.value <= 0.45 <= found.upper.value
    assert abs(inside / trials - level) <= 4 * math.sqrt(level * (1 - level) / trials)
    two = dispersion_exponent([64, 128], [1.0, 0.5])
    assert (two.lower.value, two.upper.value) == (-math.inf, math.inf)


def test_the_prediction_interval_covers_the_next_document():
    rng = np.random.default_rng(2)
    trials, level, inside = 600, 0.9, 0
    for _ in range(trials):
        data = documents(rng, 8, 0.45, noise=0.1)
        ahead = predict(LENGTHS, data[:7], 512, level=level)
        # The next document, continued by its own line: what noise hides is not predicted.
        x = np.log(LENGTHS)
        slope, start = np.polyfit(x, data[7], 1)
        truth = 1 / (1 + math.exp(-(start + slope * math.log(512))))
        inside += ahead.lower.value <= truth <= ahead.upper.value
    assert abs(inside / trials - level) <= 4 * math.sqrt(level * (1 - level) / trials)


def test_prediction_beats_both_baselines_where_the_law_holds():
    rng = np.random.default_rng(3)
    errors = np.zeros(3)
    for _ in range(200):
        data = documents(rng, 4, rng.uniform(0.2, 0.8), noise=0.1)
        ahead = predict(LENGTHS[:3], data[:, :3], 512)
        truth = 1 / (1 + math.exp(-data[:, 3].mean()))
        guesses = [ahead.value, ahead.constant, ahead.dispersed]
        errors += [abs(guess.value - truth) for guess in guesses]
    assert errors[0] < 0.5 * errors[1:].min()


def test_entropy_rises_with_log_length_and_stays_possible():
    values = 0.5 + 0.6 * np.log(LENGTHS)
    ahead = predict(LENGTHS, values, 4096, quantity="entropy")
    assert ahead.value.value == pytest.approx(0.5 + 0.6 * math.log(4096), rel=1e-12)
    assert ahead.constant.value == pytest.approx(values[-1])
    assert ahead.dispersed.value == pytest.approx(values[-1] + math.log(8))
    assert (ahead.lower.value, ahead.upper.value) == (0.0, math.log(4096))
    steep = predict(LENGTHS, 3 * np.log(LENGTHS), 4096, quantity="entropy")
    assert steep.value.value == math.log(4096)
    falling = predict(LENGTHS, 5 - 0.2 * np.log(LENGTHS), 4096, quantity="entropy")
    assert falling.value.value == pytest.approx((5 - 0.2 * np.log(LENGTHS)).mean())


def test_nothing_calls_itself_an_enclosure():
    found = dispersion_exponent(LENGTHS, documents(np.random.default_rng(4), 3, 0.5))
    ahead = predict(LENGTHS, documents(np.random.default_rng(4), 3, 0.5), 1024)
    for value in (found.value, found.lower, ahead.value, ahead.constant, ahead.dispersed):
        assert isinstance(value, Estimate)
        assert not isinstance(value, Enclosure)
    assert str(found).count("≈") == 3


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([64, 64], [1.0, 1.0], 128), {}, "lengths must hold at least two different"),
        (([1, 64], [1.0, 1.0], 128), {}, "lengths must hold at least two different"),
        (([64, 128], [1.0], 128), {}, r"values must have shape \(documents, 2\)"),
        (([64, 128], [1.0, math.inf], 128), {}, "values must be finite"),
        (([64, 128], [1.0, 2.0], 1), {}, "length must be a whole number of at least 2"),
        (([64, 128], [1.0, 2.0], 256), {"quantity": "mass"}, "quantity must be"),
        (([64, 128], [1.0, 2.0], 256), {"level": 1.0}, "level must lie"),
    ],
)
def test_what_is_refused(arguments, options, words):
    with pytest.raises(ArgumentError, match=words):
        predict(*arguments, **options)
