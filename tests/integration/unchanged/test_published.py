"""Every field of the published request schemas reaches a provider of the same API as it was sent, or is refused by
name. The fields are those of the installed packages `openai` and `anthropic`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import pytest

from tests.integration.unchanged.transparent import Transparent, own_fields
from tests.published import Published, fields

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_MEDIA = ("image", "image_url")
_REFUSED = frozenset(  # names in refusals: what no model of the same API gets, or what no API defines
    {
        *("functions", "function_call", "messages[].function_call", "messages[].role", "thread", *_MEDIA),
        *("messages[].content[].type", "tools[].type", "tool_choice.type", "response_format.type"),
        *("structured_outputs", "structured_outputs.json", "cache_salt", "kv_transfer_params", "input[].role"),
    }
)
_BETA = {"anthropic-beta": "field-of-a-beta-2026-01-01"}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "x", "arguments": "{}"}}
_USE = {"type": "tool_use", "id": "call_1", "name": "x", "input": {}}
_FUNCTION_CALL = {"type": "function_call", "name": "x", "arguments": "{}"}
_QUESTION = {"role": "user", "content": "?"}
_DEEPEST = 2  # dots in the place of a field in Responses: no item or tool is read more deeply
Body = Mapping[str, Any]


def _chat(body: Body) -> Body:
    """With what a conversation needs around the field: a call before its result, a tool for the one that is chosen, and
    a question at the end."""
    first = body["messages"][0]
    before = [{"role": "assistant", "content": None, "tool_calls": [_CALL]}] if first["role"] == "tool" else []
    after = [] if first["role"] in ("user", "tool") else [{"role": "user", "content": "?"}]
    named = {"tools": [{"type": "function", "function": {"name": "x"}}]} if "tool_choice" in body else {}
    beside: Body = {"logprobs": True} if "top_logprobs" in body else {}
    if body.get("response_format", {}).get("type") == "json_schema":
        given = body["response_format"].get("json_schema", {"name": "x"})
        beside = {"response_format": {**body["response_format"], "json_schema": {"schema": {}, **given}}}
    said = {**first, "content": _beside_text(first.get("content", "x"))}
    return {**named, **body, **beside, "messages": [*before, said, *body["messages"][1:], *after]}


def _beside_text(content: Any) -> Any:
    return [*content, {"type": "text", "text": "x"}] if isinstance(content, list) else content


def _message(body: Body) -> Body:
    """The same. Calls of tools are the assistant's."""
    (first,) = body["messages"]
    if isinstance(first.get("content"), list) and any(block["type"] == "tool_use" for block in first["content"]):
        first = {**first, "role": "assistant"}
    before = [{"role": "assistant", "content": [_USE]}] if "tool_result" in str(first) else []
    after = [] if first["role"] == "user" else [{"role": "user", "content": "?"}]
    named = {"tools": [{"name": "x", "input_schema": {"type": "object"}}]} if "tool_choice" in body else {}
    return {
        **named,
        **body,
        "messages": [*before, {**first, "content": _beside_text(first.get("content", "x"))}, *after],
    }


def _response(body: Body) -> Body:
    """With questions around the items, a call before its result, and what a picture and a result cannot be without."""
    if not isinstance(items := body.get("input", "?"), list):
        return {"input": items, **body}
    (item,) = items
    before: list[Body] = []
    if item.get("type") == "function_call_output":
        before, item = [{**_FUNCTION_CALL, "call_id": "x"}], {"call_id": "x", **item}
    for name in ("content", "output"):
        if isinstance(parts := item.get(name), list):
            item = {**item, name: [_with_file(part) for part in parts]}
    return {**body, "input": [_QUESTION, *before, item, _QUESTION]}


def _with_file(part: Any) -> Any:
    return {**part, "file_id": "x"} if part.get("type") == "input_image" and "image_url" not in part else part


async def _wrong(served: Transparent, path: str, asked: Iterable[tuple[Published, Body]], **headers: str) -> list[str]:
    """The fields that neither arrived unchanged nor were refused by name."""
    found: list[str] = []
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as http:
        for field, body in asked:
            served.provider.reset()
            reply = await http.post(path, json=body, headers=headers)
            if problem := _problem(field, body, reply, [asked.body for asked in served.provider.asked]):
                found.append(f"{field.place} {str(body)[:300]}: {problem}")
    return found


def _problem(field: Published, body: Body, reply: httpx.Response, arrived: list[Body]) -> str:
    if reply.status_code == 200:
        got = [*map(own_fields, arrived)]
        return "" if got == [own_fields(body)] else f"arrived as {got}"
    error = reply.json()["error"]
    named = re.sub(r"\[\d+\]", "[]", error["param"] or error["message"].partition(":")[0])
    denied = reply.status_code == 403 and error["code"] == "field_denied"
    refused = (denied or reply.status_code == 400) and named in _REFUSED and _names(named, field.place, str(body))
    return "" if refused else f"{reply.status_code}: {error}"


def _names(named: str, place: str, body: str) -> bool:
    """Whether a refusal is about a field, about what has it, or about something in it. An object's `type` or `role` is
    the object; which of several there are does not matter. Pictures and recordings are named by their kind alone."""
    named, place = named.removesuffix(".type").removesuffix(".role"), re.sub(r"\[\d+\]", "[]", place)
    if named in _MEDIA:
        return f"'{named}'" in body and place.startswith("messages")
    return _begins(named, place) or _begins(place, named)


def _begins(whole: str, part: str) -> bool:
    return re.match(rf"{re.escape(part)}($|[.\[])", whole) is not None


async def test_every_field_of_chat_completions_arrives_or_is_refused_by_name(served: Transparent) -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    found = [(field, _chat(field.body)) for field in fields(CompletionCreateParamsNonStreaming, {"model": "gpt"})]
    assert not (wrong := await _wrong(served, "/v1/chat/completions", found)), "\n".join(wrong)


async def test_every_field_of_messages_arrives_or_is_refused_by_name(served: Transparent) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    found = [(field, _message(field.body)) for field in fields(MessageCreateParamsNonStreaming, {"model": "claude"})]
    assert not (wrong := await _wrong(served, "/v1/messages", found)), "\n".join(wrong)


async def test_every_field_of_messages_that_is_a_beta_arrives_or_is_refused_by_name(served: Transparent) -> None:
    """Without the requests that are the same by both schemas: the test above has them."""
    from anthropic.types import beta, message_create_params

    known = {"model": "claude"}
    plain = {str(field.body) for field in fields(message_create_params.MessageCreateParamsNonStreaming, known)}
    of_beta = fields(beta.message_create_params.MessageCreateParamsNonStreaming, known)
    found = [(field, _message(field.body)) for field in of_beta if str(field.body) not in plain]
    assert not (wrong := await _wrong(served, "/v1/messages?beta=true", found, **_BETA)), "\n".join(wrong)


async def test_every_field_of_responses_arrives_or_is_refused_by_name(served: Transparent) -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

    published = fields(ResponseCreateParamsNonStreaming, {"model": "resp"})
    found = [(field, _response(field.body)) for field in published if field.place.count(".") <= _DEEPEST]
    assert not (wrong := await _wrong(served, "/v1/responses", found)), "\n".join(wrong)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
async def test_every_field_of_vllms_server_arrives_or_is_refused_by_name(served: Transparent) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    known = {"model": "gpt", "messages": [{"role": "user", "content": "?"}]}
    found = [(field, _chat(field.body)) for field in fields(ChatCompletionRequest, known)]
    assert not (wrong := await _wrong(served, "/v1/chat/completions", found)), "\n".join(wrong)
