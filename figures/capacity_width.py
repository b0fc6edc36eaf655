"""Capacity against head width and gain, and what it leaves of long contexts."""

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure
from dispersion.lengths import DEFAULT_LENGTHS, KILO, MEGA
from dispersion.planned import PlannedHead
from dispersion.planning import plan_length
from dispersion.report.rounding import print_largest_length
from dispersion.row import reachable_length
from dispersion.verdict import Target

FIGURE = Figure(
    title="Capacity by head width and gain",
    paper="own",
    number="T13",
    theorems="T1, T4, T12, T13, T13′",
    seconds=12,
)
WIDTHS = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256)
GAINS = (0.5, 1.0, 1.5, 2.25)
CURVES = (64, 96, 128, 256)
SHARE, LONG = 0.5, 128 * KILO
LENGTHS = [KILO * 2**i for i in range(11)]


def at(width, gain=1.0, n=LONG):
    return plan_length(PlannedHead(width, gain=gain), Target(n, SHARE, retrieval="any"))


def tokens(width, gain=1.0):
    """Tokens of one context that can get the share each (upper)."""
    return at(width, gain).retrievable


def caption():
    few, more = tokens(CURVES[0]), tokens(CURVES[2])
    one = reachable_length(at(CURVES[0]).spread, SHARE)
    return f"""
    Heads with headwise QK norm. Left: at most so many tokens of one context, however long, can get
    {SHARE:.0%} each from a query of their own, against the width of the head, for products of query
    and key gain of {", ".join(f"{g:g}" for g in GAINS)}; upper bounds (T12, T13, T13′). With unit
    gains a head of width {CURVES[0]} addresses at most {few:,.0f} tokens, a head of width
    {CURVES[2]} at most {more:,.0f}. Dashed: the longest row in which one privileged token can get
    {SHARE:.0%} at unit gain (T1, T4), {print_largest_length(one)} at width {CURVES[0]}; the two
    questions are orders of magnitude apart. Right: the ceiling on the share that every token of a
    context can get, unit gains (T12, T13, T13′). Not ruled out does not mean reachable.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.7)
    looks = zip(GAINS, "osD^", (style.SKY, style.BLACK, style.GREEN, style.RED), strict=True)
    for gain, mark, colour in looks:
        left.plot(
            WIDTHS,
            [tokens(w, gain) for w in WIDTHS],
            marker=mark,
            color=colour,
            label=f"any token, gain {gain:g}",
        )
    left.plot(
        WIDTHS,
        [reachable_length(at(w).spread, SHARE) for w in WIDTHS],
        "--",
        color=style.BLACK,
        label="one token, gain 1",
    )
    for n, text in ((LONG, "128K"), (MEGA, "1M")):
        left.axhline(n, color=style.GREY, linewidth=0.8)
        left.text(WIDTHS[-1], n * 1.25, text, fontsize=6.5, ha="right", color=style.GREY)
    left.set(yscale="log", ylim=(1, 1e16), xlabel="head width", ylabel="tokens, at most")
    left.set_xticks([16, 64, 96, 128, 192, 256])
    left.legend(loc="upper left")
    looks = zip(
        CURVES,
        ("-", "--", "-.", ":"),
        (style.RED, style.ORANGE, style.BLUE, style.GREEN),
        strict=True,
    )
    for width, dash, colour in looks:
        right.plot(
            LENGTHS,
            [at(width, n=n).any_ceiling for n in LENGTHS],
            dash,
            color=colour,
            label=f"width {width}",
        )
    right.axhline(SHARE, color=style.GREY, linewidth=0.8)
    right.set(xscale="log", ylim=(0, 1.05), xlabel="context, tokens")
    right.set_ylabel("share that every token can get, at most")
    style.tokens(right.xaxis, [KILO, *DEFAULT_LENGTHS])
    right.legend(loc="lower left")
    return canvas
