"""Files of measurements that are not what they should be: one line on stderr, exit code 2."""

import copy
import json

import numpy as np
import pytest

from dispersion.cli import main
from dispersion.measure import layer_statistics
from dispersion.measure.documents import Document
from dispersion.measure.line_checks import is_document
from dispersion.measure.records import FORMAT, record
from dispersion.measure.samples import correlation

HEAD = {"format": FORMAT, "run": {}}


@pytest.fixture(scope="module")
def good():
    q, k = np.random.default_rng(0).normal(size=(2, 2, 300, 8)).astype(np.float32)
    found = {0: layer_statistics(q, k)}
    return json.loads(json.dumps(record(Document("d0", tuple(range(300))), found)))


def written(tmp_path, *lines):
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines))
    return str(file)


def places(value, path=()):
    """Every place within lists and objects, two entries of each list."""
    items = enumerate(value[:2]) if isinstance(value, list) else ()
    items = value.items() if isinstance(value, dict) else items
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(line, path, value):
    line = copy.deepcopy(line)
    place = line
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return line


def test_a_measured_document_is_one(good):
    assert is_document(good)


def test_no_changed_line_ends_in_a_traceback(good, tmp_path, capsys):
    rng = np.random.default_rng(0)
    every = list(places(good))
    strange = [None, True, "x", [], {}, -1, 1e308, 10**400, [[]], 0.5]
    refused = 0
    for path in [every[i] for i in rng.choice(len(every), min(len(every), 120), replace=False)]:
        value = strange[int(rng.integers(len(strange)))]
        file = written(tmp_path, HEAD, good, changed(good, path, value) | {"document": "d1"})
        code = main(["records", file, "--predict", "64K"])
        said = capsys.readouterr()
        assert code in (0, 2), (path, value)
        assert (code == 2) == bool(said.err), (path, value)
        assert said.err.count("\n") <= 1, (path, value)
        assert not (code and said.out), (path, value)
        refused += code == 2
    assert refused > 40


@pytest.mark.parametrize("line", ["[" * 100000 + "\n", '{"document": 1}\n', "[]\n", "nan\n"])
def test_other_lines_are_refused(good, tmp_path, capsys, line):
    assert main(["records", written(tmp_path, HEAD, good, line)]) == 2
    assert "must hold measurements" in capsys.readouterr().err


def test_numbers_that_json_does_not_know_are_refused(good, tmp_path, capsys):
    text = json.dumps(changed(good, ("layers", 0, "mean", "spread", 0), 123.456)) + "\n"
    for number in ("NaN", "Infinity", "1e400"):
        assert main(["records", written(tmp_path, HEAD, text.replace("123.456", number))]) == 2
        assert "must hold measurements" in capsys.readouterr().err


def test_what_is_not_finite_is_named(good, tmp_path, capsys):
    line = changed(good, ("layers", 0, "largest", "spread", 1), None)
    assert main(["records", written(tmp_path, HEAD, line)]) == 2
    assert "null for spread in layer 0" in capsys.readouterr().err


def test_a_document_that_stands_there_twice_counts_once(good, tmp_path, capsys):
    assert main(["records", written(tmp_path, HEAD, good)]) == 0
    once = capsys.readouterr().out
    assert main(["records", written(tmp_path, HEAD, good, good)]) == 0
    assert capsys.readouterr().out == once


def test_missing_files_and_folders_are_named(tmp_path, capsys):
    assert main(["records", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["records", str(tmp_path)]) == 2
    assert "a folder" in capsys.readouterr().err


def test_json_on_stdout_stands_there_alone(good, tmp_path, capsys):
    assert main(["records", written(tmp_path, HEAD, good), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 1
    table = tmp_path / "table.csv"
    table.write_text("a,s\n1,1\n2,2\n3,4\n5,1\n")
    assert main(["correlate", str(table), "--score", "s", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_correlations_do_not_depend_on_the_unit():
    x, y = np.array([1.0, 2, 3, 5, 4]), np.array([1.0, 2, 4, 1, 3])
    plain = correlation(x, y)
    for unit in (2.0**-560, 2.0**560):
        scaled = correlation(unit * x, y / unit)
        assert scaled.r_squared.value.value == pytest.approx(plain.r_squared.value.value, rel=1e-12)
