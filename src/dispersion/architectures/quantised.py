"""Quantised checkpoints: which weights can still be read, and which are refused by name.

Most methods leave some modules alone, and those are what their file says. A projection that is
itself packed is refused, module by module.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Collection

    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint

RUN_TIME = "scale of a rounding at run time, which no certificate covers"

# Parts of a packed weight. Scales of 8-bit floats that are read are no names any more.
_PACKED = re.compile(
    r"\.(?:qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_scale_inv|weight_scale_2"
    r"|weight_shape|weight_g_idx|weight_zero_point|absmax|quant_map|nested_absmax"
    r"|nested_quant_map|SCB|weight_format|(?:weight\.)?quant_state\..+"
    r"|weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|SCB))$"
)
_RUN_TIME = re.compile(
    r"\.(?:input_scale|activation_scale|output_scale|input_scale_ub|[kv]_scale|kv_scale)$"
)
# Methods that leave what they do not pack as it was. Others may change what enters attention.
METHODS = (
    "gptq", "awq", "bitsandbytes", "compressed-tensors", "fp8", "fbgemm_fp8", "modelopt", "mxfp4",
)  # fmt: skip
_SMALL_FLOATS = ("F8_", "F4", "float8_", "float4_")
_REMEDY = "Give the checkpoint before quantisation, or a GGUF file."


def unpacked(name: str) -> str:
    """The name of the weight that a part of it belongs to; other names as they are."""
    return _PACKED.sub(".weight", name)


def at_run_time(name: str) -> bool:
    """Whether a tensor of a quantised model scales what is rounded as it runs, and no weight."""
    return bool(_RUN_TIME.search(name))


def refuse_methods(checkpoint: Checkpoint) -> None:
    """Refuse a method that is unknown, that acts on loading, or that nobody states.

    Raises:
        UnsupportedError: the message names the method or a tensor.
    """
    stated = checkpoint.config.get("quantization_config")
    parts = [name for name in checkpoint.names if _PACKED.search(name)]
    if not stated:
        if parts:
            msg = (
                f"tensor {shown(parts[0])} belongs to quantised weights, which cannot be read "
                f"exactly. {_REMEDY}"
            )
            raise UnsupportedError(msg)
        return
    known = isinstance(stated, dict)
    kind = stated.get("quant_method", "unknown") if known else stated
    if known and kind == "unknown" and (stated.get("load_in_4bit") or stated.get("load_in_8bit")):
        kind = "bitsandbytes"
    if not known or kind not in METHODS or stated.get("transform_config"):
        msg = (
            f"quantization_config in config.json ({shown(kind)}) is not supported: such weights "
            f"cannot be read exactly. {_REMEDY}"
        )
        raise UnsupportedError(msg)
    small = any(checkpoint.info(n).dtype.startswith(_SMALL_FLOATS) for n in checkpoint.names)
    if not parts and not small and kind != "mxfp4":
        msg = (
            f"quantization_config in config.json ({shown(kind)}) goes with quantised tensors. Got "
            "none, so a model would quantise these weights as it loads them. Remove the key to "
            "certify the weights as they are stored."
        )
        raise UnsupportedError(msg)


def refuse_nested_methods(checkpoint: Checkpoint, inner: Checkpoint) -> None:
    """The same for a language model in another model: either config may state the method.

    Raises:
        UnsupportedError: the message names the method or a tensor.
    """
    outer, own = (c.config.get("quantization_config") for c in (checkpoint, inner))
    refuse_methods(replace(checkpoint, config={"quantization_config": outer or own}))
    if outer and own and own != outer:
        refuse_methods(inner)


def packed_modules(checkpoint: Checkpoint, attentions: Collection[Attention]) -> dict[str, str]:
    """Attention modules some of whose own tensors are packed → why they are refused.

    Raises:
        UnsupportedError: no module is left to read.
    """
    parts: dict[str, str] = {}
    for name in checkpoint.names:
        if _PACKED.search(name):
            parts.setdefault(unpacked(name), name)
    kind = (checkpoint.config.get("quantization_config") or {}).get("quant_method")
    found: dict[str, str] = {}
    for attention in attentions:
        for name in attention.tensors:
            if name in parts:
                by = f" by {shown(kind)}" if kind else ""
                found[attention.module] = (
                    f"tensor {shown(name)} is quantised{by} ({shown(parts[name])}), which cannot "
                    f"be read exactly. {_REMEDY}"
                )
                break
    if found and len(found) == len(attentions):
        raise UnsupportedError(next(iter(found.values())))
    return found
