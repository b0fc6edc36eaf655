"""The committed figures: redrawn byte for byte, honest about numbers, listed, refused by name."""

import ast
import re
import subprocess
import sys

import numpy as np
import pytest

from dispersion.cli import main
from dispersion.drawing import catalogue, command, gallery, published, style
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.experiments import adaptive

FOLDER = catalogue.folder()
NAMES = catalogue.names()
REDRAWN = ("scalable_softmax", "max_retrieval", "helmet", "qk_norm_sinks")


@pytest.fixture
def pinned():
    if style.version() != catalogue.pinned_matplotlib():
        pytest.skip(
            f"matplotlib {style.version()} draws other bytes than the pinned "
            f"{catalogue.pinned_matplotlib()}; pip install --group figures"
        )


@pytest.mark.parametrize("name", REDRAWN)
def test_a_figure_is_redrawn_byte_for_byte(name, pinned):
    for kind, data in command.pictures(catalogue.load(name)).items():
        assert data == (FOLDER / "out" / f"{name}.{kind}").read_bytes(), kind


def test_a_second_drawing_has_the_same_bytes_and_a_changed_one_other_bytes():
    def draw(height):
        with style.styled():
            canvas, axes = style.panels()
            axes.plot([1, 2], [1, height], label="x")
            axes.legend()
            return {kind: style.to_bytes(canvas, kind) for kind in command.KINDS}

    assert draw(2) == draw(2)
    assert all(draw(2)[kind] != draw(3)[kind] for kind in command.KINDS)


def test_pictures_bear_no_date_and_no_version(pinned):
    for name in NAMES:
        svg = (FOLDER / "out" / f"{name}.svg").read_text(encoding="utf-8")
        png = (FOLDER / "out" / f"{name}.png").read_bytes()
        assert "<dc:date>" not in svg
        assert "Matplotlib" not in svg
        assert b"Software" not in png
        assert png.startswith(b"\x89PNG")


def test_every_figure_is_committed_and_nothing_else():
    files = {path.name for path in (FOLDER / "out").iterdir()}
    assert files == {f"{name}.{kind}" for name in NAMES for kind in command.KINDS}


def test_the_gallery_is_in_step():
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == gallery.page()


def test_drawing_leaves_the_users_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    command.pictures(catalogue.load("scalable_softmax"))
    assert dict(matplotlib.rcParams) == before


