"""The context of a model: how long servers say it is, and conversations that are longer, as providers say it and where
it is certain before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.llm.engine import Message, Request
from services.llm.errors import ContextRefused
from services.runtime.errors import ContextExceeded, shorten

_CODES = ("context_length_exceeded", "exceed_context_size_error")  # OpenAI's, llama.cpp's
_FEWEST_BYTES = 2  # of a word, with the blank behind it
_MOST_READ = 2_048  # characters of what a provider says: each number may be followed by a second one far behind it
_MOST_SHOWN = 400  # characters of what a provider says
# What providers say, with the numbers: OpenAI, vLLM and OpenRouter; OpenAI; Anthropic, twice; Gemini; Mistral; xAI;
# SGLang; Kimi.
_NUMBERS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"maximum context length (?:is|of) (?P<limit>\d+).*?"
        r"(?:resulted in|requested(?: about)?|contains|has)(?: at least)? (?P<tokens>\d+)\b(?! characters)",
        r"limit of (?P<limit>\d+) tokens.*?resulted in (?P<tokens>\d+)",
        r"prompt is too long: (?P<tokens>\d+) tokens > (?P<limit>\d+)",
        r"exceed context limit: (?P<tokens>\d+) \+ (?P<answer>\d+) > (?P<limit>\d+)",
        r"token count \(?(?P<tokens>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<limit>\d+)",
        r"prompt contains (?P<tokens>\d+) tokens.*? (?P<limit>\d+) maximum context length",
        r"maximum prompt length is (?P<limit>\d+) but the request contains (?P<tokens>\d+)",
        r"input \((?P<tokens>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        r"exceeded model token limit: (?P<limit>\d+) \(requested: (?P<tokens>\d+)",
    )
)
# The same without them: vLLM and others; OpenAI's Responses, llama.cpp; Bedrock; LM Studio; MiniMax; Qwen.
_WORDS = re.compile(
    r"maximum context length|exceeds? (?:the|model's) (?:context window|available context size)"
    r"|input is too long for requested model|greater than the context length|context window exceeds limit"
    r"|range of input length should be",
    re.IGNORECASE,
)

# By whose word: vLLM and SGLang; OpenRouter and Together; Mistral; Groq; llama.cpp, in an object `meta`.
_LISTED = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")


def refused(error: Mapping[str, Any], said: str, status: int, own: str) -> ContextRefused | None:
    """The error of a provider that refuses a conversation for its length; None for any other. `error` is its error
    object, `said` the message, without secrets; `status`, `own`: see `ContextRefused`."""
    looked_at = said[:_MOST_READ]
    named = any(error.get(name) in _CODES for name in ("code", "type"))
    found = next(filter(None, (pattern.search(looked_at) for pattern in _NUMBERS)), None)
    if not (named or found or _WORDS.search(looked_at)):
        return None
    said = shorten(said, _MOST_SHOWN)
    if found:
        groups = found.groupdict()
        both = int(groups["tokens"]) + int(groups.get("answer") or 0)
        return ContextRefused(said, int(groups["limit"]), both, status, own)
    numbers = [error.get(name) for name in ("n_ctx", "n_prompt_tokens")]
    limit, tokens = (number if isinstance(number, int) else None for number in numbers)
    return ContextRefused(said, limit, tokens, status, own)


def check(request: Request, limit: int) -> None:
    """Raise `ContextExceeded` for a conversation of more words than `limit` tokens: no tokenizer in use makes one token
    of two words. Whether fewer words fit is for the provider to say, which counts."""
    if sum(map(len, _texts(request.messages))) <= limit * _FEWEST_BYTES:
        return
    words = sum(len(text.split(maxsplit=limit)) for text in _texts(request.messages))
    if words > limit:
        raise ContextExceeded.of(limit, words, at_least=True)


def _texts(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        yield message.content
        yield from (part.text for part in message.parts)
        yield from (call.arguments for call in message.tool_calls)


def listed_tokens(listed: str, model: str) -> int:
    """How many tokens the context of `model` holds by a server's list of models, `/v1/models`; 0 where that does not
    say."""
    try:
        decoded = json.loads(listed)
    except (ValueError, RecursionError):
        return 0
    rows = decoded.get("data") if isinstance(decoded, dict) else decoded  # Together has no object around them
    named = (row for row in rows if isinstance(row, dict) and row.get("id") == model) if isinstance(rows, list) else ()
    merged = ({**meta, **row} if isinstance(meta := row.get("meta"), dict) else row for row in named)
    return next((row[name] for row in merged for name in _LISTED if _is_count(row.get(name))), 0)


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 < given < 2**31
