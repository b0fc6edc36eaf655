"""Models that feed the statistics, documents, resumed files, summaries, and the command.

What needs torch is compared twice: with eager weights that `golden/measured.py` stored, everywhere,
and with the model itself where torch is installed.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from dispersion import ArgumentError, OutputError, Target, audit, row
from dispersion.cli import main
from dispersion.measure import layer_statistics
from dispersion.measure.certified import Certified, contradictions
from dispersion.measure.documents import Document, Needle, read_documents
from dispersion.measure.records import Records, record
from dispersion.measure.summary import as_json, summarise, table

DATA = Path(__file__).parent / "data"
STORED = np.load(DATA / "measured.npz")
FACTS = json.loads(str(STORED["facts"]))
UNIT = 2.0**-24


def agrees(measured, weights):
    """Statistics of all rows against those of full eager weights, float32 as they are."""
    weights = weights.astype(np.float64)
    heads, n = weights.shape[:2]
    e = 2 * measured.logit_error[:, None] + measured.sum_error
    # torch's own logits and softmax are float32 too: the same again, and a few roundings.
    room = np.expm1(2 * e) + 16 * UNIT
    chosen = measured.chosen
    assert chosen.coefficient.shape == (heads, n)
    assert (np.abs(chosen.coefficient - weights.max(-1)) <= room).all()
    sink = 1 - weights.sum(-1)
    assert (np.abs(chosen.sink_share - sink) <= room).all()
    alone = weights / weights.sum(-1, keepdims=True)
    entropy = -(alone * np.log(np.where(alone > 0, alone, 1))).sum(-1)
    assert (np.abs(chosen.entropy - entropy) <= 2 * room * (1 + math.log(n))).all()
    seen = weights > 0
    # Weights that underflow are seen as well, so that these are lower bounds where there are any.
    spread = np.log(weights.max(-1)) - np.log(np.where(seen, weights, np.inf).min(-1))
    assert (chosen.spread >= spread - 2 * room - 1e-5).all()
    same = seen.sum(-1) == chosen.items
    assert same.mean() > 0.5
    assert (np.abs(chosen.spread - spread)[same] <= 2 * e.max() + 1e-5).all()
    for index, count in enumerate((1, 4)):
        assert (np.abs(chosen.mass[..., index] - weights[..., :count].sum(-1)) <= room).all()
    means = np.stack([weights[:, k:, k].mean(1) for k in range(4)], axis=1)
    if np.triu(weights[0], 1).max() == 0:  # causal
        assert (np.abs(measured.token_means - means) <= room).all()
    assert (np.abs(measured.mean.coefficient - weights.max(-1).mean(1)) <= room[:, 0]).all()


@pytest.mark.parametrize("place", sorted(FACTS))
def test_stored_queries_and_keys_explain_the_models_own_weights(place):
    arrays = {name: STORED[f"{place}/{name}"] for name in ("q", "k", "weights")}
    more = {x: STORED[f"{place}/{x}"] for x in ("sinks", "mask") if f"{place}/{x}" in STORED}
    n = arrays["q"].shape[1]
    options = {**FACTS[place], **more, "positions": range(n)}
    agrees(layer_statistics(arrays["q"], arrays["k"], **options), arrays["weights"])


def test_every_golden_checkpoint_is_measured_or_refused_with_a_reason():
    names = {path.parent.name for path in DATA.glob("*/config.json")}
    refused = json.loads(str(STORED["refused"]))
    measured = {place.split("/")[0] for place in FACTS}
    assert measured | refused.keys() == names
    assert not measured & refused.keys()
    reasons = (
        "does not read token ids",
        "attention interface in",
        "has a torch.float32 mask",
        "to its logits or weights",
        "attends more than once",
        "must hold every weight",
        "cannot be opened by transformers",
        "fails on document",
        "queries and keys do not explain",
        "whichever expert a router picks",
    )
    for name, reason in refused.items():
        assert any(x in reason for x in reasons), (name, reason)
    assert len(measured) >= 90


def test_stored_weights_do_not_fit_other_logits():
    place = "llama/0"
    n = STORED[f"{place}/q"].shape[1]
    options = {**FACTS[place], "positions": range(n)}
    options["scale"] *= 1.001
    found = layer_statistics(STORED[f"{place}/q"], STORED[f"{place}/k"], **options)
    with pytest.raises(AssertionError):
        agrees(found, STORED[f"{place}/weights"])


@pytest.mark.parametrize("name", ["gemma2", "gpt2", "gpt_oss", "llama", "modernbert", "qwen3"])
def test_a_model_measures_what_its_eager_weights_are(name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    sys.path.insert(0, str(Path(__file__).parent / "golden"))
    try:
        import measured as golden
    finally:
        sys.path.pop(0)
    from dispersion.measure.running import Model

    model = Model(DATA / name)
    ids = golden.tokens(model)
    calls, found = golden.captured(model, ids)
    assert len(calls) == len(found) == 2
    for layer, weights in enumerate(golden.eager_weights(model, ids)):
        agrees(found[layer], weights)
        # Stored arrays are those of the model.
        np.testing.assert_allclose(calls[layer][0], STORED[f"{name}/{layer}/q"], atol=1e-4)


def test_models_that_cannot_be_measured_are_refused_by_name():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from dispersion import UnsupportedError
    from dispersion.measure.running import Model

    with pytest.raises(UnsupportedError, match=r"'falcon' calls .* in 0 of its 2 layers"):
        Model(DATA / "falcon").measure(Document("x", (1, 2, 3)))
    with pytest.raises(UnsupportedError, match="'vit' does not read token ids"):
        Model(DATA / "vit").measure(Document("x", (1, 2, 3)))
    with pytest.raises(ArgumentError, match="must hold token ids below"):
        Model(DATA / "llama").measure(Document("x", (10**6,)))
    with pytest.raises(ArgumentError, match="learned positions"):
        Model(DATA / "gpt2").measure(Document("x", (1,) * 500))
    with pytest.raises(UnsupportedError, match="exactly one of input_ids"):  # 4 places in a picture
        Model(DATA / "t5gemma2").measure(Document("x", (1,) * 5))


def words(text):
    return [len(word) for word in text.split()]


def test_documents_of_every_kind(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("one three five seven nine")
    ids = tmp_path / "b.json"
    ids.write_text("[1, 2, 3]")
    lines = tmp_path / "c.jsonl"
    lines.write_text('[4, 5]\n\n{"tokens": [6]}\n{"text": "a bb"}\n')
    found = list(read_documents([text, ids, lines], words))
    assert [x.tokens for x in found] == [(3, 5, 4, 5, 4), (1, 2, 3), (4, 5), (6,), (1, 2)]
    assert [x.name.rsplit("/", 1)[1] for x in found] == [
        "a.txt", "b.json", "c.jsonl:1", "c.jsonl:3", "c.jsonl:4",
    ]  # fmt: skip
    short = []
    assert not list(read_documents([lines], words, length=3, left_out=short))
    assert [x.rsplit("/", 1)[1] for x in short] == ["c.jsonl:1", "c.jsonl:3", "c.jsonl:4"]
    cut = list(read_documents([text, ids], words, length=3))
    assert [x.tokens for x in cut] == [(3, 5, 4), (1, 2, 3)]


def test_needles_lie_where_they_say(tmp_path):
    ids = tmp_path / "b.json"
    ids.write_text(json.dumps(list(range(100, 120))))
    depths = (0.0, 0.5, 1.0)
    found = list(read_documents([ids], words, length=12, needle=Needle("zz z", depths)))
    assert [len(x.tokens) for x in found] == [12, 12, 12]
    assert [x.needle for x in found] == [(1, 3), (5, 7), (10, 12)]
    for document in found:
        assert document.tokens[slice(*document.needle)] == (2, 1)
        rest = document.tokens[: document.needle[0]] + document.tokens[document.needle[1] :]
        assert rest == tuple(range(100, 110))
    assert len({x.name for x in found}) == 3


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.bin", "", {}, "documents must be .txt"),
        ("a.txt", " \n", {}, "must not be empty"),
        ("a.jsonl", "", {}, "must not be empty"),
        ("a.json", "{", {}, "must be JSON"),
        ("a.json", "[]", {}, "must be a list of token ids"),
        ("a.json", "[1.5]", {}, "must be a list of token ids"),
        ("a.json", "[true]", {}, "must be a list of token ids"),
        ("a.jsonl", '{"token": [1]}', {}, "must be a list of token ids"),
        ("a.txt", "word", {"encode": None}, "the checkpoint has no tokenizer"),
        ("a.json", "[1]", {"needle": Needle(" ", (0.5,))}, "needle must be at least one token"),
        (
            "a.json",
            "[1]",
            {"needle": Needle("a b c", (0.5,), "d"), "length": 4},
            "needle and question must be shorter than the document. Got 4 tokens for a length of 4",
        ),
    ],
)
def test_documents_that_are_refused(tmp_path, name, content, options, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ArgumentError, match=message):
        list(read_documents([path], options.pop("encode", words), **options))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", (2.0,)), "depths must lie between 0 and 1. Got 2"),
        (("x", ()), "needle and depths go together"),
        (("x y", (0.5,), "", "z"), "answer must be part of the needle"),
    ],
)
def test_needles_that_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Needle(*arguments)


def test_answers_and_questions_lie_where_they_say(tmp_path):
    ids = tmp_path / "b.json"
    ids.write_text(json.dumps(list(range(100, 120))))
    needle = Needle("the code is abcd now", (0.5,), "which code", "abcd")
    (found,) = read_documents([ids], words, length=17, needle=needle)
    assert len(found.tokens) == 17
    assert found.tokens[slice(*found.needle)] == (3, 4, 2, 4, 3)
    assert found.answer == (found.needle[0] + 3, found.needle[0] + 4)
    assert found.tokens[-2:] == (5, 4)
    (whole,) = read_documents([ids], words, needle=Needle("ab c", (1.0,)))
    assert whole.answer == whole.needle == (20, 22)


def measured_record(name, *, scale=1.0, n=40, spans=None):
    rng = np.random.default_rng(len(name))
    q, k = rng.normal(size=(2, 2, n, 4)).astype(np.float32) * 2
    found = {layer: layer_statistics(scale * q, k, spans=spans) for layer in (0, 1)}
    return record(Document(name, tuple(range(n))), found)


def test_a_file_of_records_is_gone_on_from(tmp_path):
    path, run = tmp_path / "out.jsonl", {"dtype": "float32", "first": (1, 4)}
    first, second = measured_record("a"), measured_record("bb")
    records = Records(path, run)
    records.add(first)
    records.add(second)
    records.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])  # the second line was cut off
    again = Records(path, run)
    assert list(again.found) == ["a"]
    assert again.found["a"] == json.loads(json.dumps(first))
    again.add(second)
    again.close()
    assert path.read_bytes() == whole
    with pytest.raises(ArgumentError, match="belongs to another run"):
        Records(path, {**run, "dtype": "bfloat16"})
    path.write_text("something else\n")
    with pytest.raises(ArgumentError, match="must hold measurements"):
        Records(path, run)
    path.write_text("cut off at once")
    with pytest.raises(ArgumentError, match="must hold measurements"):
        Records(path, run)
    with pytest.raises(OutputError, match="cannot be read or written"):
        Records(tmp_path / "missing" / "out.jsonl", run)


def test_records_are_json_and_say_what_was_measured():
    line = json.loads(json.dumps(measured_record("a", spans={"needle": (2, 4)}), allow_nan=False))
    assert line["layers"][0]["marks"] == ["first 1", "first 4", "needle"]
    assert line["layers"][1]["chosen"]["log_odds"][0][0] is None  # a row of one key
    assert line["layers"][0]["mean"]["items"] == [20.5, 20.5]


def proved(spreads):
    """An audit whose heads have these certified spreads."""
    from dataclasses import replace

    from dispersion import Enclosure, demo

    found = audit(demo.path("headwise"), [Target(200), Target(200, retrieval="any")])
    heads = tuple(
        replace(found.heads[0], layer=layer, head=head, spread=Enclosure(0.0, spread))
        for (layer, head), spread in spreads.items()
    )
    return replace(found, heads=heads)


def test_a_summary_joins_documents_and_certificates():
    lines = [measured_record(name, n=200) for name in ("a", "bb", "ccc")]
    plain = summarise(lines)
    assert [(x.layer, x.head) for x in plain] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in plain:
        cells = [x["layers"][head.layer] for x in lines]
        assert head.spread == max(x["largest"]["spread"][head.head] for x in cells)
        assert head.entropy == pytest.approx(
            np.mean([x["mean"]["entropy"][head.head] for x in cells])
        )
        assert head.certified is None
        assert head.headroom is None
        assert not head.beyond
        # Random logits of the same law at every length disperse nearly fully.
        assert head.exponent[1] < head.exponent[0] < head.exponent[2]
        assert 0 < head.exponent[0] < 1.5
    spread = {(x.layer, x.head): x.spread for x in plain}
    error = max(x["layers"][0]["logit_error"][0] for x in lines)
    audited = proved(
        {
            (0, 0): spread[0, 0] + 5,
            (0, 1): spread[0, 1] * (1 - 5e-5),  # within what rounding explains
            (1, 0): spread[1, 0] * (1 - 3e-4) - 2 * error,
            (1, 1): math.inf,
        }
    )
    joined = summarise(lines, audited)
    assert joined[0].headroom == pytest.approx(5)
    assert [x.beyond for x in joined] == [(), (), ("spread",), ()]
    assert joined[3].certified is None
    assert joined[0].certified.spread == spread[0, 0] + 5
    assert joined[0].certified.entropy_floor < joined[0].entropy
    assert joined[0].certified.log_capacity > 0
    assert summarise(lines, audited, dtype="bfloat16")[2].beyond == ()
    json.dumps(as_json(joined, 3), allow_nan=False)
    shown = table(joined, 3)
    assert "Measured on 3 documents: no bound on any other input." in shown
    assert "certif" not in shown.replace("certified ≤", "")


def test_values_beyond_a_certificate_are_named():
    line = json.loads(json.dumps(measured_record("a", n=200)))
    cell = line["layers"][0]
    proof = Certified(cell["largest"]["spread"][0] + 1, 1.0, 0.0, None)
    assert contradictions([cell], 0, proof, "float32") == ()
    low = Certified(cell["largest"]["spread"][0] * 0.999, 1.0, 0.0, None)
    assert contradictions([cell], 0, low, "float32") == ("spread",)
    # Rows that are sharper than a spread of 2 allows, where the spread itself lies within.
    cell["largest"]["spread"][0] = 1.9
    few = Certified(2.0, 1.0, 0.0, None)
    most = 2 * (1 + 1e-4) + 2 * cell["logit_error"][0]
    top, floor = float(row.max_coefficient(200, most)), float(row.min_entropy(200, most))

    def found(share, nats):
        rows = {"items": [[200.0]], "coefficient": [[share]], "entropy": [[nats]]}
        return contradictions([{**cell, "chosen": rows}], 0, few, "float32")

    assert found(top, floor) == ()
    assert found(1.001 * top, floor) == ("coefficient",)
    assert found(1.001 * top, 0.999 * floor) == ("coefficient", "entropy")


def test_what_a_summary_refuses():
    with pytest.raises(ArgumentError, match="at least one measured document"):
        summarise([])
    short = measured_record("a")
    other = {**short, "layers": short["layers"][:1]}
    with pytest.raises(ArgumentError, match="different layers or heads"):
        summarise([short, other])


def test_the_command_measures_and_goes_on(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    documents = tmp_path / "d.jsonl"
    documents.write_text(
        "".join(json.dumps([(i * j) % 16 for i in range(64)]) + "\n" for j in (3, 5))
    )
    out, summary = tmp_path / "o.jsonl", tmp_path / "s.json"
    command = ["measure", str(DATA / "qwen3"), str(documents), "--length", "64"]
    command += ["--out", str(out), "--json", str(summary)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Measured on 2 documents" in shown
    heads = json.loads(summary.read_text())["heads"]
    assert all(x["headroom"] > 0 for x in heads)
    before = out.read_bytes()
    assert main(command) == 0
    assert capsys.readouterr().out == shown
    assert out.read_bytes() == before
    kept = summary.read_bytes()
    for cut in (100, len(before) // 2, len(before) - 200):  # interrupted in a line, or between
        out.write_bytes(before[:-cut])
        assert main(command) == 0
        assert capsys.readouterr().out == shown
        assert out.read_bytes() == before
        assert summary.read_bytes() == kept


def test_text_and_needles_go_through_the_models_own_tokenizer(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import shutil

    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path / "model"
    shutil.copytree(DATA / "llama", folder)
    tokenizer = Tokenizer(models.WordLevel({"<s>": 1, "a": 2, "b": 3, "key": 4}, unk_token="b"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"})
    )
    text = tmp_path / "d.txt"
    text.write_text("a b a a b " * 8)
    out = tmp_path / "o.jsonl"
    command = ["measure", str(folder), str(text), "--length", "32", "--needle", "key key"]
    command += ["--depth", "0", "--depth", "0.5", "--no-certificates", "--out", str(out)]
    assert main(command) == 0
    lines = [json.loads(x) for x in out.read_text().splitlines()][1:]
    assert [(x["tokens"], x["needle"]) for x in lines] == [(32, [1, 3]), (32, [15, 17])]
    from dispersion.measure.running import Model

    model = Model(folder)
    kept = list(read_documents([text], model.encode, length=32, needle=Needle("key", (0.0,)),
                               encode_needle=model.encode_needle))  # fmt: skip
    assert kept[0].tokens[:4] == (1, 4, 2, 3)
    mass = lines[0]["layers"][0]["mean"]["mass"][0][2]
    assert 0 < mass < 1
    assert main([*command[:4], "999", "--out", str(tmp_path / "p.jsonl")]) == 2
    assert "documents must have at least --length tokens" in capsys.readouterr().err


def test_the_command_says_what_is_missing(tmp_path, capsys, monkeypatch):
    documents = tmp_path / "d.json"
    documents.write_text("[1, 2, 3]")
    arguments = [str(documents), "--out", str(tmp_path / "o.jsonl")]
    assert main(["measure", str(tmp_path / "none"), *arguments]) == 2
    assert "checkpoint must be a local folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["measure", str(DATA / "llama"), *arguments]) == 2
    error = capsys.readouterr().err
    assert (
        "measuring models needs torch. Install it: pip install 'dispersion[measure-models]'"
        in error
    )
    assert not (tmp_path / "o.jsonl").exists()
