import dataclasses
import json
import math
import tracemalloc
from functools import cache
from pathlib import Path

import jsonschema
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import gguf_bytes, gguf_metadata, refused, write_checkpoint
from dispersion import token_inputs, token_vectors, token_witness
from dispersion.architectures import plan
from dispersion.auditing import audit
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.checkpoint.token_text import token_texts
from dispersion.cli import main
from dispersion.embedding import States, centred, normalised, norms, token_states
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.position_norms import largest_norms
from dispersion.products import largest_products
from dispersion.report.json_report import audit_to_dict, json_schema
from dispersion.report.terminal import render
from dispersion.token_vectors import Projection, collect
from dispersion.verdict import Target, Verdict
from dispersion.vocabulary import least_logit, token_spreads

DATA = Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "tokens.json").read_text())
GOLDEN = sorted(RECORDED)


def reading(name):
    """The layer that reads token ids."""
    layers = plan(open_checkpoint(DATA / name), layers=frozenset([0])).layers
    return next(layer for layer in layers if layer.embedding is not None)


ROTATED = [n for n in GOLDEN if reading(n).embedding.positions is None]
POSITIONED = [n for n in GOLDEN if n not in ROTATED]
# Float64 arithmetic on some hundred terms of size at most 100, in the models and here.
ROUNDING = 1e-11


@cache
def first_layer(name):
    """That layer and its heads."""
    layer = reading(name)
    return layer, [head for _, _, head in layer.heads()]


def item(inputs, token, position, kind):
    if inputs.positions is None:
        return token
    rows = inputs.source.info(inputs.positions).shape[0] - inputs.before
    count = rows * inputs.type_count
    return token * count + position * inputs.type_count + (kind if inputs.types else 0)


def all_points(inputs, head, side):
    """Every item's point of head space, in one block."""
    whole = slice(0, inputs.vocabulary)
    states = token_states(inputs, head.reach, whole, inputs.extras())
    return Projection(head, side).points(states)


def magnitudes(head, points):
    first, second = head.rotary.pairs.T
    return np.hypot(points[:, first], points[:, second])


def capped(head, logits):
    return logits if head.soft_cap is None else head.soft_cap * np.tanh(logits / head.soft_cap)


def spreads(inputs, head, **options):
    queries, keys = collect(
        inputs, [Projection(head, "query"), Projection(head, "key")], inputs.extras()
    )
    return token_spreads(head, queries, keys, **options)


# --- against the real models ------------------------------------------------------------------


def check_points(name, inputs):
    """The real model's logits lie within the stated errors of the points."""
    for index, head in enumerate(first_layer(name)[1]):
        queries, keys = (all_points(inputs, head, side) for side in ("query", "key"))
        for context in RECORDED[name]:
            ids = [
                item(inputs, token, place, kind)
                for place, (token, kind) in enumerate(
                    zip(context["ids"], context["types"], strict=True)
                )
            ]
            last = len(ids) - 1
            query = queries.value[ids[-1]]
            key = keys.value[ids]
            if head.rotary is not None:
                key = head.rotary.rotate(key, np.arange(last + 1) - last, length=last + 1)
            logits = capped(head, head.scale.upper * key @ query)
            error = np.linalg.norm(query) * keys.error[ids] + queries.error[ids[-1]] * (
                np.linalg.norm(key, axis=1) + keys.error[ids]
            )
            allowed = head.scale.upper * error + ROUNDING
            assert np.all(np.abs(logits - context["logits"][index]) <= allowed), (name, index)


@pytest.mark.parametrize("name", GOLDEN)
def test_real_logits_lie_within_the_stated_errors(name):
    check_points(name, first_layer(name)[0].embedding)


