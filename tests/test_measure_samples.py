"""Tolerance limits (T16) keep their confidence in simulation; correlations and their intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from dispersion import ArgumentError
from dispersion.measure.samples import correlation, tolerance_limit


def kept(rng, draw, tail, documents, share, confidence, trials, shift=0):
    """How often the share of documents beyond the limit stays within what is allowed."""
    good = 0
    for _ in range(trials):
        values = draw(rng, documents)
        found = tolerance_limit(values, share=share, confidence=confidence)
        limit = np.sort(values)[::-1][found.rank - 1 + shift]
        assert shift or limit == found.limit.value
        good += tail(limit) <= share
    return good / trials


DISTRIBUTIONS = {
    "normal": (lambda rng, m: rng.normal(size=m), stats.norm.sf),
    "heavy": (lambda rng, m: rng.standard_cauchy(m), stats.cauchy.sf),
    "ties": (lambda rng, m: rng.poisson(3.0, m).astype(float), lambda c: stats.poisson.sf(c, 3.0)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(("documents", "share"), [(299, 0.01), (800, 0.01), (60, 0.1)])
def test_a_limit_keeps_its_confidence(name, documents, share):
    draw, tail = DISTRIBUTIONS[name]
    trials, confidence = 1000, 0.95
    rng = np.random.default_rng(documents)
    good = kept(rng, draw, tail, documents, share, confidence, trials)
    assert good >= confidence - 4 * math.sqrt(confidence * (1 - confidence) / trials)


def test_the_next_rank_would_not_keep_it():
    draw, tail = DISTRIBUTIONS["normal"]
    rng = np.random.default_rng(0)
    assert kept(rng, draw, tail, 299, 0.01, 0.95, 500, shift=1) < 0.9  # 0.80 by T16


def test_rows_of_one_document_depend_on_each_other():
    """Document maxima keep the statement about rows; all rows as units do not."""
    rng = np.random.default_rng(1)
    share, trials = 0.1, 400
    by_document = by_row = 0
    for _ in range(trials):
        # Rows of a document are all the same number: the extreme of dependence.
        documents = rng.normal(size=40)
        rows = np.repeat(documents, 50)
        by_document += stats.norm.sf(tolerance_limit(documents, share=share).limit.value) <= share
        by_row += stats.norm.sf(tolerance_limit(rows, share=share).limit.value) <= share
    assert by_document / trials >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / trials)
    assert by_row / trials < 0.9


def test_the_sizes_that_a_limit_takes():
    assert tolerance_limit(np.arange(299.0)).rank == 1
    with pytest.raises(ArgumentError, match=r"at least 299 documents .* Got 298"):
        tolerance_limit(np.arange(298.0))
    found = tolerance_limit(np.arange(1000.0), share=0.05)
    # P(Bin(1000, .05) ≥ k) by definition.
    assert found.attained == pytest.approx(1 - stats.binom.cdf(found.rank - 1, 1000, 0.05))
    assert 1 - stats.binom.cdf(found.rank, 1000, 0.05) < 0.95 <= found.attained
    assert found.limit.value == 1000 - found.rank
    assert found.next_exceeds == found.rank / 1001
    assert (
        str(found) == f"at 95% confidence at most 0.05 of documents exceed ≈{found.limit.value:g}"
    )


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ([[1.0]], {}, "values must be one row"),
        ([math.nan], {}, "values must be one row of numbers, none of them nan"),
        ([1.0], {"share": 0.0}, "share must lie"),
        ([1.0], {"confidence": 1.0}, "confidence must lie"),
        ([], {}, "at least 299"),
    ],
)
def test_what_a_limit_refuses(values, options, words):
    with pytest.raises(ArgumentError, match=words):
        tolerance_limit(values, **options)


def test_correlations_are_those_of_scipy():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 6, 40).astype(float)
    y = x + rng.normal(size=40).round()
    found = correlation(x, y, resamples=200)
    assert found.r_squared.value.value == pytest.approx(stats.pearsonr(x, y).statistic ** 2)
    assert found.rank.value.value == pytest.approx(stats.spearmanr(x, y).statistic)
    again = correlation(x, y, resamples=200)
    assert again == found
    assert correlation(x, -np.exp(x), resamples=50).rank.value.value == pytest.approx(-1.0)


def test_bootstrap_intervals_cover_roughly_what_they_say():
    rng = np.random.default_rng(3)
    truth, trials, inside = 0.6, 100, 0
    for _ in range(trials):
        x = rng.normal(size=80)
        y = truth * x + math.sqrt(1 - truth**2) * rng.normal(size=80)
        found = correlation(x, y, level=0.9, resamples=100).r_squared
        inside += found.lower.value <= truth**2 <= found.upper.value
    # A percentile interval is only asymptotically exact: a tenth below its level at 80 pairs.
    assert 0.8 <= inside / trials <= 0.97


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], {}, "pair up at least 3"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], {}, "pair up"),
        ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], {}, "x must hold finite numbers"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, math.inf], {}, "y must hold finite numbers"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], {"level": 0.0}, "level must lie"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], {"resamples": 0}, "resamples must be"),
    ],
)
def test_what_a_correlation_refuses(x, y, options, words):
    with pytest.raises(ArgumentError, match=words):
        correlation(x, y, **options)
