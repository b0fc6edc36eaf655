"""mBART: norms in front of each branch, behind the embeddings and at the end of both stacks."""

from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(
    before=True, embedding_norm=("encoder", "decoder"), table_before=2, positions=1024
).family("mbart", ("MBart",), "as bart, LayerNorm before each attention")