MUTANTS = {
    "ε dropped": ("llama", {"eps": 1e-30}),
    "ε dropped before a QK norm": ("qwen3", {"eps": 1e-30}),
    "ε dropped with positions": ("gpt2", {"eps": 1e-30}),
    "embedding scale dropped": ("gemma2", {"scale": Enclosure(1.0, 1.0)}),
    "position forgotten": ("gpt2", {"positions": None}),
    "type forgotten": ("bert", {"types": None}),
    "rows before the first position": ("opt", {"before": 0}),
    "embedding scale of masks dropped": ("esm__token_dropout", {"scale": Enclosure(1.0, 1.0)}),
    "masks not zeroed": ("esm__token_dropout", {"zeroed": None}),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_contradict_the_real_models(mutant):
    name, change = MUTANTS[mutant]
    with pytest.raises(AssertionError):
        check_points(name, dataclasses.replace(first_layer(name)[0].embedding, **change))


@pytest.mark.parametrize("name", GOLDEN)
def test_no_real_row_spreads_more_than_its_query_token_may(name):
    layer, heads = first_layer(name)
    for index, head in enumerate(heads):
        bound = spreads(layer.embedding, head).spread
        for context in RECORDED[name]:
            place = len(context["ids"]) - 1
            query = item(layer.embedding, context["ids"][-1], place, context["types"][-1])
            row = np.array(context["logits"][index])
            assert row.max() - row.min() <= bound[query] + ROUNDING


# --- brute force ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROTATED)
def test_every_pair_of_tokens_at_every_offset_stays_below(name):
    layer, heads = first_layer(name)
    for head in heads:
        queries, keys = (all_points(layer.embedding, head, side) for side in ("query", "key"))
        found = spreads(layer.embedding, head)
        for query, vector in enumerate(queries.value):
            lags = np.arange(64)
            turned = head.rotary.rotate(vector, lags, length=64)
            logits = capped(head, head.scale.upper * turned @ keys.value.T)
            assert logits.max() - logits.min() <= found.spread[query] + ROUNDING


@pytest.mark.parametrize("name", ROTATED)
def test_with_rotation_the_bound_is_that_over_free_angles(name):
    layer, heads = first_layer(name)
    for head in heads:
        queries, keys = (all_points(layer.embedding, head, side) for side in ("query", "key"))
        top = (magnitudes(head, queries.value) @ magnitudes(head, keys.value).T).max(axis=1)
        truth = 2 * capped(head, head.scale.upper * top)
        found = spreads(layer.embedding, head)
        assert np.all(found.spread >= truth * (1 - 1e-14))
        if head.rotary.unrotated.size:
            continue
        # Gains 1 + w and the embedding's factor are enclosed whatever precision rounds them, and
        # where masks count, ε may be anything from 0 to 1.3 times what it is.
        slack = 1e-4 if layer.embedding.zeroed is None else 1e-3
        assert np.all(found.spread <= truth * (1 + slack))
        assert found.bottom is None


@pytest.mark.parametrize("name", POSITIONED)
def test_without_rotation_the_bound_is_attained(name):
    layer, heads = first_layer(name)
    for head in heads:
        queries, keys = (all_points(layer.embedding, head, side) for side in ("query", "key"))
        logits = head.scale.upper * queries.value @ keys.value.T
        truth = logits.max(axis=1) - logits.min(axis=1)
        found = spreads(layer.embedding, head)
        assert np.all(found.spread >= truth * (1 - 1e-13))
        assert np.all(found.spread <= truth + 1e-7 * truth.max())
        rows = np.arange(len(logits))
        reached = logits[rows, found.top] - logits[rows, found.bottom]
        assert np.all(reached >= truth - ROUNDING)


@pytest.mark.parametrize("name", POSITIONED)
def test_norms_bound_what_products_find(name):
    layer, heads = first_layer(name)
    inputs = layer.embedding
    extras = inputs.extras()
    for head in heads:
        exact = spreads(inputs, head).spread.reshape(inputs.vocabulary, -1).max(axis=1)
        queries, keys = largest_norms(
            inputs, [Projection(head, "query"), Projection(head, "key")], extras
        )
        bound = 2 * head.scale.upper * queries.norm * keys.norm.max()
        assert np.all(bound >= exact)
        assert bound.max() <= 4 * exact.max()
        points = all_points(inputs, head, "query")
        size = norms(points.value).reshape(inputs.vocabulary, -1)
        assert queries.norm == pytest.approx(size.max(axis=1), rel=1e-7)
        assert np.all(queries.norm >= size.max(axis=1) * (1 - 1e-13))
        assert np.array_equal(queries.extra, size.argmax(axis=1))


@pytest.mark.parametrize("name", ["llama", "gemma2", "olmo3", "bert"])
def test_results_do_not_depend_on_block_sizes(name, monkeypatch):
    layer, heads = first_layer(name)
    whole = [spreads(layer.embedding, head) for head in heads]
    monkeypatch.setattr(token_vectors, "BLOCK_ENTRIES", 5 * layer.embedding.width)
    for head, expected in zip(heads, whole, strict=True):
        for block in (1, 7):
            found = spreads(layer.embedding, head, block=block)
            assert found.spread == pytest.approx(expected.spread, rel=1e-12)
            assert np.array_equal(found.top, expected.top)


# --- the parts --------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 90), st.integers(1, 300), st.booleans())
def test_largest_products_are_those_of_all_pairs(seed, queries, keys, graded):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((queries, 5)), rng.standard_normal((keys, 5))
    if graded:
        q, k = np.abs(q) * 10.0 ** rng.uniform(-3, 3, (queries, 1)), np.abs(k)
        k *= 10.0 ** rng.uniform(-3, 3, (keys, 1))
        q[0] = 0.0
        k[-1] = k[0]
    value, index = largest_products(q, k, block=16)
    truth = (q @ k.T).max(axis=1)
    scale = np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1).max()
    assert np.all(np.abs(value - truth) <= 1e-14 * scale)
    assert np.all(np.abs(np.einsum("ij,ij->i", q, k[index]) - value) <= 1e-14 * scale)