def literals(tree):
    """What stands between the {…} of the text that `caption` returns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "caption":
            returned = node.body[-1].value
            assert isinstance(returned, ast.JoinedStr)
            yield from (part.value for part in returned.values if isinstance(part, ast.Constant))


def typed_numbers(text):
    """Numbers of two digits or more; single digits are in formulas, T13 and log10 are names."""
    return re.findall(r"(?<![A-Za-z\d.,])\d[\d.,]*\d", text)


@pytest.mark.parametrize("name", NAMES)
def test_no_number_is_typed_into_a_caption(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    texts = list(literals(tree))
    assert texts
    for text in texts:
        assert not typed_numbers(text), text


def test_a_typed_number_would_be_noticed():
    assert typed_numbers("reaches 296 tokens at 0.5") == ["296", "0.5"]
    assert not typed_numbers("T13 asks for 1/n, and log10")


def test_every_quoted_number_has_a_source_and_is_used():
    rows = catalogue.table("quoted.csv")
    code = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py"))
    keys = {row["key"] for row in rows}
    assert len(keys) == len(rows)
    for row in rows:
        assert np.isfinite(float(row["value"]))
        assert row["paper"] in {paper["key"] for paper in catalogue.table("papers.csv")}
        assert row["place"]
        assert row["trust"] in (
            "read in the paper",
            "quoted in another text about the paper",
            "recollection, not confirmed",
        )
        assert row["key"].split("_")[0] in code, row["key"]


def test_bounds_hold_against_what_was_reached():
    found = catalogue.results("bounds_gap.json")
    for head in found["heads"]:
        assert head["lower"] <= head["upper"] <= head["product"] * (1 + 1e-9)
        # ascent runs in float64, its logits rounded to a few units in the last place
        assert head["reached"] <= head["upper"] * (1 + 1e-9)
    for ends in found["contexts"].values():
        assert all(0 < low <= high <= 1 for low, high in ends)


def test_list_names_every_figure_without_matplotlib(capsys):
    assert main(["figures", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["figure", "paper", "number", "seconds", "recompute"]
    assert {line.split()[0] for line in lines[1:]} == set(NAMES)
    assert sum(catalogue.load(name).figure.seconds for name in NAMES) < 180
    code = (
        "import sys; from dispersion.cli import main; main(['figures', '--list']);"
        "sys.exit(str({'matplotlib', 'jax'} & set(sys.modules) or '') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_drawing_writes_pictures_and_the_page(tmp_path, monkeypatch, capsys, pinned):
    (tmp_path / "data").symlink_to(FOLDER / "data")
    for path in FOLDER.glob("*.py"):
        (tmp_path / path.name).symlink_to(path)
    for module in (catalogue, gallery):
        monkeypatch.setattr(module, "folder", lambda: tmp_path)
    monkeypatch.setattr(catalogue, "pinned_matplotlib", style.version)
    assert main(["figures", "scalable_softmax"]) == 0
    assert capsys.readouterr().out.startswith("scalable_softmax: changed, ")
    assert main(["figures", "scalable_softmax"]) == 0
    assert capsys.readouterr().out.startswith("scalable_softmax: the same bytes, ")
    for kind in command.KINDS:
        drawn = (tmp_path / "out" / f"scalable_softmax.{kind}").read_bytes()
        assert drawn == (FOLDER / "out" / f"scalable_softmax.{kind}").read_bytes()
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["no_such"], "NAME must be one of attention_mass, "),
        (["--seeds", "2"], "--seeds goes with --recompute"),
        (
            ["ceiling", "--recompute", "--seeds", "3"],
            "--seeds goes with max_retrieval, qk_norm_sinks, which trains",
        ),
        (["helmet", "--recompute"], "--recompute needs a figure that has results"),
        (["--list", "helmet"], "--list draws nothing"),
        (["--seeds", "0"], "Invalid value for '--seeds'"),
    ],
)
def test_wrong_options_are_one_line(arguments, error, capsys):
    assert main(["figures", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert error in printed.err
    assert len(printed.err.splitlines()) == 1


def test_without_a_checkout_or_matplotlib_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ArgumentError, match="pip install --group figures"):
        style.version()
    monkeypatch.setattr(catalogue.dispersion, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedError, match="change to its folder"):
        catalogue.folder()


def test_missing_data_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "folder", lambda: tmp_path)
    with pytest.raises(CheckpointError, match=r"figures/data/x\.json is missing"):
        catalogue.results("x.json")
    assert catalogue.kept("x.json") == {}


def test_results_are_written_and_read_back(monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "folder", lambda: tmp_path)
    (tmp_path / "data").mkdir()
    value = {"runs": [{"a": [1.5, 2.0], "b": [[1, 2], [3, 4]], "c": "é", "d": []}], "n": 3}
    catalogue.write_results("x.json", value)
    assert catalogue.results("x.json") == value
    assert "[1.5, 2.0]" in (tmp_path / "data" / "x.json").read_text(encoding="utf-8")


def test_the_published_polynomial_works_in_a_window_only():
    low, high = adaptive.window()
    assert (round(low, 3), round(high, 3)) == (0.849, 5.945)
    entropy = np.array([0.0, 0.5, 0.7, low - 1e-6, low + 1e-3, 4.4, high - 1e-3, high + 1e-6, 9.0])
    factor = adaptive.inverse_temperature(entropy)
    assert list(factor > 1) == [False] * 4 + [True] * 3 + [False] * 2
    assert factor.min() == 1.0
    assert factor.max() == pytest.approx(2.42, abs=0.01)


def test_a_fit_recovers_the_polynomial_it_was_given():
    entropy = np.linspace(0.5, 6, 50)
    found = adaptive.fit(entropy, np.polyval(adaptive.PUBLISHED, entropy))
    assert found == pytest.approx(adaptive.PUBLISHED, rel=1e-9)
    with pytest.raises(ArgumentError, match="5 different entropies"):
        adaptive.fit(np.ones(9), np.ones(9))
    with pytest.raises(ArgumentError, match="rises, then falls"):
        adaptive.window((0.0, 0.0, 0.0, 1.0, 0.0))
    with pytest.raises(ArgumentError, match="entropy must be 0 or more"):
        adaptive.inverse_temperature(np.array([np.nan]))


def test_published_formulas_at_their_known_points():
    factor, shift = published.scale_invariant(np.array([0.0]), 10.0)
    assert factor[0] == pytest.approx(1.0, abs=1e-15)
    assert shift[0] == pytest.approx(0.0, abs=1e-15)
    products = published.collapsed_product(0.5, np.array([1.9, 2.0, 2.1]))
    assert products == pytest.approx([1.0, 0.8, 0.5])
    z = np.random.default_rng(0).standard_normal(100_000)
    weight = published.gaussian_weight(np.array(0.5), np.array(-1.0))
    error = np.exp(0.5 * z - 1).std() / len(z) ** 0.5
    assert abs(np.exp(0.5 * z - 1).mean() - weight) < 5 * error
