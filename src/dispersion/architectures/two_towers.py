"""Models of two towers, each with a configuration of its own nested in the model's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import check_asked
from dispersion.architectures.blocks_reader import BlocksReader
from dispersion.architectures.plans import Family, LayerPlan, Plan
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.results import Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dispersion.architectures.blocks import Blocks
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

    Heads = Callable[[], Iterator[tuple[int, int, Head]]]

OUTSIDE = {
    r"(visual|text)_projection\.weight|logit_(scale|bias)|classifier\.(weight|bias)": ledger.HEAD,
}


@dataclass(frozen=True)
class Tower:
    """One tower of a family.

    Attributes:
        key: where the model's config has the tower's own.
        module: the part of tensor names that stands in front of the tower's.
        model_types: of the tower's config, where that says one.
        rules: how its blocks are called and what they do.
        absent: the class's sizes where the tower's config says none.
        override: key of another config that, where there is one, counts instead, or None.
    """

    key: str
    module: str
    model_types: tuple[str, ...]
    rules: Blocks
    absent: Mapping[str, int]
    override: str | None = None

    def config(self, whole: Mapping[str, Any]) -> dict[str, Any]:
        """The tower's config, with the class's sizes where it says none.

        Raises:
            CheckpointError: it is not a mapping.
            UnsupportedError: it belongs to another model.
        """
        stated = [key for key in (self.override, self.key) if key and whole.get(key) is not None]
        own = whole[stated[0]] if stated else {}
        if not isinstance(own, dict):
            msg = f"{stated[0]} in config.json must be a mapping. Got {shown(repr(own))}."
            raise CheckpointError(msg)
        kind = own.get("model_type", self.model_types[0])
        if kind not in self.model_types:
            known = " or ".join(self.model_types)
            msg = (
                f"model_type of {stated[0]} in config.json must be {known}. "
                f"Got {shown(repr(kind))}: not supported."
            )
            raise UnsupportedError(msg)
        quantised = whole.get("quantization_config")
        return {**self.absent, **own, "quantization_config": quantised}

    def varied(self, part: Checkpoint) -> Blocks:
        """The blocks that the tower's own config asks for."""
        vary = self.rules.vary
        return self.rules if vary is None else vary(part.config, self.rules)

    def part(self, checkpoint: Checkpoint) -> Checkpoint:
        """The tower's tensors with its config, as if they were a checkpoint of their own.

        Raises:
            CheckpointError: none of the tower's tensors is there.
        """
        inside = re.compile(rf"(.*\.)?{self.module}\.")
        infos = {n: info for n, info in checkpoint.infos.items() if inside.match(n)}
        return replace(checkpoint, infos=infos, config=self.config(checkpoint.config))


def family(
    name: str,
    classes: tuple[str, ...],
    towers: tuple[Tower, ...],
    notes: str,
    types: tuple[str, ...] = (),
) -> Family:
    """The family of models with these towers; an image classifier has the last one alone.

    Where model_types are not its name, `types` has them all.
    """

    def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
        stated = checkpoint.config.get("architectures")
        alone = isinstance(stated, list) and any(
            f"{c}ForImageClassification" in stated for c in classes
        )
        return _joined(name, towers[-1:] if alone else towers, checkpoint, asked)

    return Family(name, types or (name,), classes, notes, read)


def _joined(
    name: str, towers: tuple[Tower, ...], checkpoint: Checkpoint, asked: frozenset[int] | None
) -> Plan:
    parts = [tower.part(checkpoint) for tower in towers]
    readers = [
        BlocksReader(tower.varied(part), part) for tower, part in zip(towers, parts, strict=True)
    ]
    check_asked(asked, max(reader.layers for reader in readers))
    plans: dict[str, Plan] = {}
    skipped: list[Skipped] = []
    for tower, part, reader in zip(towers, parts, readers, strict=True):
        wanted = None if asked is None else asked & frozenset(range(reader.layers))
        if wanted is not None and not wanted:
            skipped.append(Skipped(f"{tower.module}.*", ledger.NOT_ASKED, len(part.names)))
            continue
        plans[tower.module] = reader.plan(name, wanted)
    inside = {each for part in parts for each in part.names}
    naming = ledger.Naming(f"{towers[-1].module}.encoder.layers", "self_attn", {}, OUTSIDE)
    rest = ledger.account(set(checkpoint.names) - inside, naming, "", ())
    found = tuple(plans.values())
    limits = [plan.learned_positions for plan in found]
    most = None if None in limits else max(n for n in limits if n is not None)
    return Plan(
        family=name,
        model=_facts(plans)
        | {
            "model_type": checkpoint.config.get("model_type"),
            "layers": sum(reader.layers for reader in readers),
            "max_positions": most,
        },
        layers=tuple(_limited(layer, p, most) for p in found for layer in p.layers),
        skipped=(*(s for p in found for s in p.skipped), *skipped, *rest.skipped),
        refused=(*(r for p in found for r in p.refused), *rest.refused),
        learned_positions=most,
    )


def _facts(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """What both towers say alike, null where they differ, and what each says by itself."""
    models = {module: plan.model for module, plan in plans.items()}
    first = next(iter(models.values()))
    same = {
        key: value if all(model.get(key) == value for model in models.values()) else None
        for key, value in first.items()
    }
    return same | {
        "dtype": ", ".join(sorted({str(model["dtype"]) for model in models.values()})),
        "towers": models,
    }


def _limited(layer: LayerPlan, plan: Plan, most: int | None) -> LayerPlan:
    """A layer whose queries see no more keys than its own tower has positions."""
    if plan.learned_positions in (None, most):
        return layer
    return replace(layer, heads=partial(_within, layer.heads, plan.learned_positions))


def _within(heads: Heads, most: int) -> Iterator[tuple[int, int, Head]]:
    for index, kv_head, head in heads():
        yield index, kv_head, replace(head, window=min(most, head.window or most))
