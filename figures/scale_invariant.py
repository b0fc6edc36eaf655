"""Scale-invariant attention: its factor and shift by distance, and what they do to total weight."""

import numpy as np

from dispersion.drawing import published, style
from dispersion.drawing.catalogue import Figure, quoted
from dispersion.lengths import KILO

FIGURE = Figure(
    title="Scale-invariant attention",
    paper="anson",
    number="the closed forms of a_t and m_t",
    theorems="-",
    seconds=1,
)
T = np.geomspace(1, 64 * KILO, 200)


def caption():
    tau = quoted("anson_tau")
    a, m = published.scale_invariant(T[-1:], tau)
    return f"""
    Left: logits z at distance t become a_t·z + m_t; with τ = {tau:g} tokens the factor grows to
    {a[0]:.2f} and the shift falls to {m[0]:.1f} at {T[-1]:,.0f} tokens. Right: expected total
    weight, before normalisation, of all tokens per factor e of distance, for standard Gaussian
    logits. Plain softmax gives each decade ten times what the one before it got, and the factor
    alone makes that worse; with the shift it stays level beyond τ. A closed form, no model: trained
    logits are not Gaussian and not independent of distance. The formulas are quoted from a text
    about the paper.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.4)
    a, m = published.scale_invariant(T, quoted("anson_tau"))
    left.plot(T, a, color=style.BLUE, label="factor $a_t$")
    left.plot(T, m, "--", color=style.RED, label="shift $m_t$, logits")
    left.set(xscale="log", xlabel="distance t, tokens", ylabel="factor, shift")
    left.legend(loc="lower left")
    one, none = np.ones_like(T), np.zeros_like(T)
    right.plot(
        T, T * published.gaussian_weight(one, none), "--", color=style.BLACK, label="softmax"
    )
    right.plot(
        T, T * published.gaussian_weight(a, none), ":", color=style.ORANGE, label="$a_t$ alone"
    )
    right.plot(T, T * published.gaussian_weight(a, m), color=style.BLUE, label="$a_t$ and $m_t$")
    right.set(xscale="log", yscale="log", xlabel="distance t, tokens")
    right.set_ylabel("expected weight per factor e")
    right.legend(loc="upper left")
    return canvas
