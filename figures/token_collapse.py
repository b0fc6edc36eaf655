"""Inner product of tokens after one layer whose logits grow as γ·log n: simulation and limit."""

import numpy as np

from dispersion.drawing import catalogue, published, style
from dispersion.drawing.catalogue import Figure
from dispersion.schedules import log_length

FIGURE = Figure(
    title="Collapse of tokens and the scale log n",
    paper="chen",
    number="the simulation of Figures 1-2",
    theorems="-",
    seconds=1,
    recompute_seconds=60,
)
DATA = "token_collapse.json"
SEED, RHO = 0, 0.5
WIDTHS = (512, 32, 2)
LENGTHS = (64, 512, 2048)
GAMMAS = np.round(np.linspace(0, 5, 26), 2)
QUERIES, DRAWS = 64, 12


def products(rng, d, n):
    """Mean inner product of two outputs for each γ, one draw of n tokens."""
    common, own = rng.standard_normal(d), rng.standard_normal((n, d))
    x = RHO**0.5 * common + (1 - RHO) ** 0.5 * own
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    inner = x[:QUERIES] @ x.T
    for gamma in GAMMAS:
        logits = log_length(n, float(gamma)) * inner
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        y = shares @ x / shares.sum(axis=1, keepdims=True)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        yield ((y @ y.T).sum() - len(y)) / (len(y) * (len(y) - 1))


def recompute(seeds=None):
    rng = np.random.default_rng(SEED)
    found = {}
    for d in WIDTHS:
        for n in LENGTHS:
            total = sum(np.array(list(products(rng, d, n))) for _ in range(DRAWS))
            found[f"{d},{n}"] = [round(float(x), 5) for x in total / DRAWS]
    catalogue.write_results(DATA, {"seed": SEED, "products": found})


def caption():
    return f"""
    Mean inner product of two tokens, normalised, after one attention layer without weights (K, Q, V
    the identity) whose logits are inner products times γ·log n. Inputs are √ρ·z₀ + √(1−ρ)·z_i,
    normalised, with ρ = {RHO:g}, Gaussian z, width d: means of {DRAWS} draws, {QUERIES} tokens
    each. Grey: the paper's limit n → ∞ for tokens whose inner products are all ρ. Below γ = 1/(1−ρ)
    = {1 / (1 - RHO):g} tokens collapse to one, above it the layer leaves them as they were. Wide
    tokens approach that slowly; in {WIDTHS[-1]} dimensions they are far from equidistant and
    nothing of the kind shows. The limit is quoted from a text about the paper.
    """


def draw():
    canvas, axes = style.panels(len(WIDTHS), width=style.PAGE, height=2.4)
    data = catalogue.results(DATA)["products"]
    looks = list(zip(("-", "--", "-."), (style.RED, style.BLUE, style.BLACK), strict=True))
    fine = np.linspace(GAMMAS[0], GAMMAS[-1], 1000)
    for box, d in zip(axes, WIDTHS, strict=True):
        box.plot(
            fine,
            published.collapsed_product(RHO, fine),
            color=style.GREY,
            linewidth=2.5,
            alpha=0.5,
            label="limit",
        )
        for n, (dash, colour) in zip(LENGTHS, looks, strict=True):
            box.plot(GAMMAS, data[f"{d},{n}"], dash, color=colour, label=f"n = {n:,}")
        box.set(ylim=(-0.05, 1.05), xlabel="γ", title=f"d = {d}")
    axes[0].set_ylabel("inner product of two outputs")
    axes[-1].legend(loc="lower left")
    return canvas
