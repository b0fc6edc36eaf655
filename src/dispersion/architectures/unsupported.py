"""Model types that are known and refused, and why; the registry looks here before it guesses.

Each reason is a fact about the modelling code of transformers 5.24, or says that it has none.
"""

from __future__ import annotations

LOOPS = "some of its layers run several times, on messages from one pass to the next"
PICTURE = "its logits have products of queries with tables of places in a picture"
PLACED = "its logits may have biases by places on a page, which are not described"
BLOCKED = "it may see blocks of tokens, or means of blocks, beside tokens"
BEHIND = "positions are added to queries and keys behind the norm"
BARE = "no norm caps what its attention reads"
STREAMS = "its logits are sums over two streams of states"
KINDS = "its queries depend on what kind of key they meet"
GROUPED = "grouped or strided convolutions make its queries or keys"
DISTANCE = "its logits may have products with embeddings of distances, beside query times key"
ROUTED = "a router picks the projection of each query"
MARKED = "which keys a query sees, and by which projections, depends on marks of tokens"
RANDOM = "which keys a query sees may be drawn at random"
HASHED = "hashes of queries say which keys they see"
APPROXIMATE = "its attention approximates a softmax"
WITHOUT = "it has no softmax attention"
SEVERAL = "its file holds several models for audio, which are not told apart"
OWN = "its modelling code is no part of transformers but comes with its files"

_GROUPS: dict[str, str] = {
    LOOPS: "inkling2_loop inkling2_loop_text",
    PICTURE: "sam",
    PLACED: "layoutlmv2",
    BLOCKED: "longt5",
    BEHIND: "detr",
    BARE: "mobilebert",
    STREAMS: "lilt",
    KINDS: "luke",
    GROUPED: "segformer squeezebert",
    DISTANCE: "funnel xlnet",
    ROUTED: "jetmoe",
    MARKED: "led longformer",
    RANDOM: "big_bird",
    HASHED: "reformer",
    APPROXIMATE: "mra nystromformer",
    WITHOUT: "falcon_mamba fnet mamba mamba2 rwkv xlstm",
    SEVERAL: "bark csm moshi musicgen musicgen_melody",
    OWN: "aquila internlm mixformer-sequential telechat",
}
REASONS: dict[str, str] = {name: why for why, names in _GROUPS.items() for name in names.split()}
"""From a model_type to the reason."""
