"""What one architecture of GGUF files has: the fields of a line of `ARCHITECTURES`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dispersion.checkpoint import gguf_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint.gguf_metadata import Contents, Metadata
    from dispersion.checkpoint.gguf_names import Names

    Config = Mapping[str, Any]
    Scaled = Callable[[Metadata, Config], dict[str, Any]]
    Settings = Callable[[Metadata, Config, Contents], dict[str, Any]]

Rows = Literal["as they are", "pairs", "pairs, norms too", "halves", "by side", "transposed"]
RMS = ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
NORM = ("attention.layer_norm_rms_epsilon", "norm_eps")
T5 = ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon")
LAYER = ("attention.layer_norm_epsilon", "layer_norm_eps")


@dataclass(frozen=True)
class Architecture:
    """One value of general.architecture.

    Attributes:
        model_type: the family that reads it.
        settings: further keys of its config, from metadata, config so far and tensors.
        names: its tensor names.
        names_with: a stem within a layer, and the names of files that have it.
        rows: how rows of query and key projections lie in the file: "pairs" where rotated pairs
            are neighbours (also in QK norms by head: "norms too"), "halves" where they are
            neighbours in the model alone, "by side" where all queries come first, then all keys and
            all values, "transposed" where Hugging Face stores [in, out].
        eps: keys of the norm's ε in file and config.
        reads: metadata keys beyond those that all architectures have.
        scaled: further keys of its config that stand beside a scaling of the rotation.
        scalings: values of rope.scaling.type that are read.
        partial: whether rope.dimension_count may be smaller than a head.
        factors: tensors of divisors of the rotary frequencies that are read.
        local_base: whether sliding layers have a rotary base of their own.
        drafts: whether the last blocks may be draft layers, as nextn_predict_layers counts them.
        fused: whether a tensor attn_qkv holds the rows of three projections of the family.
        latent: whether attention is latent: rope.dimension_count is a part of each head.
        mixed: whether attention.head_count_kv lists key heads by layer, 0 where none attends.
        by_layer: whether sizes and rotations by layer are left to `settings`.
        heads_by_layer: whether attention.head_count may differ between layers, as `settings` say.
        head_is_share: whether a head's size must be embedding_length / head_count.
    """

    model_type: str
    settings: Settings | None = None
    names: names.Names = names.DECODER
    names_with: tuple[str, Names] | None = None
    rows: Rows = "as they are"
    eps: tuple[str, str] | None = RMS
    reads: tuple[str, ...] = ()
    scaled: Scaled | None = None
    scalings: tuple[str, ...] = ("none", "linear", "yarn")
    partial: bool = False
    factors: tuple[str, ...] = ()
    local_base: bool = False
    drafts: bool = False
    fused: bool = False
    latent: bool = False
    mixed: bool = False
    by_layer: bool = False
    heads_by_layer: bool = False
    head_is_share: bool = False

    def names_in(self, found: Contents) -> Names:
        """The names of a file with these tensors."""
        if self.names_with is not None and found.any(f"{self.names_with[0]}.weight"):
            return self.names_with[1]
        return replace(self.names, drafts=True) if self.drafts else self.names
