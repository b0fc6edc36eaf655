"""Encoders built like BERT: types that share its code, and what their configs may say."""

from pathlib import Path

import numpy as np
import pytest

import mechanism_checks
from dispersion.architectures import plan
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.errors import UnsupportedError
from dispersion.position_bias import TableBias

DATA = Path(__file__).parent / "data"


def changed(name, changes, drop=()):
    """The plan of a golden checkpoint under a changed config."""
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    config = {k: v for k, v in (checkpoint.config | changes).items() if k not in drop}
    return plan(from_arrays(arrays, config))


@pytest.mark.parametrize("kind", ["camembert", "data2vec-text", "xlm-roberta"])
def test_types_that_are_roberta(kind):
    ours, theirs = changed("roberta", {"model_type": kind}), changed("roberta", {})
    assert [layer.tensors for layer in ours.layers] == [layer.tensors for layer in theirs.layers]
    assert ours.learned_positions == theirs.learned_positions == 30


@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        ("bert-generation", False),  # no types
        ("dpr", True),
        ("ernie", False),  # tasks
        ("layoutlm", False),  # places on a page
        ("markuplm", False),
        ("splinter", False),
        ("tapas", False),
        ("visual_bert", False),
    ],
)
def test_types_whose_attention_is_that_of_bert(kind, reads):
    ours, theirs = changed("bert", {"model_type": kind}), changed("bert", {})
    assert [layer.tensors for layer in ours.layers] == [layer.tensors for layer in theirs.layers]
    assert (ours.layers[0].embedding is not None) is reads


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        *(
            (name, {"position_embedding_type": "relative_key"}, "relative_key")
            for name in ("megatron_bert", "rembert", "roberta_prelayernorm", "xlm_roberta_xl")
        ),
        ("nomic_bert", {"prenorm": True}, "prenorm in config.json must be false"),
        ("nomic_bert", {"qkv_proj_bias": True}, "qkv_proj_bias"),
        ("nomic_bert", {"rotary_emb_base": 10000}, "rotary_emb_base"),
        ("nomic_bert", {"rotary_scaling_factor": 2}, "factor in config.json must be null"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "must be 32 for mpnet"),
    ],
)
def test_what_their_code_does_not_do_is_refused(name, changes, words):
    assert len(changed(name, {}).layers) == 2
    with pytest.raises(UnsupportedError, match=words):
        changed(name, changes)


def test_nomic_bert_is_read_in_the_dialect_of_its_own_code():
    sizes = {"n_layer": 2, "n_embd": 24, "n_head": 2, "n_positions": 256}
    own = sizes | {"prenorm": False, "rotary_emb_base": 1000, "layer_norm_epsilon": 1e-12}
    drop = ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim")
    found = changed("nomic_bert", own, (*drop, "rope_parameters", "max_position_embeddings"))
    head = next(iter(found.layers[0].heads()))[2]
    assert (len(found.layers), found.layers[0].query_heads, head.query.head_dim) == (2, 2, 12)
    # transformers' own base where the config is silent
    np.testing.assert_allclose(head.rotary.frequencies, 1000 ** (-np.arange(6) / 6), rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "theta"), [("gte", 160000.0), ("jina_embeddings_v3", 20000.0), ("eurobert", 10000.0)]
)
def test_bases_where_the_config_is_silent(name, theta):
    found = changed(name, {}, drop=("rope_parameters",))
    head = next(iter(found.layers[0].heads()))[2]
    np.testing.assert_allclose(head.rotary.frequencies, theta ** (-np.arange(4) / 4), rtol=1e-15)
    assert not head.causal


def test_positions_start_behind_the_padding():
    assert changed("roberta_prelayernorm", {}).learned_positions == 32 - 3
    assert changed("xlm_roberta_xl", {}).learned_positions == 32 - 2
    assert changed("mpnet", {"pad_token_id": 7}).learned_positions == 32 - 2  # fixed in its code


def test_every_layer_of_mpnet_adds_the_one_table():
    checkpoint = open_checkpoint(DATA / "mpnet")
    table = checkpoint.read("encoder.relative_attention_bias.weight").astype(np.float64)
    for layer in plan(checkpoint).layers:
        for index, _, head in layer.heads():
            assert head.bias == TableBias(tuple(table[:, index].tolist()), 8, 128, 2)
    mechanism_checks.check_all("mpnet")


def test_layoutlmv3_has_no_decoder():
    for layer in changed("layoutlmv3", {"is_decoder": True}).layers:
        assert not any(head.causal for _, _, head in layer.heads())


def test_biases_of_layoutlmv3_lie_within_its_tables():
    """Rows as its code adds them: by order, from left to right and from top to bottom."""
    checkpoint = open_checkpoint(DATA / "layoutlmv3")
    by = ("rel_pos", "rel_pos_x", "rel_pos_y")
    tables = [checkpoint.read(f"encoder.{name}_bias.weight").astype(float) for name in by]
    assert [table.shape for table in tables] == [(3, 8), (3, 6), (3, 6)]
    draw = np.random.default_rng(0)
    places = draw.integers(0, 40, (3, 200))
    for layer in plan(checkpoint).layers:
        for index, _, head in layer.heads():
            rows = np.zeros((200, 200))
            for table, place in zip(tables, places, strict=True):
                ways, buckets = place[None] - place[:, None], table.shape[1] // 2
                for lag in np.unique(ways):
                    bucket = mechanism_checks.t5_bucket(abs(int(lag)), buckets, 16)
                    rows[ways == lag] += table[index, bucket + (buckets if lag > 0 else 0)]
            reached = np.ptp(rows, axis=1).max() / np.sqrt(8)
            assert 0.5 * head.bias.width < reached <= head.bias.width
            assert head.bounded is (layer.layer == 1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 3),
        ({"has_spatial_attention_bias": False}, 1),
        ({"has_relative_attention_bias": False}, 0),  # places are then left out as well
    ],
)
def test_layoutlmv3_adds_the_tables_that_its_config_names(changes, count):
    for layer in changed("layoutlmv3", changes).layers:
        assert sum("rel_pos" in name for name in layer.tensors) == count
        assert (next(iter(layer.heads()))[2].bias is None) is (count == 0)
