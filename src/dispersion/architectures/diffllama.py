"""DiffLlama: Llama's softmax; halves of the heads are subtracted behind it, weighted by λ."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    eps=1e-5,
    names={r"self_attn\.(lambda_[qk][12]|groupnorm\.weight)": ledger.AFTER},
).family("diffllama", "DiffLlama", "Llama's softmax of each head, before heads are subtracted")
