"""Reads requests of OpenAI's Responses API.

Items and fields without a counterpart in the proto are not read: a model of the same API gets them unchanged, a model
of another API refuses them by their place. Policies, such as the guard, read their texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.messages import NO_TEXT
from services.gateway.http.dialects.chat_request import MODES, ROLES, put_tool, take_form, take_sampling
from services.gateway.http.dialects.parts import is_inline, note_documents, read_part, settle_blank
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import TRUNCATIONS, RequestOptions, take_model, take_options
from services.runtime.errors import InvalidInput
from services.runtime.limits import LONG_MESSAGES
from services.runtime.strict_json import compact

_TEXTS = ("input_text", "output_text", "text", "refusal")
_MEDIA = {  # parts besides text, by roles
    chat_pb2.ROLE_USER: ("input_audio", "input_file", "input_image"),
    chat_pb2.ROLE_TOOL: ("input_file", "input_image"),
}
_REASONING = "reasoning"
# Fields without prose: names, addresses and encoded data.
_FIELDS_WITHOUT_PROSE = frozenset(
    {
        "call_id",
        "detail",
        "encrypted_content",
        "file_data",
        "file_id",
        "file_url",
        "id",
        "image_url",
        "result",
        "role",
        "status",
        "type",
    }
)
_LONGEST_WORD = 1_024  # characters; a longer text that begins with so many without a blank is data
_PROVIDER_STATE = ("previous_response_id", "conversation", "background")  # continue or create state at one provider
_INSTEAD_OF_INPUT = ("prompt", "previous_response_id", "conversation")  # a request with one of these needs no `input`
# Fields of the request that the answer repeats, with the defaults that clients expect.
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
    "tools": [],
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_MOST_ECHOED = 262_144  # bytes of JSON besides texts: the event loop writes them several times
_OPENAI_FORMATS = ("text", "json_object", "json_schema")  # of formats
_TOOL_DEFAULTS: Mapping[str, Any] = {"description": None, "parameters": None, "strict": False}
_LOGPROBS = "message.output_text.logprobs"


def take_input(request: pb.GenerateRequest, body: Fields, most_messages: int) -> None:
    """Add the messages of `input`, `most_messages` at most. Raises `InvalidInput`."""
    if isinstance(text := body.seen("input"), str):
        request.messages.add(role=chat_pb2.ROLE_USER, content=body.needed("input") if text.strip() else NO_TEXT)
        return
    if "input" not in body and not any(name in body for name in _INSTEAD_OF_INPUT):
        raise body.wrong("input", "a string or an array")
    items = body.objects("input")
    not_reasoning = [index for index, item in enumerate(items) if item.seen("type") != _REASONING]
    call_ids = set[str]()
    for index, item in enumerate(items):
        if len(request.messages) > most_messages:
            raise InvalidInput("messages", f"at most {most_messages}", f"{len(items)} items")
        last = bool(not_reasoning) and index == not_reasoning[-1]
        if not _take_item(request, item, call_ids, last=last):
            _add_prose(request, item)
    if not not_reasoning:
        request.messages.add(role=chat_pb2.ROLE_USER, content=NO_TEXT)  # the provider has the conversation


def _take_item(request: pb.GenerateRequest, item: Fields, call_ids: set[str], *, last: bool) -> bool:
    """Add the message of an item; False if the proto has none for it. `last`: the conversation's last item, which must
    be a user's message or a tool's result. `call_ids` are those of the calls so far."""
    kind = item.seen("type")
    if kind is None or kind == "message":
        return _take_message(request, item, last=last)
    if kind == "function_call" and not last:
        item.needed("type")
        call = {name: item.needed(name) for name in ("name", "arguments")}
        _assistant_turn(request).tool_calls.add(id=item.needed("call_id"), **call)
        call_ids.add(item.needed("call_id"))
        return True
    if kind == "function_call_output" and _call_of(item) in call_ids:
        item.needed("type")
        result = request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id=item.needed("call_id"))
        _put_content(result, item, "output")
        return True
    if kind == _REASONING:
        item.needed("type")  # models of other APIs do not read it
        return True
    if not isinstance(kind, str):
        raise item.wrong("type", "a string")
    return False


def _call_of(item: Fields) -> str:
    if not isinstance(call_id := item.seen("call_id"), str):
        raise item.wrong("call_id", "a string")
    return call_id


def _take_message(request: pb.GenerateRequest, item: Fields, *, last: bool) -> bool:
    role = item.seen("role")
    if not isinstance(role, str) or role not in ROLES:
        raise item.wrong("role", f"one of {', '.join(ROLES)}")
    if last and ROLES[role] != chat_pb2.ROLE_USER:
        return False
    item.text("type")
    _put_content(request.messages.add(role=item.one_of("role", ROLES) or chat_pb2.ROLE_USER), item, "content")
    settle_blank(request, item)
    return True


def _put_content(message: chat_pb2.Message, given: Fields, name: str) -> None:
    """Put a text or parts into the message. Text parts alone become one text. Parts without a counterpart are not read;
    a message of such parts alone gets their prose."""
    if not isinstance(given.seen(name), list):
        message.content = given.text(name) or ""
        return
    given_parts = given.objects(name)
    read = [part for part in given_parts if _is_read(part, message.role)]
    has_text = any(part.seen("type") in _TEXTS for part in given_parts)
    parts = [_read(part, message.role, has_text=has_text) for part in read]
    note_documents(message, parts, read)
    if given_parts and not parts:
        message.content = "\n".join(map(_prose, given_parts))
    elif all(part.WhichOneof("kind") == "text" for part in parts):
        message.content = "".join(part.text for part in parts)
    else:
        message.parts.extend(parts)


def _is_read(part: Fields, role: chat_pb2.Role) -> bool:
    kind = part.seen("type")
    if not isinstance(kind, str):
        raise part.wrong("type", "a string")
    return kind in _TEXTS or kind in _MEDIA.get(role, ())


def _read(part: Fields, role: chat_pb2.Role, *, has_text: bool) -> chat_pb2.Part:
    """The part for the proto. A picture that only providers read becomes an empty text if `has_text`, so that a guard
    checks the caller's own texts alone."""
    is_user = role == chat_pb2.ROLE_USER
    if has_text and part.seen("type") == "input_image" and not (is_user and is_inline(part)):
        return chat_pb2.Part(text="")
    return read_part(part, media=is_user)


