"""Bundled checkpoints to try the package on: `dispersion check demo:headwise`.

Small trained models in the ordinary Hugging Face layout, read like any other checkpoint. demos/ in
the repository holds the script that trained them and says what they are.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dispersion.errors import ArgumentError, UnsupportedError

_ABOUT = {
    "plain": "Llama layout: no QK norm, so only trained weights and gains cap the spread",
    "headwise": "Qwen3 layout: QK norm per head with unit gains caps the spread at 2·√16 = 8",
    "layerwise": "OLMo 2 layout: QK norm across heads with unit gains caps the spread at 22.63",
}


def names() -> tuple[str, ...]:
    """Names of the bundled checkpoints, as in `demo:NAME`."""
    return tuple(_ABOUT)


def about(name: str) -> str:
    """One line on a bundled checkpoint. Raises ArgumentError for an unknown name."""
    if name not in _ABOUT:
        known = ", ".join(_ABOUT)
        msg = f"demo:NAME must be a bundled checkpoint. Got {name!r}. Choose one of {known}."
        raise ArgumentError(msg)
    return _ABOUT[name]


def path(name: str) -> Path:
    """Folder of a bundled checkpoint, holding config.json, model.safetensors and demo.json.

    Raises ArgumentError for an unknown name, listing the known ones, and UnsupportedError when the
    package was imported from a zip archive, which has no folders.
    """
    about(name)
    folder = resources.files(__name__).joinpath(name)
    if not isinstance(folder, Path):
        msg = f"demo:{name} needs the package unpacked. Got {folder}. Install it with pip."
        raise UnsupportedError(msg)
    return folder
