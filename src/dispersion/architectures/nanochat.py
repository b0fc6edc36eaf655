"""nanochat: norms without gains, QK norm behind the rotation, which turns the other way round."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    norm_parts=(),
    qk_norm="headwise",
    qk_gain=False,
    qk_after=True,
    backward=True,
    # A further norm stands between the embedding and the first layer.
    embedded=False,
).family("nanochat", "NanoChat", "norms without gains, headwise QK norm behind RoPE")
