"""Model types that are known and refused, and why; the registry looks here before it guesses.

Each reason is a fact about the modelling code of transformers 5.24, or says that it has none.
"""

from __future__ import annotations

LOOPS = "some of its layers run several times, on messages from one pass to the next"
PLACED = "its logits may have biases by places on a page, which are not described"
BEHIND = "positions are added to queries and keys behind the norm"
BARE = "no norm caps what its attention reads"
KINDS = "its queries depend on what kind of key they meet"
GROUPED = "strided convolutions make its keys"
DISTANCE = "its logits may have products with embeddings of distances, beside query times key"
MARKED = "which keys a query sees, and by which projections, depends on marks of tokens"
HASHED = "hashes of queries say which keys they see"
APPROXIMATE = "its attention approximates a softmax"
WITHOUT = "it has no softmax attention"
SEVERAL = "its file holds several models for audio, which are not told apart"
OWN = "its modelling code is no part of transformers but comes with its files"

_GROUPS: dict[str, str] = {
    LOOPS: "inkling2_loop inkling2_loop_text",
    PLACED: "layoutlmv2",
    BEHIND: "detr",
    BARE: "mobilebert",
    KINDS: "luke",
    GROUPED: "segformer",
    DISTANCE: "funnel xlnet",
    MARKED: "led",
    HASHED: "reformer",
    APPROXIMATE: "mra nystromformer",
    WITHOUT: "falcon_mamba fnet mamba mamba2 rwkv xlstm",
    SEVERAL: "bark csm moshi musicgen musicgen_melody",
    OWN: "aquila internlm mixformer-sequential telechat",
}
REASONS: dict[str, str] = {name: why for why, names in _GROUPS.items() for name in names.split()}
"""From a model_type to the reason."""
