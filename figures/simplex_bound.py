"""The scale that any-token retrieval takes: the simplex bound, and what width adds to it."""

import numpy as np

from dispersion.capacity import log_capacity
from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure
from dispersion.lengths import KILO, MEGA
from dispersion.row import required_spread

FIGURE = Figure(
    title="The logit scale that retrieval takes",
    paper="cosface",
    number="equation 6",
    theorems="T4, T12, T13",
    seconds=4,
)
SHARES = (0.5, 0.9, 0.99)
WIDTHS = (16, 64, 128)
N = np.geomspace(4, MEGA, 120)
TICKS = [4, 64, KILO, 16 * KILO, MEGA]
HALVINGS, MOST = 60, 200.0


def simplex_scale(n, share):
    """Solved for κ, T12 is (n-1)/n times the spread of T4: CosFace's bound on s."""
    return required_spread(n, share) * (n - 1) / n


def width_scale(n, share, width):
    """The κ of a flat spectrum below which T13 rules the share out."""
    low, high = np.zeros_like(n), np.full_like(n, MOST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = log_capacity(np.repeat(middle[:, None], width, axis=1)) < np.log(n * share)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.maximum(high, simplex_scale(n, share))


def caption():
    n, p = np.array([128.0 * KILO]), SHARES[0]
    simplex = simplex_scale(n, p)[0]
    narrow, wide = (width_scale(n, p, w)[0] for w in WIDTHS[:2])
    return f"""
    With unit keys and queries times a scale κ, every one of n tokens can get a share p only above a
    least κ. Left: CosFace's bound, which is T12 solved for κ; a regular simplex attains it when the
    width is at least n − 1. Dashed: half the spread that one privileged token takes (T4), which is
    all that a bound on the spread asks for. Right: for p = {p:.0%} in heads narrower than that T13
    asks for more: at {n[0]:,.0f} tokens at least {simplex:.1f} in any width, {wide:.1f} in
    {WIDTHS[1]} and {narrow:.1f} in {WIDTHS[0]} dimensions. Necessary, not sufficient.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.5)
    for share, colour in zip(SHARES, (style.BLACK, style.BLUE, style.RED), strict=True):
        left.plot(N, simplex_scale(N, share), color=colour, label=f"p = {share:g}, any token")
        left.plot(
            N, required_spread(N, share) / 2, "--", color=colour, label=f"p = {share:g}, one token"
        )
    looks = zip(WIDTHS, ("-", "--", "-."), (style.RED, style.BLUE, style.GREEN), strict=True)
    for width, dash, colour in looks:
        right.plot(
            N, width_scale(N, SHARES[0], width), dash, color=colour, label=f"width {width} (T13)"
        )
    right.plot(N, simplex_scale(N, SHARES[0]), ":", color=style.BLACK, label="any width (T12)")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="tokens n", ylabel="scale κ, logits")
        style.tokens(axes.xaxis, TICKS)
        axes.legend(loc="upper left")
    left.set_title("by share")
    right.set_title(f"p = {SHARES[0]:g}, by width")
    return canvas
