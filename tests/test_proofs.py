"""Every link of proofs/README.md leads somewhere."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "proofs" / "README.md").read_text(encoding="utf-8")
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "theorem" not in line]


def links(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row)


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_function_and_test_exists(row):
    found = links(row)
    assert any(name.startswith("tests/") for name in found)
    for name in found:
        if name.startswith("tests/"):
            assert (ROOT / name).exists(), name
        else:
            module, _, attribute = name.rpartition(".")
            assert callable(getattr(importlib.import_module(module), attribute)), name


@pytest.mark.parametrize("module", ["dispersion.rigor", "dispersion.rigor_capacity"])
def test_every_bound_of_a_row_stands_in_the_table(module):
    helpers = {
        "Enclosure",
        "Estimate",
        "from_arb",
        "product",
        "quotient",
        "softmax_coefficient",
        "sqrt_enclosure",
        "to_arb",
        "total",
        "flat_log_capacity_estimate",
        "share",
        "closed_min_entropy",
    }
    for name in set(importlib.import_module(module).__all__) - helpers:
        assert f"{module}.{name}`" in TABLE, name


def test_a_dangling_link_is_noticed():
    with pytest.raises(AttributeError):
        test_every_function_and_test_exists(
            "| T0 | `dispersion.rigor.no_such` | `tests/test_row.py` |"
        )
