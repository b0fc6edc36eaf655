"""ESM C: LayerNorms over the whole width of queries and of keys, which turn; no causal mask."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    norm="layer",
    norm_parts=("weight", "bias"),
    qk_norm="layerwise",
    qk_kind="layer",
    eps=1e-5,
    eps_key=None,
    bidirectional="always",
    embedded=False,
).family("esmc", "Esmc", "layerwise QK LayerNorm before RoPE, keys to both sides")
