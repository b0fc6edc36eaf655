"""Machine-checked counterparts in ``proofs/formal``: the one place here that knows their names."""

from __future__ import annotations

FORMAL: dict[str, tuple[str, ...]] = {
    "T1": ("T1_ceiling", "T1_floor", "T1_attained", "T1_published", "T1_published_strict"),
    "T2": ("T2_ceiling", "T2_floor", "T2_attained"),
    "T3": ("T3_floor", "T3_attained", "T3_shape", "T3_closed"),
    "T3′": ("T3_norm_ceiling", "T3_norm_attained"),
    "T4": ("T4_spread", "T4_length", "T4_attained"),
    "T5": ("T5",),
    "T6": ("T6_ceiling", "T6_attained", "T6_above", "T6_equal", "T6_below"),
    "T7": ("T7_whole", "T7_ceiling", "T7_attained", "T7_share", "T7_share_attained"),
    "T8": ("T8_spread", "T8_attained"),
    "T9": ("T9_spread", "T9_attained", "T9_sigma", "T9_sigma_attained", "T9_dual"),
    "T10": ("T10_logit", "T10_spread"),
    "T11": ("T11_total", "T11_equal", "T11_single", "T11_apart", "T11_attained"),
    "T12": ("T12_ceiling", "T12_attained", "T12_tokens"),
    "T13": ("T13_harmonic", "T13_ceiling", "T13_tokens", "T13_largest", "T13_level"),
    "T13′": ("T13_mean", "T13_sphere", "T13_flat"),
    "T13″": ("T13_steep", "T13_steep_attained"),
    "cover": ("cover", "T13_turned", "T13_rotary"),
}
"""Theorem to the names of its formal statements; a theorem that is missing here has none."""


def formal(theorem: str, name: str) -> str:
    """A formal statement of a theorem, for a step that rests on it.

    Raises:
        KeyError: the theorem has no formal statement of that name.
    """
    if name not in FORMAL.get(theorem, ()):
        msg = f"{theorem} has no formal statement {name}"
        raise KeyError(msg)
    return f"{name} (proofs/formal)"
