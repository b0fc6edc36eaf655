"""Planted errors: each must fail the very check that the real code passes."""

import dataclasses

import numpy as np
import pytest

import direction_checks
import head_checks
from dispersion import (
    cholesky,
    covers,
    directions,
    ellipsoid,
    lag_pairs,
    norms,
    offsets,
    points,
    search,
    spread,
    witness,
)
from dispersion.cholesky import gamma, lambda_max_upper
from dispersion.enclosure import Enclosure
from dispersion.lag_pairs import LagPairs
from dispersion.spread import SpreadBound


def caught(check, *arguments, **keywords):
    with pytest.raises(AssertionError):
        check(*arguments, **keywords)


def changed(**fields):
    """The real spread bound with some of its numbers multiplied."""

    def bound(head):
        found = spread.spread_bound(head)
        return dataclasses.replace(found, **{k: getattr(found, k) * v for k, v in fields.items()})

    return bound


def one_gram(head):
    """Factor the keys' Gram matrix as it comes and certify the last product alone."""
    a, c = head.query.matrix, head.key.matrix
    values, vectors = np.linalg.eigh(c @ c.T)
    product = (vectors * np.sqrt(np.maximum(values, 0.0))).T @ a
    modulus = np.abs(product) @ np.abs(product).T
    error = gamma(a.shape[1] + 8) * float(np.abs(modulus).sum(axis=1).max())
    return SpreadBound(2 * lambda_max_upper(product @ product.T, error) ** 0.5, 0.0, "T9")


def power_iteration(matrix, error=0.0, *, guess=None):
    x = np.random.default_rng(0).standard_normal(len(matrix))
    for _ in range(60):
        y = matrix @ x
        x = y / (np.linalg.norm(y) or 1.0)
    return float(x @ matrix @ x) + error


def eigenvalue_routine(matrix, error=0.0, *, guess=None):
    return float(np.linalg.eigvalsh(matrix)[-1]) + error


class TestSpread:
    @pytest.mark.parametrize(
        "check",
        [
            head_checks.check_products,
            head_checks.check_biased,
            head_checks.check_free_phases,
            head_checks.check_errors,
        ],
    )
    def test_a_lost_factor_two(self, check):
        caught(check, changed(spread=0.5))

    def test_a_relative_error_of_one_part_in_a_million_millions(self):
        caught(head_checks.check_biased, changed(spread=1 - 1e-7))

    def test_one_gram_only(self):
        caught(head_checks.check_products, one_gram)

    @pytest.mark.parametrize("fake", [power_iteration, eigenvalue_routine])
    def test_estimates_in_place_of_certificates(self, fake):
        caught(head_checks.check_lambda_max, fake)

    def test_a_singular_value_routine_in_place_of_a_certificate(self):
        def bound(head):
            norm = np.linalg.norm(head.query.matrix.T @ head.key.matrix, 2)
            return SpreadBound(2 * float(norm), 0.0, "T9")

        caught(head_checks.check_products, bound)

    def test_the_certificate_without_its_error_terms(self, monkeypatch):
        monkeypatch.setattr(cholesky, "gamma", lambda k: 0.0)
        monkeypatch.setattr(cholesky, "UNIT_ROUNDOFF", 0.0)
        monkeypatch.setattr(cholesky, "_UP", 1.0)
        monkeypatch.setattr(cholesky, "eigenvalue_defect", lambda matrix: 0.0)
        # Without a step above the estimate the search itself goes wrong; keep it tiny.
        monkeypatch.setattr(cholesky, "completes", lambda trial: True)
        caught(head_checks.check_lambda_max)

    def test_no_rotation_where_there_is_one(self):
        """2σ_max(AᵀC) as if positions did not turn anything."""

        def bound(head):
            return spread.spread_bound(dataclasses.replace(head, rotary=None))

        caught(head_checks.check_free_phases, bound)

    def test_a_key_bias_dropped_under_rotation(self, monkeypatch):
        monkeypatch.setattr(spread, "rotated_offset", lambda head: None)
        monkeypatch.setattr(
            spread, "rotated_mask", lambda head: np.zeros(head.query.head_dim, dtype=np.bool_)
        )
        caught(head_checks.check_free_phases)

    def test_a_query_bias_dropped(self):
        def bound(head):
            query = dataclasses.replace(head.query, offset=None, offset_error=None)
            return spread.spread_bound(dataclasses.replace(head, query=query))

        caught(head_checks.check_biased, bound)

    def test_shares_of_a_cover_that_sum_to_more_than_one(self, monkeypatch):
        real = ellipsoid.cover

        def cover(ball, weight=0.5, *, keep=None):
            found = real(ball, weight, keep=keep)
            if ball.offset is None or (keep is not None and not np.any(keep)):
                return found
            share = min(max(weight, 2.0**-40), 1 - 2.0**-40)
            # The same sum with 1 in place of 1 − w.
            offset = ball.offset if keep is None else np.where(keep, ball.offset, 0.0)
            gram = found.gram - np.outer(offset, offset) * (1 / (1 - share) - 1)
            return dataclasses.replace(found, gram=gram)

        for module in (spread, covers):
            monkeypatch.setattr(module, "cover", cover)
        caught(head_checks.check_biased)

    def test_row_and_offset_errors_dropped(self, monkeypatch):
        real = ellipsoid.cover

        def cover(ball, weight=0.5, *, keep=None):
            return dataclasses.replace(real(ball, weight, keep=keep), row_error=None)

        for module in (spread, covers):
            monkeypatch.setattr(module, "cover", cover)
        caught(head_checks.check_errors)

    def test_scales_that_differ_within_a_rotated_pair(self, monkeypatch):
        """They do not commute with the rotation."""
        real = spread.scaling.minimise

        def minimise(query, key, query_offset, key_offset, groups):
            own = np.arange(len(groups))
            return real(query, key, query_offset, key_offset, own)

        monkeypatch.setattr(spread.scaling, "minimise", minimise)
        caught(head_checks.check_free_phases)


