"""HELMET scores of the 26 OlmPool models: harmful choices, kinds of QK norm, two pairs."""

import numpy as np

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, quoted, table

FIGURE = Figure(
    title="HELMET by architecture",
    paper="bertsch",
    number="Appendix A, Tables 1-2, and the count of harmful choices",
    theorems="-",
    seconds=2,
)
KINDS = {"none": "no QK norm", "lw": "layerwise", "hw": "headwise"}
LOOK = {"none": ("o", style.BLUE), "lw": ("s", style.ORANGE), "hw": ("D", style.RED)}
SUSPECT = "G_pre_8kv_4k_14k"
ALL_KEYS = 32  # key heads where no query heads share one
SHORT = "4K"
SCORES = {"h8": "8K", "h16": "16K", "h32": "32K", "h64": "64K"}
PAIRS = (
    ("Llama 3", style.BLUE, "G_pre_8kv_8k_14k", "G_pre_LQK_8kv_8k_14k", "G_post_LQK_8kv_8k_14k"),
    (
        "OLMo 3",
        style.RED,
        "H_pre_32kv_8k_11k_SWA",
        "H_pre_LQK_32kv_8k_11k_SWA",
        "H_post_LQK_32kv_8k_11k_SWA",
    ),
)
DASHES = ("-", ":", "--")
VARIANTS = ("no QK norm, norms in front", "layerwise, norms in front", "layerwise, norms behind")


def models():
    """Rows of the table with the count of harmful choices and the score at 32K added."""
    for row in table("olmpool.csv"):
        choices = (
            row["qknorm"] != "none",
            int(row["kv"]) < ALL_KEYS,
            row["swa"] == "1",
            row["ctx"] == SHORT,
        )
        yield {**row, "harmful": sum(choices), "score": float(row["h32"])}


def line():
    """Least squares of the score on the count: slope, intercept, R²."""
    rows = list(models())
    x, y = (np.array([row[key] for row in rows], dtype=float) for key in ("harmful", "score"))
    slope, intercept = np.polyfit(x, y, 1)
    return slope, intercept, np.corrcoef(x, y)[0, 1] ** 2


def costs(pair):
    """Points that layerwise QK norm costs, alone and with norms behind the sublayers."""
    score = {row["hf_name"]: row["score"] for row in models()}
    return [score[pair[2]] - score[name] for name in pair[3:]]


def caption():
    rows = list(models())
    slope, _, r2 = line()
    means = {kind: np.mean([r["score"] for r in rows if r["qknorm"] == kind]) for kind in KINDS}
    inferred = sum(row["hf_inferred"] == "1" for row in rows)
    (alone, first), (other, second) = map(costs, PAIRS)
    return f"""
    Left: HELMET at {SCORES["h32"]} against how many of four choices a model makes: any QK norm,
    fewer than {ALL_KEYS} key heads, sliding windows, pretraining at {SHORT}. That reading of the
    count is ours; it gives R² = {r2:.3f} over {len(rows)} models (the paper's, quoted:
    {quoted("olmpool_r2"):.2f}) and {slope:.1f} points a choice. Middle: the same by kind of QK
    norm, bars at the means (none {means["none"]:.1f}, layerwise {means["lw"]:.1f}, headwise
    {means["hw"]:.1f}; the groups differ in the other choices too). Right: what QK norm costs two
    designs. Layerwise QK norm together with norms behind the sublayers costs {first:.1f} and
    {second:.1f} points at {SCORES["h32"]}, which are the pairs that fit the quoted effects of
    adding QK norm to one and removing it from the other ({quoted("olmpool_qknorm_added")} and
    {quoted("olmpool_qknorm_removed"):+g}); QK norm alone, with norms in front, {alone:.1f} and
    {other:.1f}. Values come from an unaffiliated site that copies the paper's appendix, not from
    the paper; {inferred} of the model names were blank there and were inferred from architecture
    and score (hollow marks). The RULER values of {SUSPECT} (ringed) equal another model's digit for
    digit and are suspect; its HELMET values are not known to be. Marks are shifted sideways so as
    not to hide each other. Correlation between a few designs, not a cause.
    """


def draw():
    canvas, (left, middle, right) = style.panels(3, width=style.PAGE, height=2.7)
    slope, intercept, r2 = line()
    rows = list(models())
    for place, (kind, text) in enumerate(KINDS.items()):
        mark, colour = LOOK[kind]
        mine = sorted((r for r in rows if r["qknorm"] == kind), key=lambda r: r["score"])
        spots = (np.arange(len(mine)) % 3 - 1) * 0.09
        for i, row in enumerate(mine):
            look = {"color": colour, "linestyle": "none"}
            if row["hf_inferred"] == "1":
                look["fillstyle"] = "none"
            label = text if i == len(mine) - 1 else None
            for axes, x in ((left, row["harmful"]), (middle, place)):
                axes.plot([x + spots[i] + (place - 1) * 0.05], [row["score"]], mark, **look)
                if row["hf_name"] == SUSPECT:
                    axes.plot(
                        [x + spots[i] + (place - 1) * 0.05],
                        [row["score"]],
                        "o",
                        color=style.BLACK,
                        fillstyle="none",
                        markersize=8,
                    )
        left.plot([], [], mark, color=colour, linestyle="none", label=label)
        mean = np.mean([row["score"] for row in mine])
        middle.plot([place - 0.3, place + 0.3], [mean, mean], color=style.BLACK)
    x = np.array([0, 4])
    left.plot(x, intercept + slope * x, "--", color=style.GREY, label=f"fit, R² = {r2:.3f}")
    left.set(xlabel="harmful choices", ylabel="HELMET at 32K, points", ylim=(24, 59))
    left.legend(loc="lower left")
    middle.set_xticks(range(len(KINDS)), KINDS.values())
    middle.set(ylim=(24, 59), xlim=(-0.5, 2.5), xlabel="QK norm")
    by_name = {row["hf_name"]: row for row in rows}
    for text, colour, *names in PAIRS:
        for name, dash in zip(names, DASHES, strict=True):
            values = [float(by_name[name][key]) for key in SCORES]
            right.plot(range(len(SCORES)), values, dash, marker="o", color=colour)
        right.plot([], [], "o", color=colour, label=text)
    for dash, text in zip(DASHES, VARIANTS, strict=True):
        right.plot([], [], dash, color=style.BLACK, label=text)
    right.set_xticks(range(len(SCORES)), SCORES.values())
    right.set(xlabel="HELMET length, tokens", ylabel="HELMET, points", ylim=(18, 64))
    right.legend(loc="lower left")
    return canvas
