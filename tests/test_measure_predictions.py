"""Heads at other lengths, from the octaves of a file of measurements; what the commands print."""

import json
import math
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from dispersion import ArgumentError
from dispersion.cli import main
from dispersion.measure import layer_statistics
from dispersion.measure.documents import Document
from dispersion.measure.lengths import RECENT, dispersion_exponent, predict
from dispersion.measure.outlook import outlook, predictions_as_json
from dispersion.measure.predictions import by_length, exponent, log_odds, predict_heads, predict_one
from dispersion.measure.records import Records, record, schema
from dispersion.measure.samples import tolerance_limit, tolerance_of_heads
from dispersion.measure.summary import sink_rate_of

N = 300


def line(seed, *, n=N, windows=(None, 40)):
    """A document of two layers: one that sees everything, one with a window."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, 2, n, 8)).astype(np.float32) * 1.5
    found = {i: layer_statistics(q, k, window=window) for i, window in enumerate(windows)}
    return json.loads(json.dumps(record(Document(f"d{seed}", tuple(range(n))), found)))


@pytest.fixture(scope="module")
def lines():
    return [line(seed) for seed in range(5)]


def test_octaves_are_those_that_are_filled(lines):
    heads = by_length(lines)
    assert [(x.layer, x.head) for x in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # 300 queries: the octave from 256 on has 45 rows of 256, and none of fewer than 32 keys counts.
    assert heads[0].octaves == (5, 6, 7)
    assert heads[0].window is None
    # Rows of the window have at most 40 keys: its last octave begins at 32.
    assert heads[2].octaves == (5,)
    assert heads[2].window == 40
    assert heads[2].lengths[0] == pytest.approx(40, rel=0.02)
    for head in heads:
        for name in ("coefficient", "entropy", "sink"):
            assert head.values[name].shape == (5, len(head.octaves))
    layer = lines[3]["layers"][0]
    place = layer["octaves"]["index"].index(6)
    assert heads[1].values["entropy"][3, 1] == layer["octaves"]["mean"]["entropy"][1][place]
    assert heads[1].values["sink"][3, 1] == layer["octaves"]["mean"]["mass"][1][place][1]


def test_shorter_rows_alone(lines):
    head = by_length(lines)[0].up_to(128)
    assert head.octaves == (5, 6)
    assert head.values["coefficient"].shape == (5, 2)
    assert len(head.lengths) == 2


def test_predictions_are_those_of_the_octaves(lines):
    measured = by_length(lines)
    found = predict_heads(measured, (4096, 131072))
    assert [(x.layer, x.head) for x in found] == [(0, 0), (0, 1)]  # one octave is no slope
    head = measured[1]
    expected = predict(head.lengths, head.values["entropy"], 131072, quantity="entropy")
    assert found[1].values["entropy"][1] == expected
    expected = predict(head.lengths, log_odds(head.values["sink"]), 4096)
    assert found[1].values["sink"][0] == expected
    assert found[1].exponent == dispersion_exponent(head.lengths, head.log_odds)
    # Logits of one law at every length: nearly full dispersion, a sink of the first 4 like 4/n.
    assert 0.5 < found[0].exponent.value.value < 1.2
    here = found[0].values["sink"][0]
    assert here.dispersed.value <= here.value.value < here.damped.value < here.constant.value


def test_a_window_stops_growing(lines):
    wide = [line(seed, n=600, windows=(None, 150)) for seed in range(3)]
    found = {(x.layer, x.head): x for x in predict_heads(by_length(wide), (256, 131072))}
    windowed = found[1, 0].values["coefficient"]
    assert found[1, 0].window == 150
    assert windowed[0].value == windowed[1].value
    assert found[0, 0].window is None
    full = found[0, 0].values["coefficient"]
    assert full[1].value.value < full[0].value.value


def test_only_the_longest_octaves_make_an_exponent(lines):
    head = by_length(lines)[0]
    more = np.concatenate([np.full((5, 3), 50.0), head.log_odds], axis=1)
    longer = replace(
        head, lengths=np.array([4.0, 8.0, 16.0, *head.lengths]), log_odds=more, octaves=range(6)
    )
    assert RECENT == 4
    expected = dispersion_exponent(longer.lengths[-4:], longer.log_odds[:, -4:])
    assert exponent(longer) == expected
    empty = replace(head, lengths=head.lengths[:1], log_odds=head.log_odds[:, :1])
    assert exponent(empty) is None
    assert predict_heads([empty], (4096,)) == []


def test_shares_of_nothing_and_everything_have_finite_odds():
    found = log_odds(np.array([0.0, 0.5, 1.0, 1.0000001]))
    assert np.isfinite(found).all()
    assert found[1] == 0
    assert found[0] == -found[2] == -found[3] == pytest.approx(-math.log(1e5))


def test_shares_too_small_to_tell_may_be_nothing(lines):
    head = by_length(lines)[0]
    tiny = replace(head, values={**head.values, "sink": np.full_like(head.log_odds, 1e-9)})
    found = predict_one(tiny, "sink", 4096)
    assert found.lower.value == 0
    assert found.upper.value < 1e-4
    full = replace(head, values={**head.values, "sink": np.full_like(head.log_odds, 1.0)})
    assert predict_one(full, "sink", 4096).upper.value == 1
    assert predict_one(head, "sink", 4096).lower.value > 0


def test_what_is_refused(lines):
    with pytest.raises(ArgumentError, match="at least one measured document"):
        by_length([])
    with pytest.raises(ArgumentError, match="different layers or heads"):
        by_length([lines[0], {**lines[1], "layers": lines[1]["layers"][:1]}])
    old = {**lines[0], "layers": [{**lines[0]["layers"][0]}]}
    del old["layers"][0]["octaves"]
    with pytest.raises(ArgumentError, match="means by octave of length: measure"):
        by_length([old])
    bare = {**lines[0], "layers": [{**lines[0]["layers"][0], "marks": ["needle", "x"]}]}
    with pytest.raises(ArgumentError, match="share of first tokens: measure with --first"):
        by_length([bare])
    with pytest.raises(ArgumentError, match="statistic must be one of spread"):
        tolerance_of_heads(lines, "entropy")
    with pytest.raises(ArgumentError, match=r"at least 299 documents .* Got 5"):
        tolerance_of_heads(lines, "spread")
    with pytest.raises(ArgumentError, match="at least one measured document"):
        tolerance_of_heads([], "spread")
    with pytest.raises(ArgumentError, match="different layers or heads"):
        tolerance_of_heads([lines[0], {**lines[1], "layers": lines[1]["layers"][:1]}], "spread")


def test_nothing_printed_calls_itself_certain(lines):
    found = predict_heads(by_length(lines), (32768, 131072))
    shown = outlook(found, (32768, 131072), 200.0)
    assert "Estimates" in shown
    assert "no bound" in shown
    assert "certif" not in shown
    assert "proved" not in shown
    assert "≈" in shown.splitlines()[5]
    assert "128K is 655 times the length that was measured" in shown
    assert "times the length" not in outlook(found, (1024,), 200.0)
    assert outlook([], (32768,), 0.0).startswith("No prediction")
    json.dumps(predictions_as_json(found), allow_nan=False)


def test_limits_of_heads_are_those_of_document_maxima(lines):
    short = [line(seed, n=40) for seed in range(4)]
    found = tolerance_of_heads([*lines, *short], "spread", share=0.6, confidence=0.9)
    assert list(found) == [40, N]
    layer, head, limit = found[N][3]
    assert (layer, head) == (1, 1)
    largest = [x["layers"][1]["largest"]["spread"][1] for x in lines]
    assert limit == tolerance_limit(largest, share=0.6, confidence=0.9)
    assert found[40][0][2].documents == 4


def test_limits_keep_their_word_on_other_documents():
    """Heads' limits from some documents, held to many more of the same kind."""
    share, confidence, trials = 0.3, 0.8, 60
    rng = np.random.default_rng(0)
    # Document maxima of two heads that go together, as heads of one document do.
    common = rng.gumbel(size=(2000, 1))
    pool = [
        {
            "tokens": 24,
            "layers": [{"layer": 0, "rows": [24, 24], "largest": {"spread": (x + y).tolist()}}],
        }
        for x, y in zip(common, rng.gumbel(size=(2000, 2)), strict=True)
    ]
    good = 0
    for _ in range(trials):
        order = rng.permutation(len(pool))
        fit, rest = ([pool[i] for i in part] for part in (order[:20], order[20:]))
        (first, _) = tolerance_of_heads(fit, "spread", share=share, confidence=confidence)[24]
        values = np.array([x["layers"][0]["largest"]["spread"][first[1]] for x in rest])
        good += np.mean(values > first[2].limit.value) <= share
    # 1980 other documents blur the share by 0.01, which moves the rate little.
    assert good / trials >= confidence - 4 * math.sqrt(confidence * (1 - confidence) / trials)


