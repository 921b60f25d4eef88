"""Thoughts of other models in a caller's conversation. A provider checks thoughts by what it has signed or sealed, and
refuses a request with another model's, also another of its own: a session in which the router, a fallback or the caller
has changed the model would end there. A model needs no earlier thoughts, so that the request is repeated without any.

Sources: https://platform.claude.com/docs/en/build-with-claude/extended-thinking and
https://developers.openai.com/api/docs/guides/reasoning; the refusals are as these APIs word them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

from services.llm.engine import Chunk, Original, Request
from services.llm.errors import RequestRefused
from services.llm.providers.second_attempt import Generate, is_one_of, repeated, with_body
from services.runtime.deadline import Deadline

# By API: what a body with thoughts holds, and words that a refusal of them has together.
_MARKS = {
    "messages": (b'"thinking"', b'"redacted_thinking"'),
    "chat_completions": (b'"thinking_blocks"',),  # LiteLLM's
    "responses": (b'"reasoning"',),
}
_OF_MESSAGES = (("signature", "thinking"), ("data", "redacted_thinking"))
_REFUSALS = {
    "messages": _OF_MESSAGES,
    "chat_completions": _OF_MESSAGES,
    "responses": (("item with id 'rs_", "not found"), ("encrypted content", "could not be verified")),
}
_THOUGHTS = ("thinking", "redacted_thinking")


def generate(generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
    """The answer to a request, without thoughts if the provider refuses those."""
    own = request.original
    if own and any(mark in own.body for mark in _MARKS.get(own.api, ())):
        return repeated(generate, request, deadline, partial(_without_thoughts, request, own))
    return generate(request, deadline)


async def _without_thoughts(request: Request, own: Original, refused: RequestRefused) -> Request | None:
    if not is_one_of(refused, _REFUSALS[own.api]):
        return None
    return await with_body(request, own, _WITHOUT[own.api])


def without_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a message without the request to think, and without the edits that its API takes only beside it."""
    kept = {name: given for name, given in body.items() if name != "thinking"}
    if isinstance(managed := kept.pop("context_management", None), dict):
        edits = [each for each in managed.get("edits") or () if not str(each.get("type")).startswith("clear_thinking")]
        kept |= {"context_management": {**managed, "edits": edits}} if edits else {}
    return kept


def _message(body: dict[str, Any]) -> Mapping[str, Any]:
    """In the middle of a turn the model does not think: the API would ask for the turn's own thoughts."""
    messages = [kept for each in body.get("messages") or () if (kept := _turn(each)).get("content")]
    if not messages:
        return body
    content = messages[-1]["content"]
    if isinstance(content, list) and any(block.get("type") == "tool_result" for block in content):
        body = without_thinking(body)
    return {**body, "messages": messages}


def _turn(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(blocks := message.get("content"), list):
        return message
    return {**message, "content": [block for block in blocks if block.get("type") not in _THOUGHTS]}


def _chat(body: dict[str, Any]) -> Mapping[str, Any]:
    if "messages" not in body:
        return body
    turns = [{name: given for name, given in each.items() if name != "thinking_blocks"} for each in body["messages"]]
    return {**body, "messages": turns}


def _response(body: dict[str, Any]) -> Mapping[str, Any]:
    if not isinstance(items := body.get("input"), list):
        return body
    return {**body, "input": [each for each in items if each.get("type") != "reasoning"]}


_WITHOUT: Mapping[str, Callable[[dict[str, Any]], Mapping[str, Any]]] = {
    "messages": _message,
    "chat_completions": _chat,
    "responses": _response,
}