def test_an_ill_known_key_costs_only_the_queries_it_could_matter_to():
    rng = np.random.default_rng(0)
    _, heads = first_layer("llama")
    queries = States(np.abs(rng.standard_normal((6, 4))), np.zeros(6))
    keys = States(np.abs(rng.standard_normal((9, 4))), np.zeros(9))
    keys.value[3] *= 1e-3
    keys.error[3] = 0.01
    found = token_spreads(heads[0], queries, keys)
    upper = queries.value @ keys.value.T + np.outer(norms(queries.value), keys.error)
    truth = 2 * heads[0].scale.upper * upper.max(axis=1)
    assert np.all(found.spread >= truth * (1 - 1e-14))
    assert np.all(found.spread <= truth * (1 + 1e-12))


@pytest.mark.parametrize("seed", range(12))
def test_errors_of_normalised_rows_are_honest(seed):
    """Rows with large means, tiny rows and plain ones against 60 digits."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 9)) * 10.0 ** rng.integers(-9, 4, (4, 1))
    rows += 10.0 ** rng.integers(-2, 9) * (seed % 2)
    eps = 1e-12
    found = normalised(centred(States(rows, np.zeros(4))), Enclosure(eps, eps))
    with mp.workdps(60):
        for row, value, error in zip(rows, found.value, found.error, strict=True):
            exact = [mp.mpf(float(x)) for x in row]
            mean = mp.fsum(exact) / 9
            exact = [x - mean for x in exact]
            deviation = mp.sqrt(mp.fsum(x * x for x in exact) / 9 + mp.mpf(eps))
            distance = mp.sqrt(
                mp.fsum(
                    (x / deviation - mp.mpf(float(v))) ** 2
                    for x, v in zip(exact, value, strict=True)
                )
            )
            assert distance <= error
            assert math.isfinite(error)


def test_the_whole_table_is_never_held_in_float64():
    rng = np.random.default_rng(0)
    arrays, config = small_llama(vocabulary=40_000, width=128, heads=8)
    arrays["model.embed_tokens.weight"] = rng.standard_normal((40_000, 128), dtype=np.float32)
    checkpoint = from_arrays(arrays, config)
    layer = plan(checkpoint).layers[0]
    table = 40_000 * 128 * 8
    vectors = 40_000 * 8 * 8  # 8 pairs of one head
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_vectors, "BLOCK_ENTRIES", 2**16)
        tracemalloc.start()
        try:
            list(token_inputs.check_tokens(layer, [Target(16)], heads=frozenset([0])))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8 * vectors + 16 * 2**20 < table


# --- contexts of token ids --------------------------------------------------------------------


LENGTHS = (1, 2, 5, 40)


@cache
def answered(name):
    """Layer 0 at LENGTHS, with few explicit lags, so that 40 also has tokens beyond them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_witness, "MOST_LAGS", 9)
        layer, heads = first_layer(name)
        results = list(token_inputs.check_tokens(layer, [Target(n) for n in LENGTHS]))
        rows = []
        for head, result in zip(heads, results, strict=True):
            asked = token_witness.QueryToken(head, *far(layer, head, result.vocabulary.query.id))
            rows += token_witness.token_witnesses(layer.embedding, [asked], max(LENGTHS))
    return results, rows


def far(layer, head, token):
    sides = [Projection(head, "query"), Projection(head, "key")]
    queries, keys = collect(layer.embedding, sides)
    one = States(queries.value[token : token + 1], queries.error[token : token + 1])
    return token, *least_logit(head, one, keys)


