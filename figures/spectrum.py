"""How the spectrum of a head, not only its largest value, decides its capacity."""

import numpy as np

from dispersion.capacity import log_capacity, water_level
from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="Spectrum and capacity",
    paper="own",
    number="T13",
    theorems="T12, T13",
    seconds=2,
)
WIDTH, TOP = 64, 8.0
DECAYS = (0.0, 0.25, 0.5, 1.0)
TOPS = (4.0, 8.0, 16.0, 32.0)
LN10 = np.log(10.0)


def power_law(top, decay):
    return top * np.arange(1, WIDTH + 1) ** -float(decay)


def caption():
    flat, steep = (np.exp(log_capacity(power_law(TOP, d))) for d in (DECAYS[0], DECAYS[-1]))
    active = int((power_law(TOP, DECAYS[-1]) > water_level(power_law(TOP, DECAYS[-1]))).sum())
    return f"""
    Singular values κ of the joint matrix of queries and keys, falling as κᵢ = κ₁·i^−a in {WIDTH}
    dimensions. Left: spectra with κ₁ = {TOP:g} and the level t that minimises T13 (dotted); only
    values above it count. Right: the capacity N (upper, T13) against the decay a, and e^κ₁
    (dashed), which no spectrum exceeds. All spectra of one κ₁ allow the same spread of a row, and
    T1 cannot tell them apart; with κ₁ = {TOP:g} a flat one holds at most {flat:,.0f} tokens, that
    with a = {DECAYS[-1]:g}, of which {active} values count, at most {steep:,.1f}.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.5)
    colours = (style.BLACK, style.BLUE, style.GREEN, style.RED)
    index = np.arange(1, WIDTH + 1)
    for decay, colour, dash in zip(DECAYS, colours, ("-", "--", "-.", (0, (5, 1))), strict=True):
        values = power_law(TOP, decay)
        left.plot(index, values, linestyle=dash, color=colour, label=f"a = {decay:g}")
        left.axhline(water_level(values), color=colour, linestyle=":", linewidth=1)
    left.set(xscale="log", xlabel="index i", ylabel="singular value κᵢ, logits", ylim=(0, 10))
    left.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    left.legend(loc="upper center", ncols=2)
    decays = np.linspace(0, 2, 81)
    for top, colour, mark in zip(
        TOPS, (style.SKY, style.BLACK, style.GREEN, style.RED), "osD^", strict=True
    ):
        nats = [log_capacity(power_law(top, a)) for a in decays]
        right.plot(
            decays,
            np.array(nats) / LN10,
            marker=mark,
            markevery=10,
            color=colour,
            label=f"κ₁ = {top:g}",
        )
        right.axhline(top / LN10, color=colour, linestyle="--", linewidth=0.7)
    right.set(xlabel="decay a", ylabel="log10 of the capacity N, at most", ylim=(0, 18.5))
    right.legend(loc="upper right", ncols=2)
    return canvas
