"""EuroBERT: Llama's layers, to both sides."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(eps=1e-5, bidirectional="always").family(
    "eurobert", "EuroBert", "as llama, bidirectional"
)
