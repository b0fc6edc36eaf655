"""How all figures look, and how they become bytes that are the same every time."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMN, PAGE = 3.5, 7.16  # widths in inches of one and of two columns
# Okabe and Ito's palette, told apart with any colour vision. Line styles and markers differ too.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"

_RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.prop_cycle": None,  # set below
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that text looks the same everywhere
    "font.size": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "image.cmap": "cividis",
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "savefig.dpi": 220,
    "svg.fonttype": "path",
    "svg.hashsalt": "dispersion",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        msg = (
            "Figures need matplotlib, which is not installed. Run: pip install --group figures, "
            "in a checkout."
        )
        raise ArgumentError(msg) from None
    return matplotlib


def version() -> str:
    """The version of matplotlib that draws; ArgumentError without it."""
    return str(_matplotlib().__version__)


@contextmanager
def styled() -> Iterator[None]:
    """Draw inside with the figures' settings and none of the user's.

    Raises:
        ArgumentError: matplotlib is not installed.
    """
    matplotlib = _matplotlib()
    from cycler import cycler

    settings = {**_RC, "axes.prop_cycle": cycler(color=[BLUE, RED, GREEN, ORANGE, PINK, SKY])}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def panels(columns: int = 1, *, rows: int = 1, width: float = COLUMN, height: float = 2.5) -> Any:
    """A new figure and its axes: one, an array of `columns`, or rows × columns.

    It belongs to no window and no global state; call it inside `styled`.
    """
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots(rows, columns)


def tokens(axis: Any, lengths: list[int]) -> None:
    """Label an axis of lengths with 4K, 16K and so on."""
    from dispersion.lengths import format_length

    axis.set_ticks(lengths, [format_length(n) for n in lengths])
    axis.set_ticks([], minor=True)


def to_bytes(canvas: Any, kind: str) -> bytes:
    """The picture as "png" or "svg", without dates or versions; call it inside `styled`."""
    empty = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=kind, metadata=empty)
    return buffer.getvalue()
