"""Architectures of GGUF files that are refused by name, and why."""

from __future__ import annotations

# Of models that are read from other files.
UNREAD: dict[str, str] = {
    "clip": "it holds towers for images without the text they go with",
    "gptj": "llama.cpp does not run it",
    "orion": "which pairs turn depends on the version of llama.cpp",
}
_WITHOUT = "it has no softmax attention"
_NO_FAMILY = "its models are of no family that is read"
# Of models that are not.
STRANGE: dict[str, str] = {
    **dict.fromkeys(("arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"), _WITHOUT),
    **dict.fromkeys(
        (
            "arctic", "codeshell", "cogvlm", "deci", "deepseek2-ocr", "grok", "grovemoe", "jais",
            "jina-bert-v2", "llada-moe", "llama-embed", "maincoder", "neo-bert", "openelm",
            "pangu-embedded", "plamo", "plamo2", "plamo3", "plm", "refact", "rnd1", "smallthinker",
        ),
        _NO_FAMILY,
    ),
    "wavtokenizer-dec": "its attention stands between convolutions, which is not described",
}  # fmt: skip
