"""FSMT (fairseq's WMT 19 translation): as Marian, its sines without an end."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=False).family(
    "fsmt", ("FSMT",), "as marian, positions without an end; no cap on layer 0 of either stack"
)
