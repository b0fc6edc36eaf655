"""What is peculiar to each GGUF architecture: names, order of rows, and keys of its config.

Another architecture is another line of `ARCHITECTURES`. What the metadata leaves unsaid is filled
in as llama.cpp does (src/llama-model.cpp and src/models/), since that is the code such files are
written for; where its converters drop a setting, the file's model does not have it.
"""

from __future__ import annotations

from dispersion.checkpoint import gguf_gemma4 as gemma4
from dispersion.checkpoint import gguf_hybrids as hybrids
from dispersion.checkpoint import gguf_layers as layers
from dispersion.checkpoint import gguf_names as names
from dispersion.checkpoint import gguf_older_names as older
from dispersion.checkpoint import gguf_sections as sections
from dispersion.checkpoint import gguf_settings as settings
from dispersion.checkpoint import gguf_step35 as step35
from dispersion.checkpoint.gguf_architecture import LAYER, NORM, T5, Architecture
from dispersion.checkpoint.gguf_latent_families import LATENT
from dispersion.checkpoint.gguf_sections import DEEPSTACK, SECTIONS

PLAIN: dict[str, Architecture] = {
    "afmoe": Architecture(
        "afmoe", layers.afmoe, names.AFMOE, reads=layers.SLIDING,
    ),
    "apertus": Architecture("apertus", names=names.APERTUS, factors=("rope_freqs",)),
    "arcee": Architecture("arcee", rows="pairs"),
    "baichuan": Architecture(
        "llama", settings.baichuan, rows="pairs", scaled=settings.unturned,
        scalings=("none", "linear"), head_is_share=True,
    ),
    "bailingmoe": Architecture("llama", rows="pairs"),
    "bailingmoe2": Architecture(
        "bailing_moe", settings.bailing, names.BAILING, partial=True, drafts=True,
    ),
    "bert": Architecture(
        "bert", settings.bert, older.BERT, eps=LAYER, scalings=(), head_is_share=True,
    ),
    "bitnet": Architecture("bitnet", names=names.BITNET, scalings=("none", "linear")),
    "bloom": Architecture(
        "bloom", settings.bloom, older.BLOOM, None, "by side",
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"), scalings=(), head_is_share=True,
    ),
    "chameleon": Architecture(
        "chameleon", settings.chameleon, rows="pairs, norms too", reads=("swin_norm",),
        scalings=("none", "linear"), head_is_share=True,
    ),
    "chatglm": Architecture(
        "glm", names=names.FUSED, scalings=("none", "linear"), partial=True, fused=True,
        head_is_share=True,
    ),
    "cohere2": Architecture(
        "cohere2", layers.cohere2, eps=LAYER, reads=layers.SLIDING, scalings=("none", "linear"),
    ),
    "command-r": Architecture(
        "cohere", settings.cohere, eps=LAYER, scalings=("none", "linear"),
    ),
    "dbrx": Architecture(
        "dbrx", settings.dbrx, older.DBRX, eps=None, reads=("attention.clamp_kqv",),
        scalings=("none", "linear"), head_is_share=True,
    ),
    "deepseek": Architecture("llama", rows="pairs"),
    "dots1": Architecture("dots1"),
    "dream": Architecture("dream", settings.two_sided),
    "ernie4_5": Architecture("ernie4_5", settings.bias_as("use_bias")),
    "ernie4_5-moe": Architecture("ernie4_5_moe", settings.bias_as("use_bias")),
    "eurobert": Architecture("eurobert", settings.two_sided),
    "exaone": Architecture("llama", factors=("rope_freqs",)),
    "exaone-moe": Architecture(
        "exaone_moe", layers.exaone_moe, reads=layers.SLIDING, scalings=("none",), drafts=True,
    ),
    "exaone4": Architecture(
        "exaone4", layers.exaone4, names.NORMS_BEHIND, reads=layers.SLIDING,
        factors=("rope_freqs",),
    ),
    "falcon": Architecture(
        "falcon", settings.falcon, older.FALCON, ("attn_norm_2", older.FALCON_TWO_NORMS), "by side",
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"), scalings=("none", "linear"),
        head_is_share=True,
    ),
    "falcon-h1": Architecture("falcon_h1", hybrids.falcon_h1, names.FALCON_H1),
    "gemma": Architecture("gemma", scalings=("none", "linear")),
    "gemma2": Architecture(
        "gemma2", layers.gemma2, names.NORMS_BEHIND,
        reads=(*layers.SLIDING, "attn_logit_softcapping"), scalings=("none", "linear"),
    ),
    "gemma3": Architecture(
        "gemma3_text", layers.gemma3, names.NORMS_BEHIND, reads=layers.SLIDING,
        scalings=("none", "linear"), local_base=True,
    ),
    "gemma-embedding": Architecture(
        "gemma3_text", layers.gemma_embedding, names.NORMS_BEHIND, reads=layers.SLIDING,
        scalings=("none", "linear"), local_base=True,
    ),
    "gemma3n": Architecture(
        "gemma3n_text", layers.gemma3n, names.GEMMA3N,
        reads=(*layers.SLIDING, "attention.shared_kv_layers"), scalings=("none",), local_base=True,
    ),
    "gemma4": Architecture(
        "gemma4_text", gemma4.gemma4, names.GEMMA4, reads=gemma4.READS, scalings=("none",),
        factors=("rope_freqs",), local_base=True, by_layer=True,
    ),
    "glm4": Architecture(
        "glm4", sections.glm4, names.GLM4, reads=(SECTIONS,), partial=True, drafts=True,
    ),
    "glm4moe": Architecture(
        "glm4_moe", sections.glm4_moe, names.NORM_BEHIND, reads=(SECTIONS,), partial=True,
        drafts=True,
    ),
    "gpt-oss": Architecture("gpt_oss", layers.gpt_oss, names.SINKS, reads=layers.SLIDING),
    "gpt2": Architecture(
        "gpt2", settings.positions, older.GPT2, None, "transposed", ("attention.layer_norm_epsilon",
        "layer_norm_epsilon"), scalings=(), head_is_share=True,
    ),
    "gptneox": Architecture(
        "gpt_neox", settings.gpt_neox, older.GPT_NEOX, None, "by side", LAYER,
        scalings=("none", "linear"), partial=True, head_is_share=True,
    ),
    "granite": Architecture("granite", settings.granite, rows="pairs"),
    "granitehybrid": Architecture(
        "granitemoehybrid", hybrids.granite_hybrid, names.GRANITE_HYBRID, rows="pairs", mixed=True,
    ),
    "granitemoe": Architecture("granitemoe", settings.granite, rows="pairs"),
    "hunyuan-dense": Architecture("hunyuan_v1_dense", names=names.HUNYUAN),
    "hunyuan-moe": Architecture("hunyuan_v1_moe", names=names.HUNYUAN),
    # Behind its norm no rotation is left, by whichever positions and bases.
    "hunyuan_vl": Architecture(
        "hunyuan_vl_text", names=names.HUNYUAN, reads=(SECTIONS, "rope.scaling.alpha"),
        scalings=("none",),
    ),
    "hy_v3": Architecture("hy_v3", drafts=True),
    "internlm2": Architecture("llama", rows="pairs", head_is_share=True),
    "jais2": Architecture("jais2", eps=LAYER, scalings=("none", "linear")),
    "jamba": Architecture("jamba", hybrids.jamba, names.JAMBA, scalings=(), mixed=True),
    "jina-bert-v3": Architecture(
        "jina_embeddings_v3", settings.two_sided, older.JINA_BERT, eps=LAYER,
        scalings=("none", "linear"), head_is_share=True,
    ),
    "lfm2": Architecture("lfm2", hybrids.lfm2, names.LFM2, eps=NORM, mixed=True),
    "lfm2moe": Architecture("lfm2_moe", hybrids.lfm2, names.LFM2, eps=NORM, mixed=True),
    "llada": Architecture("eurobert", settings.two_sided, rows="pairs"),
    "llama": Architecture("llama", settings.llama, rows="pairs", factors=("rope_freqs",)),
    "llama4": Architecture(
        "llama4_text", layers.llama4, reads=layers.SLIDING, scalings=("none", "linear"),
        factors=("rope_freqs",),
    ),
    "mellum": Architecture(
        "mellum", layers.mellum, reads=layers.SLIDING, scaled=layers.scaled_where_full,
    ),
    "mimo2": Architecture(
        "mimo_v2_flash", layers.mimo2, names.MIMO2,
        reads=(*layers.SLIDING, "attention.value_scale"), scalings=("none",), partial=True,
        local_base=True, drafts=True, by_layer=True,
    ),
    "minicpm": Architecture(
        "minicpm", settings.minicpm, rows="pairs", scalings=("none", "linear", "longrope"),
        factors=("rope_factors_long", "rope_factors_short"),
    ),
    "minimax-m2": Architecture("minimax_m2", partial=True),
    "mistral3": Architecture(
        "ministral3", settings.mistral3, rows="pairs",
        reads=("attention.temperature_scale", "rope.scaling.yarn_log_multiplier"),
        scaled=settings.tempered,
    ),
    "modern-bert": Architecture(
        "modernbert", layers.modern_bert, older.MODERN_BERT,
        eps=("attention.layer_norm_epsilon", "norm_eps"), reads=layers.SLIDING, scalings=("none",),
        local_base=True, head_is_share=True,
    ),
    "mpt": Architecture(
        "mpt", settings.mpt, older.MPT, eps=("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        reads=("attention.clamp_kqv", "attention.max_alibi_bias"), scalings=(), head_is_share=True,
    ),
    "nemotron": Architecture(
        "nemotron", eps=("attention.layer_norm_epsilon", "norm_eps"), partial=True,
        scalings=("none", "linear"),
    ),
    "nemotron_h": Architecture(
        "nemotron_h", hybrids.nemotron_h, names.NEMOTRON_H, rows="pairs",
        eps=("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"), scalings=(), mixed=True,
    ),
    "nemotron_h_moe": Architecture(
        "nemotron_h", hybrids.nemotron_h, names.NEMOTRON_H, rows="pairs",
        eps=("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"), scalings=(), mixed=True,
    ),
    "nomic-bert": Architecture(
        "nomic_bert", settings.two_sided, older.NOMIC_BERT, eps=LAYER,
        scalings=("none", "linear"), head_is_share=True,
    ),
    "nomic-bert-moe": Architecture(
        "jina_embeddings_v3", settings.two_sided, older.JINA_BERT, eps=LAYER,
        scalings=("none", "linear"), head_is_share=True,
    ),
    "olmo": Architecture("olmo", rows="pairs", eps=None),
    "olmo2": Architecture("olmo2", layers.olmo2, names.NORMS_BEHIND, reads=layers.SLIDING),
    "olmoe": Architecture("olmoe"),
    "paddleocr": Architecture(
        "paddleocr_vl_text", sections.paddleocr, reads=(SECTIONS,), scalings=("none", "linear"),
    ),
    "phi2": Architecture(
        "phi", settings.phi2, older.PHI, eps=LAYER, partial=True, scalings=("none", "linear"),
    ),
    "phi3": Architecture(
        "phi3", settings.phi3, names.FUSED, reads=layers.SLIDING[:1],
        scalings=("none", "linear", "longrope"), partial=True,
        factors=("rope_factors_long", "rope_factors_short"),
    ),
    "phimoe": Architecture(
        "phimoe", settings.phi3, reads=layers.SLIDING[:1], scalings=("none", "linear", "longrope"),
        factors=("rope_factors_long", "rope_factors_short"),
    ),
    "qwen": Architecture(
        "qwen2", names=names.FUSED, scalings=("none", "linear"), fused=True, head_is_share=True,
    ),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture("qwen2_moe", settings.bias_as("qkv_bias")),
    "qwen2vl": Architecture("qwen2", sections.qwen2_vl, reads=(SECTIONS,)),
    "qwen3": Architecture("qwen3"),
    "qwen35": Architecture(
        "qwen3_5_text", hybrids.qwen3_5, names.QWEN3_NEXT,
        reads=(hybrids.INTERVAL, SECTIONS), partial=True, drafts=True,
    ),
    "qwen35moe": Architecture(
        "qwen3_5_moe_text", hybrids.qwen3_5, names.QWEN3_NEXT,
        reads=(hybrids.INTERVAL, SECTIONS), partial=True, drafts=True,
    ),
    "qwen3moe": Architecture("qwen3_moe"),
    "qwen3vl": Architecture(
        "qwen3_vl_text", sections.qwen3_vl, reads=(SECTIONS, DEEPSTACK), scalings=("none",),
    ),
    "qwen3vlmoe": Architecture(
        "qwen3_vl_moe_text", sections.qwen3_vl, reads=(SECTIONS, DEEPSTACK), scalings=("none",),
    ),
    "qwen3next": Architecture(
        "qwen3_next", hybrids.qwen3_next, names.QWEN3_NEXT, reads=(hybrids.INTERVAL,), partial=True,
    ),
    "seed_oss": Architecture("seed_oss", names=names.NORM_BEHIND),
    "smollm3": Architecture("smollm3", rows="pairs"),
    "stablelm": Architecture(
        "stablelm", settings.stablelm, eps=LAYER, partial=True, scalings=("none", "linear"),
    ),
    "starcoder": Architecture(
        "gpt_bigcode", settings.starcoder, older.GPT2, eps=("attention.layer_norm_epsilon",
        "layer_norm_epsilon"), scalings=(), head_is_share=True,
    ),
    "starcoder2": Architecture(
        "starcoder2", settings.bias_as("use_bias"),
        eps=("attention.layer_norm_epsilon", "norm_epsilon"),
    ),
    "step35": Architecture(
        "step3p5", step35.step35, names.STEP35, reads=step35.READS, scalings=("none",),
        factors=("rope_freqs",), local_base=True, drafts=True, by_layer=True, heads_by_layer=True,
    ),
    "t5": Architecture(
        "t5", settings.t5, older.T5, eps=T5, reads=("attention.relative_buckets_count",
        "decoder_block_count"), scalings=(),
    ),
    "t5encoder": Architecture(
        "t5", settings.t5, older.T5, eps=T5, reads=("attention.relative_buckets_count",),
        scalings=(),
    ),
    "xverse": Architecture("llama", settings.of_one_group, rows="pairs", scalings=("none",)),
}  # fmt: skip
ARCHITECTURES: dict[str, Architecture] = dict(sorted({**PLAIN, **LATENT}.items()))
