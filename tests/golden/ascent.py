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
from real import GROWING, Real, grouped, last_row, soft_capped
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

TOP, BOTTOM, QUERY = 0, 1, 2
POLISH = 100  # steps of a last climb
MOST = 10_000  # rows of a first pass; the tiny checkpoints stay below, larger ones sample pairs


@dataclass
class Plan:
    """Which slots and positions each restart works on, with one row for each restart."""

    head: Tensor
    slots: Tensor  # the slots holding the top and the bottom key, (restarts, 2)
    positions: Tensor  # position of each of the three slots

    def take(self, rows: Tensor) -> Plan:
        return Plan(self.head[rows], self.slots[rows], self.positions[rows])


def joined(plans: list[Plan]) -> Plan:
    return Plan(
        torch.cat([p.head for p in plans]),
        torch.cat([p.slots for p in plans]),
        torch.cat([p.positions for p in plans]),
    )


@dataclass
class Found:
    """The best context for one head: states entering attention, and the spread they give."""

    value: float
    tokens: Tensor  # (3, width): top key, bottom key, query
    order: list[int]  # which of the three stands at each of the n positions
    keys: int  # n; in cross-attention the query stands behind them
    z: Tensor  # where the search ended, (1, 3, width)
    plan: Plan  # of one row
    where: Tensor  # position of each token in the order; the query is the last of them
    seen: Tensor  # which of the keys in the order it sees

    def moved(self, n: int) -> Plan:
        """The same offsets at the end of a context of n tokens."""
        shift = n - self.keys
        return Plan(self.plan.head, self.plan.slots, self.plan.positions + shift)


def plan(
    heads: int,
    visible: Tensor,
    *,
    positional: bool,
    each: int,
    own: bool = True,
    together: bool = False,
) -> Plan:
    """Every pair of visible positions (one pair where positions do not matter), `each` times.

    `own` says that the query token is one of its own keys, `together` that the three tokens are a
    whole context, whose tokens mix. `visible` tells of every query, (n, n), or of the last alone.
    """
    n = visible.shape[-1]
    assert not together or (visible.ndim == 1 and visible.all() and n >= 3)
    rows: list[tuple[tuple[int, int], tuple[int, int, int]]] = []
    for at in range(0 if visible.ndim > 1 else n - 1, n):
        seen = of_query(visible, at).nonzero().flatten().tolist()
        seen = [j for j in seen if j != at or not own]
        if positional:
            pairs = [(i, j) for i in seen for j in seen if i != j]
        else:
            pairs = [(seen[-1], seen[-2])] * 20 if len(seen) > 1 else []
            seen = seen[-1:]
        rows += [((TOP, BOTTOM), (i, j, at)) for i, j in pairs]
        # the query's own key may be either end; the idle slot stands at the same place as the other
        if own:
            rows += [((TOP, QUERY), (j, j, at)) for j in seen]
            rows += [((QUERY, BOTTOM), (j, j, at)) for j in seen]
    rows *= each
    if together:
        rows = [(s, (*p, 2)) for s in ((0, 1), (0, 2), (2, 1)) for p in ((0, 1), (1, 0))] * 8
        each = 1 + each // len(rows)
        rows *= each
    head = torch.arange(heads).repeat_interleave(len(rows))
    slots = torch.tensor([s for s, _ in rows]).repeat(heads, 1)
    positions = torch.tensor([p for _, p in rows]).repeat(heads, 1)
    return Plan(head, slots, positions)


def of_query(visible: Tensor, at: int) -> Tensor:
    """Which keys the query at a position sees; `visible` as in `plan`."""
    return visible[at] if visible.ndim > 1 else visible