class TestNorms:
    def test_epsilon_in_the_denominator(self):
        def projection(*arguments, **keywords):
            found = norms.projection_ball(*arguments, **keywords)
            shrink = (1 + 1e-5) ** -0.5
            radius = Enclosure(found.radius.lower * shrink, found.radius.upper * shrink)
            return dataclasses.replace(found, radius=radius)

        caught(head_checks.check_balls, projection)

    def test_the_root_of_n_minus_one(self):
        def qk(*arguments, **keywords):
            found = norms.qk_norm_ball(*arguments, **keywords)
            return dataclasses.replace(found, radius=norms.sqrt_enclosure(found.head_dim - 1))

        caught(head_checks.check_balls, qk=qk)

    def test_the_norms_bias_forgotten(self):
        def projection(*arguments, **keywords):
            return norms.projection_ball(*arguments, **(keywords | {"norm_bias": None}))

        caught(head_checks.check_balls, projection)

    @pytest.mark.parametrize(("norm", "shift"), [("rms", 1.0), ("layer", 0.0)])
    def test_rounding_of_gains_and_means_forgotten(self, norm, shift):
        def projection(*arguments, **keywords):
            found = norms.projection_ball(*arguments, **keywords)
            return dataclasses.replace(found, row_error=np.zeros(found.head_dim))

        caught(head_checks.check_roundings, norm, shift, projection=projection)


class TestOffsets:
    def test_a_lost_factor_two(self):
        def exact(head, length, free):
            found = offsets.exact_spread(head, length, free)
            return dataclasses.replace(found, spread=found.spread / 2)

        caught(head_checks.check_offsets, exact)

    def test_the_sign_of_the_lag(self, monkeypatch):
        real = LagPairs._gap
        monkeypatch.setattr(LagPairs, "_gap", lambda self, i, j: real(self, -i, -j))
        caught(head_checks.check_offsets)

    def test_the_bias_of_the_keys_dropped(self, monkeypatch):
        monkeypatch.setattr(lag_pairs, "rotated_offset", lambda head: None)
        caught(head_checks.check_offsets)

    def test_shares_that_sum_to_more_than_one(self, monkeypatch):
        real = LagPairs._lifted

        def lifted(self, share):
            root, share = real(self, share)
            return root / 1.2, share

        monkeypatch.setattr(LagPairs, "_lifted", lifted)
        caught(head_checks.check_offsets)

    def test_a_forgotten_half_of_the_norm(self, monkeypatch):
        real = LagPairs._ordered

        def ordered(self, first, second, slopes=(1.0, 1.0), **rest):
            pair = real(self, first, second, slopes, **rest)
            return dataclasses.replace(pair, bound=pair.bound - 0.1 * max(pair.norms))

        monkeypatch.setattr(LagPairs, "_ordered", ordered)
        caught(head_checks.check_offsets)

    def test_top_and_bottom_at_one_lag(self):
        """2·max over lags of one norm is above the truth, and too far for a bound of pairs."""

        def exact(head, length, free):
            work = LagPairs(head, length)
            top = float(work.single(np.arange(length)).max())
            found = offsets.exact_spread(head, length, free)
            return dataclasses.replace(found, spread=2 * top)

        caught(head_checks.check_offsets, exact)


