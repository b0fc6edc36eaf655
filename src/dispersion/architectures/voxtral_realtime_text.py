"""Voxtral Realtime: Mistral's attention; a delay turns the gains of what follows it.

Embeddings of tokens are added to those of sound, so that the first layer reads no token alone.
"""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import everywhere

FAMILY = Decoder(
    bias=False,
    key_heads=8,
    window=everywhere,
    names={r"ada_rms_norm\.linear[12]\.weight": ledger.AFTER},
    embedded=False,
).family("voxtral_realtime_text", "VoxtralRealtimeText", "as mistral, of sound and text together")
