"""A request that a provider refuses for a part that it can do without is repeated once, without that part: thoughts and
ids of calls that another model wrote, for example.

A provider checks thoughts by what it has signed or sealed, and refuses a request with another model's, also another of
its own: a session in which the router, a fallback or the caller has changed the model would end there. A model needs no
earlier thoughts, so that the request is repeated without any. Of ids Mistral's API takes nine letters and digits alone,
and OpenAI's at most 40 characters: the request is repeated with others, which both take.

Sources: https://platform.claude.com/docs/en/build-with-claude/extended-thinking and
https://developers.openai.com/api/docs/guides/reasoning; the refusals are as these APIs word them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from services.llm.engine import Chunk, Message, Original, Request
from services.llm.errors import RequestRefused
from services.runtime.aside import aside, size_in
from services.runtime.deadline import Deadline
from services.runtime.strict_json import compact

Generate = Callable[[Request, Deadline], AsyncGenerator[Chunk, None]]
Repair = Callable[[RequestRefused], Awaitable[Request | None]]

# By API: what a body with thoughts holds, and words that a refusal of them has together.
_MARKS = {
    "messages": (b'"thinking"', b'"redacted_thinking"'),
    "chat_completions": (b'"thinking_blocks"',),  # LiteLLM's
    "responses": (b'"reasoning"',),
}
_OF_MESSAGES = (("signature", "thinking"), ("data", "redacted_thinking"))
_THOUGHTS_REFUSED = {
    "messages": _OF_MESSAGES,
    "chat_completions": _OF_MESSAGES,
    "responses": (("item with id 'rs_", "not found"), ("encrypted content", "could not be verified")),
}
_THOUGHTS = ("thinking", "redacted_thinking")
_IDS_REFUSED = (("tool call id was",), ("tool_calls[", ".id", "too long"))
_ID_LENGTH = 9


async def repeated(
    generate: Generate, request: Request, deadline: Deadline, repair: Repair
) -> AsyncGenerator[Chunk, None]:
    """The answer to a request, or to the one that `repair` makes of a refused one; None where it makes none."""
    try:
        async with aclosing(generate(request, deadline)) as chunks:
            async for chunk in chunks:
                yield chunk
        return
    except RequestRefused as refused:
        repaired = await repair(refused)
        if repaired is None:
            raise
    async with aclosing(generate(repaired, deadline)) as chunks:
        async for chunk in chunks:
            yield chunk


async def _with_body(request: Request, own: Original, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Request:
    """The request with the original body that `change` makes of the JSON of its `own`."""

    def changed() -> bytes:
        return compact(change(json.loads(own.body)))

    return replace(request, original=replace(own, body=await aside(request.tenant, size_in(own.body), changed)))


def _is_one_of(refused: RequestRefused, known: Iterable[Iterable[str]]) -> bool:
    """Whether a refusal has all words of one of the `known` ones."""
    said = refused.message.lower()
    return any(all(word in said for word in words) for words in known)


def without_foreign_thoughts(generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
    """The answer to a request, without thoughts if the provider refuses those."""
    own = request.original
    if own and any(mark in own.body for mark in _MARKS.get(own.api, ())):
        return repeated(generate, request, deadline, partial(_without_thoughts, request, own))
    return generate(request, deadline)


async def _without_thoughts(request: Request, own: Original, refused: RequestRefused) -> Request | None:
    if not _is_one_of(refused, _THOUGHTS_REFUSED[own.api]):
        return None
    return await _with_body(request, own, _WITHOUT_THOUGHTS[own.api])


def without_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a message without the request to think, and without the edits that its API takes only beside it."""
    kept = {name: given for name, given in body.items() if name != "thinking"}
    managed = kept.get("context_management")
    if isinstance(managed, dict) and isinstance(edits := managed.get("edits") or [], list):  # else the API refuses it
        del kept["context_management"]
        edits = [each for each in edits if not _clears_thinking(each)]
        kept |= {"context_management": {**managed, "edits": edits}} if edits else {}
    return kept


def _clears_thinking(edit: Any) -> bool:
    return isinstance(edit, dict) and str(edit.get("type")).startswith("clear_thinking")


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


_WITHOUT_THOUGHTS: Mapping[str, Callable[[dict[str, Any]], Mapping[str, Any]]] = {
    "messages": _message,
    "chat_completions": _chat,
    "responses": _response,
}


def with_other_ids(generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
    """The answer to a chat completion, with other ids if the provider refuses those of the conversation."""
    if any(message.tool_call_id for message in request.messages):
        return repeated(generate, request, deadline, partial(_with_other_ids, request))
    return generate(request, deadline)


async def _with_other_ids(request: Request, refused: RequestRefused) -> Request | None:
    if not _is_one_of(refused, _IDS_REFUSED):
        return None
    own = request.original
    if own and own.api == "chat_completions":
        request = await _with_body(request, own, _body_with_other_ids)
    return replace(request, messages=tuple(map(_message_with_other_ids, request.messages)))


def _message_with_other_ids(message: Message) -> Message:
    calls = tuple(replace(call, id=_other_id(call.id)) for call in message.tool_calls)
    return replace(message, tool_calls=calls, tool_call_id=_other_id(message.tool_call_id))


def _body_with_other_ids(body: dict[str, Any]) -> dict[str, Any]:
    for message in body.get("messages") or ():
        for holder, name in ((message, "tool_call_id"), *((call, "id") for call in message.get("tool_calls") or ())):
            if isinstance(holder.get(name), str):
                holder[name] = _other_id(holder[name])
    return body


def _other_id(call_id: str) -> str:
    """The same for equal ids, so that results stay with their calls."""
    digest = hashlib.sha256(call_id.encode()).digest()
    return base64.b32encode(digest).decode()[:_ID_LENGTH] if call_id else ""
