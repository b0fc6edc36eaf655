"""Other names of keys, which the classes of some models take as well (their `attribute_map`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.blocks_reader import known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

_ENCODER = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
_GPT = {
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
_PLURAL = {
    "num_attention_heads": "n_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
}
ALIASES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "bart",
            "blenderbot",
            "blenderbot_small",
            "m2m_100",
            "marian",
            "mbart",
            "pegasus",
            "speech_to_text",
        ),
        _ENCODER,
    ),
    **dict.fromkeys(("codegen", "ctrl", "gpt2", "gpt_bigcode", "gptj", "openai_gpt"), _GPT),
    "bailing_hybrid": {"model_max_length": "max_position_embeddings"},
    "bloom": {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    "dbrx": _PLURAL | {"max_position_embeddings": "max_seq_len"},
    "distilbert": _PLURAL | {"hidden_size": "dim"},
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "moonshine": {
        "num_attention_heads": "decoder_num_attention_heads",
        "num_key_value_heads": "decoder_num_key_value_heads",
        "num_hidden_layers": "decoder_num_hidden_layers",
    },
    "mpt": _PLURAL,
    "recurrent_gemma": {"sliding_window": "attention_window_size"},
    "t5": {
        "num_attention_heads": "num_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    "whisper": _ENCODER | {"num_key_value_heads": "encoder_attention_heads"},
    "xglm": {
        "num_attention_heads": "attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
    },
}
"""Other name → the class's own, by family."""


def with_own_keys(checkpoint: Checkpoint, family: str) -> Checkpoint:
    """The checkpoint with each value of another name under the class's own one.

    Raises:
        CheckpointError: both names are there, with different values.
    """
    config = dict(checkpoint.config)
    for other, own in ALIASES.get(family, {}).items():
        if config.get(other) is not None:
            config[own] = config[known(config, (own, other))]
    return replace(checkpoint, config=config)
