"""BitNet b1.58: Llama's attention with a norm behind it; only unpacked weights can be read."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    eps=1e-5,
    key_heads=5,
    rope=RopeRule(theta=500000.0),
    names={r"self_attn\.attn_sub_norm\.weight": ledger.AFTER},
).family("bitnet", "BitNet", "Llama's attention; packed ternary weights are refused")
