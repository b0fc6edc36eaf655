"""The entropy floor by norm, with rows that attain it; the floor by spread, where k > 1 wins."""

import numpy as np

from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, quoted
from dispersion.row import closed_min_entropy, min_entropy, norm_min_entropy, row_entropy
from dispersion.testing import adversarial_rows

FIGURE = Figure(
    title="Entropy floors",
    paper="zhai",
    number="Theorem 3.1",
    theorems="T3, T3′",
    seconds=6,
)
SIZES = (16, 256, 4096)
NORMS = np.linspace(0, 20, 200)
N, SPREADS = 1024, np.linspace(0.25, 14, 56)


def two_level(k, spread):
    """Entropies with k of N items at the top, one for each k."""
    return row_entropy(np.where(np.arange(N) < k[:, None], 0.0, -spread))


def best_count(spread):
    """The k in 1..N-1 that minimises the entropy: it falls, then rises."""
    low, high = 1, N - 1
    while low < high:
        middle = (low + high) // 2
        first, second = two_level(np.array([middle, middle + 1]), spread)
        low, high = (low, middle) if first <= second else (middle + 1, high)
    return low


def caption():
    gemma = quoted("gemma2b_spread_mean")
    k, one = best_count(gemma), float(two_level(np.array([1]), gemma)[0])
    above = next(s for s in SPREADS if best_count(s) == 1)
    return f"""
    Left: the floor of the entropy of T logits whose centred 2-norm is at most σ, with the rows that
    attain it (one logit high, the rest low and equal) and other rows of the same norm above it
    (half of the logits high, a ramp). The σ of the theorem bounds the norm of a row of logits by
    the product of spectral norms of weights and inputs. Middle: when the spread δ is what is
    bounded, one high logit is not the row of least entropy. With n = {N:,} and the mean spread
    quoted for Gemma 2B, δ = {gemma}, the floor is {min_entropy(N, gemma):.2f} nats, attained by {k}
    equal logits at the top; one at the top leaves {one:.2f} nats. Right: the number k of high
    logits in the row of least entropy, found by search; it reaches 1 at δ ≈ {above:.3g}.
    """


def other_rows(n, norm):
    """Entropies of rows of this norm that are not extremal, by name."""
    for name in ("half at the top", "ramp"):
        row = adversarial_rows(n, 1.0)[name]
        row = row - row.mean()
        yield name, float(row_entropy(row * (norm / np.linalg.norm(row))))


def draw():
    canvas, (left, middle, right) = style.panels(3, width=style.PAGE, height=2.6)
    for size, colour in zip(SIZES, (style.GREEN, style.BLUE, style.RED), strict=True):
        left.plot(NORMS, norm_min_entropy(float(size), NORMS), color=colour)
        at = NORMS[5::24]
        rows = [adversarial_rows(size, 1.0)["one at the top"] for _ in at]
        centred = [row - row.mean() for row in rows]
        reached = [
            float(row_entropy(r * (s / np.linalg.norm(r))))
            for r, s in zip(centred, at, strict=True)
        ]
        left.plot(at, reached, "o", color=colour, label=f"T = {size:,}")
        for norm in at:
            for name, entropy in other_rows(size, norm):
                mark = "_" if name == "ramp" else "+"
                left.plot([norm], [entropy], mark, color=colour, markersize=4, alpha=0.6)
    left.set(
        ylim=(-0.4, 11),
        xlabel="norm σ of the centred row, logits",
        ylabel="entropy, nats",
        title="floor by norm",
    )
    left.legend(loc="upper right")
    middle.plot(
        SPREADS,
        [two_level(np.array([1]), s)[0] for s in SPREADS],
        "--",
        color=style.ORANGE,
        label="one at the top",
    )
    middle.plot(SPREADS, min_entropy(float(N), SPREADS), color=style.BLACK, label="floor (T3)")
    closed = closed_min_entropy(float(N), SPREADS)
    middle.plot(
        SPREADS[closed > 0], closed[closed > 0], ":", color=style.BLUE, label="closed floor"
    )
    middle.set(xlabel="spread δ, logits", title=f"floor by spread, n = {N:,}")
    middle.legend(loc="lower left")
    right.plot(SPREADS, [best_count(s) for s in SPREADS], ".-", color=style.BLACK)
    right.set(yscale="log", xlabel="spread δ, logits", title=f"high logits k, n = {N:,}")
    right.set_yticks([1, 10, 100], ["1", "10", "100"])
    return canvas
