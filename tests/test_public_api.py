"""The table of contents, and what importing it must not load."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import dispersion

HEAVY = {"flint", "jax", "matplotlib", "numpy", "scipy", "sympy", "torch"}
EXPORTED = [
    "ArgumentError",
    "BallImage",
    "CheckpointError",
    "DispersionError",
    "Enclosure",
    "Estimate",
    "Head",
    "OutputError",
    "PlannedHead",
    "Target",
    "UnsafeFileError",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "audit",
    "capped_spread",
    "check",
    "dry_run",
    "loose_max_coefficient",
    "max_coefficient",
    "max_coefficient_with_sink",
    "min_coefficient",
    "min_entropy",
    "plan_head",
    "reachable_length",
    "required_spread",
    "set_mass",
]


def loaded_by(statement):
    """Top-level modules a fresh interpreter holds after a statement."""
    code = f"import sys\n{statement}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_table_of_contents():
    assert dispersion.__all__ == EXPORTED
    assert set(EXPORTED) <= set(dir(dispersion))


@pytest.mark.parametrize("name", sorted(set(EXPORTED) - {"__version__"}))
def test_every_name_is_there_and_comes_from_its_home(name):
    value = getattr(dispersion, name)
    assert value.__module__ == f"dispersion.{dispersion._HOMES[name]}"
    assert callable(value)


def test_the_homes_are_the_exports():
    assert sorted([*dispersion._HOMES, "__version__"]) == EXPORTED


def test_importing_the_package_stays_light():
    loaded = loaded_by("import dispersion; dir(dispersion)")
    assert "dispersion" in loaded
    assert not loaded & HEAVY


def test_bounding_a_row_loads_no_heavy_library_but_numpy():
    loaded = loaded_by("import dispersion; dispersion.max_coefficient(10, 2.0)")
    assert loaded & HEAVY == {"numpy"}


def test_the_check_for_heavy_imports_can_fail():
    assert loaded_by("import dispersion.rigor") & HEAVY == {"flint", "numpy"}


def test_no_submodule_takes_the_place_of_a_function():
    statement = (
        "import dispersion.auditing, dispersion.checking, dispersion; "
        "assert callable(dispersion.audit) and callable(dispersion.check); "
        "from dispersion import audit, check; assert callable(audit) and callable(check)"
    )
    assert "dispersion" in loaded_by(statement)
    names = {path.stem for path in Path(dispersion.__file__).parent.iterdir()}
    assert not names & set(EXPORTED)


def test_the_version_is_the_installed_one():
    try:
        installed = importlib.metadata.version("dispersion")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("runs from a source tree; install the package to compare")
    assert dispersion.__version__ == installed


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dispersion.nothing
