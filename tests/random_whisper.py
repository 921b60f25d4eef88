"""Whispers of any shape with random weights, as CTranslate2 folders: they say nonsense, but their sizes are real."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faster_whisper.tokenizer import _LANGUAGE_CODES

TEXT_TOKENS = 50_257  # GPT-2's, whose places are filled here without its words
LANGUAGES = tuple(each for each in _LANGUAGE_CODES if each != "yue")  # which came with large-v3
TIMES = 1_501  # 0.00 to 30.00 s in steps of 0.02 s


@dataclass(frozen=True)
class Shape:
    """The parameters in which Whisper models differ."""

    mels: int = 80
    languages: Sequence[str] = LANGUAGES
    width: int = 32
    heads: int = 2
    encoder_layers: int = 1
    decoder_layers: int = 2
    feed_forward: int = 32
    alignment_heads: Sequence[tuple[int, int]] | None = ((1, 0),)
    preprocessor: dict[str, Any] | None = None


def write_whisper(folder: Path, shape: Shape) -> Path:
    """The model's folder."""
    import torch
    from ctranslate2.converters.transformers import WhisperLoader
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    tokens = _tokens(shape.languages)
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=len(tokens), num_mel_bins=shape.mels, d_model=shape.width,
        encoder_layers=shape.encoder_layers, encoder_attention_heads=shape.heads, encoder_ffn_dim=shape.feed_forward,
        decoder_layers=shape.decoder_layers, decoder_attention_heads=shape.heads, decoder_ffn_dim=shape.feed_forward,
    )  # fmt: skip
    spec = WhisperLoader().get_model_spec(WhisperForConditionalGeneration(config).eval())
    spec.register_vocabulary(tokens)
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], []
    spec.config.lang_ids = [tokens.index(f"<|{each}|>") for each in shape.languages]
    if shape.alignment_heads:
        spec.config.alignment_heads = [list(each) for each in shape.alignment_heads]
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    _write_tokenizer(folder, tokens)
    if shape.preprocessor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(shape.preprocessor))
    return folder


def _tokens(languages: Sequence[str]) -> list[str]:
    """In Whisper's order."""
    letters = [" a", " b", "c", ".", "?"]
    text = [each.replace(" ", "Ġ") for each in letters] + [f"Ġw{at}" for at in range(TEXT_TOKENS - 1 - len(letters))]
    tasks = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
    names = ["endoftext", "startoftranscript", *languages, *tasks, *(f"{at * 0.02:.2f}" for at in range(TIMES))]
    # CTranslate2 takes a model for multilingual by the empty token before the special ones.
    return [*text, "", *(f"<|{name}|>" for name in names)]


def _write_tokenizer(folder: Path, tokens: Sequence[str]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: at for at, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=tokens[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens[TEXT_TOKENS:]])
    tokenizer.save(str(folder / "tokenizer.json"))
