"""Blenderbot: norms in front of each branch, learned positions."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(before=True, table_before=0, positions=128).family(
    "blenderbot", ("Blenderbot",), "as mbart, without a norm behind the embeddings"
)