def whitening(real: Real, layer: int) -> tuple[Tensor, Tensor]:
    """Maps from search coordinates to raw states, (width, width), for keys and for the query.

    Only QK norm caps the states of a layer without a norm in front, and what it sees is bent by
    the projections: ascent converges far better when they are undone. The same holds of a QK norm
    over all heads behind a norm. Elsewhere the identity.
    """
    norm = real.norm(layer)
    kind = real.config.model_type
    if kind == "swinv2" or (norm is not None and kind not in ("olmoe", "minimax_m2")):
        return torch.eye(real.raw_width(layer)), torch.eye(real.raw_width(layer))

    def inverse_root(weight: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(weight.T @ weight)
        kept = values > 1e-9 * values.max()
        return (vectors[:, kept] * values[kept].rsqrt()) @ vectors[:, kept].T

    attention = real.attention(layer)
    gain = 1.0 if norm is None else norm.weight
    return (
        inverse_root(attention.k_proj.weight * gain),
        inverse_root(attention.q_proj.weight * gain),
    )


def raw(real: Real, layer: int, z: Tensor) -> Tensor:
    """Directions of raw states; the last slot of every row is the query's."""
    key, query = whitening(real, layer)
    return torch.cat((z[:, :-1] @ key, z[:, -1:] @ query), dim=1)


def spreads(real: Real, layer: int, z: Tensor, plan: Plan) -> Tensor:
    """The logit of the top slot minus that of the bottom slot, (restarts,)."""
    states = real.states(layer, raw(real, layer, z))
    positions = plan.positions
    if real.mixes:  # in the order of their positions
        order = positions.argsort(dim=1)
        states = states.gather(1, order[..., None].expand_as(states))
        positions = positions.gather(1, order)
    logits = last_row(real.call(layer, states, real.rotation(layer, positions)))
    row = logits[torch.arange(len(plan.head)), plan.head]
    if real.sums:  # any two keys
        return row.max(dim=1).values - row.min(dim=1).values
    if real.mixes:
        row = row.gather(1, plan.positions)
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


def polish(value: Callable[[Tensor], Tensor], start: Tensor, steps: int = POLISH) -> Tensor:
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
    real: Real,
    layer: int,
    visible: Tensor,
    shorter: list[Found],
    *,
    budget: int = 6000,
    most: int = MOST,
    effort: float = 1.0,
) -> tuple[list[Found], int]:
    """The largest spread found for every head of a layer, and the restarts made for each head.

    What a shorter context reached stays reachable: `shorter` joins the last rounds. `effort`
    multiplies all steps, `visible` is as in `plan`.
    """
    n = visible.shape[-1]
    own, heads = not real.crosses(layer), real.heads_in(layer)
    how = {"positional": real.positional, "own": own, "together": real.mixes}
    everything = plan(heads, visible, each=1, **how)
    each = max(1, min(budget, most) // len(everything.head))
    everything = plan(heads, visible, each=each, **how)
    if len(everything.head) > most:
        everything = everything.take(torch.randperm(len(everything.head))[:most].sort().values)
    # a first pass over all pairs of positions, then longer ones over ever fewer
    z = torch.randn(len(everything.head), 3, real.raw_width(layer))
    current = everything
    for keep, steps, rate in ((40, 60, 0.15), (8, 150, 0.05), (3, 300, 0.02)):
        z = climb(lambda z, p=current: spreads(real, layer, z, p), z, int(effort * steps), rate)
        rows = best_rows(spreads(real, layer, z, current), current.head, keep)
        current, z = current.take(rows), z[rows]
        if real.positional and not real.mixes and real.kind not in GROWING:
            current = relocated(real, layer, z, current, visible)
    for _ in range(2):
        current = joined([current, *(found.moved(n) for found in shorter)])
        z = torch.cat([z, *(found.z for found in shorter)])
        z = polish(lambda z, p=current: spreads(real, layer, z, p), z, int(effort * POLISH))
        rows = best_rows(spreads(real, layer, z, current), current.head, 1)
        current, z = current.take(rows), z[rows]
    found = [
        in_context(real, layer, h, z[h : h + 1], current.take(torch.tensor([h])), visible)
        for h in range(real.heads_in(layer))
    ]
    return found, len(everything.head) // real.heads_in(layer)


def relocated(real: Real, layer: int, z: Tensor, plan: Plan, visible: Tensor) -> Plan:
    """The same tokens with keys at the positions where their logits are furthest apart."""
    n, own = visible.shape[-1], not real.crosses(layer)
    both = [part.expand(-1, n, -1) for part in z.split(1, dim=1)[:QUERY]]
    states = real.states(layer, raw(real, layer, torch.cat([*both, z[:, QUERY:]], dim=1)))
    at = plan.positions[:, QUERY:]
    positions = torch.cat([torch.arange(n).repeat(len(z), 2), at], dim=1)
    with torch.no_grad():
        logits = last_row(real.call(layer, states, real.rotation(layer, positions)))
    row = logits[torch.arange(len(z)), plan.head][:, : 2 * n].unflatten(1, (2, n))
    seen = visible[at[:, 0]] if visible.ndim > 1 else visible.expand(len(z), n)
    hidden = ~seen | (own & (torch.arange(n) == at))
    top = row[:, TOP].masked_fill(hidden, -torch.inf)
    bottom = row[:, BOTTOM].masked_fill(hidden, torch.inf)
    apart = top[:, :, None] - bottom[:, None] - torch.diag(torch.full((n,), torch.inf))
    pairs = apart.flatten(1).argmax(dim=1)
    pairs = torch.stack([pairs // n, pairs % n], dim=1)
    alone = torch.where(plan.slots[:, :1] == TOP, top.argmax(1)[:, None], bottom.argmin(1)[:, None])
    idle = (plan.slots == QUERY).any(dim=1, keepdim=True)
    found = torch.where(idle, alone.expand(-1, 2), pairs)
    return Plan(plan.head, plan.slots, torch.cat([found, at], dim=1))


def in_context(real: Real, layer: int, head: int, z: Tensor, plan: Plan, visible: Tensor) -> Found:
    """The spread of the query's row of a whole context holding the three tokens."""
    slots = {TOP, BOTTOM} if real.mixes else set(plan.slots[0].tolist())
    filler = BOTTOM if BOTTOM in slots else TOP
    n = 3 if real.mixes else visible.shape[-1]
    where = real.where_in(layer, n + real.crosses(layer))
    at = int(plan.positions[0, QUERY])
    seen = of_query(visible, at)
    if not real.crosses(layer):  # the query comes last, wherever it stands
        where = torch.cat([where[where != at], where[where == at]])
        seen = seen[where]
    order = [filler] * len(where)
    for slot in sorted(slots - {QUERY}):
        order[int((where == plan.positions[0, slot]).nonzero()[0])] = slot
    order[-1] = QUERY
    tokens = real.states(layer, raw(real, layer, z))[0]
    row = context_row(real, layer, head, tokens, order, where)
    if real.mixes:  # whatever the tokens make
        seen = torch.ones_like(row, dtype=torch.bool)
    row, keys = row[seen], visible.shape[-1]
    return Found(float(row.max() - row.min()), tokens, order, keys, z, plan, where, seen)


def context_row(
    real: Real, layer: int, head: int, tokens: Tensor, order: list[int], where: Tensor
) -> Tensor:
    states = tokens[order].unsqueeze(0).to(real.dtype)
    rotation = real.rotation(layer, where.unsqueeze(0))
    return last_row(real.call(layer, states, rotation))[0, head]


def free_phase(real: Real, layer: int, *, restarts: int = 256, effort: float = 1.0) -> list[float]:
    """The largest spread of every head when each frequency pair may turn freely.

    At position 0 nothing is turned (only a YaRN factor acts), so the module hands over q and k as
    they are before rotation. Over free phases the largest logit of one query and one key is the
    sum over pairs of the product of their lengths there. Where all coordinates turn, a second key
    with the opposite phases gives its negative; coordinates that do not turn keep their sign, so
    there the two keys differ.
    """
    first, second, still = real.pairs(layer)
    if len(still):
        return free_phase_and_still(real, layer, first, second, still, restarts, effort)
    head = torch.arange(real.heads_in(layer)).repeat_interleave(restarts)
    positions = torch.zeros(len(head), 2, dtype=torch.long)

    def value(z: Tensor, head: Tensor) -> Tensor:
        states = real.states(layer, raw(real, layer, z))
        call = real.call(layer, states, real.rotation(layer, positions[: len(z)]))
        query, key = grouped(call)
        rows = torch.arange(len(z))
        q, k = query[rows, head, -1], key[rows, head, 0]
        q, k = (x[:, first].square() + x[:, second].square() for x in (q, k))
        return soft_capped((q * k).clamp(min=1e-300).sqrt().sum(-1) * call["scaling"], call)

    z = torch.randn(len(head), 2, real.raw_width(layer))
    for keep, steps, rate in ((16, 80, 0.15), (4, 300, 0.03)):
        z = climb(lambda z, h=head: value(z, h), z, int(effort * steps), rate)
        rows = best_rows(value(z, head), head, keep)
        head, z = head[rows], z[rows]
    z = polish(lambda z: value(z, head), z, int(effort * POLISH))
    values = value(z, head)
    return [2 * float(values[head == h].max()) for h in range(real.heads_in(layer))]


def free_phase_and_still(
    real: Real,
    layer: int,
    first: Tensor,
    second: Tensor,
    still: Tensor,
    restarts: int,
    effort: float,
) -> list[float]:
    """`free_phase` where some coordinates do not turn: top key, bottom key and query are sought."""
    head = torch.arange(real.heads_in(layer)).repeat_interleave(restarts)

    def value(z: Tensor, head: Tensor) -> Tensor:
        states = real.states(layer, raw(real, layer, z))
        positions = torch.zeros(z.shape[:2], dtype=torch.long)
        call = real.call(layer, states, real.rotation(layer, positions))
        query, key = grouped(call)
        rows = torch.arange(len(z))
        q, top, bottom = (
            query[rows, head, -1],
            key[rows, head, TOP],
            key[rows, head, BOTTOM],
        )

        def lengths(x: Tensor) -> Tensor:
            square = x[:, first].square() + x[:, second].square()
            return square.clamp(min=1e-300).sqrt()

        turned = (lengths(q) * (lengths(top) + lengths(bottom))).sum(-1)
        rest = (q[:, still] * (top - bottom)[:, still]).sum(-1)
        return (turned + rest) * call["scaling"]

    z = torch.randn(len(head), 3, real.raw_width(layer))
    for keep, steps, rate in ((16, 80, 0.15), (4, 300, 0.03)):
        z = climb(lambda z, h=head: value(z, h), z, int(effort * steps), rate)
        rows = best_rows(value(z, head), head, keep)
        head, z = head[rows], z[rows]
    for _ in range(3):  # all rows together at first, then the best of each head
        z = polish(lambda z, h=head: value(z, h), z, int(effort * POLISH))
        rows = best_rows(value(z, head), head, 1)
        head, z = head[rows], z[rows]
    values = value(z, head)
    return [float(values[head == h].max()) for h in range(real.heads_in(layer))]
