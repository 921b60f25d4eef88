"""Fields that a provider refuses although no answer depends on them. Mistral's API takes no `user`, and none of the
thoughts that clients repeat of earlier answers. A request that is refused for such a field is repeated without it, and
later requests are sent without it. The most tokens of an answer have two names, of which Mistral's API takes one, and
OpenAI's models that think the other: a refused one is sent under the other name.

Sources: https://docs.mistral.ai/api, whose refusals are those of pydantic, and
https://platform.openai.com/docs/guides/reasoning.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from typing import Any

from services.llm.dialects.forwarding import conversation
from services.llm.engine import Chunk, Request
from services.llm.errors import RequestRefused
from services.llm.providers.second_attempt import Generate, repeated
from services.runtime.deadline import Deadline

_AT_TOP = frozenset({"client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "store", "user"})
_THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_IF_EMPTY = frozenset({"annotations", "audio", "function_call", "refusal", "tool_calls"})  # as clients repeat them


def named(error: Mapping[str, Any]) -> frozenset[str]:
    """The fields that a refusal, by its error object, names as extra ones: `user`, `messages.reasoning_content`."""
    if error.get("code") == "unsupported_parameter" and isinstance(error.get("param"), str):
        return frozenset({error["param"]})
    try:
        said = json.loads(error.get("message") or "")
    except (ValueError, TypeError, RecursionError):
        return frozenset()
    details = said.get("detail") if isinstance(said, dict) else said
    return frozenset(_places(details if isinstance(details, list) else []))


def _places(details: list[Any]) -> Iterator[str]:
    """The places of pydantic's errors. An error repeats the caller's value in `input`, where nothing is read."""
    for each in details:
        if isinstance(each, dict) and each.get("type") == "extra_forbidden":
            match each.get("loc"):
                case ["body", str(name)]:
                    yield name
                case ["body", "messages", int(), str(), str(name)]:
                    yield f"messages.{name}"


class ExtraFields:
    """The fields that one provider has refused so far."""

    def __init__(self) -> None:
        self._at_top, self._in_messages = set[str](), set[str]()
        self._renamed = ""  # one of the names of the most tokens

    def generate(self, generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """The answer to a request, whose body is made again if it is repeated."""
        return repeated(generate, request, deadline, partial(self._repeatable, request))

    def without(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without these fields."""
        kept = {name: given for name, given in body.items() if name not in self._at_top}
        if self._renamed in kept:
            kept.setdefault(_OTHER_NAMES[self._renamed], kept.pop(self._renamed))
        if not self._in_messages or "messages" not in kept:
            return kept
        return {**kept, "messages": [self._message(each) for each in conversation(kept)]}

    async def _repeatable(self, request: Request, refused: RequestRefused) -> Request | None:
        known = self._known
        self._renamed = self._renamed or next(iter(refused.extras & _OTHER_NAMES.keys()), "")
        self._at_top |= refused.extras & _AT_TOP
        within = {name for name in _THOUGHTS | _IF_EMPTY if f"messages.{name}" in refused.extras}
        self._in_messages |= within | (_THOUGHTS if within & _THOUGHTS else frozenset())
        return request if self._known > known else None

    @property
    def _known(self) -> int:
        return len(self._at_top) + len(self._in_messages) + bool(self._renamed)

    def _message(self, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        extra = {name for name in self._in_messages & message.keys() if name in _THOUGHTS or not message[name]}
        return {name: given for name, given in message.items() if name not in extra}
