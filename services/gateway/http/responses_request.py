"""Reading what OpenAI's Responses ask for.

What the gateway's own contract has no place for is left unread: a model behind the same API gets it in the caller's own
words, and one behind another refuses it by its place. Policies read the texts in it (`responses_items.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.chat_request import MODES, put_tool, take_form, take_sampling
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import TRUNCATIONS, RequestOptions, take_model, take_options
from services.gateway.http.responses_items import take_input
from services.runtime.errors import InvalidInput
from services.runtime.limits import LONG_MESSAGES

_KEPT = ("previous_response_id", "conversation", "background")  # what one provider alone knows, or goes on with
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


def read_response(
    body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = LONG_MESSAGES
) -> RequestOptions:
    """The order of a response. Raises `InvalidInput` and `ModelUnknown`."""
    order = RequestOptions(pb.GenerateRequest())
    request = order.request
    take_model(order, body, known)
    order.stream = bool(body.flag("stream"))
    body.object("stream_options")
    if instructions := body.text("instructions"):
        request.messages.add(role=chat_pb2.ROLE_SYSTEM, content=instructions)
    take_input(request, body, most_messages)
    _take_sampling(request, body)
    _take_tools(request, body)
    request.prompt.truncation = body.one_of("truncation", TRUNCATIONS) or pb.TRUNCATION_UNSPECIFIED
    text = body.object("text")
    take_form(request, body, text and text.object("format"))
    take_options(order, headers, body)
    _settle_kept(order, body)
    order.echo = _echo(body)
    return order


def _settle_kept(order: RequestOptions, body: Fields) -> None:
    """What goes on with something that a provider has kept is for that one alone, and no other request's answer."""
    for name in _KEPT:
        if not body.seen(name):
            continue
        if not order.request.model:
            raise InvalidInput(name, "none where the router chooses: name the model that knows it", order.model)
        order.request.single_attempt = True
        order.request.cache.bypass = True


def _take_sampling(request: pb.GenerateRequest, body: Fields) -> None:
    sampling = request.sampling
    take_sampling(request, body)
    if (most := body.whole("max_output_tokens")) is not None:
        sampling.max_tokens = most
    top, include = body.whole("top_logprobs"), body.seen("include")
    if not isinstance(include, list | None):
        raise body.wrong("include", "an array")
    if top or _LOGPROBS in (include or ()):
        sampling.top_logprobs = top or 0


def _take_tools(request: pb.GenerateRequest, body: Fields) -> None:
    """Functions; a provider's own tools are left to it, and so is a choice that is not of functions."""
    for given in body.objects("tools"):
        kind = given.seen("type")
        if not isinstance(kind, str):
            raise given.wrong("type", "a string")
        if kind == "function":
            given.needed("type")
            put_tool(request, given, "parameters")
    _take_choice(request, body)
    if not request.tools:
        if not isinstance(body.seen("parallel_tool_calls"), bool | None):
            raise body.wrong("parallel_tool_calls", "true or false")
    elif (parallel := body.flag("parallel_tool_calls")) is not None:
        request.parallel_tool_calls = parallel


def _take_choice(request: pb.GenerateRequest, body: Fields) -> None:
    choice = body.seen("tool_choice")
    if isinstance(choice, str) and choice in MODES:
        if request.tools:
            request.tool_choice.mode = body.one_of("tool_choice", MODES) or chat_pb2.TOOL_MODE_AUTO
    elif isinstance(choice, dict) and isinstance(choice.get("type"), str):
        if request.tools and choice["type"] == "function" and (named := body.object("tool_choice")):
            named.needed("type")
            request.tool_choice.name = named.needed("name")
    elif choice is not None:
        raise body.wrong("tool_choice", f"one of {', '.join(MODES)}, or an object with a type")


def _echo(body: Fields) -> dict[str, Any]:
    told = {name: default if body.seen(name) is None else body.seen(name) for name, default in _ECHOED.items()}
    if (text := body.object("text")) and (given := text.object("format")) and given.text("type") not in _OPENAIS:
        told["text"] = {**told["text"], **_ECHOED["text"]}  # its strict clients refuse a type that they do not know
    return {**told, "tools": [{**_TOOL, **tool} for tool in body.array("tools")], "store": False}
