"""What the heads of the QK-norm experiment do at each length, and what their weights allow."""

import numpy as np

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.experiments.qk_norm_results import (
    certified,
    entropy,
    measured,
    needle,
    runs_of,
    shed,
)

FIGURE = Figure(
    title="Heads under QK norm: needle, sink, entropy, ceiling, capacity",
    paper="own",
    number="the heads of that training",
    theorems="T1, T6, T7, T9, T12, T13",
    seconds=3,
)
DATA = "qk_norm_sinks.json"
QK_NORMS = {"none": "no QK norm", "headwise": "headwise QK norm", "layerwise": "layerwise QK norm"}
REMEDIES = {
    "nothing": ("nothing", "o-", style.BLACK),
    "sink": ("learned sink", "s--", style.BLUE),
    "gate": ("output gate", "D:", style.RED),
    "log": ("s·log n", "^-.", style.GREEN),
}
TICKS = [64, 256, 1024, 4096]


def best(runs):
    """Share of the item that is asked for, in each run's best head."""
    return needle(runs).max(axis=-1)


def most_shed(runs):
    """Share of opening token and learned sink in the head that sheds most, nothing to find."""
    return shed(runs, "nothing").max(axis=-1)


def mean_entropy(runs):
    return entropy(runs, "answered").mean(axis=-1)


def lowest_ceiling(runs):
    """Certified: the most that one token can get, in the head that allows least."""
    return certified(runs, "one").min(axis=-1)


def highest_capacity(runs):
    """Certified: log N of the head that allows most."""
    return certified(runs, "log_capacity").max(axis=-1)


ROWS = {
    "share of the item\nasked for, best head": best,
    "share of first token\nand sink, nothing\nto find, largest": most_shed,
    "entropy of rows,\nmean of heads, nats": mean_entropy,
    "certified ceiling of\none token, lowest head": lowest_ceiling,
    "certified log capacity,\nhighest head, nats": highest_capacity,
}


def at_end(reduce, remedy="nothing"):
    """For the three kinds of QK norm: the mean over seeds at the longest length."""
    data = catalogue.results(DATA)
    return [reduce(runs_of(data, norm, remedy))[:, -1].mean() for norm in QK_NORMS]


def listed(values, form):
    return ", ".join(f"{value:{form}}" for value in values)


def caption():
    data = catalogue.results(DATA)
    use = data["settings"]
    far = use["lengths"][-1]
    crossed = [run for run in data["runs"] if run["steps"] == use["steps"]]
    firsts = [most_shed(runs_of(data, norm, "nothing"))[:, 0].mean() for norm in QK_NORMS]
    second = use["heads"]
    held = measured(runs_of(data, "headwise", "nothing"), "largest")[:, -1, second:].max()
    loose = min(
        lowest_ceiling(runs_of(data, norm, remedy)).min()
        for norm in ("none", "layerwise")
        for remedy in ("nothing", "sink", "gate")
    )
    grown = highest_capacity(runs_of(data, "headwise", "log")).mean(axis=0)
    return f"""
    The heads of the same runs; means and ranges of seeds; three numbers stand for no, headwise and
    layerwise QK norm at {far:,} items without a remedy. First row: the share of the item that is
    asked for in each run's best head ({listed(at_end(best), ".2f")}). Second: where nothing is to
    be found, the share of the opening token and the learned sink together in the head that gives
    them most. At {use["lengths"][0]} items it is {listed(firsts, ".2f")} without a remedy, and a
    learned sink raises it, but it falls with n all the same (T7); it differs more between seeds
    than between norms. Third: entropy of the rows of
    queries that have an answer ({listed(at_end(mean_entropy), ".1f")} nats; grey: log n). Fourth:
    the certified ceiling of one token in the head that allows least (T1, T6, T7, T9). Headwise norm
    leaves it {at_end(lowest_ceiling)[1]:.2f} at {far:,} items; no head of the last layer, where
    these heads are, gives any key more than {held:.3f} there. Without QK norm and under layerwise
    norm no ceiling falls below {np.floor(1000 * loose) / 1000:g} unless logits are scaled by
    s·log n, where s ends near 0 in some heads. Fifth: log N of the head that allows most (T12, T13;
    {listed(at_end(highest_capacity), ".1f")} nats): at most N/p tokens of one context can get p
    each, and headwise norm leaves N about {np.exp(at_end(highest_capacity)[1]):,.0f} at any length;
    with s·log n it grows, from e^{grown[0]:.1f} to e^{grown[-1]:.1f}. In none of the {len(crossed)}
    runs does a measured coefficient or spread exceed its certificate.
    """


def draw():
    data = catalogue.results(DATA)
    lengths = np.array(data["settings"]["lengths"])
    canvas, axes = style.panels(3, rows=len(ROWS), width=style.PAGE, height=7.8)
    for line, (label, reduce) in zip(axes, ROWS.items(), strict=True):
        top = 1.03
        for box, (norm, title) in zip(line, QK_NORMS.items(), strict=True):
            for remedy, (name, look, colour) in REMEDIES.items():
                values = reduce(runs_of(data, norm, remedy))
                box.plot(lengths, values.mean(axis=0), look, color=colour, label=name)
                ends = values.min(axis=0), values.max(axis=0)
                box.fill_between(lengths, *ends, color=colour, alpha=0.12, linewidth=0)
                top = max(top, 1.05 * ends[1].max())
            if reduce in (mean_entropy, highest_capacity):
                box.plot(lengths, np.log(lengths), color=style.GREY, linewidth=0.8, label="log n")
                top = max(top, 1.05 * np.log(lengths[-1]))
            box.set(xscale="log")
            style.tokens(box.xaxis, TICKS)
            if reduce is best:
                box.set_title(title)
            if reduce is highest_capacity:
                box.set_xlabel("items in the context, n")
        for box in line:
            box.set(ylim=(-0.03 * top, top))
        line[0].set_ylabel(label)
    handles, names = axes[-1][0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside upper center", ncols=len(names))
    return canvas
