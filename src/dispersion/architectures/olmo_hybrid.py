"""OLMo Hybrid: OLMo 2's attention on some layers, gated delta nets on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.resting import still_unless_turned
from dispersion.architectures.windows import FULL
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.windows import Config
    from dispersion.checkpoint import Checkpoint


def _silent(_: Config, layers: int) -> list[str]:
    types = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
    return types if FULL in types else [*types[:-1], FULL]


RULES = Decoder(
    pre_norm=False,
    # What files call the norm behind attention.
    names={r"feedforward_layer_norm\.weight": ledger.AFTER},
    qk_norm="layerwise",
    window=still_unless_turned(Mixed(_silent).rule()),
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that says whether positions turn anything.

    Released models turn nothing and say so by a null `rope_theta`; of a config that is silent the
    model's code takes the opposite.
    """
    config = checkpoint.config
    keys = ("rope_parameters", "rope_scaling", "rope_theta")
    if not any(config.get(key) for key in keys):
        msg = (
            "rope_parameters in config.json must say whether positions turn queries and keys of "
            'this model. Got none; write {"rope_theta": null} if they do not.'
        )
        raise UnsupportedError(msg)
    return Reader(RULES, checkpoint).plan("olmo_hybrid", layers)


FAMILY = replace(
    RULES.family(
        "olmo_hybrid",
        "OlmoHybrid",
        "no norm before attention, layerwise QK norm; linear layers are skipped",
    ),
    read=read,
)
