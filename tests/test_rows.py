"""Coordinates of a ball image multiplied by a number that is known to within rounding."""

from fractions import Fraction

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import decoder_reader, scales
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.head import BallImage, Head
from dispersion.norms import qk_norm_ball
from dispersion.rotary import rotary
from dispersion.rows import scaled_rows
from dispersion.spread import spread_bound


def exact_row_errors(ball, grown, factor):
    """2-norms, squared, of factor·row − stored row in rational arithmetic."""
    for before, after in zip(ball.matrix, grown.matrix, strict=True):
        yield sum(
            (factor * Fraction(float(x)) - Fraction(float(y))) ** 2
            for x, y in zip(before, after, strict=True)
        )


@pytest.mark.parametrize("ends", [(1.3, 1.3), (1 / 3, 1 / 3 + 2.0**-40), (1.8129, 1.8130)])
def test_errors_cover_every_factor_of_the_enclosure(ends):
    rng = np.random.default_rng(1)
    ball = BallImage(
        matrix=rng.standard_normal((6, 9)),
        offset=rng.standard_normal(6),
        row_error=np.full(6, 1e-9),
    )
    grown = scaled_rows(ball, [1, 4, 5], Enclosure(*ends))
    for factor in map(Fraction, ends):
        exact = list(exact_row_errors(ball, grown, factor))
        for i in (1, 4, 5):
            allowed = Fraction(float(grown.row_error[i])) - factor * Fraction(1e-9)
            assert exact[i] <= allowed**2
            shift = factor * Fraction(float(ball.offset[i])) - Fraction(float(grown.offset[i]))
            assert abs(shift) <= Fraction(float(grown.offset_error[i]))
    for i in (0, 2, 3):
        np.testing.assert_array_equal(grown.matrix[i], ball.matrix[i])
        assert grown.row_error[i] == pytest.approx(1e-9, rel=1e-12)
        assert grown.offset_error[i] == 0


def test_a_factor_of_one_changes_nothing_and_none_below_zero_is_taken():
    ball = BallImage(matrix=np.eye(4))
    assert scaled_rows(ball, [0], Enclosure.exact(1.0)) is ball
    with pytest.raises(ArgumentError, match="factor must be positive"):
        scaled_rows(ball, [0], Enclosure(0.0, 1.0))


def test_gains_alone_still_have_their_closed_form():
    gain = np.array([0.5, 1.0, 2.0, 0.25, 3.0, 1.0])
    ball = qk_norm_ball(gain, kind="rms", head_dim=6)
    turning = rotary([1.0], 6, rotated=2)
    query = scaled_rows(ball, turning.pairs.ravel(), Enclosure.exact(8.0))
    head = Head(query=query, key=ball, scale=Enclosure.exact(1.0), rotary=turning)
    # pair (0, 1): 8·1·1; the others: 2·2, .25², 3·3, 1
    assert spread_bound(head).spread == pytest.approx(2 * 6 * 9.0, rel=1e-12)
    query = scaled_rows(ball, turning.pairs.ravel(), Enclosure.exact(16.0))
    head = Head(query=query, key=ball, scale=Enclosure.exact(1.0), rotary=turning)
    assert spread_bound(head).spread == pytest.approx(2 * 6 * 16.0, rel=1e-12)


@pytest.mark.parametrize("offsets", ["free", "exact"])
def test_no_certificate_lies_below_what_was_reached(offsets):
    mechanism_checks.check_reached("phi3__partial_longrope", offsets)


def test_a_factor_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(decoder_reader, "with_factor", lambda scale, rotary: (scale, scales.ONE))
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached("phi3__partial_longrope", "exact")


def test_a_factor_that_is_not_squared_is_caught(monkeypatch):
    def once(scale, rotary):
        return scale, rotary.attention_factor

    monkeypatch.setattr(decoder_reader, "with_factor", once)
    with pytest.raises(AssertionError):
        mechanism_checks.check_reached("phi3__partial_longrope", "exact")
