"""Gates and sinks: first-token share, largest activation and perplexity of seven variants."""

from itertools import combinations

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, quoted

FIGURE = Figure(
    title="Gates and sinks",
    paper="qiu",
    number="Table 4",
    theorems="-",
    seconds=1,
)
NAMES = {
    "baseline": "no gate",
    "elementwise": "elementwise gate",
    "headwise": "headwise gate",
    "value": "value gate",
    "shared": "gate shared by heads",
    "independent": "input-independent gate",
    "ns_sigmoid": "gate above ½",
}
LOOKS = zip(
    "osD^vPX",
    (style.BLACK, style.BLUE, style.GREEN, style.ORANGE, style.PINK, style.SKY, style.RED),
    strict=True,
)
MARKS = dict(zip(NAMES, LOOKS, strict=True))


def against():
    """Pairs of variants in which the one with the weaker sink has the higher perplexity."""
    rows = [(quoted(f"gate_{key}_sink"), quoted(f"gate_{key}_perplexity")) for key in NAMES]
    return [(a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(rows, 2)]


def caption():
    pairs = against()
    base, gated = quoted("gate_baseline_sink"), quoted("gate_elementwise_sink")
    return f"""
    Seven variants of one model, as a reader transcribed them from the paper's table; nothing here
    was measured by us. A gate behind the attention output, computed for each head and token, takes
    the first token's share from {base:.1%} to {gated:.1%} and the largest activation from
    {quoted("gate_baseline_activation"):g} to {quoted("gate_elementwise_activation"):g}; gates on
    values, shared by heads, independent of the input, or never below ½ take less. Perplexity is
    lower where the sink is weaker in all but {sum(pairs)} of the {len(pairs)} pairs of variants.
    Later work reports that the reduction does not reproduce at a small scale.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.5)
    for key, name in NAMES.items():
        mark, colour = MARKS[key]
        sink = quoted(f"gate_{key}_sink")
        look = {"color": colour, "linestyle": "none", "markersize": 5}
        left.plot([sink], [quoted(f"gate_{key}_activation")], mark, label=name, **look)
        right.plot([sink], [quoted(f"gate_{key}_perplexity")], mark, **look)
    for axes, label in ((left, "largest activation"), (right, "perplexity")):
        axes.set(xlim=(0, 0.5), xlabel="attention on the first token, mean of layers", ylabel=label)
    left.set(yscale="log")
    canvas.legend(loc="outside right upper")
    return canvas
