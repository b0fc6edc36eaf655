"""Blenderbot-small: BART, whose decoder adds positions behind the norm of its token embeddings."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=False, embedding_norm=("encoder",), table_before=0, positions=512).family(
    "blenderbot_small",
    ("BlenderbotSmall",),
    "as bart; no cap on what layer 0 of the decoder reads",
    types=("blenderbot-small",),
)
