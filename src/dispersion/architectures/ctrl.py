"""CTRL: a LayerNorm in front of attention, biases, sinusoidal positions up to a largest one."""

from dispersion.architectures import ledger
from dispersion.architectures.blocks import GPT, Blocks

FAMILY = Blocks(
    stack="h",
    module="multi_head_attention",
    norm="layernorm1",
    keys=GPT,
    sides=("Wq", "Wk"),
    eps_key=None,  # its ε of the config is the last norm's alone
    eps=1e-6,
    table="pos_encoding",  # computed, and not made longer for longer contexts
    positions_absent=256,
    inside={
        r"multi_head_attention\.(Wv|dense)\.(weight|bias)": ledger.VALUE,
        r"ffn\..+": ledger.FEED_FORWARD,
        r"layernorm2\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"w\.weight": ledger.EMBEDDING,
        r"pos_encoding": "position embedding",
        r"layernorm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?(lm_head|classifier)\..+": ledger.HEAD,
    },
).family("ctrl", "CTRL", "LayerNorm before attention, biases, sinusoidal positions")
