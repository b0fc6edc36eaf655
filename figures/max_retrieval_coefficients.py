"""Heat-maps: what the items of highest priority get as the set doubles."""

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="Coefficients of the best items as sets double",
    paper="velickovic",
    number="the heat-maps of the max retrieval head",
    theorems="T1, T5",
    seconds=2,
)
DATA = "max_retrieval.json"
LEAST = 1e-3  # smaller coefficients have its colour
ROWS = {"plain": "softmax", "published": "adaptive"}


def maps():
    return catalogue.results(DATA)["runs"][0]["coefficients"]


def caption():
    found = maps()["plain"]
    first, last = (
        np.array(found[n])[:, 0].mean() for n in (min(found, key=int), max(found, key=int))
    )
    sets, items = np.array(next(iter(found.values()))).shape
    return f"""
    Each square shows {sets} sets (rows) and, in columns, the coefficients of their {items} items of
    highest priority, the needle first; sets double from left to right. From `max_retrieval`, seed
    {catalogue.results(DATA)["runs"][0]["seed"]}, the training matched to the published accuracy;
    the sets are fresh for every size. Above, plain softmax: the needle's mean coefficient falls
    from {first:.2f} to {last:.3f}. Below, the same rows with the published adaptive temperature,
    which sharpens most where rows are moderately spread out and stops short of the longest sets.
    """


def draw():
    found = maps()
    lengths = sorted(found["plain"], key=int)
    canvas, axes = style.panels(len(lengths), rows=len(ROWS), width=style.PAGE, height=1.8)
    for i, (kind, name) in enumerate(ROWS.items()):
        for j, n in enumerate(lengths):
            box = axes[i][j]
            shares = np.maximum(np.array(found[kind][n]), LEAST)
            image = box.imshow(shares, norm="log", vmin=LEAST, vmax=1, interpolation="nearest")
            box.set_xticks([])
            box.set_yticks([])
            box.grid(visible=False)
            for side in box.spines.values():
                side.set_visible(False)
            if i == 0:
                box.set_title(f"{int(n):,}", fontsize=7, loc="center")
        axes[i][0].set_ylabel(name)
    bar = canvas.colorbar(image, ax=axes, location="right", fraction=0.02, pad=0.01)
    bar.set_label(f"coefficient, {LEAST:g} or more", fontsize=7)
    canvas.supxlabel("items by priority, best at the left; number of items above", fontsize=7)
    return canvas
