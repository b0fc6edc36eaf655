"""What layerwise QK norm leaves to all heads of a layer together: T11.

One norm over the concatenated heads lets a single head take the whole of it, so each head's spread
is capped by much more than with one norm per head. But the heads share: for ONE query token against
ONE key token the moduli of all heads' logits add up to a budget. It is no budget on the ceilings of
rows, where each head may pick a key token of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion._arrays import check
from dispersion._enclosing import count_of
from dispersion.balls import Number, ends, product, quotient, sqrt_enclosure
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.enclosure import Enclosure


@dataclass(frozen=True)
class Budget:
    """Caps on the moduli m_h of a layer's logits, in logits; each end rigorous. **Tight** (T11).

    All are attained with gains of modulus 1; with other gains they are **upper**.

    Attributes:
        total: Σ m_h over all query heads, for one query token and one key token.
        mean: the same divided by the number of query heads.
        single: the largest m_h of one head, when it takes the whole norm.
        apart: Σ m_h when every head picks its own key token.

    """

    total: Enclosure
    mean: Enclosure
    single: Enclosure
    apart: Enclosure


def layerwise_budget(
    groups: Sequence[int], head_dim: int, *, gain: Number = 1.0, scale: Number | None = None
) -> Budget:
    """The budget of one layer with layerwise RMS QK norm on queries and keys (T11).

    With H query heads, H_kv key heads, d = head_dim, s the largest group and the scale 1/√d:
    total = √(s·H·H_kv·d), which is H·√d for equal groups; single = √(H·H_kv·d) and
    apart = H·√(H_kv·d). Cauchy–Schwarz within groups, then over groups.

    Args:
        groups: query heads per key head, one entry for each key head: (4,) * 8, say.
        head_dim: size d of a head.
        gain: the largest |gain| of the query norm times that of the key norm.
        scale: the logit scale, 1/√head_dim by default. Rotation changes nothing.

    Raises:
        ArgumentError: a group or head_dim is not a whole number of at least 1, there is no group,
            or gain or scale is negative, infinite or nan.
    """
    sizes = [count_of("groups", size) for size in groups]
    if not sizes:
        msg = "groups must have an entry for each key head. Got none."
        raise ArgumentError(msg)
    d = count_of("head_dim", head_dim)
    for value in (gain, 1.0 if scale is None else scale):
        for end in ends(value):
            check("scale", end)
    heads, key_heads = sum(sizes), len(sizes)

    def cap(square: int, factor: int = 1) -> Enclosure:
        """Gain · scale · factor · √square · d, the 1/√d of the default scale put under the root."""
        if scale is None:
            return product(gain, factor, sqrt_enclosure(square * d))
        return product(gain, scale, factor, d, sqrt_enclosure(square))

    total = cap(max(sizes) * heads * key_heads)
    return Budget(
        total=total,
        mean=quotient(total, heads),
        single=cap(heads * key_heads),
        apart=cap(key_heads, heads),
    )
