"""Write the tiny golden checkpoints and, beside each, what ascent on the real modules reached.

python tests/golden/make.py [NAME ...] [--seed S] [--scale tiny|medium|big] [--out DIR]

In tests/data it also records their lines of logits.json and tokens.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import logits
import tokens
import torch
from ascent import MOST, Found, ascend, context_row, free_phase
from families import FAMILIES, SCALES, Family, Size, randomise
from places import STAGED, walk
from published_families import PUBLISHED
from real import SOFTMAX, Real, held, probabilities

DATA = Path(__file__).resolve().parents[1] / "data"
LIMIT = 40_000  # bytes of a folder, at scale tiny
DIGITS = 9  # significant digits of recorded hidden states


def save(family: Family, size: Size, folder: Path, generator: torch.Generator) -> None:
    """Build, randomise, set the size of the logits and save with the class's own method."""
    torch.set_default_dtype(torch.float32)
    model = family.build(size)
    randomise(model, family.gain_offset, size, generator)
    write(model, family, folder)  # in float32 once, so that the real modules can be measured
    calibrate(model, family, folder, generator)
    write(model.to(family.dtype), family, folder)


def write(model: Any, family: Family, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    options = {} if family.shard is None else {"max_shard_size": family.shard}
    model.save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if family.rewrite is not None:
        config = family.rewrite(config)
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def calibrate(model: Any, family: Family, folder: Path, generator: torch.Generator) -> None:
    """Scale queries so that free-phase spreads run from small to large over layers and heads."""
    torch.set_default_dtype(torch.float64)
    real = Real.open(folder)
    if family.targets is None:
        return
    count = len(real.attending) * (1 if family.qk_norm == "headwise" else real.heads)
    low, high = torch.tensor(family.targets).log()
    targets = torch.linspace(float(low), float(high), count).exp()
    targets = iter(targets[torch.randperm(count, generator=generator)].tolist())
    places = real.places
    bare = getattr(model, places.base, model)
    bare = Real(held(bare), exact=True)
    scaled: set[int] = set()
    for layer in real.attending:
        if id(bare.attention(layer)) in scaled:
            continue  # layers that share their weights
        scaled.add(id(bare.attention(layer)))
        if hasattr(real.attention(layer), "attn_logit_softcapping"):
            real.attention(layer).attn_logit_softcapping = None
        if not real.bounded(layer):
            continue
        if real.biased or real.pools(layer) or real.kind in SOFTMAX:
            few = ascend(real, layer, torch.ones(3, dtype=torch.bool), [], most=200)[0]
            reached = [found.value for found in few]
        else:
            reached = free_phase(real, layer, restarts=24)
        attention = bare.attention(layer)
        if family.qk_norm == "headwise":
            norm = getattr(attention, places.query_norm, None)
            factor = next(targets) / max(reached)
            for name, parameter in [] if norm is None else norm.named_parameters():
                # without a gain the config says how large logits are
                multiply(parameter, factor, 0.0 if name == "bias" else family.gain_offset)
            continue
        for head in range(real.heads_in(layer)):
            factor = next(targets) / reached[head]
            if family.qk_norm == "layerwise":
                gain = attention.q_norm.weight
                size = len(gain) // real.heads
                multiply(gain[head * size : (head + 1) * size], factor)
                continue
            for name, entries in behind_query(real, layer, head).items():
                parameter = walk(attention, name)
                multiply(parameter, torch.where(entries, factor, 1.0))


def behind_query(real: Real, layer: int, head: int) -> dict[str, torch.Tensor]:
    """Which entries of which parameters a head's query depends on, found by differentiation.

    Not those in front of a norm, on which its size does not depend, nor factors beside weights.
    """
    named = real.attention(layer).named_parameters()
    passed = ("q_a_", "softmax_scaling")
    parameters = {name: p for name, p in named if not name.startswith(passed)}
    for parameter in parameters.values():
        parameter.requires_grad_()
    width = real.raw_width(layer) if real.kind in (*STAGED, "lilt") else real.width
    states = torch.randn(1, 1 + real.crosses(layer), width)
    call = real.call(
        layer,
        states,
        real.rotation(layer, torch.zeros(1, 1 + real.crosses(layer), dtype=torch.long)),
    )
    if "query" not in call:
        return fused_rows(parameters, real.heads_in(layer), head)
    slopes = torch.autograd.grad(
        call["query"][:, head].sum(), list(parameters.values()), allow_unused=True
    )
    for parameter in parameters.values():
        parameter.requires_grad_(requires_grad=False)
    found = zip(parameters, slopes, strict=True)
    return {name: slope != 0 for name, slope in found if slope is not None and slope.any()}


def fused_rows(
    parameters: dict[str, torch.Tensor], heads: int, head: int
) -> dict[str, torch.Tensor]:
    """The same for modules that do not hand over their queries, by the layout of their rows."""
    found = {}
    for name, parameter in parameters.items():
        parameter.requires_grad_(requires_grad=False)
        alone = name.startswith(
            ("q.", "query.", "query_proj.", "q_proj.", "q_bias", "linear_q.", "pos_bias")
        )
        if alone or name.startswith(("query_key_value", "qkv", "Wqkv", "in_proj")):
            size = len(parameter) // heads // (1 if alone else 3)
            # head by head, as DeBERTa has it, or all queries first
            mixed = name.startswith("query_key_value") or (not alone and "q_bias" in parameters)
            start = head * size * (3 if mixed else 1)
            rows = torch.zeros(parameter.shape, dtype=torch.bool)
            rows[start : start + size] = True
            found[name] = rows
    return found


def multiply(tensor: torch.Tensor, factor: Any, offset: float = 0.0) -> None:
    with torch.no_grad():
        tensor.copy_((tensor + offset) * factor - offset)


def attack(folder: Path, size: Size, seed: int, most: int, effort: float = 1.0) -> dict[str, Any]:
    """Ascend on every head of a saved checkpoint, at every length."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(seed)
    real = Real.open(folder)
    plain = Real.open(folder, exact=False)
    single = Real.open(folder, exact=False, dtype=torch.float32)
    lengths = sorted({min(n, real.learned or n) for n in size.lengths})
    masks = {n: real.visible(n) for n in lengths}
    everywhere = {n: real.everywhere(n) for n in lengths}
    heads: list[dict[str, Any]] = []
    witnesses: list[dict[str, Any]] = []
    restarts: dict[int, list[int]] = {n: [] for n in lengths}
    casts = singles = 0.0
    for layer in filter(real.bounded, real.attending):
        phases: list[float | None] = [None] * real.heads_in(layer)
        if real.phases:
            phases = free_phase(real, layer, restarts=int(256 * effort), effort=effort)
        reached: dict[int, list[Found]] = {}
        for n in lengths:
            shorter = [found for each in reached.values() for found in each]
            seen = everywhere[n][layer]
            seen = masks[n][layer] if seen is None else seen
            reached[n], tried = ascend(real, layer, seen, shorter, most=most, effort=effort)
            restarts[n].append(tried)
        for head in range(real.heads_in(layer)):
            record: dict[str, Any] = {"layer": layer, "head": head}
            record["spread"] = {str(n): reached[n][head].value for n in lengths}
            if phases[head] is not None:
                record["free_phase"] = phases[head]
            heads.append(record)
            for n in lengths:
                found = reached[n][head]
                casts = max(casts, difference(real, plain, layer, head, found))
                singles = max(singles, difference(real, single, layer, head, found))
        n = lengths[0]
        head = max(range(real.heads_in(layer)), key=lambda h: reached[n][h].value)
        witnesses.append(witness(real, layer, head, reached[n][head]))
    return {
        "lengths": {
            str(n): {
                "visible": [int(m.sum()) for m in masks[n]],
                "restarts": restarts[n],
            }
            for n in lengths
        },
        "arithmetic": {
            "float32_casts": float(f"{casts:.2g}"),
            "float32_module": float(f"{singles:.2g}"),
        },
        "heads": heads,
        "witnesses": witnesses,
    }


def difference(real: Real, other: Real, layer: int, head: int, found: Found) -> float:
    """How far less precise arithmetic moves the row, relative to its spread."""
    with torch.no_grad():
        context = found.tokens, found.order, found.where
        exact = context_row(real, layer, head, *context)
        rough = context_row(other, layer, head, *context).double()
    return float((exact - rough).abs().max() / found.value)


def witness(real: Real, layer: int, head: int, found: Found) -> dict[str, Any]:
    """The context of the largest spread, rounded, and the row that the rounded one gives."""
    tokens = [[float(f"{x:.{DIGITS}g}") for x in token] for token in found.tokens.tolist()]
    with torch.no_grad():
        row = context_row(real, layer, head, torch.tensor(tokens), found.order, found.where)
        sinks = {"s_aux": getattr(real.attention(layer), "sinks", None)}
        row = row.masked_fill(~found.seen, -torch.inf)
        share = probabilities(row, sinks, head)
    usual = real.where_in(layer, len(found.order))
    moved = {} if found.where.equal(usual) else {"positions": found.where.tolist()}
    return {
        "layer": layer,
        "head": head,
        "spread": float(row[found.seen].max() - row[found.seen].min()),
        "coefficient": float(share.max()),
        "order": found.order,
        **moved,
        "tokens": tokens,
    }


def checked(folder: Path, record: dict[str, Any], effort: float) -> None:
    """Replay the witnesses through the module's own eager attention.

    Where ascent was cut short, it may have stopped a little below what it could have reached.
    """
    from replay import replay

    for w in record["witnesses"]:
        states = [w["tokens"][i] for i in w["order"]]
        row = replay(folder, w["layer"], w["head"], states, w.get("positions"))
        assert abs(max(row["coefficients"]) - w["coefficient"]) < 1e-12, (folder, w)
    for head in record["heads"]:
        values = list(head["spread"].values())
        slack = 1e-6 if effort >= 1 else 0.05
        # Keys of an encoder stand at the lag of the query's own position, whatever the length.
        merged = record["family"].startswith("t5gemma2")
        assert merged or all(b > a * (1 - slack) for a, b in pairwise(values)), (folder, head)
        if "free_phase" in head:
            excess = max(values) / head["free_phase"]
            assert excess < 1 + slack, (folder, head)


def compact(record: dict[str, Any]) -> str:
    """JSON with one line for each head and each token list."""

    def lines(key: str) -> str:
        return ",\n".join("  " + json.dumps(item, separators=(",", ":")) for item in record[key])

    top = {k: v for k, v in record.items() if k not in ("heads", "witnesses")}
    head = json.dumps(top, separators=(",", ":"))[:-1]
    return (
        f'{head},\n "heads":[\n{lines("heads")}\n ],\n "witnesses":[\n{lines("witnesses")}\n ]}}\n'
    )


def make(
    family: Family,
    size: Size,
    label: str,
    seed: int,
    out: Path,
    most: int,
    effort: float = 1.0,
) -> None:
    """Write one checkpoint and its record; `label` names the size there."""
    started = time.perf_counter()
    own = zlib.crc32(f"{family.name}/{label}/{seed}".encode())
    folder = out / family.name
    save(family, size, folder, torch.Generator().manual_seed(own))
    record = {"family": family.name, "scale": label, "seed": seed}
    size = replace(size, lengths=family.lengths or size.lengths)
    record |= attack(folder, size, own, most, effort * family.effort)
    checked(folder, record, effort)
    (folder / "adversarial.json").write_text(compact(record))
    total = sum(p.stat().st_size for p in folder.iterdir())
    assert label != "tiny" or total <= LIMIT, (family.name, total)
    top = [max(h["spread"].values()) for h in record["heads"]]
    print(
        f"{family.name:28} {total:6} B  spreads {min(top):6.2f}..{max(top):6.2f}  "
        f"{record['arithmetic']}  {time.perf_counter() - started:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="families (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", choices=SCALES, default="tiny")
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--most", type=int, default=MOST, help="restarts of a layer at once")
    args = parser.parse_args()
    known = {family.name: family for family in (*FAMILIES, *PUBLISHED)}
    for name in args.names or known:
        make(known[name], SCALES[args.scale], args.scale, args.seed, args.out, args.most)
    if args.out == DATA:
        logits.update(args.names)
        tokens.update(args.names)


if __name__ == "__main__":
    main()
