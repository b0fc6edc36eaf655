"""Dispersion of a trained and of random heads under both ceilings; lengths that spreads reach."""

import json

import numpy as np

import dispersion
from dispersion import demo
from dispersion.drawing import catalogue, style
from dispersion.drawing.catalogue import Figure, quoted
from dispersion.report.rounding import print_largest_length, round_up
from dispersion.row import loose_max_coefficient, max_coefficient, reachable_length

FIGURE = Figure(
    title="What a spread of logits allows",
    paper="velickovic",
    number="Lemma 2.1 and the spreads measured in Gemma",
    theorems="T1, T4, T10",
    seconds=2,
    recompute_seconds=5,
)
DATA = "ceiling.json"
LENGTHS = [16, 32, 64, 256, 1024, 4096, 16384]
ROWS, SEED, WIDTH = 64, 0, 16
SHARES = (0.5, 0.1)
MODELS = {"gemma2b": "Gemma 2B", "gemma7b": "Gemma 7B"}
KINDS = ("lowest", "mean", "highest")


def recompute(seeds=None):
    rng = np.random.default_rng(SEED)
    largest = {}
    for n in LENGTHS:
        query, keys = rng.standard_normal((ROWS, WIDTH)), rng.standard_normal((ROWS, n, WIDTH))
        query *= WIDTH**0.5 / np.linalg.norm(query, axis=-1, keepdims=True)
        keys *= WIDTH**0.5 / np.linalg.norm(keys, axis=-1, keepdims=True)
        logits = np.einsum("rd,rnd->rn", query, keys) * WIDTH**-0.5
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        largest[n] = round(float((1 / weights.sum(axis=1)).mean()), 8)
    spread = max(head.spread.upper for head in dispersion.audit(demo.path("headwise")).heads)
    value = {"seed": SEED, "rows": ROWS, "largest": largest, "certified_spread": spread}
    catalogue.write_results(DATA, value)


def trained():
    text = (demo.path("headwise") / "demo.json").read_text(encoding="utf-8")
    found = json.loads(text)["measured"]
    return {int(n): at["needle_coefficient"] for n, at in found.items()}


def caption():
    data = catalogue.results(DATA)
    spread, needle = data["certified_spread"], trained()
    n = max(needle)
    middle = quoted("gemma2b_spread_mean")
    reach = print_largest_length(reachable_length(middle, SHARES[0]))
    loose = loose_max_coefficient(1, middle) / SHARES[0]
    return f"""
    Left: no row of n logits whose spread is at most δ can put more on one token than the exact
    ceiling, and a row attains it; the published e^δ/n lies above, and above {1:.0%} for short rows.
    δ = {round_up(spread)} is certified for every head of the bundled `demo:headwise` (unit-gain QK
    norm, head_dim {WIDTH}). Dots: what its best head gives the needle on average, trained on
    {min(needle)} tokens (at {n:,} tokens {needle[n]:.4f}, under a ceiling of
    {max_coefficient(n, spread):.2f}); diamonds: the largest coefficient of random heads with the
    same norm, mean of {data["rows"]} rows. Right: the longest row in which one token can get
    {SHARES[0]:.0%} or {SHARES[1]:.0%}, for spreads that the paper measured on about
    {quoted("gemma_tokens"):g} tokens of source text (quoted by way of another text). The mean
    spread of Gemma 2B, {middle} logits, reaches {SHARES[0]:.0%} up to {reach} tokens; the published
    form would allow {loose:,.0f}. Other inputs may spread these heads further.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=2.7)
    data, needle = catalogue.results(DATA), trained()
    spread = data["certified_spread"]
    n = np.geomspace(min(LENGTHS), max(LENGTHS), 200)
    left.plot(
        n, loose_max_coefficient(n, spread), "--", color=style.ORANGE, label="published e^δ/n"
    )
    left.plot(n, max_coefficient(n, spread), color=style.BLACK, label="exact ceiling (T1)")
    left.plot(
        list(needle), list(needle.values()), "o-", color=style.BLUE, label="trained head, needle"
    )
    values = [data["largest"][str(m)] for m in LENGTHS]
    left.plot(LENGTHS, values, "D:", color=style.GREEN, label="random head, largest")
    left.plot(n, 1 / n, ":", color=style.GREY, label="uniform, 1/n")
    left.set(xscale="log", yscale="log", ylim=(2e-5, 8), xlabel="items in the row, n")
    left.set(ylabel="attention on one token", title=f"spread δ ≤ {round_up(spread)} logits")
    style.tokens(left.xaxis, LENGTHS[::2])
    left.legend(loc="lower left")
    labels, y = [], 0
    for model, text in MODELS.items():
        for kind in KINDS:
            delta = quoted(f"{model}_spread_{kind}")
            for p, mark, colour in zip(SHARES, "os", (style.BLUE, style.RED), strict=True):
                shown = {"color": colour, "linestyle": "none", "clip_on": False}
                one = f"exact, {p:.0%} on one token" if not y else None
                other = f"published form, {p:.0%}" if not y else None
                right.plot([reachable_length(delta, p)], [y], mark, label=one, **shown)
                loose = loose_max_coefficient(1, delta) / p
                right.plot([loose], [y + 0.28], mark, fillstyle="none", label=other, **shown)
            labels.append(f"{text} {kind}: {delta}")
            y += 1
    right.set_yticks(range(y), labels)
    right.invert_yaxis()
    right.set(xscale="log", xlim=(1, 1e17), xlabel="longest row, tokens")
    right.set_title("measured spreads in logits")
    right.legend(loc="upper right")
    return canvas
