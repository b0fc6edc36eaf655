"""Machine-checked counterparts in ``proofs/formal``: the one place that knows their names."""

FORMAL: dict[str, tuple[str, ...]] = {
    "T1": ("T1_ceiling", "T1_floor"),
    "T2": ("T2_mass",),
    "T3": ("T3_entropy_floor",),
    "T12": ("T12_simplex",),
}
"""Theorem to formal names."""
