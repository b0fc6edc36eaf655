"""`dispersion.row` in NumPy and Python numbers: values, edges, errors, and attempts to beat it."""

import math

import numpy as np
import pytest

from dispersion import row

REFERENCE = [
    ("max_coefficient", (32768, 10.0), 0.40199073877),
    ("loose_max_coefficient", (32768, 10.0), 0.67219439065),
    ("min_entropy", (1000, 8.0), 1.995063),
    ("min_entropy", (1000, 3.0), 5.900250),
    ("min_entropy", (50, 1.0), 3.788722),
    ("required_spread", (32768, 0.5), 10.397177190),
]


@pytest.mark.parametrize(("name", "arguments", "printed"), REFERENCE)
def test_printed_reference_values_agree_to_their_last_digit(name, arguments, printed):
    digits = len(str(printed).split(".")[1])
    assert abs(getattr(row, name)(*arguments) - printed) <= 10.0**-digits
