"""SmolLM2-135M-Instruct as transformers and vLLM load it, in bfloat16 or with 8-bit weights.

From the authors' own files where the hub has delivered them, else from a GGUF file with 4-bit weights, whose values are
written out in bfloat16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from launcher.catalog.convert.w8a8 import QUANTIZATION, quantized

_CONTEXT_TOKENS = 8192
# The GGUF file's metadata in transformers' words.
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": _CONTEXT_TOKENS,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
}
# Sampling of the authors' model card. vLLM takes these as defaults of requests that say nothing.
_GENERATION = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "do_sample": True,
    "temperature": 0.2,
    "top_p": 0.9,
}
_TOKENIZER = {
    "add_prefix_space": False,
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": _CONTEXT_TOKENS,
    # Takes tokenizer.json as it is; GPT2Tokenizer builds one of its own that does not split digits.
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def make(recipe: str, raw: Path, made: Path, _: str) -> None:
    """`recipe` is `smollm2` or `smollm2-int8`."""
    weights, tokenizer, template = _of_gguf(raw) if any(raw.glob("*.gguf")) else _of_authors(raw)
    config = _CONFIG
    if recipe == "smollm2-int8":
        weights, config = quantized(weights), {**_CONFIG, "quantization_config": QUANTIZATION}
    stored = {name: _stored(values) for name, values in weights}
    save_file(stored, made / "model.safetensors", {"format": "pt"})
    (made / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (made / "chat_template.jinja").write_text(template, encoding="utf-8")
    _write(made / "config.json", config)
    _write(made / "generation_config.json", _GENERATION)
    _write(made / "tokenizer_config.json", _TOKENIZER)


def _of_gguf(raw: Path) -> tuple[Iterator[tuple[str, torch.Tensor]], str, str]:
    """(weights, tokenizer.json, chat template)."""
    from launcher.catalog.convert.gguf_llama import Gguf

    file = Gguf(next(raw.glob("*.gguf")))
    tokenizer = json.dumps(file.tokenizer(), ensure_ascii=False)
    weights = ((name, torch.from_numpy(values)) for name, values in file.weights())
    return weights, tokenizer, file.said("tokenizer.chat_template")


def _of_authors(raw: Path) -> tuple[Iterator[tuple[str, torch.Tensor]], str, str]:
    """The same of the hub's files."""
    template = json.loads((raw / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    weights = load_file(raw / "model.safetensors")
    return iter(weights.items()), (raw / "tokenizer.json").read_text(encoding="utf-8"), template


def _stored(values: torch.Tensor) -> torch.Tensor:
    return (values if values.dtype == torch.int8 else values.bfloat16()).contiguous()


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