class TestWitness:
    def test_the_sign_of_the_lag(self, monkeypatch):
        real = points.turned

        def turned(head, query, lags, length):
            return real(head, query, -np.asarray(lags), length)

        monkeypatch.setattr(witness, "turned", turned)
        caught(head_checks.check_witnesses)

    def test_one_key_too_few(self, monkeypatch):
        monkeypatch.setattr(witness.Witness, "_own_count", property(lambda self: 2))
        caught(head_checks.check_witnesses, lengths=(3, 7))

    def test_the_own_key_left_out(self, monkeypatch):
        real = witness.Witness.coefficient

        def coefficient(self, length, tokens=1):
            return real(dataclasses.replace(self, own=None), length, tokens)

        monkeypatch.setattr(witness.Witness, "coefficient", coefficient)
        caught(head_checks.check_witnesses)

    def test_epsilon_of_the_key_norm_ignored(self, monkeypatch):
        monkeypatch.setattr(
            witness, "key_share", lambda reach: 1.0 if reach.key_norm is None else 1 - 1e-9
        )
        caught(head_checks.check_witnesses)

    def test_top_and_bottom_at_one_lag(self, monkeypatch):
        def same_lag(self, length):
            top, bottom = self._capped(length)
            return float((top - bottom).max())

        monkeypatch.setattr(witness.Witness, "spread", same_lag)
        caught(head_checks.check_witnesses, lengths=(3, 7))

    def test_the_sink_left_out(self, monkeypatch):
        real = witness.Witness.coefficient

        def coefficient(self, length, tokens=1):
            head = dataclasses.replace(self.head, sink=None)
            return real(dataclasses.replace(self, head=head), length, tokens)

        monkeypatch.setattr(witness.Witness, "coefficient", coefficient)
        caught(head_checks.check_witnesses)

    def test_the_soft_cap_left_out(self, monkeypatch):
        monkeypatch.setattr(witness.Witness, "_cap", lambda self, logit, *, up: logit)
        caught(head_checks.check_witnesses)

    def test_the_scale_of_the_logits_left_out(self, monkeypatch):
        real = witness.build

        def build(head, length):
            found = real(head, length)
            unit = dataclasses.replace(head, scale=Enclosure.exact(head.scale.upper * 1.01))
            return witness.evaluate(unit, length, found.direction, found.lags)

        caught(head_checks.check_witnesses, build)

    def test_a_search_in_the_wrong_place_claims_less_and_stays_true(self, monkeypatch):
        """Directions only choose where to look: a bad one costs sharpness, never soundness."""
        monkeypatch.setattr(
            witness, "best_direction", lambda head, lags, length: np.ones(head.query.head_dim)
        )
        assert search.best_direction is not witness.best_direction
        head_checks.check_witnesses(lengths=(2, 3))


class TestDirections:
    cone = direction_checks.Case(0, 4, 4, 1.0, 0.5, "rms", False, 0.0)
    tilted = direction_checks.Case(7, 5, 3, 0.4, 2.0, "layer", True, 1e-2)

    def test_the_real_code_passes(self):
        for case in (self.cone, self.tilted):
            assert case.cone().levels is not None
            direction_checks.check_sections(case, 0.5, 8.0)
            direction_checks.check_balls(case, 1.0, 8.0)
        direction_checks.check_proofs(self.cone)

    def test_an_excess_that_is_not_proved(self, monkeypatch):
        monkeypatch.setattr(directions, "_excess", lambda *_: 1.0)
        caught(direction_checks.check_proofs, self.cone)

    def test_a_cut_that_forgets_epsilon(self, monkeypatch):
        real = directions.Cone._least

        def forgetful(self, rows, share, excess, eps):
            return real(self, rows, share, excess, 0.0)

        case = dataclasses.replace(self.tilted, eps=100.0)
        direction_checks.check_sections(case, 0.5, 8.0)
        monkeypatch.setattr(directions.Cone, "_least", forgetful)
        caught(direction_checks.check_sections, case, 0.5, 8.0)

    def test_the_middle_of_a_cut_that_is_left_out(self, monkeypatch):
        real = directions._section

        def unmoved(*arguments):
            return dataclasses.replace(real(*arguments), offset=None)

        monkeypatch.setattr(directions, "_section", unmoved)
        caught(direction_checks.check_sections, self.tilted, 0.5, 8.0)

    def test_a_mean_that_stays(self, monkeypatch):
        case = self.tilted
        monkeypatch.setattr(direction_checks, "centred_rows", lambda ball: ball)
        points = case.points()
        monkeypatch.undo()
        section = directions.cone_of(points, centred=True).section(0.5)
        assert direction_checks.reached(case, section) > 1

    def test_a_latent_whose_bias_is_forgotten(self, monkeypatch):
        case = dataclasses.replace(self.cone, rows=6, width=3, bias=1.0)
        direction_checks.check_latents(case)
        bare = dataclasses.replace(case, bias=None).cone()
        monkeypatch.setattr(direction_checks.Case, "cone", lambda _: bare)
        caught(direction_checks.check_latents, case)
