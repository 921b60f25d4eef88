"""One model in a server's list of models, `/v1/models`."""

from __future__ import annotations

import json
from typing import Any

# By whose word: vLLM and SGLang; OpenRouter and Together; Mistral; Groq; llama.cpp, in an object `meta`.
_CONTEXTS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")


def context_tokens(listed: str, model: str) -> int:
    """How many tokens the context of `model` holds; 0 where the list does not say."""
    try:
        told = json.loads(listed)
    except ValueError:
        return 0
    rows = told.get("data") if isinstance(told, dict) else told  # Together has no object around them
    named = (row for row in rows if isinstance(row, dict) and row.get("id") == model) if isinstance(rows, list) else ()
    told_of = ({**meta, **row} if isinstance(meta := row.get("meta"), dict) else row for row in named)
    return next((row[name] for row in told_of for name in _CONTEXTS if _is_count(row.get(name))), 0)


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 < given < 2**31
