"""Speech2Text: M2M-100, whose encoder reads sound through convolutions."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=True).family(
    "speech_to_text", ("Speech2Text",), "as m2m_100, its encoder reads sound"
)
