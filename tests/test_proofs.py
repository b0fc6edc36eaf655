"""Every link of proofs/README.md leads somewhere, and nothing that needs a row lacks one."""

import importlib
import re
from pathlib import Path

import pytest

import dispersion
from dispersion import capacity, rigor, rigor_capacity, row
from dispersion.proofs import FILES
from dispersion.proofs.formal_names import FORMAL

ROOT = Path(__file__).parents[1]
ABOVE, _, FORMAL_TABLE = (
    (ROOT / "proofs" / "README.md").read_text(encoding="utf-8").partition("## Formal proofs")
)
TABLE, _, FIGURE_TABLE = ABOVE.partition("## Figures")
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "theorem" not in line]
FORMAL_ROWS = [line for line in FORMAL_TABLE.splitlines() if line.startswith("| ")][1:]
FOLDER = "src/dispersion/proofs/"
COLUMNS = ("theorem", "statement", "hypotheses", "kind", "symbolic", "function", "test")

HELPERS = {
    "Enclosure",
    "Estimate",
    "flat_log_capacity_estimate",  # an estimate is no bound
    "from_arb",
    "product",
    "quotient",
    "sqrt_enclosure",
    "to_arb",
    "total",
    "water_level",  # where T13 takes its minimum
}


def links(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row)


def cells(row: str) -> dict[str, str]:
    found = [cell.strip() for cell in row.strip().strip("|").split(" | ")]
    return dict(zip(COLUMNS, found, strict=True))


def unlisted(module, names, table=TABLE):
    """Names of a module that no row gives under it or under the module of its enclosures."""
    homes = {
        "dispersion.row": ("row", "rigor"),
        "dispersion": ("row", "rigor"),
        "dispersion.capacity": ("capacity", "rigor_capacity"),
    }.get(module, (module.removeprefix("dispersion."),))
    return [
        name
        for name in sorted(set(names) - HELPERS)
        if not any(f"`dispersion.{home}.{name}`" in table for home in homes)
    ]


def without_derivation(table=TABLE, files=FILES):
    """Theorems that no row gives the file of."""
    return [name for name, (file, _) in files.items() if f"`{FOLDER}{file}.py`" not in table]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_function_and_test_exists(row):
    found = links(row)
    assert any(name.startswith("tests/") for name in found)
    for name in found:
        if "/" in name:
            assert (ROOT / name).is_file(), name
        else:
            module, _, attribute = name.rpartition(".")
            assert callable(getattr(importlib.import_module(module), attribute)), name


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_cell_is_filled_and_in_its_column(row):
    found = cells(row)
    assert all(found.values())
    assert found["kind"] in ("tight", "upper", "lower")
    assert found["test"].startswith("`tests/")
    assert found["symbolic"] == "—" or found["symbolic"].startswith(f"`{FOLDER}")
    # A theorem's row gives the file of that theorem, and one with a derivation says so.
    name = found["theorem"]
    if found["symbolic"] != "—" and name != "T12, T13":
        assert found["symbolic"] == f"`{FOLDER}{FILES[name][0]}.py`"


def test_every_derivation_has_a_row_and_every_file_is_a_derivation():
    assert without_derivation() == []
    files = {path.stem for path in (ROOT / FOLDER).glob("*.py")}
    theorems = {
        stem
        for stem in files
        if "\nTHEOREM = " in (ROOT / FOLDER / f"{stem}.py").read_text(encoding="utf-8")
    }
    assert theorems == {file for file, _ in FILES.values()}


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


def test_every_theorem_of_the_table_has_a_derivation():
    derived = {cells(row)["theorem"] for row in ROWS if cells(row)["symbolic"] != "—"}
    numbered = {f"T{i}" for i in range(1, 17)}
    assert numbered <= derived
    assert {"T3′", "T13′", "T13″", "witness", "cover"} <= derived


@pytest.mark.parametrize("module", [row, capacity, rigor, rigor_capacity])
def test_every_public_bound_stands_in_the_table(module):
    assert unlisted(module.__name__, module.__all__) == []


def test_every_bound_of_the_table_of_contents_stands_in_the_table():
    bounds = [name for name, home in dispersion._HOMES.items() if home in ("row", "entropy")]
    assert "max_coefficient" in bounds
    assert "min_entropy" in bounds
    assert unlisted("dispersion", bounds) == []


@pytest.mark.parametrize("link", ["dispersion.rigor.no_such", f"{FOLDER}t99.py", "tests/no.py"])
def test_a_dangling_link_is_noticed(link):
    with pytest.raises((AttributeError, AssertionError)):
        test_every_function_and_test_exists(f"| T0 | `{link}` | `tests/test_row.py` |")


def test_a_bound_or_a_derivation_without_a_row_is_noticed():
    assert unlisted("dispersion.rigor", ["max_coefficient", "new_bound"]) == ["new_bound"]
    cut = TABLE.replace("`dispersion.rigor.set_mass`", "").replace(f"`{FOLDER}cover.py`", "—")
    assert unlisted("dispersion.row", row.__all__, cut) == ["set_mass"]
    assert without_derivation(cut) == ["cover"]


def test_every_formal_name_is_a_theorem_of_the_formal_proofs():
    assert set(FORMAL) <= set(FILES)
    folder = ROOT / "proofs" / "formal"
    if not folder.is_dir():
        pytest.skip("proofs/formal is not part of this tree")
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.v"))
    stated = set(re.findall(r"^(?:Theorem|Corollary) (\w+)", text, flags=re.MULTILINE))
    for names in FORMAL.values():
        assert set(names) <= stated, set(names) - stated


def drawn(scripts: dict[str, str]) -> set[tuple[str, str]]:
    """Pairs of a theorem and a figure that says it draws it."""
    found = set()
    for name, text in scripts.items():
        for theorems in re.findall(r'^    theorems="([^"-]+)",$', text, flags=re.MULTILINE):
            found |= {(theorem, f"figures/{name}") for theorem in theorems.split(", ")}
    return found


def listed(table: str) -> set[tuple[str, str]]:
    rows = [line for line in table.splitlines() if line.startswith("| T")]
    return {(row.split("|")[1].strip(), link) for row in rows for link in links(row)}


def test_figures_and_theorems_name_each_other():
    scripts = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "figures").glob("*.py")}
    assert len(drawn(scripts)) > 20
    assert listed(FIGURE_TABLE) == drawn(scripts)
    known = {cells(row)["theorem"] for row in ROWS}
    assert {theorem for theorem, _ in drawn(scripts)} <= known


def test_a_figure_without_its_theorem_is_noticed():
    script = 'FIGURE = Figure(\n    theorems="T1, T4",\n)\n'
    assert drawn({"a.py": script}) == {("T1", "figures/a.py"), ("T4", "figures/a.py")}
    assert listed("| T1 | `figures/a.py` |") != drawn({"a.py": script})
