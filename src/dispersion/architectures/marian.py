"""Marian (Opus-MT): norms behind each branch alone, so that nothing caps what layer 0 reads."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=False, positions=1024).family(
    "marian", ("Marian",), "as bart, positions by sines; no cap on layer 0 of either stack"
)
