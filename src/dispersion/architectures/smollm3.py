"""SmolLM 3: Llama's attention, but every fourth layer does not rotate."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import unrotated_every
from dispersion.rotary import RopeRule

FAMILY = Decoder(rope=RopeRule(theta=2000000.0), key_heads=4, window=unrotated_every).family(
    "smollm3", "SmolLM3", "Llama's attention, without RoPE on every fourth layer"
)
