"""How far certified upper bounds lie above what was reached, on tiny checkpoints."""

import json

import numpy as np

import dispersion
from dispersion import demo
from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure

FIGURE = Figure(
    title="Upper and lower bounds",
    paper="own",
    number="certificates, witnesses and ascent",
    theorems="T9, T10, T12, T13",
    seconds=1,
    recompute_seconds=300,
)
DATA = "bounds_gap.json"
LENGTHS = (3, 5, 9, 17, 33, 65)
LITTLE = 0.01
DEMOS = ("headwise", "layerwise")


def recompute(seeds=None):
    heads, longest = [], 0
    golden = catalogue.folder().parent / "tests" / "data"
    for path in sorted(golden.glob("*/adversarial.json")):
        found = json.loads(path.read_text(encoding="utf-8"))["heads"]
        longest = max(longest, *(int(n) for h in found for n in h["spread"]))
        reached = {(h["layer"], h["head"]): max(h["spread"].values()) for h in found}
        # A layer that encodes and one that decodes, say, would share an index: such files are left.
        audit = dispersion.audit(path.parent, [dispersion.Target(64)], jobs=1)
        if len({(h.layer, h.head) for h in audit.heads}) < len(audit.heads):
            continue
        for head in audit.heads:
            at = (head.layer, head.head)
            if at in reached and np.isfinite(head.spread.upper) and head.spread.upper > 0:
                heads.append(
                    {
                        "checkpoint": path.parent.name,
                        "layer": head.layer,
                        "head": head.head,
                        "lower": head.spread.lower,
                        "upper": head.spread.upper,
                        "product": head.paper_spread,
                        "reached": reached[at],
                    }
                )
    contexts = {}
    for name in DEMOS:
        # A share so small is not ruled out, so that a context is sought.
        targets = [dispersion.Target(n, LITTLE, retrieval="any") for n in LENGTHS]
        audit = dispersion.audit(demo.path(name), targets, jobs=1)
        contexts[name] = [
            [
                max(getattr(h.results[i].ceiling, end) for h in audit.heads)
                for end in ("lower", "upper")
            ]
            for i in range(len(LENGTHS))
        ]
    catalogue.write_results(DATA, {"heads": heads, "longest": longest, "contexts": contexts})


def ratios():
    heads = catalogue.results(DATA)["heads"]
    value = {
        key: np.array([h[key] for h in heads]) for key in ("lower", "upper", "product", "reached")
    }
    return {
        "witness": value["upper"] / value["lower"],
        "reached": value["upper"] / value["reached"],
        "product": value["product"] / value["upper"],
    }


def caption():
    data, ratio = catalogue.results(DATA), ratios()
    names = {h["checkpoint"] for h in data["heads"]}
    lower, upper = data["contexts"]["headwise"][-1]
    return f"""
    Left: {len(data["heads"])} heads of {len(names)} of the tiny checkpoints that the tests use
    (random weights, gains and biases; heads with a finite bound), each curve sorted by itself. The
    certified spread over free rotation angles exceeds the rigorously evaluated witness by
    {np.median(ratio["witness"]) - 1:.1%} in the median and {ratio["witness"].max() - 1:.0%} at
    most, and what ascent reached in the real modules, on contexts of up to {data["longest"]}
    tokens, by {np.median(ratio["reached"]) - 1:.1%} in the median; the looser product bound of the
    weights' norms exceeds the certificate by {np.median(ratio["product"]) - 1:.1%} in the median.
    Right: the share that every token of a context can get, best head of two bundled demos:
    certified above, contexts built and evaluated below. At {LENGTHS[-1]} tokens the share in
    `demo:headwise` lies between {lower:.2f} and {upper:.2f}; where the truth lies between is open.
    Trained models of real size are not among these: their weights rarely bind.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.6)
    looks = {
        "product": ("product bound / certified", style.ORANGE, "--"),
        "reached": ("certified / ascent, real offsets", style.BLUE, "-."),
        "witness": ("certified / witness", style.BLACK, "-"),
    }
    for key, (text, colour, dash) in looks.items():
        values = np.sort(ratios()[key])
        share = (np.arange(len(values)) + 0.5) / len(values)
        left.plot(100 * share, values, dash, color=colour, label=text)
    left.set(yscale="log", xlabel="share of heads, %", ylabel="ratio of spreads")
    left.set_yticks([1, 1.5, 2, 3], ["1", "1.5", "2", "3"])
    left.set_yticks([], minor=True)
    left.legend(loc="upper left")
    contexts = catalogue.results(DATA)["contexts"]
    for name, colour in zip(DEMOS, (style.BLUE, style.RED), strict=True):
        ends = np.array(contexts[name])
        right.plot(LENGTHS, ends[:, 1], "v-", color=colour, label=f"demo:{name}, at most")
        right.plot(LENGTHS, ends[:, 0], "^--", color=colour, label=f"demo:{name}, reached")
        right.fill_between(LENGTHS, ends[:, 0], ends[:, 1], color=colour, alpha=0.15, linewidth=0)
    right.set(xscale="log", ylim=(0, 1.05), xlabel="tokens of the context")
    right.set_ylabel("share that every token can get")
    style.tokens(right.xaxis, list(LENGTHS))
    right.legend(loc="lower left")
    return canvas
