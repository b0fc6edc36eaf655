"""BERT: norms stand after each block, so a layer reads the norm of the layer before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint import Checkpoint

_NORM = r"LayerNorm\.(weight|bias|gamma|beta)"
NAMING = ledger.Naming(
    stack="encoder.layer",
    module="attention.self",
    inside={
        r"attention\.self\.value\.(weight|bias)": ledger.VALUE,
        r"attention\.output\.dense\.(weight|bias)": ledger.VALUE,
        rf"attention\.output\.{_NORM}": ledger.AFTER,
        r"(intermediate|output)\.dense\.(weight|bias)": ledger.FEED_FORWARD,
        rf"output\.{_NORM}": ledger.UNASKED,
    },
    outside={
        r"embeddings\.(\w+)_embeddings\.weight": ledger.EMBEDDING,
        r"embeddings\.position_ids": "index buffer",
        rf"embeddings\.{_NORM}": ledger.UNASKED,
        r"pooler\..+": "pooler",
        r"(cls|lm_head|.+\.lm_head|classifier)\..+": ledger.HEAD,
    },
    refused={r"crossattention\..+": "cross-attention: its keys come from another model"},
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a BERT encoder, or a decoder's self-attention where `is_decoder` is set."""
    plain = checkpoint.config.get("model_type") in (None, "bert", "dpr")
    return read_encoder(checkpoint, asked, "bert", plain=plain)


def absolute(config: Mapping[str, Any], family: str) -> None:
    """Check that positions enter through the embeddings alone.

    Raises:
        UnsupportedError: `position_embedding_type` says otherwise.
    """
    kind = config.get("position_embedding_type")
    if kind not in (None, "absolute"):
        got = shown(repr(kind))
        msg = f"position_embedding_type must be absolute for {family}. Got {got}: not supported."
        raise UnsupportedError(msg)


def read_encoder(
    checkpoint: Checkpoint,
    asked: frozenset[int] | None,
    family: str,
    first_position: int = 0,
    *,
    plain: bool = True,
    naming: ledger.Naming = NAMING,
    beside: Callable[[str, int, Attention], Attention] | None = None,
) -> Plan:
    """Read BERT or a descendant whose first token stands at row `first_position` of the table.

    With `plain` the first layer reads a token's, a position's and a type's row, and nothing else.
    `naming` has further names; `beside` makes of the prefix, a layer and its attention another one.
    """
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    width = integer(config, "hidden_size")
    heads = integer(config, "num_attention_heads")
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    rows = integer(config, "max_position_embeddings", 512, minimum=first_position + 1)
    positions = rows - first_position
    absolute(config, family)
    causal = flag(config, "is_decoder", default=False)

    def describe(prefix: str, layer: int) -> Attention:
        before = f"encoder.layer.{layer - 1}.output" if layer else "embeddings"
        root = f"{prefix}encoder.layer.{layer}.attention.self"
        query, key = (
            Projection(f"{root}.{side}.weight", f"{root}.{side}.bias", heads)
            for side in ("query", "key")
        )
        found = Attention(
            module=root,
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=stored_norm(checkpoint, f"{prefix}{before}.LayerNorm"),
            scale=inverse_root(head_dim),
            causal=causal,
            # Which row a position reads depends on first_position: not said by EmbeddingInput.
            embedding=None
            if layer or first_position or not plain
            else embedding_input(checkpoint, prefix, width),
        )
        return found if beside is None else beside(prefix, layer, found)

    return assemble(
        checkpoint,
        naming,
        describe,
        family=family,
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": positions},
        learned_positions=positions,
        position_table="embeddings.position_embeddings.weight",
        position_rows=rows,
    )


def embedding_input(checkpoint: Checkpoint, prefix: str, width: int) -> EmbeddingInput:
    """What the first layer reads: the sums of three embedding tables, normalised."""
    root = f"{prefix}embeddings."
    return EmbeddingInput(
        source=checkpoint,
        tokens=f"{root}word_embeddings.weight",
        width=width,
        eps=positive(checkpoint.config, "layer_norm_eps", 1e-12),
        positions=f"{root}position_embeddings.weight",
        types=f"{root}token_type_embeddings.weight",
    )


def stored_norm(checkpoint: Checkpoint, name: str) -> Norm:
    """A LayerNorm by its new tensor names or by its old ones."""
    old = f"{name}.gamma" in checkpoint
    gain, bias = ("gamma", "beta") if old else ("weight", "bias")
    return Norm("layer", f"{name}.{gain}", f"{name}.{bias}")


FAMILY = Family(
    "bert",
    (
        "bert",
        "bert-generation",
        "dpr",
        "ernie",
        "layoutlm",
        "markuplm",
        "splinter",
        "tapas",
        "visual_bert",
    ),
    (
        "Bert",
        "BertGenerationEncoder",
        "BertGenerationDecoder",
        "Ernie",
        "LayoutLM",
        "MarkupLM",
        "Splinter",
        "Tapas",
        "VisualBert",
    ),
    "LayerNorm of the previous block, biases, bidirectional",
    read,
)
