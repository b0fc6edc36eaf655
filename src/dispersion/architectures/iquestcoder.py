"""IQuest Coder: Llama's attention. Clamps and windows of its first code are refused."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    eps=1e-5, head_dim=128, key_heads=8, refused=("clip_qkv", "use_sliding_window")
).family("iquestcoder", "IQuestCoder", "Llama's attention")
