"""Scalable softmax against softmax as the row grows, and where its threshold lies."""

import numpy as np

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, quoted
from dispersion.lengths import MEGA
from dispersion.row import length_scaled_max_coefficient, max_coefficient

FIGURE = Figure(
    title="Logits that grow with log n",
    paper="nakanishi",
    number="Figure 1",
    theorems="T1, T6",
    seconds=1,
)
N = np.geomspace(10, MEGA, 200)
PRODUCTS = (0.5, 0.8, 1.0, 1.2, 1.5)


def numbers():
    return quoted("ssmax_high") - quoted("ssmax_low"), quoted("ssmax_s")


def caption():
    spread, s = numbers()
    end = N[-1]
    return f"""
    Left: a row with one logit at {quoted("ssmax_high"):g} and n − 1 at {quoted("ssmax_low"):g}, as
    in the paper's figure. Softmax, whose coefficient here is the ceiling of T1 for a spread of
    {spread:g}, falls from {max_coefficient(N[0], spread):.2f} to {max_coefficient(end, spread):.1e}
    between {N[0]:g} and {end:,.0f} items; multiplied by s·log n with s = {s} it does not (T6).
    Right: the ceiling of T6 for other products of factor and spread c·δ. It tends to 1 above c·δ =
    1, to ½ at it and to 0 below, slowly; the paper's row has {s * spread:.2f}. A spread that is
    bounded by QK norm or by weights bounds c·δ in turn.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.4)
    spread, s = numbers()
    left.plot(N, max_coefficient(N, spread), "--", color=style.RED, label="softmax")
    scaled = length_scaled_max_coefficient(N, spread, scale=s)
    left.plot(N, scaled, color=style.BLUE, label=f"times {s}·log n")
    left.set(xscale="log", ylim=(0, 1.05), xlabel="items in the row, n")
    left.set(ylabel="largest coefficient", title="the paper's row")
    left.legend(loc="center right")
    colours = (style.RED, style.ORANGE, style.BLACK, style.SKY, style.BLUE)
    dashes = (":", "--", "-", "-.", (0, (5, 1)))
    for product, dash, colour in zip(PRODUCTS, dashes, colours, strict=True):
        values = length_scaled_max_coefficient(N, product)
        right.plot(N, values, linestyle=dash, color=colour, label=f"c·δ = {product:g}")
    right.set(xscale="log", ylim=(0, 1.05))
    right.set(xlabel="items in the row, n", ylabel="ceiling (T6)", title="the threshold")
    right.legend(loc="lower right", bbox_to_anchor=(1, 0.19), ncols=2, columnspacing=1)
    return canvas
