"""Max retrieval, trained anew: accuracy and entropy as the set grows past its training sizes."""

from functools import partial

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure, quoted

FIGURE = Figure(
    title="Max retrieval past the training sizes",
    paper="velickovic",
    number="the max retrieval table",
    theorems="T1, T5",
    seconds=1,
    recompute_seconds=500,
    trains=True,
)
DATA = "max_retrieval.json"
SEEDS = 5
TICKS = [16, 128, 1024, 8192]


def recompute(seeds=None):
    from dispersion.experiments.max_retrieval_runs import run_missing

    keep = partial(catalogue.write_results, DATA)
    run_missing(catalogue.kept(DATA), SEEDS if seeds is None else seeds, keep)


def lengths():
    return catalogue.results(DATA)["settings"]["lengths"]


def over_seeds(training, key):
    """Values of shape (seeds, lengths) of the training with this index."""
    return np.array(
        [
            [run["trainings"][training]["measured"][str(n)][key] for n in lengths()]
            for run in catalogue.results(DATA)["runs"]
        ]
    )


def caption():
    data = catalogue.results(DATA)
    settings, runs = data["settings"], data["runs"]
    short, long = settings["steps"]
    at = {key: 100 * over_seeds(0, key).mean(axis=0) for key in ("plain", "published")}
    far = lengths().index(1024)
    minutes = sum(t["cpu_seconds"] for r in runs for t in r["trainings"]) / 60
    return f"""
    A head must find the item of largest priority and name its class, one of {settings["classes"]}.
    Trained by us on sets of {settings["shortest"]} to {settings["longest"]} items, tested on up to
    {lengths()[-1]:,}; means and ranges of {len(runs)} seeds, {minutes:.0f} minutes of one core. The
    paper's training could not be read, so sizes follow a recollection, except for width
    ({settings["width"]}), learning rate and steps: {short} were chosen so that accuracy at
    {lengths()[0]} items is close to the published one ({at["plain"][0]:.1f} % against
    {quoted("max_baseline_16")} %), {long} make it nearly perfect. Left: accuracy, with the
    published table (black; every other value of it is a recollection). Ours falls faster
    ({at["plain"][far]:.0f} % against {quoted("max_baseline_1024")} % at {lengths()[far]:,} items)
    and gains more from adaptive temperature at inference ({at["published"][far]:.0f} % against
    {quoted("max_adaptive_1024")} %). Right: entropy of the rows, which rises like that of a uniform
    row, log n, a fixed distance below it, in both trainings: training longer moves dispersion to
    longer sets and does not remove it. Chance is {100 / settings["classes"]:g} %.
    """


def band(axes, values, dash, colour, label):
    axes.plot(lengths(), values.mean(axis=0), dash, color=colour, label=label)
    axes.fill_between(
        lengths(), values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0
    )


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.9)
    steps = catalogue.results(DATA)["settings"]["steps"]
    for index, colour in ((0, style.BLUE), (1, style.ORANGE)):
        name = f"ours, {steps[index]} steps"
        band(left, 100 * over_seeds(index, "plain"), "-", colour, name)
        band(left, 100 * over_seeds(index, "published"), "--", colour, f"{name}, adaptive")
        band(right, over_seeds(index, "entropy"), "-", colour, name)
    for kind, dash, mark in (("baseline", "-", "o"), ("adaptive", "--", "s")):
        values = [quoted(f"max_{kind}_{n}") for n in lengths()]
        left.plot(
            lengths(),
            values,
            dash,
            marker=mark,
            color=style.BLACK,
            linewidth=0.9,
            markersize=2.8,
            label=f"published, {kind}",
        )
    left.axhline(
        100 / catalogue.results(DATA)["settings"]["classes"], color=style.GREY, linestyle=":"
    )
    right.plot(lengths(), np.log(lengths()), ":", color=style.BLACK, label="uniform row, log n")
    left.set(ylim=(0, 103), ylabel="accuracy, %")
    right.set(ylabel="entropy of the row, nats")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="items in the set, n")
        style.tokens(axes.xaxis, TICKS)
    left.legend(loc="lower left", bbox_to_anchor=(0, 0.1), fontsize=6)
    right.legend(loc="upper left", fontsize=6)
    return canvas
