"""QK norm with and without a sink, a gate and a log-length scale, past the training lengths."""

from functools import partial

from dispersion.drawing import catalogue
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="QK norm, sinks, gates and length",
    paper="own",
    number="the crossed training experiment",
    theorems="T1, T6, T7",
    seconds=2,
    recompute_seconds=1800,
    trains=True,
)
DATA = "qk_norm_sinks.json"
SEEDS = 5


def recompute(seeds=None):
    from click import echo

    from dispersion.experiments.qk_norm_runs import run_missing

    keep = partial(catalogue.write_results, DATA)
    say = partial(echo, err=True)
    run_missing(catalogue.kept(DATA), SEEDS if seeds is None else seeds, keep, say)
