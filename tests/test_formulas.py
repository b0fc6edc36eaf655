"""Arrays, balls and SymPy say the same: one check for every formula."""

import pytest

import formula_checks
from dispersion import capacity, rigor, rigor_capacity, row, symbolic

# Steps on the way to a formula; proofs and checks use them.
PARTS = {"norm_spread", "turning_point", "two_level_entropy", "log_capacity_at", "water_pull"}
PARTS |= {"sphere_mean", "log_sphere_mean"}


@pytest.mark.parametrize("name", formula_checks.ROW)
def test_a_row(name):
    formula_checks.check_row_formula(name)


def test_the_entropy_of_a_row():
    formula_checks.check_row_entropy()


def test_what_only_certificates_use():
    formula_checks.check_ball_only()


def test_capacity():
    formula_checks.check_capacity_formulas()


def test_every_array_formula_has_a_symbolic_form():
    # any_token_ceiling is the least of others; water_level is the root of water_pull.
    composed = {"any_token_ceiling", "water_level"}
    assert set(row.__all__) <= set(symbolic.__all__)
    assert set(capacity.__all__) - composed <= set(symbolic.__all__)


def test_every_symbolic_form_has_an_array_or_a_ball():
    others = {*row.__all__, *capacity.__all__, *rigor.__all__, *rigor_capacity.__all__}
    assert set(symbolic.__all__) - PARTS <= others
