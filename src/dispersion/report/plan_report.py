"""The plan a person reads: what the head can do at each length, then what it would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dispersion.enclosure import Enclosure, Estimate
from dispersion.lengths import format_length
from dispersion.planned import WIDEST
from dispersion.report.layout import Column, Style, paragraph, table
from dispersion.report.rounding import (
    print_ceiling,
    print_largest_length,
    round_down,
    round_up,
)
from dispersion.report.wording import percent

if TYPE_CHECKING:
    from dispersion.planned import HeadPlan, LengthPlan, Need, NormComparison, PlannedHead, Quantity

DIGITS = 5  # so that rounding moves a solved value by far less than 0.1 %
_NAMES = {
    "gain": "gain product, at least",
    "sigma": "sigma, at least",
    "temperature": "temperature, at most",
    "log_factor": "schedule log:C, C at least",
    "head_dim": "head_dim, at least",
}
_KINDS = {"one": "one token", "any": "any token"}


def render_plan(plan: HeadPlan, *, width: int = 80, style: Style | None = None) -> str:
    """Write the plan as text of at most `width` columns, numbers permitting."""
    style = style or Style()
    blocks = [
        _title(plan, width, style),
        _lengths(plan, width, style),
        _sentences(plan, width),
        _needs(plan, width, style),
        [] if plan.norms is None else _norms(plan.norms, width, style),
        [style.dim(line) for line in paragraph(_legend(plan), width)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _title(plan: HeadPlan, width: int, style: Style) -> list[str]:
    facts = ", ".join(_facts(plan.head))
    lines = paragraph(f"Planned head: {facts}", width, hanging="  ")
    lines[0] = lines[0].replace("Planned head", style.bold("Planned head"))
    logit = round_up(plan.largest_logit)
    spread = f"Its largest logit is {logit}"
    if plan.head.norm == "layerwise":
        spread += ", when it takes all of the layer's norm"
    longest = plan.lengths[-1]
    if plan.head.schedule.varies or plan.head.soft_cap or plan.head.temperature != 1:
        through = [
            *(["the schedule"] if plan.head.schedule.varies else []),
            *(["the cap"] if plan.head.soft_cap else []),
            *(["the temperature"] if plan.head.temperature != 1 else []),
        ]
        spread += f"; after {' and '.join(through)} a row spreads by at most "
        spread += f"{round_up(longest.spread)} at {format_length(longest.target.length)}."
    else:
        spread += f": a row spreads by at most {round_up(longest.spread)}."
    return [*lines, *paragraph(spread, width)]


def _facts(head: PlannedHead) -> list[str]:
    facts = [f"head_dim {head.head_dim}"]
    if head.rank is not None:
        facts.append(f"rank {head.rank}")
    norms = {"none": "no QK norm", "l2": "L2 QK norm"}
    facts.append(norms.get(head.norm, f"{head.norm} QK norm"))
    if head.heads is not None:
        facts.append(f"{head.heads} heads over {head.groups} key heads")
    if head.norm == "none":
        facts.append(f"sigma {head.sigma:.7g}")
    else:
        gain = head.gain.upper if isinstance(head.gain, Enclosure) else head.gain
        facts.append("unit gains" if head.gain == 1 else f"gain product {gain:.7g}")
        default = "1" if head.norm == "l2" else f"1/√{head.head_dim}"
        facts.append(f"scale {default if head.scale is None else f'{head.scale:.7g}'}")
    if str(head.schedule) != "constant:1":
        facts.append(f"schedule {head.schedule}")
    for name, value in (("soft cap", head.soft_cap), ("sink logit", head.sink)):
        if value is not None:
            facts.append(f"{name} {value:.7g}")
    if head.temperature != 1:
        facts.append(f"temperature {head.temperature:.7g}")
    if head.window is not None:
        facts.append(f"window {format_length(head.window)}")
    return facts


def _share(plan: HeadPlan) -> str:
    shares = {row.target.coefficient for row in plan.lengths}
    return percent(shares.pop()) if len(shares) == 1 else "the target"


def _lengths(plan: HeadPlan, width: int, style: Style) -> list[str]:
    rows = plan.lengths
    columns = [Column("length", [format_length(row.target.length) for row in rows])]
    if len({row.target.coefficient for row in rows}) > 1:
        columns.append(Column("target", [percent(row.target.coefficient) for row in rows]))
    if plan.head.schedule.varies:
        columns.append(Column("factor", [round_up(r.multiplier.upper) for r in rows], 2))
    if "one" in plan.retrievals:
        columns.append(
            Column(
                "one token ≤", [print_ceiling(r.one_ceiling, r.target.coefficient) for r in rows]
            )
        )
    if "any" in plan.retrievals:
        columns.append(Column("any token ≤", [_any(r) for r in rows]))
        columns.append(Column("capacity ≤", [_capacity(r) for r in rows], 3))
    if plan.head.sink is None:
        columns.append(Column("entropy ≥", [round_down(r.entropy_floor or 0.0, 3) for r in rows]))
    columns.append(Column("ruled out", [_ruled_out(plan, row) for row in rows]))
    lines, _ = table(columns, width, style)
    asked = {"one": "one token", "any": "every token of a context"}
    who = " and ".join(asked[kind] for kind in plan.retrievals)
    title = f"How much can {who} get? Asked for: {_share(plan)}"
    return [*(style.bold(line) for line in paragraph(title, width)), *lines]


def _any(row: LengthPlan) -> str:
    text = print_ceiling(row.any_ceiling, row.target.coefficient)
    # Under a soft cap the ceiling of exactly ½ is not reached.
    return f"<{text}" if row.any_ruled_out and row.any_ceiling >= row.target.coefficient else text


def _capacity(row: LengthPlan) -> str:
    if math.isinf(row.capacity):
        return f"e^{round_up(row.log_capacity)}"
    return round_up(row.capacity)


def _ruled_out(plan: HeadPlan, row: LengthPlan) -> str:
    found = [
        _KINDS[kind]
        for kind, out in (("one", row.one_ruled_out), ("any", row.any_ruled_out))
        if out and kind in plan.retrievals
    ]
    return "both" if len(found) == 2 else found[0] if found else "-"


def _sentences(plan: HeadPlan, width: int) -> list[str]:
    row = plan.lengths[-1]
    share = percent(row.target.coefficient)
    lines = []
    stops = [
        f"on {_KINDS[kind]} beyond {print_largest_length(length)} tokens"
        for kind, length in plan.longest.items()
        if not math.isinf(length)
    ]
    if stops:
        lines.append(f"{share} is ruled out {', '.join(stops)}.")
    if "any" in plan.retrievals and not math.isinf(row.retrievable):
        where = f" at {format_length(row.target.length)}" if plan.head.schedule.varies else ""
        lines.append(
            f"Of one context, however long, at most {print_largest_length(row.retrievable)} tokens "
            f"can get {share} each by a query of their own{where}."
        )
    if "any" in plan.retrievals and row.flat_estimate is not None:
        held = _estimated_capacity(row.flat_estimate)
        lines.append(
            f"T13′ is proved only for logits up to the rank, {plan.head.directions}; if it held "
            f"beyond, the capacity{_at_longest(plan)} would be {held}."
        )
    return [part for line in lines for part in paragraph(line, width)]


def _at_longest(plan: HeadPlan) -> str:
    longest = format_length(plan.lengths[-1].target.length)
    return f" at {longest}" if plan.head.schedule.varies else ""


def _estimated_capacity(log: Estimate) -> str:
    if log.value < 700:
        return str(Estimate(math.exp(log.value)))
    return f"≈e^{log.value:.6g}"


def _needs(plan: HeadPlan, width: int, style: Style) -> list[str]:
    target = plan.lengths[-1].target
    quantities = list(dict.fromkeys(need.quantity for need in plan.needs))
    columns = [
        Column("number", [_NAMES[quantity] for quantity in quantities]),
        Column("planned", [_planned(plan.head, quantity) for quantity in quantities]),
        *(
            Column(_KINDS[kind], [_value(n) for n in plan.needs if n.retrieval == kind])
            for kind in plan.retrievals
        ),
    ]
    names = columns[0].width
    columns[0] = Column("", [cell.ljust(names) for cell in columns[0].cells])
    lines, _ = table(columns, width, style)
    share, length = percent(target.coefficient), format_length(target.length)
    title = f"What {share} at {length} takes, with all other numbers as planned"
    note = "Each value is not ruled out, but 0.1% short of it is (one less for head_dim)."
    none = {need.quantity for need in plan.needs if need.meets is None}
    if none:
        note += " None: no value is enough" + _why_none(plan.head, none) + "."
    if any(need.ruled_out is None for need in plan.needs):
        note += " All: no value is ruled out."
    titles = [style.bold(line) for line in paragraph(title, width)]
    return [*titles, *lines, *paragraph(note, width)]


def _why_none(head: PlannedHead, quantities: set[Quantity]) -> str:
    if quantities == {"head_dim"}:
        return f" up to {WIDEST:,}"
    return "" if head.soft_cap is None else " against the soft cap"


def _planned(head: PlannedHead, quantity: str) -> str:
    if quantity == "gain":
        return f"{head.gain.upper if isinstance(head.gain, Enclosure) else head.gain:.7g}"
    if quantity == "log_factor":
        return f"{head.schedule.numbers[0]:.7g}" if head.schedule.kind == "log" else "-"
    return f"{getattr(head, quantity):.7g}"


def _value(need: Need) -> str:
    if need.meets is None:
        return "none"
    if need.ruled_out is None:
        return "all"
    if need.quantity == "head_dim":
        return f"{need.meets:,.0f}"
    rounding = round_down if need.quantity == "temperature" else round_up
    return rounding(need.meets, DIGITS)


def _norms(norms: NormComparison, width: int, style: Style) -> list[str]:
    headwise, layerwise = norms.headwise_plan, norms.layerwise_plan
    p, length = headwise.target.coefficient, format_length(headwise.target.length)
    rows = [
        ("|logit| of one head alone", norms.headwise, norms.layerwise),
        ("mean |logit| over heads, same key token", norms.mean, norms.mean),
        ("mean |logit|, each head its own key token", norms.mean, norms.layerwise_mean),
    ]
    names = [name for name, _, _ in rows]
    cells = [[round_up(one) for _, one, _ in rows], [round_up(all_) for _, _, all_ in rows]]
    names += [f"one token at {length}, that head", f"any token at {length}, that head"]
    for column, plan in zip(cells, (headwise, layerwise), strict=True):
        column += [print_ceiling(plan.one_ceiling, p), _any(plan)]
    longest = max(map(len, names))
    lines, _ = table(
        [
            Column("", [name.ljust(longest) for name in names]),
            Column("headwise", cells[0]),
            Column("layerwise", cells[1]),
        ],
        width,
        style,
    )
    title = (
        f"Headwise or layerwise QK norm, {norms.heads} heads over {norms.key_heads} key heads: "
        "upper bounds (T11)"
    )
    return [*(style.bold(line) for line in paragraph(title, width)), *lines]


def _legend(plan: HeadPlan) -> str:
    head = plan.head
    one = "T1" + (", T7" if head.sink is not None else "") + (", T8" if head.soft_cap else "")
    text = (
        "Ceilings are proved for every head with these numbers and printed rounded up, entropy "
        "floors (nats, T3) rounded down; not ruled out does not mean reachable. "
        f"One token: {one}."
    )
    if "any" in plan.retrievals:
        text += (
            " Any token: T12, T13, T13′, for n-1 keys that every query sees (a query's own key is "
            "not one of them) and queries at one position."
        )
        if head.soft_cap:
            text += " Under a cap these count only from 50% up, and capacity with them."
    if head.norm == "none":
        text += " With rotary positions sigma is that of the cover."
    else:
        text += " With rotary positions take gain products over rotated pairs."
    if head.sink is not None:
        text += " A sink voids entropy floors."
    return text
