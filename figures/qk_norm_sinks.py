"""QK norm with and without a sink, a gate and a log-length scale: accuracy by length."""

from functools import partial

from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure
from dispersion.experiments.qk_norm_results import accuracy, changed, runs_of, with_error

FIGURE = Figure(
    title="QK norm, sinks, gates and length",
    paper="own",
    number="training that crosses three QK norms with four remedies",
    theorems="-",
    seconds=2,
    recompute_seconds=1400,
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


def at_end(norm, remedy, kind="all", steps=None):
    """Mean over seeds, per cent right at the longest length."""
    return accuracy(runs_of(catalogue.results(DATA), norm, remedy, steps), kind)[:, -1].mean()


def added(remedy):
    """What a remedy adds at the longest length, in words, for the three kinds in turn."""
    data = catalogue.results(DATA)
    against = [(runs_of(data, norm, remedy), runs_of(data, norm, "nothing")) for norm in QK_NORMS]
    return ", ".join(with_error(changed(*pair)) for pair in against)


def caption():
    data = catalogue.results(DATA)
    use = data["settings"]
    plain = {norm: runs_of(data, norm, "nothing") for norm in QK_NORMS}
    seeds = len(plain["none"])
    crossed = [run for run in data["runs"] if run["steps"] == use["steps"]]
    lowest = 100 * min(run["measured"][str(use["longest"])]["all"] for run in crossed)
    longer = use["steps"] * use["more"]
    far = f"{use['lengths'][-1]:,}"
    plainly = ", ".join(f"{at_end(norm, 'nothing'):.0f}" for norm in QK_NORMS)
    trained = ", ".join(f"{at_end(norm, 'nothing', steps=longer):.0f}" for norm in QK_NORMS)
    recall = ", ".join(f"{at_end(norm, 'nothing', 'recall'):.0f}" for norm in QK_NORMS)
    absent = ", ".join(f"{at_end(norm, 'nothing', 'nothing'):.0f}" for norm in QK_NORMS)
    scaled = ", ".join(f"{at_end(norm, 'log', 'nothing'):.0f}" for norm in QK_NORMS)
    cost = {norm: with_error(changed(plain[norm], plain["none"])) for norm in QK_NORMS}
    minutes = sum(run["cpu_seconds"] for run in data["runs"]) / 60
    return f"""
    Do a sink, a gate or a log-length scale take away what QK norm costs on long contexts?
    {use["layers"]} layers of {use["heads"]} heads of width {use["head_dim"]}, no positions; items
    do not attend. A query behind n of them names the value (one of {use["values"]}) of the item
    that bears its mark (needle) or has its key (recall); a quarter of the queries of either kind
    ask for one that is not there.
    Trained by us on {use["shortest"]} to {use["longest"]} items for {use["steps"]} steps, one
    recipe for all variants, and tested on up to {far}; means and ranges of {seeds} seeds, all in
    all {minutes:.0f} minutes of one core. Top: queries that have an answer; bottom: those that have
    none. At {use["longest"]} items every run gets at least {lowest:.1f} % of all right. Three
    numbers stand for no, headwise and layerwise QK norm at {far} items. Without a remedy
    {plainly} % are right ({recall} % of the recalls that have an answer, {absent} % of the queries
    that have none): headwise norm changes the whole by {cost["headwise"]} points (mean and
    standard error over seeds), layerwise by {cost["layerwise"]}, so the cost that is reported for
    large models does not show. A learned sink adds {added("sink")} points, a gate
    {added("gate")}, the scale s·log n {added("log")}: it alone helps every seed of every kind, and
    without QK norm or with the layerwise one it pays for that where nothing is to be found
    ({scaled} %). Trained {use["more"]} times as long (not drawn), without a remedy {trained} %: how
    long a model was trained matters more here than QK norm does. A toy without
    positions, depth, text or attention among items cannot show what these do in a language model.
    """


def draw():
    data = catalogue.results(DATA)
    lengths = data["settings"]["lengths"]
    rows = {"answered": "answered rightly, %", "nothing": "nothing found rightly, %"}
    canvas, axes = style.panels(3, rows=len(rows), width=style.PAGE, height=4.2)
    for i, (kind, label) in enumerate(rows.items()):
        for box, (norm, title) in zip(axes[i], QK_NORMS.items(), strict=True):
            for remedy, (name, look, colour) in REMEDIES.items():
                values = accuracy(runs_of(data, norm, remedy), kind)
                box.plot(lengths, values.mean(axis=0), look, color=colour, label=name)
                ends = values.min(axis=0), values.max(axis=0)
                box.fill_between(lengths, *ends, color=colour, alpha=0.12, linewidth=0)
            box.set(xscale="log", ylim=(40, 102))
            style.tokens(box.xaxis, TICKS)
            if i == 0:
                box.set_title(title)
            else:
                box.set_xlabel("items in the context, n")
        axes[i][0].set_ylabel(label)
    axes[0][0].legend(loc="lower left")
    return canvas
