"""Certified λ_max, semidefiniteness and norms against rational arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.cholesky import (
    completes,
    eigenvalue_defect,
    gamma,
    is_positive_semidefinite,
    lambda_max_upper,
    norm_upper,
)
from dispersion.errors import ArgumentError
from head_checks import check_lambda_max
from matrix_truth import bounds_lambda, fraction, is_semidefinite, rational


@st.composite
def symmetric(draw, largest=6):
    """Symmetric matrices with entries over 300 decades, some of rank one, some zero."""
    size = draw(st.integers(1, largest))
    entries = st.floats(-1.0, 1.0) | st.sampled_from([0.0, 1.0, -1.0])
    decades = draw(st.sampled_from([0, 3, 40, 70]))
    scales = 10.0 ** np.array(
        draw(st.lists(st.floats(-decades, decades), min_size=size, max_size=size))
    )
    columns = draw(st.integers(1, size))
    x = np.array(draw(st.lists(entries, min_size=size * columns, max_size=size * columns)))
    x = x.reshape(size, columns) * scales[:, None]
    matrix = x @ x.T
    if draw(st.booleans()):
        matrix = matrix - np.diag(draw(st.floats(0.0, 2.0)) * np.diag(matrix))
    return np.tril(matrix) + np.tril(matrix, -1).T


def test_the_bound_holds_exactly_and_tightly():
    check_lambda_max()


@given(symmetric())
def test_no_symmetric_matrix_has_a_larger_eigenvalue(matrix):
    got = lambda_max_upper(matrix)
    assert bounds_lambda(rational(matrix), fraction(got))


@given(symmetric(), st.floats(0.0, 1e3))
def test_an_error_moves_the_bound_by_no_less(matrix, error):
    got = lambda_max_upper(matrix, error)
    assert bounds_lambda(rational(matrix), fraction(got) - fraction(error))


@given(symmetric(), st.floats(-2.0, 2.0))
def test_any_guess_is_safe(matrix, guess):
    top = float(np.abs(matrix).max())
    got = lambda_max_upper(matrix, guess=guess * top)
    assert bounds_lambda(rational(matrix), fraction(got))


@given(symmetric(), st.sampled_from([0.0, 1e-16, 1e-13, 1e-8, 1e-2]))
def test_what_is_called_semidefinite_is(matrix, shift):
    top = float(np.abs(matrix).max())
    trial = matrix + shift * top * np.eye(len(matrix))
    if is_positive_semidefinite(trial, 0.0):
        assert is_semidefinite(rational(trial))


@given(symmetric())
def test_semidefinite_stays_so_under_the_stated_error(matrix):
    top = float(np.abs(matrix).max())
    error = 1e-3 * top
    trial = matrix + 2e-3 * top * np.eye(len(matrix))
    if is_positive_semidefinite(trial, error):
        assert is_semidefinite(rational(trial - error * np.eye(len(matrix)) * (1 - 1e-9)))


@given(symmetric())
def test_completed_factorisations_miss_by_at_most_the_defect(matrix):
    if completes(matrix.copy()):
        shifted = rational(matrix) + rational(np.eye(len(matrix)) * eigenvalue_defect(matrix))
        assert is_semidefinite(shifted)


def test_nearly_definite_matrices_are_proved_so():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 80))
    matrix = x @ x.T
    low = float(np.linalg.eigvalsh(matrix)[0])
    assert is_positive_semidefinite(matrix - 0.999 * low * np.eye(64), 0.0)
    assert not is_positive_semidefinite(matrix - 1.001 * low * np.eye(64), 0.0)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-160, 1e160, 1.7e308])
def test_scales_near_the_ends_of_the_range(scale):
    matrix = np.array([[1.0, 0.5], [0.5, 1.0]]) * scale / 2
    got = lambda_max_upper(matrix)
    assert bounds_lambda(rational(matrix), fraction(got))


def test_the_largest_float_has_a_bound():
    assert lambda_max_upper(np.array([[np.finfo(float).max / 2]])) >= np.finfo(float).max / 2


def test_zero_has_the_bound_zero():
    assert lambda_max_upper(np.zeros((3, 3))) == 0.0
    assert lambda_max_upper(np.zeros((3, 3)), 0.25) == 0.25


def test_negative_definite_matrices_get_a_bound_near_zero_or_below():
    matrix = -np.diag([1.0, 2.0])
    assert -1.0 <= lambda_max_upper(matrix) <= -1.0 + 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_must_be_finite(bad):
    with pytest.raises(ArgumentError, match="finite"):
        lambda_max_upper(np.array([[1.0, bad], [bad, 1.0]]))


def test_matrices_must_be_square():
    with pytest.raises(ArgumentError, match=r"shape \(2, 3\)"):
        lambda_max_upper(np.zeros((2, 3)))


def test_gamma_is_above_its_definition():
    for k in (1, 7, 4096, 10**6):
        u = fraction(2.0**-53)
        assert fraction(gamma(k)) >= k * u / (1 - k * u)


@given(st.lists(st.floats(-1e300, 1e300), max_size=40), st.sampled_from([1e-310, 1e-160, 1.0, 1e7]))
def test_norms_of_vectors_are_bounded_at_any_scale(values, scale):
    vector = np.array(values) * scale
    got = norm_upper(vector)
    square = sum((fraction(x) ** 2 for x in vector), fraction(0.0))
    if math.isfinite(got):
        assert fraction(got) ** 2 >= square
    if square == 0:
        assert got == 0.0


@pytest.mark.parametrize(("size", "seed"), [(1e-16, 2), (3e-17, 23), (1e-17, 14), (1e-18, 18)])
def test_nearly_a_multiple_of_the_identity(size, seed):
    # LAPACK's search for one eigenvalue alone gives up on such matrices.
    rng = np.random.default_rng(seed)
    value = 1.4238281250066074
    matrix = np.tril(rng.normal(size=(12, 12)), -1) * size + value * np.eye(12)
    bound = lambda_max_upper(matrix)
    assert value <= bound <= value * (1 + 1e-12)
