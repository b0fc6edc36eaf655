"""GLM 4.1V to 4.6V and GLM OCR: GLM 4's attention with biases, turned by text's one position."""

from dataclasses import replace

from dispersion.architectures import ledger, mrope
from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

RULES = Decoder(
    bias=True,
    eps=1e-5,
    key_heads=2,
    partial=1.0,
    rope=RopeRule(interleaved=True),
    names={r"post_(self_attn|mlp)_layernorm\.weight": ledger.AFTER},
)

FAMILY = mrope.family(
    "glm4v_text",
    "Glm4vText",
    "interleaved RoPE and biases, the language model of models with images",
    {"glm4v_text": RULES, "glm_ocr_text": replace(RULES, bias=False, key_heads=8)},
    undivided=("glm4v_text",),
)
