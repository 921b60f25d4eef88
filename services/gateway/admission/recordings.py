"""What the hearing of a recording costs: 10 tokens of its tenant's quota a second, as OpenAI counts what users say."""

from __future__ import annotations

import math

_TOKENS_PER_S = 10
_PCM_BYTES_PER_S, _PACKED_BYTES_PER_S = 32_000, 4_000  # of 16 kHz in a WAV file, and of what is packed as speech is


def estimated_tokens(file: bytes) -> int:
    """As far as its length in bytes tells: what is reserved, and what it costs a client that leaves before its length
    in seconds is known."""
    return heard_tokens(len(file) / (_PCM_BYTES_PER_S if file.startswith(b"RIFF") else _PACKED_BYTES_PER_S))


def heard_tokens(seconds: float) -> int:
    """Of so many seconds."""
    return math.ceil(seconds * _TOKENS_PER_S)
