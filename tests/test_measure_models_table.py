"""A table of models: columns beside a score, and files of measurements as columns."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dispersion import ArgumentError
from dispersion.cli import main
from dispersion.measure.models_table import read_models, relate
from test_measure_predictions import line

OLMPOOL = Path(__file__).parents[1] / "figures" / "data" / "olmpool.csv"


def test_the_pool_of_models():
    rows = read_models(OLMPOOL)
    found, left = relate(rows, "h32", resamples=50)
    by_name = {x.name: x.found for x in found}
    kv = [float(row["kv"]) for row in rows]
    score = [float(row["h32"]) for row in rows]
    assert by_name["kv"].pairs == 26
    assert by_name["kv"].r_squared.value.value == pytest.approx(stats.pearsonr(kv, score)[0] ** 2)
    assert by_name["swa"].rank.value.value < -0.5
    plain = [float(row["qknorm"] == "none") for row in rows]
    rank = stats.spearmanr(plain, score).statistic
    assert by_name["qknorm=none"].rank.value.value == pytest.approx(rank)
    assert by_name["r64"].pairs < 26  # empty cells leave a model out of that column alone
    assert {name for name, _ in left} == {"hf_name", "init", "params"}
    values = [x.found.r_squared.value.value for x in found]
    assert values == sorted(values, reverse=True)


@pytest.fixture
def measured(tmp_path):
    """Three models whose files of measurements differ, and a score of two of their statistics."""
    from dispersion.measure.records import Records

    texts = ["name,score,records"]
    for i in range(4):
        file = Records(tmp_path / f"m{i}.jsonl", {"model": i})
        for seed in range(2):
            file.add(line(50 + 2 * i + seed, n=110, windows=(None,)))
        file.close()
        texts.append(f"m{i},{i * i},m{i}.jsonl")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(texts) + "\n")
    return path


def test_files_of_measurements_join_as_columns(measured):
    rows = read_models(measured)
    lines = [json.loads(x) for x in (measured.parent / "m2.jsonl").read_text().splitlines()][1:]
    mean = np.mean([x["layers"][0]["mean"]["entropy"][h] for x in lines for h in (0, 1)])
    assert float(rows[2]["entropy"]) == pytest.approx(mean)
    found, _ = relate(rows, "score", resamples=20)
    names = {x.name for x in found}
    assert {"entropy", "exponent", "largest spread", "mean coefficient"} <= names
    assert {"share of first 1", "share of first 4"} <= names
    assert "records" not in names


def test_the_command(measured, tmp_path, capsys):
    out = tmp_path / "c.json"
    assert main(["correlate", str(measured), "--score", "score", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "share of first 4" in shown
    assert "Estimates" in shown
    found = json.loads(out.read_text())
    assert found["score"] == "score"
    assert all(x["models"] == 4 for x in found["columns"])


@pytest.mark.parametrize(
    ("text", "score", "message"),
    [
        ("a,b\n1,2\n", "c", "score must name a column: a, b. Got 'c'"),
        ("a,b\nx,2\ny,3\n", "a", "finite numbers. 'a' holds 'x'"),
        ("a,b\nnan,2\n1,3\n", "a", "finite numbers. 'a' holds 'nan'"),
        ("a,b,a\n1,2,3\n", "a", "must name every column once. Got 'a' twice"),
        ("a,b\n1,2\n2,3\n", "a", "3 models or more with a 'a'. Got 2"),
        ("a,b\n1\n", "a", "as many cells in every line"),
        ("a,b\n1,2,3\n", "a", "as many cells in every line"),
        ("a,b\n", "a", "must have a line of names"),
        ("a,records\n1,none.jsonl\n", "a", "must be a file of measurements"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, score, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=message):
        relate(read_models(path), score)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_models(tmp_path / "missing.csv")


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n2,3\n3,5\n", encoding="utf-8-sig")
    assert [x.name for x in relate(read_models(path), "a")[0]] == ["b"]


def test_nothing_is_printed_where_the_file_cannot_be_written(measured, tmp_path, capsys):
    out = str(tmp_path / "missing" / "c.json")
    assert main(["correlate", str(measured), "--score", "score", "--json", out]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "c.json" in shown.err