def _add_prose(request: pb.GenerateRequest, item: Fields) -> None:
    """Add a message with the prose of an item without a counterpart, for policies. No model gets it."""
    request.messages.add(role=chat_pb2.ROLE_USER, content=_prose(item))


def _prose(given: Fields) -> str:
    return "\n".join(text for name in given for text in _prose_texts(name, given.seen(name))) or NO_TEXT


def _prose_texts(name: str, given: Any) -> Iterator[str]:
    if name in _FIELDS_WITHOUT_PROSE:
        return
    if isinstance(given, str):
        if given.strip() and (len(given) <= _LONGEST_WORD or " " in given[:_LONGEST_WORD]):
            yield given
    elif isinstance(given, dict):
        for inner, value in given.items():
            yield from _prose_texts(inner, value)
    elif isinstance(given, list):
        for value in given:
            yield from _prose_texts("", value)


def _assistant_turn(request: pb.GenerateRequest) -> chat_pb2.Message:
    """The assistant's last turn, to which calls are added."""
    if request.messages and request.messages[-1].role == chat_pb2.ROLE_ASSISTANT:
        return request.messages[-1]
    return request.messages.add(role=chat_pb2.ROLE_ASSISTANT)


def read_response(
    body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = LONG_MESSAGES
) -> RequestOptions:
    """The request with its options. Raises `InvalidInput` and `ModelUnknown`."""
    order = RequestOptions(pb.GenerateRequest())
    request = order.request
    take_model(order, body, known)
    order.stream = bool(body.flag("stream"))
    if (reasoning := body.object("reasoning")) and "effort" in reasoning:
        reasoning.raw("summary")  # other APIs have the effort alone
    if instructions := body.text("instructions"):
        request.messages.add(role=chat_pb2.ROLE_SYSTEM, content=instructions)
    take_input(request, body, most_messages)
    _take_sampling(request, body)
    _take_tools(request, body)
    request.prompt.truncation = body.one_of("truncation", TRUNCATIONS) or pb.TRUNCATION_UNSPECIFIED
    text = body.object("text")
    take_form(request, body, text and text.object("format"))
    take_options(order, headers, body)
    _require_one_provider(order, body)
    order.echo = _echo(body)
    return order


def _require_one_provider(order: RequestOptions, body: Fields) -> None:
    """Send a request that uses state at a provider to that provider once, and share no answer."""
    for name in _PROVIDER_STATE:
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
    """Add functions; the provider alone reads its own tools, and a choice that is not of functions."""
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
    """The fields that the answer repeats; defaults in place of objects and arrays beyond `_MOST_ECHOED`."""
    fields, left = dict[str, Any](), _MOST_ECHOED
    for name, default in _ECHOED.items():
        given = default if body.seen(name) is None else body.seen(name)
        size = len(compact(given)) if isinstance(given, dict | list) else 0
        fields[name], left = (given, left - size) if size <= left else (default, left)
    if (text := body.object("text")) and (given := text.object("format")) and given.text("type") not in _OPENAI_FORMATS:
        fields["text"] = {**fields["text"], **_ECHOED["text"]}  # its strict clients refuse a type that they do not know
    return {**fields, "tools": [{**_TOOL_DEFAULTS, **tool} for tool in fields["tools"]], "store": False}