@pytest.mark.parametrize("name", ROTATED)
def test_contexts_reach_what_they_claim(name):
    layer, heads = first_layer(name)
    for head, result, found in zip(heads, *answered(name), strict=True):
        queries, keys = (all_points(layer.embedding, head, side) for side in ("query", "key"))
        for answer in result.results:
            length, ceiling = answer.target.length, answer.ceiling
            ids = found.context(length)
            assert len(ids) == length
            seen = ids[-found.row.visible(length) :]
            places = np.arange(len(seen)) - (len(seen) - 1)
            turned = head.rotary.rotate(keys.value[seen], places, length=length)
            logits = capped(head, head.scale.upper * turned @ queries.value[seen[-1]])
            row = np.exp(logits - logits.max())
            row /= row.sum()
            target = row[:-1].max() if len(row) > 1 else row[0]
            assert target >= ceiling.lower * (1 - 1e-9)
            assert target <= ceiling.upper * (1 + 1e-9)
            # No context of its own is claimed at lengths with other frequencies.
            assert ceiling.lower > 0 or head.rotary.length_dependent
            assert logits.max() - logits.min() <= result.spread.upper + ROUNDING


@pytest.mark.parametrize("name", ROTATED)
def test_the_far_token_stays_below_its_bound_at_every_lag(name):
    layer, heads = first_layer(name)
    for head in heads:
        top = int(np.argmax(spreads(layer.embedding, head).spread))
        query, bound, token = far(layer, head, top)
        turned = head.rotary.rotate(
            all_points(layer.embedding, head, "query").value[query], np.arange(400), length=400
        )
        key = all_points(layer.embedding, head, "key").value[token]
        assert (head.scale.upper * turned @ key).max() <= bound + ROUNDING


# --- audits -----------------------------------------------------------------------------------


def small_llama(vocabulary=3, width=16, heads=4, layers=1, **config):
    rng = np.random.default_rng(0)
    arrays = {"model.embed_tokens.weight": np.ones((vocabulary, width), np.float32)}
    for i in range(layers):
        for side in "qk":
            name = f"model.layers.{i}.self_attn.{side}_proj.weight"
            arrays[name] = rng.standard_normal((width, width)).astype(np.float32) / 4
        arrays[f"model.layers.{i}.input_layernorm.weight"] = np.ones(width, np.float32)
    return arrays, {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
    } | config


@pytest.mark.parametrize("name", GOLDEN)
def test_only_the_first_layer_is_asked_and_the_others_are_named(name):
    found = audit(DATA / name, [Target(8), Target(16)], inputs="vocabulary")
    ball = audit(DATA / name, [Target(8), Target(16)], layers=[0])
    assert {head.layer for head in found.heads} == {0}
    assert found.complete
    assert found.provenance["inputs"] == "vocabulary"
    layers = plan(open_checkpoint(DATA / name)).layers
    reading = [layer.embedding for layer in layers if layer.embedding is not None]
    names = {each.name: each for each in found.skipped}
    assert not {table for each in reading for table in each.tables} & set(names)
    later = sum(each.count for each in found.skipped if each.reason == token_inputs.LATER)
    assert later == len(layers) - len(reading)
    limits = {(h.module, h.head): h for h in ball.heads}
    for head in found.heads:
        limit = limits[head.module, head.head]
        assert head.inputs == "vocabulary"
        assert head.vocabulary.ball == limit.spread.upper
        assert head.spread.upper == min(head.vocabulary.largest, limit.spread.upper)
        assert head.vocabulary.median <= head.vocabulary.largest
        for result, other in zip(head.results, limit.results, strict=True):
            seen = min(result.target.length, head.window or result.target.length)
            assert result.ceiling.upper <= other.ceiling.upper
            ceiling = 1 / (1 + (seen - 1) * math.exp(-head.spread.upper))
            assert result.ceiling.upper == pytest.approx(ceiling, rel=1e-9)
        if head.window:
            assert head.largest_length in (math.inf, *range(head.window))
    assert all(head.vocabulary is None and head.inputs == "ball" for head in ball.heads)


