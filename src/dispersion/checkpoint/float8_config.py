"""What `quantization_config` says of the scales of 8-bit floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_BLOCK = 2**31 - 1
USUAL_BLOCK = (128, 128)
REMEDY = "Give the checkpoint before quantisation, or a GGUF file."


@dataclass(frozen=True)
class Layouts:
    """Shapes that a scale may have.

    Attributes:
        tensor: one number for the whole weight.
        channel: one for each output row.
        block: one for each block of this many rows and columns, the last ones cut off, or None.
        stated: where that is said, for messages.
    """

    tensor: bool = False
    channel: bool = False
    block: tuple[int, int] | None = None
    stated: str = "quantization_config in config.json says"


def layouts(config: Mapping[str, Any] | None) -> Layouts:
    """The layouts that a config allows; one or the other for bare tensors, without blocks.

    Raises:
        UnsupportedError: no method is named, or one whose scales are not known here.
        CheckpointError: a value is malformed.
    """
    if config is None:
        return Layouts(tensor=True, channel=True, stated="nothing states the size of blocks")
    stated = config.get("quantization_config")
    if not isinstance(stated, dict):
        got = "none" if stated is None else shown(repr(stated))
        msg = (
            "config.json must have a quantization_config that says how 8-bit weights are scaled. "
            f"Got {got}. Fetch the model's own config.json."
        )
        raise UnsupportedError(msg)
    method = stated.get("quant_method")
    match method:
        case "fp8":
            return _fine_grained(stated)
        case "fbgemm_fp8":
            return Layouts(channel=True)
        case "compressed-tensors":
            return _compressed(stated)
        case "modelopt" if stated.get("quant_algo") == "FP8":
            return Layouts(tensor=True)
    msg = (
        f"quantization_config in config.json ({shown(method)}) scales 8-bit floats in a way that "
        f"is not known here. Known: fp8, fbgemm_fp8, compressed-tensors, modelopt FP8. {REMEDY}"
    )
    raise UnsupportedError(msg)


def _fine_grained(stated: Mapping[str, Any]) -> Layouts:
    key = "weight_block_size"
    if key not in stated:  # one reader takes 128 x 128 then, another a single scale
        return Layouts(tensor=True, block=USUAL_BLOCK)
    if stated[key] is None:
        return Layouts(tensor=True)
    return Layouts(block=_size(stated[key], key))


def _compressed(stated: Mapping[str, Any]) -> Layouts:
    if stated.get("transform_config"):
        msg = (
            "transform_config in config.json's quantization_config turns what enters the weights, "
            f"which is not read here. {REMEDY}"
        )
        raise UnsupportedError(msg)
    groups = stated.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        msg = (
            "config_groups in config.json's quantization_config must be an object with groups. "
            f"Got {shown(repr(groups))}."
        )
        raise CheckpointError(msg)
    tensor = channel = False
    blocks = set()
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            continue
        if weights.get("type") != "float" or weights.get("num_bits") != 8:
            continue
        if weights.get("symmetric") is False:
            msg = f"quantization_config in config.json sets symmetric to false. {REMEDY}"
            raise UnsupportedError(msg)
        match weights.get("strategy"):
            case "tensor":
                tensor = True
            case "channel":
                channel = True
            case "block":
                blocks.add(_size(weights.get("block_structure"), "block_structure"))
            case other:
                msg = (
                    f"strategy in config.json's quantization_config ({shown(other)}) is not "
                    f"supported for 8-bit floats. Supported: tensor, channel, block. {REMEDY}"
                )
                raise UnsupportedError(msg)
    if len(blocks) > 1:
        msg = "quantization_config in config.json states several sizes of blocks; one is read."
        raise UnsupportedError(msg)
    if not (tensor or channel or blocks):
        msg = f"quantization_config in config.json has no group of 8-bit floats. {REMEDY}"
        raise UnsupportedError(msg)
    return Layouts(tensor, channel, blocks.pop() if blocks else None)


def _size(value: object, key: str) -> tuple[int, int]:
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(type(v) is int and 0 < v <= LARGEST_BLOCK for v in value)
    ):
        msg = (
            f"{key} in config.json's quantization_config must be two whole numbers above 0. "
            f"Got {shown(repr(value))}."
        )
        raise CheckpointError(msg)
    return value[0], value[1]
