"""Where one key takes most of a query's attention, for random keys on a sphere."""

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="Condensation for random keys on a sphere",
    paper="bruno",
    number="the critical scale n^(2/(d−1)), by simulation",
    theorems="-",
    seconds=1,
    recompute_seconds=60,
)
DATA = "condensation_sphere.json"
SEED, ROWS = 0, 200
WIDTHS = (3, 5, 9)
NEAREST = 2048  # keys that enter a sum
LENGTHS = [2**i for i in range(3, 17)]
EXPONENTS = np.round(np.linspace(0, 2, 41), 3)  # of n in β


def recompute(seeds=None):
    rng = np.random.default_rng(SEED)
    found = {}
    for d in WIDTHS:
        grid = []
        for n in LENGTHS:
            betas = float(n) ** EXPONENTS
            total = np.zeros(len(betas))
            for _ in range(ROWS):
                # (1 + cosine)/2 of a uniform direction and a fixed one.
                gap = 2 * rng.beta((d - 1) / 2, (d - 1) / 2, n)
                gap = np.sort(gap - gap.min())[:NEAREST]
                total += 1 / np.exp(-betas[:, None] * gap).sum(axis=1)
            grid.append([round(float(x), 4) for x in total / ROWS])
        found[str(d)] = grid
    catalogue.write_results(DATA, {"seed": SEED, "rows": ROWS, "largest": found})


def caption():
    slopes = ", ".join(f"{2 / (d - 1):g} for d = {d}" for d in WIDTHS)
    return f"""
    Mean largest coefficient (colour; {ROWS} rows each) of a query among n independent keys, uniform
    on the unit sphere of R^d, with logits β times the cosine, against n and the exponent of n in β.
    White: the critical exponent 2/(d−1) of the paper's abstract ({slopes}), which holds up to a
    constant factor of β, hence shifts at finite n. Only the {NEAREST:,} keys nearest to the query
    enter a sum; at small exponents the true coefficient is smaller still. Learned keys are not
    uniform.
    """


def draw():
    canvas, axes = style.panels(len(WIDTHS), width=style.PAGE, height=2.4)
    data = catalogue.results(DATA)["largest"]
    for box, d in zip(axes, WIDTHS, strict=True):
        mesh = box.pcolormesh(
            LENGTHS,
            EXPONENTS,
            np.array(data[str(d)]).T,
            vmin=0,
            vmax=1,
            shading="nearest",
            rasterized=True,
        )
        box.axhline(2 / (d - 1), color="white", linewidth=1.5, linestyle="--")
        box.set(xscale="log", xlabel="keys n", title=f"d = {d}")
        box.grid(visible=False)
    axes[0].set_ylabel("log β / log n")
    canvas.colorbar(mesh, ax=axes, location="right", pad=0.01).set_label("mean largest coefficient")
    return canvas
