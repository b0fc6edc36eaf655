"""Entropy, sink and needle: demos with and without QK norm, and a trained model's heads."""

import sys
import tempfile
from pathlib import Path

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.measure.summary import THRESHOLD

FIGURE = Figure(
    title="Where attention goes with and without QK norm",
    paper="bertsch",
    number="in the manner of Figures 7 and 8",
    theorems="T1, T3",
    seconds=1,
    recompute_seconds=900,
)
DATA = "attention_mass.json"
LOOKS = {
    "plain": ("no QK norm", "-", "o", style.BLUE),
    "headwise": ("headwise QK norm", "--", "s", style.RED),
    "layerwise": ("layerwise QK norm", "-.", "^", style.ORANGE),
}
PARTS = ("entropy", "first", "needle")


def recompute(seeds=None):
    from dispersion.experiments.attention_mass import measure_all

    demos = str(catalogue.folder().parent / "demos")
    sys.path.insert(0, demos)
    try:
        from task import sample
    finally:
        sys.path.remove(demos)

    def sequences(seed, count, length):
        tokens, _, needles = sample(np.random.default_rng([seed, 2, length]), count, length)
        return tokens, needles

    folder = Path(tempfile.gettempdir()) / "dispersion-attention-mass"
    folder.mkdir(exist_ok=True)
    measure_all(sequences, lambda value: catalogue.write_results(DATA, value), folder)


def of_demo(name, part):
    """Shape (lengths, heads)."""
    return np.array(catalogue.results(DATA)["demos"][name][part])


def trained(part):
    """Shape (layers, heads)."""
    return np.array(catalogue.results(DATA)["trained"][part])


def caption():
    data = catalogue.results(DATA)
    settings, model = data["settings"], data["trained"]
    last = settings["lengths"][-1]
    entropy = {name: of_demo(name, "entropy")[-1].mean() for name in LOOKS}
    best = {name: of_demo(name, "needle")[-1].max() for name in LOOKS}
    first = {name: of_demo(name, "first")[-1].mean() for name in LOOKS}
    scores = trained("scores")
    heads = scores >= THRESHOLD
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    found = sum(x["found"] for x in model["documents"])
    apart = trained("first") > 0.5
    return f"""
    Measured on the last query, hence no bound on other inputs. Above: the bundled demos, one layer
    of 4 heads (thin; thick: their mean), trained by us on {settings["lengths"][0]} tokens and run
    on longer sequences, means of {settings["sequences"]}. At {last:,} tokens the mean entropy is
    {entropy["plain"]:.2f} nats without QK norm, {entropy["headwise"]:.2f} with headwise and
    {entropy["layerwise"]:.2f} with layerwise norm (a uniform row has {np.log(last):.2f}), and the
    best head gives the needle {best["plain"]:.3f}, {best["headwise"]:.3f} and
    {best["layerwise"]:.3f}: the one with the tightest cap on its spread disperses most. None of
    them has a sink (first token at most {max(first.values()):.3f} in the mean over heads): nothing
    in their task rewards one. Three models of one seed are no evidence that QK norm is the cause.
    Below: {model["name"]}, which has no QK norm, on {len(model["documents"])} documents of
    {settings["length"]:,} tokens with a needle and a question; each mark is one of {scores.size}
    heads. Diamonds: the {int(heads.sum())} whose retrieval score is at least {THRESHOLD:g}, over
    the {found} documents whose answer the model wrote; the highest, {scores.max():.2f}, is head
    {head} of layer {layer}. {int(apart.sum())} heads give the first 4 tokens more than half. The
    paper's own figures show models of 7 billion parameters and could not be read.
    """


def draw():
    canvas, axes = style.panels(3, rows=2, width=style.PAGE, height=4.4)
    lengths = catalogue.results(DATA)["settings"]["lengths"]
    titles = ("entropy, nats", "share of the first token", "share of the needle")
    for column, (part, title) in enumerate(zip(PARTS, titles, strict=True)):
        top, low = axes[0, column], axes[1, column]
        for name, (label, dash, mark, colour) in LOOKS.items():
            values = of_demo(name, part)
            top.plot(lengths, values, dash, color=colour, linewidth=0.5, alpha=0.45)
            top.plot(lengths, values.mean(axis=1), dash, marker=mark, color=colour, label=label)
        if part == "entropy":
            top.plot(lengths, np.log(lengths), ":", color=style.BLACK, label="uniform row")
        top.set(xscale="log", xlabel="tokens (trained on 16)", ylabel=title)
        top.set_xticks(lengths, [str(n) for n in lengths])
        top.set_xticks([], minor=True)
        values, retrieves = trained(part), trained("scores") >= THRESHOLD
        layer = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        low.plot(layer[~retrieves], values[~retrieves], "o", color=style.SKY, markersize=2)
        low.plot(layer[retrieves], values[retrieves], "D", color=style.RED, markersize=2.6)
        low.plot(np.arange(len(values)), values.mean(axis=1), color=style.BLACK, linewidth=0.9)
        low.set(xlabel="layer", ylabel=title.replace("first token", "first 4 tokens"))
    axes[0, 0].legend(loc="upper left", fontsize=6)
    axes[0, 2].set_ylim(-0.03, 1.03)
    axes[1, 2].plot([], [], "D", color=style.RED, markersize=2.6, label="retrieval heads")
    axes[1, 2].plot([], [], color=style.BLACK, linewidth=0.9, label="mean of the layer")
    axes[1, 2].legend(loc="upper left", fontsize=6)
    return canvas
