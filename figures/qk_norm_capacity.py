"""What T1, T11, T12 and T13 allow heads of those architectures from 4K to 1M tokens."""

import math

from dispersion.budget import layerwise_budget
from dispersion.drawing import style
from dispersion.drawing.catalogue import Figure, table
from dispersion.lengths import DEFAULT_LENGTHS, MEGA, parse_length
from dispersion.planned import PlannedHead
from dispersion.planning import largest_logit, plan_length
from dispersion.report.rounding import round_up
from dispersion.verdict import Target

FIGURE = Figure(
    title="What QK norm allows those architectures",
    paper="bertsch",
    number="the design space of OlmPool",
    theorems="T1, T11, T12, T13, T13′",
    seconds=10,
)
HEADS, HEAD_DIM, WINDOW = 32, 128, 4096
LENGTHS = sorted({*DEFAULT_LENGTHS, *(2 * n for n in DEFAULT_LENGTHS[:-1])})
SHARE = 0.5


def head(kind, keys=HEADS, **more):
    return PlannedHead(HEAD_DIM, norm=kind, heads=HEADS, key_heads=keys, **more)


def key_heads():
    return sorted({int(row["kv"]) for row in table("olmpool.csv")})


def at(planned, n):
    return plan_length(planned, Target(n, SHARE, retrieval="any"))


def addressable(planned):
    """log10 of the tokens of one context that can each get the share, N/p (upper)."""
    nats = at(planned, LENGTHS[-1]).log_capacity
    return (nats - math.log(SHARE)) / math.log(10)


def caption():
    one = head("headwise")
    top = LENGTHS[-1]
    keys = key_heads()
    budget = layerwise_budget((HEADS // keys[0],) * keys[0], HEAD_DIM)
    return f"""
    Upper bounds for unit gains, on the supposition of {HEADS} query heads of width {HEAD_DIM} (as
    Llama 3 8B and OLMo 3 7B have; the models' trained gains are not in the data, and larger gains
    lift every curve). Left: under headwise QK norm one token can still get up to
    {round_up(at(one, top).one_ceiling)} at {top:,} tokens, but every token of a context can get
    {SHARE:.0%}, each by its own query, in at most {at(one, top).retrievable + 1:,.0f} tokens; in
    local layers a window of {WINDOW:,} stops the fall. Under layerwise norm both ceilings round to
    1 throughout: with {keys[0]} key heads a single head's logits reach
    {round_up(budget.single.upper)}. That budget is shared: the mean over heads for one pair of
    tokens stays within {round_up(budget.mean.upper)} (T11), what headwise norm allows each head,
    and a layer whose heads keep equal norms is on the headwise curves; where each head picks a key
    token of its own it is no budget. Without QK norm nothing caps the logits and no ceiling below 1
    holds. Right: how many tokens of one context, however long, can get {SHARE:.0%} each (N/p,
    upper; T13 and T13′), by the number of key heads. Layerwise norm hardly binds by this measure,
    yet the models that have it score lower at HELMET too: these bounds do not explain the scores,
    and do not say what the trained heads do.
    """


def draw():
    canvas, (left, right) = style.panels(2, width=style.PAGE, height=3.0)
    rows = [at(head("headwise"), n) for n in LENGTHS]
    windowed = [at(head("headwise", window=WINDOW), n) for n in LENGTHS]
    wide = [at(head("layerwise", key_heads()[0]), n) for n in LENGTHS]
    left.plot(
        LENGTHS,
        [r.any_ceiling for r in wide],
        color=style.ORANGE,
        linewidth=3,
        label="layerwise, any token; no QK norm",
    )
    left.plot(
        LENGTHS,
        [r.one_ceiling for r in rows],
        "--",
        color=style.BLUE,
        label="headwise, one token (T1)",
    )
    left.plot(
        LENGTHS,
        [r.any_ceiling for r in windowed],
        ":s",
        color=style.GREEN,
        label=f"headwise, any token, window {WINDOW:,}",
    )
    left.plot(
        LENGTHS,
        [r.any_ceiling for r in rows],
        "o-",
        color=style.RED,
        label="headwise, any token (T12, T13)",
    )
    left.axhline(SHARE, color=style.GREY, linewidth=0.8)
    left.set(xscale="log", ylim=(0, 1.05), xlabel="context, tokens")
    left.set(ylabel="ceiling of the share", yticks=[0, 0.25, 0.5, 0.75, 1])
    style.tokens(left.xaxis, LENGTHS[::2])
    canvas.legend(loc="outside upper left", ncols=2)
    keys = key_heads()
    bars = [("headwise", head("headwise"), style.RED)]
    bars += [(f"layerwise, {k} key heads", head("layerwise", k), style.ORANGE) for k in keys]
    for y, (_, planned, colour) in enumerate(bars):
        value = addressable(planned)
        right.barh([y], [value], color=colour, height=0.6)
        text = f" κ = {round_up(largest_logit(planned).upper)}"
        right.text(max(value, math.log10(MEGA)), y, text, va="center", fontsize=6.5)
    right.set_yticks(range(len(bars) + 1), [b[0] for b in bars] + ["no QK norm"])
    right.text(math.log10(MEGA), len(bars), " no bound", va="center", fontsize=6.5)
    for text in ("128K", "1M"):
        place = math.log10(parse_length(text))
        right.axvline(place, color=style.GREY, linewidth=0.8, linestyle="--")
        side = {"ha": "right" if text == "128K" else "left", "va": "bottom"}
        right.text(place, -0.5, f" {text} ", fontsize=6, color=style.GREY, **side)
    right.set_ylim(len(bars) + 0.5, -0.5)
    limit = max(addressable(planned) for _, planned, _ in bars)
    right.set(xlim=(0, 1.3 * limit), xlabel=f"log10 of tokens that can get {SHARE:.0%} each")
    return canvas
