"""Retrieval scores against whole forward passes with all attention weights. Needs torch."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dispersion import ArgumentError, UnsupportedError  # noqa: E402
from dispersion.cli import main  # noqa: E402
from dispersion.measure.documents import Document  # noqa: E402
from dispersion.measure.retrieving import MORE, retrieval  # noqa: E402
from dispersion.measure.running import Model  # noqa: E402

DATA = Path(__file__).parent / "data"
TOKENS = tuple(int(x) for x in np.random.default_rng(1).integers(0, 16, 40))


def by_whole_passes(generator, tokens, answer):
    """Greedy tokens and scores, every step a pass over the whole context with eager weights."""
    generator.set_attn_implementation("eager")
    start, stop = answer
    written, copied = [], None
    for _ in range(stop - start + MORE):
        with torch.no_grad():
            out = generator(torch.tensor([[*tokens, *written]]), output_attentions=True)
        token = int(out.logits[0, -1].argmax())
        looks = np.stack([x[0, :, -1, :].argmax(-1).numpy() for x in out.attentions])
        if copied is None:
            copied = np.zeros((*looks.shape, stop - start), bool)
        for place in range(stop - start):
            copied[..., place] |= (looks == start + place) & (tokens[start + place] == token)
        written.append(token)
    return tuple(written), copied.mean(-1)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama", "qwen3"])
def test_scores_are_those_of_whole_passes(name):
    model = Model(DATA / name, generates=True)
    model.generator.generation_config.eos_token_id = None
    size = model.model.config.vocab_size
    tokens = tuple(x % size for x in TOKENS)
    answer = (5, 37)
    found = retrieval(model.generator, Document("x", tokens, answer, answer))
    written, scores = by_whole_passes(model.generator, tokens, answer)
    assert found.written == written
    np.testing.assert_array_equal(found.scores, scores)
    # An answer as long as this one is looked at somewhere, so that scores are not all 0.
    assert name != "llama" or found.scores.max() > 0
    assert model.generator.config._attn_implementation == "eager"


def test_an_answer_is_found_by_its_tokens_or_its_text():
    model = Model(DATA / "llama", generates=True)
    model.generator.generation_config.eos_token_id = None
    first = retrieval(model.generator, Document("x", TOKENS, (3, 4), (3, 4)))
    # The document whose needle is what was written, asked in the same way: a copy by accident.
    span = (10, 11)
    tokens = (*TOKENS[:10], first.written[0], *TOKENS[11:])
    again = retrieval(model.generator, Document("x", tokens, span, span))
    assert again.found == (tokens[10] in again.written)
    said = retrieval(
        model.generator,
        Document("x", tokens, span, span),
        decode=lambda ids: "  Yes\n" if len(ids) == 1 else "no, YES it is",
    )
    assert said.found
    never = retrieval(
        model.generator, Document("x", tokens, span, span), decode=lambda ids: "ab"[len(ids) > 1]
    )
    assert not never.found


def test_what_is_refused():
    model = Model(DATA / "llama", generates=True)
    with pytest.raises(ArgumentError, match="must hold a needle"):
        retrieval(model.generator, Document("x", TOKENS))
    other = Model(DATA / "falcon", generates=True)
    with pytest.raises(UnsupportedError, match="'falcon'"):
        retrieval(other.generator, Document("x", TOKENS, (3, 4), (3, 4)))


def test_the_command_scores_heads(tmp_path, capsys):
    import shutil

    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path / "model"
    shutil.copytree(DATA / "llama", folder)
    words = {f"w{i}": i for i in range(16)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    text = tmp_path / "d.txt"
    text.write_text("w1 w2 w3 w4 w5 " * 10)
    out, summary = tmp_path / "o.jsonl", tmp_path / "s.json"
    command = ["measure", str(folder), str(text), "--length", "40", "--needle", "w6 w7 w8"]
    command += ["--answer", "w7 w8", "--question", "w9 w6", "--depth", "0.5", "--retrieve"]
    command += ["--no-certificates", "--out", str(out), "--json", str(summary)]
    assert main(command) == 0
    line = json.loads(out.read_text().splitlines()[1])
    from dispersion.measure.records import schema

    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(line, schema())
    assert len(line["retrieval"]["written"]) >= 1
    assert line["retrieval"]["text"].startswith("w")
    assert np.array(line["retrieval"]["scores"]).shape == (2, len(line["layers"][0]["rows"]))
    heads = json.loads(summary.read_text())["heads"]
    expected = line["retrieval"]["scores"][0][0] if line["retrieval"]["found"] else None
    assert heads[0]["retrieval_score"] == expected
    before = out.read_bytes()
    assert main(command) == 0
    assert out.read_bytes() == before
    capsys.readouterr()
    bare = ["measure", str(folder), str(text), "--out", str(tmp_path / "p.jsonl"), "--retrieve"]
    assert main(bare) == 2
    assert "--retrieve goes with --needle" in capsys.readouterr().err
    assert main([*bare[:-1], "--needle", "w1"]) == 2
    assert "--needle and --depth go together" in capsys.readouterr().err
