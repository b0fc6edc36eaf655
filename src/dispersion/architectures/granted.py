"""Keys of a config that must say what a family's reading takes for granted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_granted(config: Mapping[str, Any], granted: Mapping[str, Any], family: str) -> None:
    """Compare what a config says with what is taken for granted, where it says anything.

    Raises:
        UnsupportedError: a key says something else.
    """
    for key, wanted in granted.items():
        value = config.get(key, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            must, got = json.dumps(wanted), shown(repr(value))
            msg = f"{key} in config.json must be {must} for {family}. Got {got}: not supported."
            raise UnsupportedError(msg)
    if "rope_scaling" in granted:
        check_scaling(config, (), family)


def check_scaling(config: Mapping[str, Any], known: tuple[str, ...], family: str) -> None:
    """Compare the kind of a scaled rotation with those that a family's own code knows.

    Raises:
        UnsupportedError: it is another one.
    """
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.get(key) or {}
        stated = isinstance(scaling, dict)
        kind = scaling.get("rope_type") or scaling.get("type") if stated else None
        if kind not in (None, "default", *known):
            only = " or ".join(("default", *known))
            msg = (
                f"{key} in config.json must be of type {only} for {family}: of its own code no "
                f"other is read. Got {shown(repr(kind))}: not supported."
            )
            raise UnsupportedError(msg)
