"""The sentences of the terminal report: the question, where heads stop, what the words mean."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from statistics import median_low
from typing import TYPE_CHECKING

from dispersion.lengths import LONGEST, format_length
from dispersion.report.layout import clean
from dispersion.report.rounding import print_capacity, print_largest_length, round_down, round_up
from dispersion.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.enclosure import Enclosure
    from dispersion.previewing import DryRun
    from dispersion.results import Audit
    from dispersion.verdict import Target

_CLEARLY = 4.0  # logits above what is needed: from there on ceilings all print as nearly 1
_NAMED_GROUPS = 3  # more distinct stopping lengths than this are summarised by their range

LEGEND = (
    "cannot (ruled out): proved, no input reaches it. can (witnessed): an input was built that "
    "reaches it. unknown (unresolved): neither; not ruled out does not mean reachable. "
    "Upper bounds are printed rounded up, lower bounds down. Certificates concern exact "
    "arithmetic on the stored weights, and what a head could do, not what it does."
)


def plural(count: int, noun: str) -> str:
    """Print ``1 head``, ``8 heads``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def percent(coefficient: float) -> str:
    """Print a coefficient as a percentage, in full."""
    exact = Decimal(repr(coefficient)) * 100
    if exact < Decimal("1e-6"):
        return f"{exact.normalize():e}%"
    text = format(exact, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "%"


def headline(audit: Audit | DryRun) -> str:
    """Name the source and the model in one line."""
    model = audit.model
    facts = [str(model["model_type"])] if model.get("model_type") else []
    if model.get("layers") and model.get("query_heads"):
        size = f"{plural(model['layers'], 'layer')} × {plural(model['query_heads'], 'head')}"
        if model.get("key_heads") not in (None, model["query_heads"]):
            size += f" ({model['key_heads']} key)"
        facts.append(size)
    if model.get("head_dim"):
        facts.append(f"head_dim {model['head_dim']}")
    if model.get("qk_norm") is not None:
        norm = str(model["qk_norm"])
        facts.append("no QK norm" if norm == "none" else f"{norm} QK norm")
    return clean(", ".join(facts))


def apart(modules: Sequence[str]) -> list[str]:
    """The words by which attention modules differ, besides indices; "" where none do."""
    parts = [[word for word in module.split(".") if not word.isdigit()] for module in modules]
    if len({len(words) for words in parts}) > 1:
        return [clean(" ".join(words)) for words in parts]
    differ = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    kept = ([w for w, d in zip(words, differ, strict=True) if d] for words in parts)
    return [clean(" ".join(words)) for words in kept]


def question(targets: Sequence[Target]) -> str:
    """Ask what the targets ask, without the length and whatever else differs between them."""
    shares = {percent(target.coefficient) for target in targets}
    tokens = {target.sink_tokens for target in targets}
    share = shares.pop() if len(shares) == 1 else "the target"
    holder = "on one token"
    if tokens != {0}:
        many = plural(tokens.pop(), "sink token") if len(tokens) == 1 else "the sink tokens"
        holder = f"on {many} together"
    if {target.retrieval for target in targets} == {"any"}:
        return f"Can every token of a context get {share}, each from a query of its own?"
    return f"Can a head put {share} {holder}?"


def stops(audit: Audit) -> list[str]:
    """Say at which lengths heads stop; one sentence per group of heads."""
    if not audit.targets:
        return []
    share = percent(audit.targets[0].coefficient)
    bounded = [head for head in audit.heads if not math.isinf(head.spread.upper)]
    groups = Counter(h.largest_length for h in bounded if h.largest_length <= LONGEST)
    sentences = []
    if 0 < len(groups) <= _NAMED_GROUPS:
        for length, count in sorted(groups.items()):
            s = "s" if count == 1 else ""
            where = f"stop{s} at {print_largest_length(length)} tokens" if length >= 1 else ""
            sentences.append(f"{plural(count, 'head')} {where or 'cannot at any length'}.")
    elif groups:
        lengths = sorted(groups.elements())
        low, middle, high = (
            print_largest_length(x) for x in (lengths[0], median_low(lengths), lengths[-1])
        )
        sentences.append(
            f"{plural(len(lengths), 'head')} stop between {low} and {high} tokens "
            f"(half of them by {middle})."
        )
    if sentences:
        longer = f"no input reaches {share} in a longer row"
        if audit.targets[0].retrieval == "any":
            longer = f"in no longer context can every token get {share}"
        sentences[-1] = sentences[-1][:-1] + f": {longer}."
    free = [head for head in bounded if head.largest_length > LONGEST]
    if free and (groups or any(head.window for head in free)):
        windowed = sum(head.window is not None for head in free)
        verb = "is" if len(free) == 1 else "are"
        sentences.append(
            f"{plural(len(free), 'head')} {verb} not stopped at any length up to 2^53"
            + (f", {windowed} of them within a window." if windowed else ".")
        )
    return sentences


def unbounded(audit: Audit) -> list[str]:
    """Say which heads have no bound at all."""
    count = sum(math.isinf(head.spread.upper) for head in audit.heads)
    if not count:
        return []
    return [
        f"{plural(count, 'head')} unbounded: no norm caps what enters "
        f"{'it' if count == 1 else 'them'}, so no finite bound exists."
    ]


def limited_by_weights(audit: Audit) -> list[str]:
    """Say in words whether weights limit anything, and which cap would.

    Empty where some head is ruled out at a length asked, or nearly: the table says it better.
    """
    spreads = [head.spread.upper for head in audit.heads if not math.isinf(head.spread.upper)]
    if not spreads or not audit.targets or Verdict.RULED_OUT in audit.verdicts():
        return []
    target = max(audit.targets, key=lambda each: each.length)
    if target.retrieval == "any":
        return _capacities(audit)
    needed = required_logits(target)
    low, high = round_up(min(spreads)), round_up(max(spreads))
    spreads_are = f"{low} to {high}" if low != high else high
    share = f"{percent(target.coefficient)} at {format_length(target.length)}"
    at_least = round_down(needed.lower)
    if min(spreads) < needed.upper + _CLEARLY or needed.lower <= 0:
        return []
    return [
        "At these lengths no head is limited by its weights: its certified spread is "
        f"{spreads_are} logits, and {share} needs only {at_least}. The weights rule nothing out.",
        *_what_would_bind(audit, target, needed),
    ]


def _capacities(audit: Audit) -> list[str]:
    logs = [head.capacity.log_upper for head in audit.heads if head.capacity is not None]
    if not logs:
        return []
    low, high = print_capacity(min(logs)), print_capacity(max(logs))
    between = f"{low} to {high}" if low != high else high
    return [
        "At these lengths no head is limited by its weights: its capacity, the tokens that all can "
        f"be told apart in any context, is bounded by {between}. The weights rule nothing out."
    ]


def _what_would_bind(audit: Audit, target: Target, needed: Enclosure) -> list[str]:
    from dispersion import rigor

    below = f"Only a cap on spreads below {round_down(needed.lower)} logits would bind there"
    head_dim = audit.model.get("head_dim")
    if not isinstance(head_dim, int) or target.sink_tokens:
        return [below + "."]
    unit = unit_gain_spread(head_dim)
    holds = rigor.reachable_length(unit, target.coefficient).upper
    verb = "would" if unit < needed.lower else "would not"
    return [
        f"{below}. Headwise QK norm with unit gains, for one, {verb}: at head_dim {head_dim} it "
        f"allows {round_up(unit)} logits (2√head_dim), enough up to "
        f"{print_largest_length(holds)} tokens."
    ]


def required_logits(target: Target) -> Enclosure:
    """Enclose the spread that the target needs (T4), in logits."""
    from dispersion import rigor

    items = min(max(1, target.sink_tokens), target.length)
    return rigor.required_spread(target.length, target.coefficient, items=items)


def unit_gain_spread(head_dim: int) -> float:
    """Bound the spread under headwise QK norm with unit gains, 2√head_dim logits (T10, upper)."""
    from dispersion import rigor

    return rigor.sqrt_enclosure(4 * head_dim).upper
