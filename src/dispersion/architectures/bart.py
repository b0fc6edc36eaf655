"""BART and PLBART: norms behind each branch, and one behind the embeddings of both stacks."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(
    before=False, embedding_norm=("encoder", "decoder"), table_before=2, positions=1024
).family(
    "bart",
    ("Bart", "PLBart"),
    "encoder, decoder and cross-attention; LayerNorm behind each, learned positions",
    types=("bart", "plbart"),
)