def test_grouped_heads_share_their_keys():
    layer, heads = first_layer("llama")
    assert layer.query_heads == 2 * layer.key_heads
    for index, result in enumerate(answered("llama")[0]):
        assert result.head == index
        assert result.kv_head == index // 2
        assert result.vocabulary.largest == spreads(layer.embedding, heads[index]).spread.max()


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt2"])
def test_query_tokens_that_cannot_reach_the_target_are_counted(name, sinks):
    layer, heads = first_layer(name)
    targets = [Target(n, p, sink_tokens=sinks) for n in (4, 16, 30) for p in (0.3, 0.6, 0.9)]
    for head, result in zip(heads, token_inputs.check_tokens(layer, targets), strict=True):
        found = spreads(layer.embedding, head).spread
        per_token = found.reshape(layer.embedding.vocabulary, -1).max(axis=1)
        for target, count, answer in zip(
            targets, result.vocabulary.ruled_out, result.results, strict=True
        ):
            n = min(target.length, head.window or target.length)
            m = min(max(1, sinks), n)
            ceilings = m / (m + (n - m) * np.exp(-per_token))
            assert abs(ceilings - target.coefficient).min() > 1e-9
            assert count == np.count_nonzero(ceilings < target.coefficient)
            whole = answer.verdict is Verdict.RULED_OUT
            assert whole == (count == layer.embedding.vocabulary)


def test_few_queries_at_once_change_nothing(monkeypatch):
    layer, _ = first_layer("llama")
    monkeypatch.setattr(token_inputs, "VECTORS", 1)
    found = list(token_inputs.check_tokens(layer, [Target(n) for n in LENGTHS]))
    assert [h.vocabulary for h in found] == [h.vocabulary for h in answered("llama")[0]]


@pytest.mark.parametrize("name", POSITIONED)
def test_too_many_combinations_are_bounded_by_norms_and_say_so(name):
    layer, _ = first_layer(name)
    exact = list(token_inputs.check_tokens(layer, [Target(8)]))
    for head, other in zip(
        token_inputs.check_tokens(layer, [Target(8)], items=1), exact, strict=True
    ):
        assert (head.vocabulary.method, other.vocabulary.method) == ("norms", "products")
        assert head.vocabulary.largest >= other.vocabulary.largest
        assert head.spread.upper <= head.vocabulary.ball
        assert token_inputs.BY_NORMS in head.notes
        assert token_inputs.NO_WITNESS in head.notes
        assert 0 <= head.vocabulary.query.position < 32
        types = (None,) if layer.embedding.types is None else (0, 1)
        assert head.vocabulary.query.type in types
        assert head.results[0].ceiling.lower == 0.0


def test_padding_rows_of_zeros_and_equal_tokens_are_no_trouble():
    arrays, config = small_llama(vocabulary=4)
    arrays["model.embed_tokens.weight"][:2] = 0.0
    found = audit(arrays, [Target(4)], config=config, inputs="vocabulary")
    assert all(0 < head.vocabulary.largest < math.inf for head in found.heads)
    arrays["model.embed_tokens.weight"][:] = 0.0
    found = audit(arrays, [Target(4)], config=config, inputs="vocabulary")
    assert [head.vocabulary.largest for head in found.heads] == [0.0] * 4
    assert all(head.results[0].ceiling.upper == pytest.approx(0.25) for head in found.heads)


def test_any_token_retrieval_keeps_its_ceiling_and_claims_no_witness():
    target = Target(8, retrieval="any")
    ball = audit(DATA / "llama", [target], layers=[0])
    found = audit(DATA / "llama", [target], layers=[0], inputs="vocabulary")
    for head, other in zip(found.heads, ball.heads, strict=True):
        assert head.results[0].ceiling.upper <= other.results[0].ceiling.upper
        assert head.results[0].verdict is not Verdict.WITNESSED


def test_a_missing_embedding_is_refused_by_name(tmp_path, capsys):
    arrays, config = small_llama()
    del arrays["model.embed_tokens.weight"]
    folder = write_checkpoint(tmp_path / "m", arrays, config)
    message = refused(
        UnsupportedError,
        "model.embed_tokens.weight",
        lambda: audit(folder, [Target(4)], inputs="vocabulary"),
    )
    assert "--inputs ball" in message
    assert main(["check", str(folder), "--length", "4", "--inputs", "vocabulary"]) == 3
    assert main(["check", str(folder), "--length", "4"]) == 0
    capsys.readouterr()


