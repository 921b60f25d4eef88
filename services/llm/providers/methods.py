"""Methods of an OpenAI-compatible server that have no conversation: embeddings, rerank and moderations. One JSON object
is posted in the caller's own words, and one answer comes back, which its caller gets as it is.

Sources: https://platform.openai.com/docs/api-reference/embeddings and /moderations; for rerank
https://docs.cohere.com/reference/rerank, https://api.jina.ai/redoc and
https://docs.vllm.ai/en/latest/serving/openai_compatible_server/. Text Embeddings Inference has a rerank of its own,
which answers with an array and counts tokens in a header: https://huggingface.github.io/text-embeddings-inference/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from services.llm.answer import MOST_CHARACTERS
from services.llm.dialects.forwarding import fields
from services.llm.engine import Chunk, Finish, FinishReason, Original, Usage
from services.llm.errors import EngineDown

MOST_ANSWER_BYTES = 32 * 1024 * 1024  # 2,048 vectors of 768 numbers as JSON; the gateway holds all of it
_LARGEST = 2**31 - 1
_MOST_DIGITS = 18
_ENDS = (("{", "}"), ("[", "]"))


class _Said(msgspec.Struct):
    """The part of an answer that is read here. msgspec passes over vectors and makes no object of them."""

    usage: Any = None
    meta: Any = None  # Cohere's


def posted(own: Original, model: str) -> dict[str, Any]:
    """The fields of the body to post: those of the caller's, for another model. Raises InvalidInput for what is no
    object."""
    return {**fields(own.body), "model": model}


def chunks(answered: str, headers: Mapping[str, str] | None = None) -> Iterator[Chunk]:
    """An answer in pieces, and its usage, for an array that of its `headers`; no usage for an object that is not strict
    JSON. Raises `EngineDown` for what is neither."""
    try:
        said = msgspec.json.decode(answered, type=_Said)
    except (msgspec.DecodeError, RecursionError):
        written = answered.strip()
        if (written[:1], written[-1:]) not in _ENDS:
            raise EngineDown("the provider answered with something else than a JSON object or array") from None
        said = _Said()
    for begin in range(0, len(answered), MOST_CHARACTERS):
        yield Chunk("", 0, relayed=(answered[begin : begin + MOST_CHARACTERS],))
    tokens = _prompt_tokens(said) or _header_tokens(headers or {})
    yield Chunk("", 0, Finish(FinishReason.STOP, Usage(prompt_tokens=tokens)))


def _prompt_tokens(said: _Said) -> int:
    """The server's count of prompt tokens; 0 if it reports none, as OpenAI's moderations. Jina and Voyage report only
    the total for some methods."""
    counts = [_at(said.usage, "prompt_tokens"), _at(said.usage, "total_tokens")]
    counts += [_at(_at(said.meta, group), "input_tokens") for group in ("billed_units", "tokens")]
    numbers = (count for count in counts if type(count) in (int, float) and 0 < count <= _LARGEST)
    return int(next(numbers, 0))


def _header_tokens(headers: Mapping[str, str]) -> int:
    """Text Embeddings Inference's count; 0 without one."""
    value = headers.get("x-compute-tokens", "")
    return min(int(value), _LARGEST) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else 0


def _at(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, dict) else None
