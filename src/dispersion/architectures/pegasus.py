"""Pegasus: norms in front of each branch, positions by sines."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=True, positions=1024).family(
    "pegasus", ("Pegasus",), "as mbart, positions by sines"
)
