"""Texts that a request has in an array, or one alone: how many, and of how many bytes together."""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.admission.question import BYTES_PER_TOKEN
from services.gateway.http.fields import Fields
from services.runtime.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class TextInputs:
    """The texts, and what they are charged as."""

    texts: list[str]
    tokens: int


def read_texts(body: Fields, name: str, most: int, most_bytes: int) -> TextInputs:
    """Those of a field that must be there. Raises `InvalidInput`."""
    texts = body.texts(name)
    if not 1 <= len(texts) <= most:
        raise InvalidInput(name, f"1 to {most} strings", len(texts))
    return TextInputs(texts, tokens_of(name, texts, most_bytes))


def tokens_of(name: str, texts: list[str], most_bytes: int) -> int:
    """An estimate. Raises `InvalidInput` for too many bytes."""
    size = sum(len(text.encode()) for text in texts)
    if size > most_bytes:
        raise InvalidInput(name, f"at most {most_bytes} bytes together", f"{size} bytes")
    return size // BYTES_PER_TOKEN
