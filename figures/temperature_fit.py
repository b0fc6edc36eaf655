"""The published entropy–temperature polynomial beside refits to our own trainings."""

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.experiments.adaptive import LEAST_ENTROPY, inverse_temperature, window

FIGURE = Figure(
    title="Adaptive temperature",
    paper="velickovic",
    number="Figure 5, the polynomial fit",
    theorems="T5",
    seconds=1,
)
DATA = "max_retrieval.json"
H = np.linspace(0, 7, 400)
TICKS = [16, 128, 1024, 8192]


def runs():
    return catalogue.results(DATA)["runs"]


def accuracy(training, key):
    lengths = catalogue.results(DATA)["settings"]["lengths"]
    return np.array(
        [[100 * r["trainings"][training]["measured"][str(n)][key] for n in lengths] for r in runs()]
    ).mean(axis=0)


def caption():
    low, high = window()
    lengths = np.array(catalogue.results(DATA)["settings"]["lengths"])
    gain = {key: accuracy(0, key) - accuracy(0, "plain") for key in ("published", "refit")}
    best = {key: int(values.argmax()) for key, values in gain.items()}
    return f"""
    Left: the factor that adaptive temperature puts on a row's logits by the row's entropy. The
    published polynomial (black) exceeds 1 only between {low:.3f} and {high:.3f} nats (shaded) and
    is not used below {LEAST_ENTROPY} nats: a nearly uniform row of more than e^{high:.2f} ≈
    {np.exp(high):,.0f} items is never sharpened. Thin lines: our own fits of the same degree, one a
    seed. Dots, a sample of what is fitted: for a set that plain softmax gets wrong and some factor
    puts right, the smallest such factor (on a grid up to
    {catalogue.results(DATA)["settings"]["most_factor"]:g}); how the published factors were chosen
    could not be read. Right: what each adds to the accuracy of the matched training. Ours adds up
    to {gain["refit"][best["refit"]]:.0f} points, at {lengths[best["refit"]]:,} items, the published
    one {gain["published"][best["published"]]:.0f}, at {lengths[best["published"]]:,}; on the
    longest sets, past all dots, the published one adds nothing, and fits of this degree go their
    own ways. Each refit is tested on other sets than it was fitted to, but on the same model; the
    published one was fitted to neither.
    """


def dots():
    return np.concatenate([np.array(r["trainings"][0]["fit_points"]) for r in runs()]).T


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.6)
    entropies, factors = dots()
    left.plot(
        entropies,
        factors,
        ".",
        color=style.SKY,
        markersize=1.5,
        alpha=0.5,
        label="smallest that helps, one set each",
    )
    for i, record in enumerate(runs()):
        refit = inverse_temperature(H, record["trainings"][0]["refit"])
        left.plot(H, refit, color=style.BLUE, linewidth=0.8, label=None if i else "our refits")
    left.plot(H, inverse_temperature(H), color=style.BLACK, label="published")
    low, high = window()
    left.axvspan(low, high, color=style.GREY, alpha=0.12, linewidth=0)
    left.set(
        yscale="log",
        ylim=(0.8, 60),
        xlabel="entropy of the row, nats",
        ylabel="factor on the logits",
    )
    left.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    left.set_yticks([], minor=True)
    left.legend(loc="upper left")
    lengths = catalogue.results(DATA)["settings"]["lengths"]
    for key, mark, colour, text in (
        ("published", "o-", style.BLACK, "published"),
        ("refit", "s--", style.BLUE, "our refits"),
    ):
        right.plot(lengths, accuracy(0, key) - accuracy(0, "plain"), mark, color=colour, label=text)
    right.axhline(0, color=style.GREY, linewidth=0.8)
    right.set(xscale="log", xlabel="items in the set, n", ylabel="added accuracy, points")
    style.tokens(right.xaxis, TICKS)
    right.legend(loc="upper left")
    return canvas
