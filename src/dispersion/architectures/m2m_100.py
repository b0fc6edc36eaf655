"""M2M-100 and NLLB: norms in front of each branch, positions by sines without an end."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=True).family("m2m_100", ("M2M100",), "as mbart, positions by sines")