@pytest.fixture
def kept(tmp_path, lines):
    path = tmp_path / "o.jsonl"
    file = Records(path, {"x": 1})
    for each in lines:
        file.add(each)
    file.close()
    return path


def test_the_command_reads_records(kept, tmp_path, capsys):
    out = tmp_path / "s.json"
    arguments = ["records", str(kept), "--predict", "32K,128K", "--json", str(out)]
    arguments += ["--tolerance", "spread", "--share", "0.6"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Measured on 5 documents" in shown
    assert "At 95% confidence at most 0.6 of documents like these 5 of 300 tokens" in shown
    assert "128K" in shown
    found = json.loads(out.read_text())
    jsonschema.validate(found, schema("measure-summary-1"))
    assert [x["length"] for x in found["predictions"][0]["sink"]] == [32768, 131072]
    assert len(found["tolerance"]["limits"]) == 4


def test_the_sink_rate_counts_heads_and_documents(lines):
    shares = [head[0] for x in lines for y in x["layers"] for head in y["token_means"]]
    rate = np.mean(np.array(shares) > 0.3)
    assert sink_rate_of(lines) == rate < 1
    high = json.loads(json.dumps(lines))
    high[2]["layers"][1]["token_means"][0][0] = 0.31
    assert sink_rate_of(high) == pytest.approx(rate + (shares[10] <= 0.3) / len(shares))
    bare = {"layers": [{"token_means": [[], []]}]}
    assert sink_rate_of([bare]) is None


def test_records_follow_their_schema(kept):
    for text in kept.read_text().splitlines():
        jsonschema.validate(json.loads(text), schema())
    bad = {**json.loads(text), "tokens": "many"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, schema())


def test_the_command_says_what_it_needs(kept, tmp_path, capsys):
    assert main(["records", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["records", str(kept), "--tolerance", "spread"]) == 2
    assert "at least 299 documents" in capsys.readouterr().err
    assert main(["records", str(kept), "--predict", "x"]) == 2
    (tmp_path / "other").write_text("x\n")
    assert main(["records", str(tmp_path / "other")]) == 2
    assert "must hold measurements" in capsys.readouterr().err
