"""QK norm with and without a sink, a gate and a log-length scale: accuracy by length."""

from functools import partial

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.experiments.qk_norm_results import accuracy, runs_of

FIGURE = Figure(
    title="QK norm, sinks, gates and length",
    paper="own",
    number="training that crosses three QK norms with four remedies",
    theorems="-",
    seconds=2,
    recompute_seconds=1800,
    trains=True,
)
DATA = "qk_norm_sinks.json"
SEEDS = 5
QK_NORMS = {"none": "no QK norm", "headwise": "headwise QK norm", "layerwise": "layerwise QK norm"}
REMEDIES = {
    "nothing": ("nothing", "o-", style.BLACK),
    "sink": ("learned sink", "s--", style.BLUE),
    "gate": ("output gate", "D:", style.RED),
    "log": ("s·log n", "^-.", style.GREEN),
}
TICKS = [64, 256, 1024, 4096]


def recompute(seeds=None):
    from click import echo

    from dispersion.experiments.qk_norm_runs import run_missing

    keep = partial(catalogue.write_results, DATA)
    say = partial(echo, err=True)
    run_missing(catalogue.kept(DATA), SEEDS if seeds is None else seeds, keep, say)


def caption():
    return f"{np.pi} {accuracy} {runs_of}"


def draw():
    data = catalogue.results(DATA)
    lengths = data["settings"]["lengths"]
    rows = {"answered": "answered rightly, %", "nothing": "nothing found rightly, %"}
    canvas, axes = style.panels(3, rows=len(rows), width=style.PAGE, height=4.2)
    for line, (kind, label) in zip(axes, rows.items(), strict=True):
        for box, (norm, title) in zip(line, QK_NORMS.items(), strict=True):
            for remedy, (name, look, colour) in REMEDIES.items():
                values = accuracy(runs_of(data, norm, remedy), kind)
                box.plot(lengths, values.mean(axis=0), look, color=colour, label=name)
                ends = values.min(axis=0), values.max(axis=0)
                box.fill_between(lengths, *ends, color=colour, alpha=0.12, linewidth=0)
            box.set(xscale="log", ylim=(-3, 103))
            style.tokens(box.xaxis, TICKS)
            if line is axes[0]:
                box.set_title(title)
            else:
                box.set_xlabel("items in the context, n")
        line[0].set_ylabel(label)
    axes[0][0].legend(loc="lower left")
    return canvas
