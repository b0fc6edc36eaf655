"""Where attention condenses on few items: √(2 log n) against log n for Gaussian logits."""

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.schedules import log_length, sqrt_log

FIGURE = Figure(
    title="Condensation of Gaussian logits",
    paper="own",
    number="the scale √(2 log n) of independent scores",
    theorems="-",
    seconds=1,
    recompute_seconds=60,
)
DATA = "condensation.json"
SEED, ROWS = 0, 1000
LENGTHS = [10**i for i in range(1, 7)]
FACTORS = (0.5, 1.0, 1.5, 2.0)
FAR = 12.0  # items so far below the top weigh nothing at these scales
SLOPES = (0.25, 0.5, 1.0)


def recompute(seeds=None):
    rng = np.random.default_rng(SEED)
    means = {}
    for n in LENGTHS:
        rows = ROWS if n < LENGTHS[-1] else ROWS // 4
        scales = [c * sqrt_log(n) for c in FACTORS] + [log_length(n, c) for c in SLOPES]
        found = np.zeros((rows, len(scales)))
        for row in found:
            z = rng.standard_normal(n)
            z -= z.max()
            z = z[z > -FAR]
            row[:] = [1 / np.exp(beta * z).sum() for beta in scales]
        means[n] = [round(float(x), 6) for x in found.mean(axis=0)]
    catalogue.write_results(DATA, {"seed": SEED, "rows": ROWS, "largest": means})


def caption():
    data = catalogue.results(DATA)["largest"]
    end = data[str(LENGTHS[-1])]
    turn = np.exp(2 / np.array(SLOPES[1:]) ** 2)
    return f"""
    The largest coefficient of a row of n independent standard Gaussian logits multiplied by β, by
    simulation (means of {ROWS} rows, {ROWS // 4} at the longest). Left: β = c·√(2 log n). The
    largest of n such logits lies near √(2 log n), and in the limit c = 1 separates rows that stay
    spread out from rows that condense on few items, slowly: at n = {LENGTHS[-1]:,} the means are
    {", ".join(f"{x:.2f}" for x in end[: len(FACTORS)])} for c =
    {", ".join(f"{c:g}" for c in FACTORS)}. Right: β = c·log n passes √(2 log n) at n = e^(2/c²),
    which is {turn[0]:,.0f} for c = {SLOPES[1]:g} and {turn[1]:.1f} for c = {SLOPES[2]:g}, so every
    c > 0 condenses in the end. Real logits are neither Gaussian nor independent.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.4)
    data = catalogue.results(DATA)["largest"]
    colours = (style.RED, style.BLACK, style.GREEN, style.BLUE)
    for i, c in enumerate((*FACTORS, *SLOPES)):
        axes, place = (left, i) if i < len(FACTORS) else (right, i - len(FACTORS))
        name = "√(2 log n)" if axes is left else "log n"
        axes.plot(
            LENGTHS,
            [data[str(n)][i] for n in LENGTHS],
            marker="osD^"[place],
            color=colours[place],
            label=f"{c:g}·{name}",
        )
    for axes, title in ((left, "β ∝ √(2 log n)"), (right, "β ∝ log n")):
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="items in the row, n", title=title)
        axes.legend(loc="upper right", ncols=2)
    left.set_ylim(0, 1.3)
    right.set_ylim(0, 1.3)
    for axes in (left, right):
        axes.set_yticks(np.linspace(0, 1, 6))
    left.set_ylabel("mean largest coefficient")
    return canvas
