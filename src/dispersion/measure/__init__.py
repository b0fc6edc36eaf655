"""What attention heads do on real inputs: measured statistics, which prove nothing.

A measurement is of the inputs that were measured. It bounds no other input, so none of these
numbers is a certificate, and none has part in a verdict. Statistics are computed by JAX (extra
`measure`) from queries and keys, block by block, in memory that does not grow with their number
squared.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispersion.measure.layer import layer_statistics as layer_statistics
    from dispersion.measure.lengths import dispersion_exponent as dispersion_exponent
    from dispersion.measure.lengths import predict as predict
    from dispersion.measure.results import LayerStatistics as LayerStatistics
    from dispersion.measure.results import RowStatistics as RowStatistics
    from dispersion.measure.results import sink_rate as sink_rate
    from dispersion.measure.samples import correlation as correlation
    from dispersion.measure.samples import tolerance_limit as tolerance_limit

_HOMES = {
    "LayerStatistics": "results",
    "RowStatistics": "results",
    "correlation": "samples",
    "dispersion_exponent": "lengths",
    "layer_statistics": "layer",
    "predict": "lengths",
    "sink_rate": "results",
    "tolerance_limit": "samples",
}

__all__ = [
    "LayerStatistics",
    "RowStatistics",
    "correlation",
    "dispersion_exponent",
    "layer_statistics",
    "predict",
    "sink_rate",
    "tolerance_limit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'dispersion.measure' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"dispersion.measure.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
