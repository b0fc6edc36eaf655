"""Checks of the ellipsoids of directions.py against points that ascent reaches."""

from dataclasses import dataclass, replace

import numpy as np

from dispersion.directions import cone_of
from dispersion.narrow import through
from dispersion.norms import centred_rows, projection_ball, qk_norm_ball, section_ball

STARTS, STEPS = 200, 25
ROUNDING = 2.0**-40  # of points and of solving for ball coordinates, rows graded by e^4 or less


@dataclass(frozen=True)
class Case:
    """A projection behind a norm: its rows graded by e^grading, its bias of size e^bias."""

    seed: int
    rows: int
    width: int
    grading: float
    bias: float | None
    norm: str
    centred: bool
    eps: float

    def rng(self, stream):
        return np.random.default_rng([self.seed, stream])

    def points(self):
        rng = self.rng(0)
        weight = rng.standard_normal((self.rows, self.width))
        weight *= np.exp(self.grading * rng.standard_normal((self.rows, 1)))
        bias = None if self.bias is None else rng.standard_normal(self.rows) * np.exp(self.bias)
        points = projection_ball(weight, norm=self.norm, bias=bias)
        return centred_rows(points) if self.centred else points

    def cone(self):
        return cone_of(self.points(), centred=self.norm == "layer")

    def reached(self, measure):
        """The largest of a quadratic measure (value, gradient in y) over y that ascent finds."""
        points, rng = self.points(), self.rng(3)
        matrix = points.matrix * points.radius.lower
        offset = np.zeros(self.rows) if points.offset is None else points.offset
        x = rng.standard_normal((STARTS, self.width))
        best = -np.inf
        for _ in range(STEPS):
            if self.norm == "layer":
                x = x - x.mean(axis=1, keepdims=True)
            x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
            p = x @ matrix.T + offset
            size = np.sqrt((p**2).sum(axis=1, keepdims=True) + self.eps * self.rows)
            y = p / np.maximum(size, 1e-300)
            value, slope = measure(y)
            best = max(best, float(value.max()))
            back = (slope - y * (y * slope).sum(axis=1, keepdims=True)) @ matrix
            back /= np.maximum(np.linalg.norm(back, axis=1, keepdims=True), 1e-300)
            x = x + rng.choice((0.03, 0.3, 3.0), size=(STARTS, 1)) * back
        return best


def distance(matrix, offset):
    """‖u‖² of the points matrix @ u + offset, and its gradient."""
    inverse = np.linalg.inv(matrix)

    def measure(y):
        u = (y if offset is None else y - offset) @ inverse.T
        return (u**2).sum(axis=1), 2 * u @ inverse

    return measure


def reached(case, section):
    """The largest ‖u‖² of a section that ascent finds."""
    return case.reached(distance(section.matrix, section.offset))


def check_sections(case, share, stretch):
    cone = case.cone()
    section = cone and cone.section(share, stretch, eps=case.eps * case.rows)
    if section is not None:
        slack = ROUNDING * np.linalg.cond(section.matrix)
        assert reached(case, section) <= 1 + slack


def check_proofs(case):
    """A cone that is said to be a tenth narrower than it is must not be proved."""
    cone = case.cone()
    if cone is None or cone.levels is None or cone.levels[:-1].min() > 4 * cone.levels[-1]:
        return  # in wide cones κ may grow so much that it is true
    levels = cone.levels.copy()
    levels[np.argmin(levels[:-1])] *= 0.8
    assert replace(cone, levels=levels).section(0.5) is None


def check_balls(case, gain_offset, stretch):
    cone = case.cone()
    section = cone and cone.section(0.7, stretch, eps=case.eps * case.rows)
    if section is None:
        return
    rng = case.rng(1)
    gain, bias = rng.standard_normal(case.rows), rng.standard_normal(case.rows)
    kind = "layer" if case.centred else "rms"
    plain = qk_norm_ball(gain, kind=kind, head_dim=case.rows, gain_offset=gain_offset, bias=bias)
    ball = section_ball(section, plain, gain, gain_offset=gain_offset, bias=bias)
    line = rng.standard_normal(case.rows)
    factors = (gain + gain_offset) * plain.radius.lower

    def measure(y):
        values = (y * factors + bias) @ line
        return values, np.broadcast_to(line * factors, y.shape)

    middle = float(ball.offset @ line)
    most = middle + ball.radius.upper * float(np.linalg.norm(ball.matrix.T @ line))
    size = float(np.abs(line) @ (np.abs(factors) + np.abs(bias)))
    assert case.reached(measure) <= most + ROUNDING * size


def check_latents(case):
    """Points behind a latent's norm and one more projection, along random lines."""
    cone = case.cone()
    if cone is None:
        return
    rng = case.rng(2)
    behind = rng.standard_normal((3, case.rows)) * np.exp(rng.standard_normal(case.rows))
    plain = projection_ball(behind.copy(), norm="rms")
    ball = through(cone, plain)
    assert ball is plain or np.linalg.norm(ball.gram) < np.linalg.norm(plain.gram)
    for line in rng.standard_normal((3, 3)):
        slope = behind.T @ line * plain.radius.lower
        most = ball.radius.upper * float(np.linalg.norm(ball.matrix.T @ line))
        found = case.reached(lambda y, s=slope: (y @ s, np.broadcast_to(s, y.shape)))
        assert found <= most + ROUNDING * float(np.linalg.norm(slope))
