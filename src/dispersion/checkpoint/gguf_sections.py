"""Pairs of coordinates in sections, which turn by time, height and width of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_metadata import WIDEST_HEAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint.gguf_architecture import Config
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata

ROWS = "gguf_rows"  # how rows lie in a file of which its architecture does not say it
SECTIONS = "rope.dimension_sections"
DEEPSTACK = "n_deepstack_layers"  # which add what images say, and nothing to text


def resting_pairs(meta: Metadata, config: Mapping[str, Any], *, interleaved: bool) -> list[int]:
    """Which pairs rest in a text, by the sections of pairs that turn by time, height and width.

    A token of text has its position in each of the first three sections and 0 in the fourth, which
    llama.cpp takes for the pairs behind those of the others, too.

    Raises:
        UnsupportedError: no four sections.
    """
    stated = meta.get(SECTIONS)
    if not isinstance(stated, list) or [type(size) for size in stated] != [int] * 4:
        meta.refuse(SECTIONS, "but it must be a list of four integers")
    if min(stated) < 0 or sum(stated) == 0:
        meta.refuse(SECTIONS, "but sections hold pairs, all together at least one")
    pairs = meta.integer("rope.dimension_count", config["head_dim"], largest=WIDEST_HEAD) // 2
    places = [pair % sum(stated) for pair in range(pairs)]
    return [
        pair
        for pair, place in enumerate(places)
        if place >= (3 * stated[place % 3] if interleaved else sum(stated[:3]))
    ]


def check_sections(meta: Metadata, config: Mapping[str, Any], *, interleaved: bool) -> None:
    """Refuse sections of pairs with which some pairs of a text would rest.

    Raises:
        UnsupportedError: four sections of which the first three do not hold all pairs.
    """
    resting = resting_pairs(meta, config, interleaved=interleaved)
    if resting:
        pairs = meta.integer("rope.dimension_count", config["head_dim"], largest=WIDEST_HEAD) // 2
        meta.refuse(SECTIONS, f"with which pair {resting[0]} of {pairs} would not turn")


def qwen2_vl(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Qwen 2 with sections of pairs, which lie one after the other."""
    check_sections(meta, config, interleaved=False)
    return {}


def paddleocr(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Sections of pairs, one after the other, and biases where there are their tensors."""
    check_sections(meta, config, interleaved=False)
    return {"use_bias": config["attention_bias"]}


def qwen3_vl(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Sections that alternate, with which some pairs may rest though the model turns them."""
    still = resting_pairs(meta, config, interleaved=True)
    if not still:
        return {}
    if len(still) == config["head_dim"] // 2:
        meta.refuse(SECTIONS, "with which no pair would turn")
    turns = {"rope_type": "sections", "rope_theta": config["rope_theta"], "still_pairs": still}
    return {"rope_parameters": turns}


def glm4(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """With sections GLM 4.1V, which has biases, or GLM OCR; the rows of both lie in halves."""
    if not meta.nonzero(SECTIONS):
        return {}
    check_sections(meta, config, interleaved=False)
    inner = "glm4v_text" if found.any("attn_q.bias") else "glm_ocr_text"
    return {"model_type": inner, ROWS: "halves"}


def glm4_moe(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """A QK norm where there are its tensors; GLM 4.5V has sections, one after the other."""
    if meta.nonzero(SECTIONS):
        check_sections(meta, config, interleaved=False)
    return {"use_qk_norm": found.any("attn_q_norm.weight")}
