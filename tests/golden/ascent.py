"""Gradient ascent on the inputs of a real attention module: how large can a row's spread get?

Ascent only ever gives values that are reached, so a certified bound below one of them is wrong.
Only three tokens of a context matter for a spread: the query's and those of the largest and the
smallest logit. They are optimised as a sequence of three at their real positions; the winner is
then placed in a full context of n tokens, and what that context's row shows is what is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from real import Real, grouped, last_row, soft_capped
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

TOP, BOTTOM, QUERY = 0, 1, 2


@dataclass
class Plan:
    """Which slots and positions each restart works on, with one row for each restart."""

    head: Tensor
    slots: Tensor  # the slots holding the top and the bottom key, (restarts, 2)
    positions: Tensor  # position of each of the three slots

    def take(self, rows: Tensor) -> Plan:
        return Plan(self.head[rows], self.slots[rows], self.positions[rows])


@dataclass
class Found:
    """The best context for one head: states entering attention, and the spread they give."""

    value: float
    tokens: Tensor  # (3, width): top key, bottom key, query
    order: list[int]  # which of the three stands at each of the n positions


def plan(heads: int, visible: Tensor, *, rotary: bool, each: int) -> Plan:
    """Every pair of visible positions (one pair where positions do not matter), `each` times."""
    n = len(visible)
    seen = [int(j) for j in visible.nonzero().flatten() if j != n - 1]
    if rotary:
        pairs = [(i, j) for i in seen for j in seen if i != j]
    else:
        pairs = [(seen[-1], seen[-2])] * (20 if len(seen) > 1 else 0)
        seen = seen[-1:]
    rows = [((TOP, BOTTOM), (i, j, n - 1)) for i, j in pairs]
    # the query's own key may be either end; the idle slot stands at the same place as the other
    rows += [((TOP, QUERY), (j, j, n - 1)) for j in seen]
    rows += [((QUERY, BOTTOM), (j, j, n - 1)) for j in seen]
    rows *= each
    head = torch.arange(heads).repeat_interleave(len(rows))
    slots = torch.tensor([s for s, _ in rows]).repeat(heads, 1)
    positions = torch.tensor([p for _, p in rows]).repeat(heads, 1)
    return Plan(head, slots, positions)


def spreads(real: Real, layer: int, directions: Tensor, plan: Plan) -> Tensor:
    """The logit of the top slot minus that of the bottom slot, (restarts,)."""
    states = real.states(layer, directions)
    logits = last_row(real.call(layer, states, real.rotation(layer, plan.positions)))
    row = logits[torch.arange(len(plan.head)), plan.head]
    ends = row.gather(1, plan.slots)
    return ends[:, 0] - ends[:, 1]


def climb(value: Callable[[Tensor], Tensor], start: Tensor, steps: int, rate: float) -> Tensor:
    """Adam with a cosine rate on independent rows of `start`."""
    z = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        (-value(z).sum()).backward()
        optimiser.step()
        schedule.step()
    z = z.detach()
    return z / z.norm(dim=-1, keepdim=True)


def polish(value: Callable[[Tensor], Tensor], start: Tensor, steps: int = 100) -> Tensor:
    """L-BFGS on all rows together."""
    z = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [z],
        max_iter=steps,
        history_size=30,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = -value(z).sum()
        total.backward()
        return total

    optimiser.step(loss)
    z = z.detach()
    return z / z.norm(dim=-1, keepdim=True)


def best_rows(values: Tensor, head: Tensor, count: int) -> Tensor:
    rows = [
        (head == h)
        .nonzero()
        .flatten()[values[head == h].topk(min(count, int((head == h).sum()))).indices]
        for h in head.unique()
    ]
    return torch.cat(rows)


def ascend(
    real: Real, layer: int, visible: Tensor, *, budget: int = 6000
) -> tuple[list[Found], int]:
    """The largest spread found for every head of a layer, and the restarts made for each head."""
    everything = plan(real.heads, visible, rotary=real.rotary, each=1)
    each = max(1, budget // len(everything.head))
    everything = plan(real.heads, visible, rotary=real.rotary, each=each)
    # a first pass over all pairs of positions, then longer ones over ever fewer
    z = torch.randn(len(everything.head), 3, real.width)
    current = everything
    for keep, steps, rate in ((40, 60, 0.15), (8, 150, 0.05), (3, 300, 0.02)):
        z = climb(lambda z, p=current: spreads(real, layer, z, p), z, steps, rate)
        rows = best_rows(spreads(real, layer, z, current), current.head, keep)
        current, z = current.take(rows), z[rows]
    z = polish(lambda z: spreads(real, layer, z, current), z)
    rows = best_rows(spreads(real, layer, z, current), current.head, 1)
    current, z = current.take(rows), z[rows]
    found = [
        in_context(real, layer, h, z[h], current.take(torch.tensor([h])), visible)
        for h in range(real.heads)
    ]
    return found, len(everything.head) // real.heads


def in_context(
    real: Real, layer: int, head: int, directions: Tensor, plan: Plan, visible: Tensor
) -> Found:
    """The spread of the last row of a whole context holding the three tokens."""
    n = len(visible)
    slots = set(plan.slots[0].tolist())
    filler = BOTTOM if BOTTOM in slots else TOP
    order = [filler] * n
    for slot in sorted(slots - {QUERY}):
        order[int(plan.positions[0, slot])] = slot
    order[-1] = QUERY
    tokens = real.states(layer, directions)
    value = context_spread(real, layer, head, tokens, order, visible)
    return Found(value, tokens, order)


def context_row(real: Real, layer: int, head: int, tokens: Tensor, order: list[int]) -> Tensor:
    states = tokens[order].unsqueeze(0).to(real.dtype)
    rotation = real.rotation(layer, torch.arange(len(order)).unsqueeze(0))
    return last_row(real.call(layer, states, rotation))[0, head]


def context_spread(
    real: Real, layer: int, head: int, tokens: Tensor, order: list[int], visible: Tensor
) -> float:
    row = context_row(real, layer, head, tokens, order)[visible]
    return float(row.max() - row.min())


def free_phase(real: Real, layer: int, *, restarts: int = 256) -> list[float]:
    """Twice the largest |logit| of every head when each frequency pair may turn freely.

    At position 0 nothing is turned (only a YaRN factor acts), so the module hands over q and k as
    they are before rotation. Over free phases the largest logit of one query and one key is the
    sum over pairs of the product of their lengths there; a second key with the opposite phases
    gives its negative.
    """
    head = torch.arange(real.heads).repeat_interleave(restarts)
    positions = torch.zeros(len(head), 2, dtype=torch.long)

    def value(z: Tensor, head: Tensor) -> Tensor:
        call = real.call(layer, real.states(layer, z), real.rotation(layer, positions[: len(z)]))
        query, key = grouped(call)
        rows = torch.arange(len(z))
        q, k = query[rows, head, 1], key[rows, head, 0]
        q, k = (x.unflatten(-1, (2, -1)).square().sum(-2) for x in (q, k))  # half-split pairs
        return soft_capped((q * k).clamp(min=1e-300).sqrt().sum(-1) * call["scaling"], call)

    z = torch.randn(len(head), 2, real.width)
    for keep, steps, rate in ((16, 80, 0.15), (4, 300, 0.03)):
        z = climb(lambda z, h=head: value(z, h), z, steps, rate)
        rows = best_rows(value(z, head), head, keep)
        head, z = head[rows], z[rows]
    z = polish(lambda z: value(z, head), z)
    values = value(z, head)
    return [2 * float(values[head == h].max()) for h in range(real.heads)]
