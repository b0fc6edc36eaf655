"""Gram matrices with all the error they may have: bounds hold, and what forgets it is caught."""

from dataclasses import replace

import pytest

import device_checks as checks
from dispersion import covers, ellipsoid, lag_pairs, points, spectrum, spread
from dispersion.cholesky import gamma
from dispersion.head import BallImage

CHECKS = [getattr(checks, name) for name in dir(checks) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_bounds_hold_at_the_largest_error(check):
    check()


def forgetful(ball, found):
    """The error of a float64 product, whatever the ball says of its own."""
    return replace(found, coefficient=gamma(ball.matrix.shape[1] + 16))


def forgetful_cover(monkeypatch, module):
    real = ellipsoid.cover

    def cover(ball, weight=0.5, *, keep=None):
        return forgetful(ball, real(ball, weight, keep=keep))

    monkeypatch.setattr(module, "cover", cover)


@pytest.mark.parametrize(
    ("module", "check"),
    [
        (covers, checks.check_unrotated),
        (spread, checks.check_rotated),
        (covers, checks.check_spectrum),
        (spectrum, checks.check_spectrum),
        (lag_pairs, checks.check_offsets),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_cover_that_forgets_the_error(module, check, monkeypatch):
    forgetful_cover(monkeypatch, module)
    with pytest.raises(AssertionError):
        check()


def test_a_norm_that_forgets_the_error(monkeypatch):
    forgetful_cover(monkeypatch, ellipsoid)
    with pytest.raises(AssertionError):
        checks.check_norms()


@pytest.mark.parametrize(
    "check", [checks.check_points, checks.check_floors, checks.check_witnesses]
)
def test_points_that_forget_the_error(check, monkeypatch):
    real = points.GramData.of
    monkeypatch.setattr(points.GramData, "of", lambda ball: forgetful(ball, real(ball)))
    with pytest.raises(AssertionError):
        check()


def test_row_sizes_that_forget_the_error(monkeypatch):
    real = BallImage.row_sizes.func

    def row_sizes(ball):
        return real(replace(ball, given=replace(ball.given, coefficient=gamma(ball.head_dim))))

    monkeypatch.setattr(BallImage, "row_sizes", property(row_sizes))
    with pytest.raises(AssertionError):
        checks.check_row_sizes()


@pytest.mark.parametrize("module", [covers, spectrum])
def test_rescaling_that_forgets_the_error(module, monkeypatch):
    real = covers.rescale
    monkeypatch.setattr(
        module, "rescale", lambda shape, steps: replace(real(shape, steps), coefficient=gamma(64))
    )
    with pytest.raises(AssertionError):
        (checks.check_unrotated if module is covers else checks.check_spectrum)()
