"""Dispersion exponents and predictions: exact laws, coverage by simulation, streamed statistics."""

import math

import numpy as np
import pytest

from dispersion import ArgumentError, Enclosure, Estimate
from dispersion.measure import layer_statistics
from dispersion.measure.lengths import DAMPED, RECENT, dispersion_exponent, predict

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
    for estimate, part in ((ahead.value, 1.0), (ahead.damped, DAMPED["log_odds"])):
        further = values[-1] - part * clipped * math.log(8)
        assert estimate.value == pytest.approx(1 / (1 + math.exp(-further)), rel=1e-12)
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


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.45])
def test_the_prediction_interval_covers_the_next_document(gamma):
    rng = np.random.default_rng(2)
    trials, level, inside = 400, 0.9, 0
    for _ in range(trials):
        data = documents(rng, 8, gamma, noise=0.1)
        ahead = predict(LENGTHS[:3], data[:7, :3], 512, level=level)
        truth = 1 / (1 + math.exp(-data[7, 3]))
        inside += ahead.lower.value <= truth <= ahead.upper.value
    # The interval holds every slope from none to the whole one: it may cover more often.
    assert inside / trials >= level - 4 * math.sqrt(level * (1 - level) / trials)


def test_an_interval_of_many_documents_is_not_the_whole_range():
    ahead = predict(LENGTHS, documents(np.random.default_rng(5), 12, 0.3, noise=0.1), 4096)
    assert 0.1 < ahead.lower.value < ahead.value.value < ahead.upper.value < 0.98


def test_only_the_last_lengths_decide_the_slope():
    lengths = [32, 64, 128, 256, 512]
    values = [9.0, 3.0, 2.5, 2.0, 1.5]
    steep, even = predict(lengths, values, 4096), predict(lengths[1:], values[1:], 4096)
    assert RECENT == 4
    assert steep == even
    shuffled = [4, 0, 2, 1, 3]
    again = predict([lengths[i] for i in shuffled], [values[i] for i in shuffled], 4096)
    assert again.value == steep.value
    assert again.constant == steep.constant


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
    further = values[-1] + DAMPED["entropy"] * 0.6 * math.log(8)
    assert ahead.damped.value == pytest.approx(further, rel=1e-12)
    assert ahead.constant.value == pytest.approx(values[-1])
    assert ahead.dispersed.value == pytest.approx(values[-1] + math.log(8))
    assert (ahead.lower.value, ahead.upper.value) == (0.0, math.log(4096))
    steep = predict(LENGTHS, 3 * np.log(LENGTHS), 4096, quantity="entropy")
    assert steep.value.value == math.log(4096)  # no row has more
    falling = predict(LENGTHS, 5 - 0.2 * np.log(LENGTHS), 4096, quantity="entropy")
    assert falling.value.value == falling.constant.value


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
