"""Pairs that llama.cpp leaves at rest though the model turns them, or has in another order."""

import gguf
import numpy as np
import pytest

from checkpoints import refused
from dispersion.architectures import plan
from dispersion.checkpoint import open_checkpoint
from dispersion.errors import CheckpointError, UnsupportedError
from gguf_conversion import changed, golden, write

SECTIONS = "rope.dimension_sections"


def imrope(sections, pairs):
    """ggml_mrope_cache_init: which pairs have a position of the four, the last of which is 0."""
    positions = []
    for pair in range(pairs):
        sector = pair % sum(sections)
        if sector % 3 == 1 and sector < 3 * sections[1]:
            positions.append("height")
        elif sector % 3 == 2 and sector < 3 * sections[2]:
            positions.append("width")
        elif sector % 3 == 0 and sector < 3 * sections[0]:
            positions.append("time")
        else:
            positions.append(None)
    return [pair for pair, position in enumerate(positions) if position]


@pytest.mark.parametrize(
    "sections", [(2, 1, 1, 0), (1, 2, 1, 0), (1, 1, 2, 0), (3, 0, 1, 0), (1, 0, 0, 1), (0, 1, 0, 0)]
)
@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_vl_moe"])
def test_pairs_of_qwen3_vl_that_llama_cpp_leaves_at_rest(tmp_path, name, sections):
    """Where the model turns them all, llama.cpp turns those of the first three sections."""
    path = changed(tmp_path, name, {SECTIONS: list(sections)})
    turning = imrope(sections, 4)
    if not turning:
        refused(UnsupportedError, "no pair would turn", open_checkpoint, path)
        return
    found = plan(open_checkpoint(path))
    assert not found.refused
    for layer in found.layers:
        for _, _, head in layer.heads():
            np.testing.assert_array_equal(head.rotary.pairs, [(j, j + 4) for j in turning])
            frequencies = 5e3 ** (-np.array(turning) / 4)
            np.testing.assert_allclose(head.rotary.frequencies, frequencies, rtol=1e-15)


def test_the_published_sections_of_qwen3_vl_leave_two_pairs_at_rest(tmp_path):
    change = {
        "attention.key_length": 128, "attention.value_length": 128, SECTIONS: [24, 20, 20, 0],
    }  # fmt: skip
    config = open_checkpoint(changed(tmp_path, "qwen3_vl", change)).config
    assert config["rope_parameters"]["still_pairs"] == [61, 62]
    assert imrope((24, 20, 20, 0), 64) == [p for p in range(64) if p not in (61, 62)]


@pytest.mark.parametrize("name", ["glm4v", "glm_ocr"])
def test_any_rows_of_halves_can_be_read(tmp_path, name):
    """Of each head of 8 coordinates 4 turn, neighbours in the model and halves in the file."""
    write(golden(name), tmp_path / "m.gguf")
    found = open_checkpoint(tmp_path / "m.gguf")
    tensor = "model.layers.1.self_attn.q_proj.weight"
    stored = next(t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors if "1.attn_q.w" in t.name)
    whole = found.read(tensor)
    for head in range(3):
        mine, theirs = whole[head * 8 : head * 8 + 8], stored.data[head * 8 : head * 8 + 8]
        np.testing.assert_array_equal(mine, theirs[[0, 2, 1, 3, 4, 5, 6, 7]])
    for start in range(0, len(whole) + 1, 3):
        for stop in range(start, len(whole) + 1, 5):
            rows = slice(start, stop)
            np.testing.assert_array_equal(found.read(tensor, rows), whole[rows])


def test_rows_of_halves_must_be_those_of_all_heads(tmp_path):
    path = changed(tmp_path, "glm_ocr", {"attention.head_count": 4})
    refused(CheckpointError, "must have", lambda: plan(open_checkpoint(path)))
    name = "model.layers.0.self_attn.q_proj.weight"
    refused(CheckpointError, "heads x head_dim = 4 x 8 rows", open_checkpoint(path).read, name)
