"""VaultGemma: Gemma 2's attention without norms behind it."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    gain_offset=1.0,
    head_dim=256,
    key_heads=4,
    scale_key=("query_pre_attn_scalar", 256.0),
    soft_cap=("attn_logit_softcapping", 50.0),
    window=full_every(2),
    bidirectional="refused",
    scaled_embedding=True,
).family("vaultgemma", "VaultGemma", "as gemma2: soft-capped logits, gains 1 + weight")
