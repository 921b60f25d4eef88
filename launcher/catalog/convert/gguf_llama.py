"""Reads a Llama model out of a GGUF file: weights in float32 under transformers' names, and its tokenizer.

GGUF is llama.cpp's format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). What its metadata does not say
in transformers' terms is added here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

Array = NDArray[np.float32]

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL


class Gguf:
    """An open file."""

    def __init__(self, path: Path):
        self._reader = GGUFReader(path)

    def said(self, key: str) -> Any:
        """A value of the metadata. Raises KeyError."""
        return self._reader.fields[key].contents()

    def weights(self) -> Iterator[tuple[str, Array]]:
        """(transformers' name, values), one after the other."""
        counts = {"attn_q": "head_count", "attn_k": "head_count_kv"}
        heads = {part: self.said(f"llama.attention.{count}") for part, count in counts.items()}
        for tensor in self._reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
            yield _name(tensor.name), _unpermuted(values, heads[part]) if part in heads else values

    def tokenizer(self) -> dict[str, Any]:
        """What `tokenizer.json` of the tokenizers library holds: byte-level BPE.

        llama.cpp's pre-tokenizer "smollm" splits digits before it splits words, as the authors' tokenizer does.
        transformers' own GGUF reader leaves that out, and reads "   5" as other tokens than the model was trained on.
        """
        if (split := self.said("tokenizer.ggml.pre")) != "smollm":
            raise ValueError(f"the pre-tokenizer smollm is known here, got {split}")
        tokens, kinds = self.said("tokenizer.ggml.tokens"), self.said("tokenizer.ggml.token_type")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_special(n, tokens[n]) for n, kind in enumerate(kinds) if kind == _CONTROL_TOKEN],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
            },
            "post_processor": None,
            "decoder": {**byte_level, "add_prefix_space": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: n for n, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self.said("tokenizer.ggml.merges")],
            },
        }


def _name(name: str) -> str:
    """`blk.0.attn_q.weight` is `model.layers.0.self_attn.q_proj.weight`."""
    *_, part, kind = name.split(".")
    if name.startswith("blk."):
        return f"model.layers.{name.split('.')[1]}.{_LAYER[part]}.{kind}"
    return f"{_WHOLE[part]}.{kind}"


def _unpermuted(values: Array, heads: int) -> Array:
    """llama.cpp pairs the rows that a rotary embedding turns together; transformers keeps them half a head apart."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _special(number: int, token: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, **flags, "special": True}