BAD = {
    "width": (np.ones((3, 8), np.float32), CheckpointError, "must have shape (rows, 16)"),
    "axes": (np.ones(16, np.float32), CheckpointError, "must have shape"),
    "nan": (np.full((3, 16), np.nan, np.float32), CheckpointError, "[0, 0] is nan"),
    "integers": (np.ones((3, 16), np.int32), UnsupportedError, "int32"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_embeddings_are_refused(case):
    table, error, match = BAD[case]
    arrays, config = small_llama()
    arrays["model.embed_tokens.weight"] = table
    call = lambda: audit(arrays, [Target(4)], config=config, inputs="vocabulary")  # noqa: E731
    refused(error, match, call)


def test_inputs_and_offsets_that_do_not_go_together_are_refused(capsys):
    path = DATA / "llama"
    refused(ArgumentError, "'ball' or", lambda: audit(path, [Target(4)], inputs="tokens"))
    with pytest.raises(ArgumentError, match="'free'"):
        audit(path, [Target(4)], inputs="vocabulary", offsets="exact")
    asked = ["check", str(path), "--length", "4", "--inputs", "vocabulary"]
    assert main([*asked, "--offsets", "exact"]) == 2
    assert main(["check", "q.npy", "k.npy", "--inputs", "vocabulary"]) == 2
    assert main([*asked, "--layers", "1"]) == 3
    assert main(asked) == 0
    capsys.readouterr()


def test_reports_compare_with_the_ball(tmp_path):
    found = audit(DATA / "bert", [Target(8)], inputs="vocabulary")
    document = audit_to_dict(found)
    jsonschema.validate(document, json_schema())
    first = document["heads"][0]["vocabulary"]
    assert first["tokens"] == 16
    assert first["query"]["text"] is None
    assert first["largest"] < first["ball"]
    text = render(found, width=100)
    assert "Inputs are the 16 token ids" in text
    assert " ball " in text
    share = 100 * first["ruled_out"][0] // 16
    assert "cannot at 8" in text
    assert f"{share}%" in text
    assert f"{first['query']['id']}@{first['query']['position']}/{first['query']['type']}" in text
    plain = audit_to_dict(audit(DATA / "bert", [Target(8)]))
    jsonschema.validate(plain, json_schema())
    assert plain["heads"][0]["vocabulary"] is None
    assert "token ids" not in render(audit(DATA / "bert", [Target(8)]))


# --- texts ------------------------------------------------------------------------------------

TOKENIZERS = {
    "tokenizer.json": {
        "model": {"vocab": {"a": 0, "Ġb": 2}},
        "added_tokens": [{"id": 1, "content": "<s>"}],
    },
    "vocab.json": {"a": 0, "<s>": 1, "Ġb": 2},
    "vocab.txt": "a\n<s>\nĠb\n",
}


@pytest.mark.parametrize("file", TOKENIZERS)
def test_texts_come_from_the_file_beside_the_weights(file, tmp_path):
    arrays, config = small_llama()
    folder = write_checkpoint(tmp_path, arrays, config)
    content = TOKENIZERS[file]
    (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    info = open_checkpoint(folder).info("model.embed_tokens.weight")
    assert token_texts(info) == {0: "a", 1: "<s>", 2: "Ġb"}
    found = audit(folder, [Target(4)], inputs="vocabulary")
    assert found.heads[0].vocabulary.query.text in ("a", "<s>", "Ġb")


@pytest.mark.parametrize("content", ["{", "[]", '{"model": 3}', '{"model": {"vocab": {"a": "x"}}}'])
def test_malformed_tokenizer_files_only_cost_the_names(content, tmp_path):
    arrays, config = small_llama()
    folder = write_checkpoint(tmp_path, arrays, config)
    (folder / "tokenizer.json").write_text(content)
    found = audit(folder, [Target(4)], inputs="vocabulary")
    assert found.heads[0].vocabulary.query.text is None


def test_unigram_vocabularies_are_lists(tmp_path):
    folder = write_checkpoint(tmp_path, *small_llama())
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": [["x", -1.0], ["y", -2]]}})
    )
    info = open_checkpoint(folder).info("model.embed_tokens.weight")
    assert token_texts(info) == {0: "x", 1: "y"}


@pytest.mark.parametrize("count", [3, 5000])
def test_gguf_files_name_their_own_tokens(count, tmp_path):
    path = tmp_path / "m.gguf"
    tensor = {"token_embd.weight": np.ones((count, 16), np.float32)}
    words = [f"w{i}" for i in range(count)]
    extra = {"tokenizer.ggml.scores": [0.5] * count, "tokenizer.ggml.tokens": words}
    for metadata in (gguf_metadata() | extra, gguf_metadata()):
        path.write_bytes(gguf_bytes(metadata, tensor))
        info = open_checkpoint(path).info("model.embed_tokens.weight")
        expected = dict(enumerate(words)) if "tokenizer.ggml.tokens" in metadata else {}
        assert token_texts(info) == expected
