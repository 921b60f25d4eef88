"""Reading what OpenAI's Responses ask for. Nothing is kept between requests: each brings its whole conversation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.chat_request import MODES, ROLES, put_tool, take_form, take_sampling
from services.gateway.http.fields import Fields
from services.gateway.http.order import TRUNCATIONS, Order, take_model, take_options
from services.gateway.http.parts import put_content
from services.runtime.errors import InvalidInput

_KEPT = ("previous_response_id", "conversation", "background", "prompt")
# What the answer repeats of the request, and what clients want to read where it says nothing.
_ECHOED: Mapping[str, Any] = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_OPENAIS = ("text", "json_object", "json_schema")  # of formats
_TOOL: Mapping[str, Any] = {"description": None, "parameters": None, "strict": False}
_LOGPROBS = "message.output_text.logprobs"


def read_response(body: Fields, headers: Mapping[str, str], known: Collection[str]) -> Order:
    """The order of a response. Raises `InvalidInput` and `ModelUnknown`."""
    order = Order(pb.GenerateRequest())
    request = order.request
    take_model(order, body, known)
    body.refuse(*_KEPT)
    order.stream = bool(body.flag("stream"))
    if instructions := body.text("instructions"):
        request.messages.add(role=chat_pb2.ROLE_SYSTEM, content=instructions)
    _take_input(request, body)
    _take_sampling(request, body)
    _take_tools(request, body)
    request.prompt.truncation = body.one_of("truncation", TRUNCATIONS) or pb.TRUNCATION_UNSPECIFIED
    text = body.object("text")
    take_form(request, body, text and text.object("format"))
    take_options(order, headers, body)
    order.echo = _echo(body)
    return order


def _take_input(request: pb.GenerateRequest, body: Fields) -> None:
    if isinstance(body.raw("input"), str):
        request.messages.add(role=chat_pb2.ROLE_USER, content=body.needed("input"))
        return
    if "input" not in body:
        raise body.wrong("input", "a string or an array")
    for item in body.objects("input"):
        _take_item(request, item)


def _take_item(request: pb.GenerateRequest, item: Fields) -> None:
    match item.text("type") or "message":
        case "message":
            role = item.one_of("role", ROLES)
            if role is None:
                raise item.wrong("role", f"one of {', '.join(ROLES)}")
            put_content(request.messages.add(role=role), item)
        case "function_call":
            call = {name: item.needed(name) for name in ("name", "arguments")}
            _speaking(request).tool_calls.add(id=item.needed("call_id"), **call)
        case "function_call_output":
            result = request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id=item.needed("call_id"))
            put_content(result, item, "output")
        case "reasoning":
            pass  # what a model thought before is not for the next one to read
        case _:
            raise item.wrong("type", "one of message, function_call, function_call_output, reasoning")


def _speaking(request: pb.GenerateRequest) -> chat_pb2.Message:
    """The assistant's turn that calls are a part of."""
    if request.messages and request.messages[-1].role == chat_pb2.ROLE_ASSISTANT:
        return request.messages[-1]
    return request.messages.add(role=chat_pb2.ROLE_ASSISTANT)


def _take_sampling(request: pb.GenerateRequest, body: Fields) -> None:
    sampling = request.sampling
    take_sampling(request, body)
    if (most := body.whole("max_output_tokens")) is not None:
        sampling.max_tokens = most
    top = body.whole("top_logprobs")
    if top or _LOGPROBS in body.array("include"):
        sampling.top_logprobs = top or 0


def _take_tools(request: pb.GenerateRequest, body: Fields) -> None:
    for given in body.objects("tools"):
        if given.needed("type") != "function":
            raise given.wrong("type", "function")
        put_tool(request.tools.add(), given, "parameters")
    if isinstance(body.raw("tool_choice"), str):
        request.tool_choice.mode = body.one_of("tool_choice", MODES) or chat_pb2.TOOL_MODE_AUTO
    elif choice := body.object("tool_choice"):
        if choice.needed("type") != "function":
            raise InvalidInput(choice.at("type"), "function", choice.needed("type"))
        request.tool_choice.name = choice.needed("name")
    if (parallel := body.flag("parallel_tool_calls")) is not None:
        request.parallel_tool_calls = parallel


def _echo(body: Fields) -> dict[str, Any]:
    told = {name: default if body.raw(name) is None else body.raw(name) for name, default in _ECHOED.items()}
    if (text := body.object("text")) and (given := text.object("format")) and given.text("type") not in _OPENAIS:
        told["text"] = {**told["text"], **_ECHOED["text"]}  # its strict clients refuse a type that they do not know
    return {**told, "tools": [{**_TOOL, **tool} for tool in body.array("tools")], "store": False}
