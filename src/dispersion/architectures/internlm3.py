"""InternLM 3: Llama's attention; the key of the biases is qkv_bias."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.config import flag
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

RULES = Decoder(bias="qkv_bias", eps=1e-5, head_dim=128, key_heads=2)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config with `qkv_bias`, or with Llama's `attention_bias`."""
    config = checkpoint.config
    keys = [key for key in ("qkv_bias", "attention_bias") if key in config]
    if len({flag(config, key, default=False) for key in keys}) > 1:
        msg = "qkv_bias and attention_bias in config.json must agree. Got both; remove one of them."
        raise CheckpointError(msg)
    rules = replace(RULES, bias=keys[0]) if keys else RULES
    return Reader(rules, checkpoint).plan("internlm3", layers)


FAMILY = replace(RULES.family("internlm3", "InternLM3", "Llama's attention"), read=read)
