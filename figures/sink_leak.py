"""How a sink leaks as rows grow: a sink token with a fixed gap, a learned sink logit."""

import numpy as np

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, quoted
from dispersion.lengths import KILO, MEGA, format_length
from dispersion.row import max_coefficient, required_spread, sink_share

FIGURE = Figure(
    title="What leaks past a sink",
    paper="own",
    number="fixed sinks and length",
    theorems="T1, T4, T7",
    seconds=1,
)
TUNED = (4 * KILO, 32 * KILO, 256 * KILO)
TICKS = [KILO, 4 * KILO, 32 * KILO, 256 * KILO, MEGA]
N = np.geomspace(KILO, MEGA, 200)
SINKS = (0.0, 4.0, 8.0, 12.0)


def gap(n):
    """The gap that leaves the quoted leak in a row of n."""
    return required_spread(n, 1 - quoted("leak_share"))


def caption():
    leak, middle = quoted("leak_share"), TUNED[1]
    later = ", ".join(
        f"{1 - max_coefficient(n, gap(middle)):.0%} at {format_length(n)}"
        for n in (128 * KILO, MEGA)
    )
    return f"""
    Left: a token that is to take a head's attention when there is nothing to find stands a fixed
    gap above all other logits. Tuned so that {leak:.0%} leaks at {middle:,} tokens, a gap of
    {gap(middle):.2f} logits, it leaks {later}: this is T1 with the sink as the one item on top.
    Right: the share of a learned sink logit b (gpt-oss; b = 0 is softmax-off-by-one) when all other
    logits are 0 (T7). Either share falls like 1/n once n is well past e to the gap; a gate behind
    the attention does not depend on n.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.4)
    colours = (style.RED, style.BLACK, style.BLUE)
    for tuned, colour, dash in zip(TUNED, colours, ("--", "-", ":"), strict=True):
        left.plot(
            N,
            1 - max_coefficient(N, gap(tuned)),
            dash,
            color=colour,
            label=f"gap {gap(tuned):.1f}, tuned at {tuned // KILO}K",
        )
    left.axhline(quoted("leak_share"), color=style.GREY, linewidth=0.8)
    left.set(xscale="log", ylim=(0, 1), xlabel="tokens in the row", ylabel="share that leaks")
    left.legend(loc="upper left")
    looks = zip(
        SINKS,
        ("-", "--", "-.", ":"),
        (style.RED, style.ORANGE, style.GREEN, style.BLUE),
        strict=True,
    )
    for sink, dash, colour in looks:
        right.plot(N, sink_share(N, 0.0, sink=sink), dash, color=colour, label=f"b = {sink:g}")
    right.set(xscale="log", yscale="log", xlabel="tokens in the row", ylabel="share of the sink")
    right.legend(loc="lower left", ncols=2)
    for axes in (left, right):
        style.tokens(axes.xaxis, TICKS)
    return canvas
