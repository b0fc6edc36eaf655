"""Every link of proofs/README.md leads somewhere."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE, _, FORMAL = (
    (ROOT / "proofs" / "README.md").read_text(encoding="utf-8").partition("## Formal proofs")
)
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "theorem" not in line]
FORMAL_ROWS = [line for line in FORMAL.splitlines() if line.startswith("| ")][1:]


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


def formal_links(rows: list[str], statements: str) -> None:
    named = [name for row in rows for name in links(row.split("|")[2])]
    proved = re.findall(r"^Theorem (\w+)", statements, re.MULTILINE)
    assert len(set(named)) == len(named)
    assert set(named) == set(proved)


def test_formal_names_and_formal_statements_are_the_same():
    formal_links(FORMAL_ROWS, (ROOT / "proofs/formal/Statements.v").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", FORMAL_ROWS, ids=range(len(FORMAL_ROWS)))
def test_every_formal_proof_belongs_to_a_row_of_the_first_table(row):
    theorem = row.split("|")[1].strip()
    assert links(row.split("|")[2])
    assert any(theorem == above.split("|")[1].strip() for above in ROWS), theorem


@pytest.mark.parametrize(
    ("rows", "statements"),
    [
        (["| T1 | `T1_a`, `T1_b` | |"], "Theorem T1_a :\n"),
        (["| T1 | `T1_a` | |"], "Theorem T1_a :\nTheorem T1_b :\n"),
        (["| T1 | `T1_a`, `T1_a` | |"], "Theorem T1_a :\n"),
    ],
)
def test_a_formal_name_without_its_statement_is_noticed(rows, statements):
    with pytest.raises(AssertionError):
        formal_links(rows, statements)
