"""Reads requests of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.messages import NO_TEXT
from services.gateway.http.dialects.chat_request import leave_choice_of_left, put_tool, take_form
from services.gateway.http.dialects.parts import leave_part, note_documents
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_model, take_options
from services.runtime.errors import InvalidInput
from services.runtime.limits import LONG_MESSAGES, STOPS
from services.runtime.strict_json import compact

_ROLES = {"user": chat_pb2.ROLE_USER, "assistant": chat_pb2.ROLE_ASSISTANT, "system": chat_pb2.ROLE_SYSTEM}
_ROLE_NAMES = {role: name for name, role in _ROLES.items()}
_OF_ROLES = {  # kinds of blocks that only one role may have
    "image": chat_pb2.ROLE_USER,
    "tool_result": chat_pb2.ROLE_USER,
    "tool_use": chat_pb2.ROLE_ASSISTANT,
}
_MODES = {
    "auto": chat_pb2.TOOL_MODE_AUTO,
    "any": chat_pb2.TOOL_MODE_REQUIRED,
    "none": chat_pb2.TOOL_MODE_NONE,
    "tool": chat_pb2.TOOL_MODE_UNSPECIFIED,  # a tool by its name
}
_EARLIER_FORM = "output_format"  # of the beta, which is accepted still
_FAILED = "Error: "
_THOUGHTS = ("thinking", "redacted_thinking")  # which other models do not read


def read_messages(
    body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = LONG_MESSAGES
) -> RequestOptions:
    """The options of a request. Raises `InvalidInput` and `ModelUnknown`."""
    if "thread" in body:  # another tenant could continue a thread that the provider keeps
        raise InvalidInput("thread", "none: each request brings its whole conversation", "one")
    order = read_prompt(body, known, most_messages)
    request, sampling = order.request, order.request.sampling
    order.stream = bool(body.flag("stream"))
    most = body.whole("max_tokens")
    if most is None:
        raise body.wrong("max_tokens", "a whole number")
    sampling.max_tokens = most
    if (temperature := body.number("temperature")) is not None:
        sampling.temperature = temperature
    if (top_p := body.number("top_p")) is not None:
        sampling.top_p = top_p
    if (top_k := body.whole("top_k")) is not None:
        sampling.top_k = top_k
    if "stop_sequences" in body:
        sampling.stop.extend(body.texts("stop_sequences", STOPS))
    _take_prefix(request, body)
    output = body.object("output_config")
    take_form(request, body, (output and output.object("format")) or body.object(_EARLIER_FORM))
    take_options(order, headers, body)
    return order


def _take_prefix(request: pb.GenerateRequest, body: Fields) -> None:
    """An assistant's turn at the end is the answer's prefix. If it has the provider's own blocks, it is a turn that the
    provider has paused; then a placeholder for the user's turn follows it. The same placeholder follows a system
    message at the end that has no question before it: only a provider of this API may receive it."""
    last = request.messages[-1] if request.messages else chat_pb2.Message()
    if last.role == chat_pb2.ROLE_SYSTEM and (given := body.objects("messages")):
        if not _put_before_question(request):
            given[-1].leave()
            request.messages.add(role=chat_pb2.ROLE_USER, content=NO_TEXT)
        return
    if last.role != chat_pb2.ROLE_ASSISTANT:
        return
    if any(place.startswith(f"messages[{len(body.array('messages')) - 1}].") for place in body.left()):
        request.messages.add(role=chat_pb2.ROLE_USER, content="[pause_turn]")
    elif not last.tool_calls:
        request.prefix = request.messages.pop().content


def _put_before_question(request: pb.GenerateRequest) -> bool:
    """Move system messages at the end before the user's last message: other APIs require a question at the end."""
    late = len([*takewhile(lambda each: each.role == chat_pb2.ROLE_SYSTEM, reversed(request.messages))])
    asked, added = [*request.messages[:-late]], [*request.messages[-late:]]
    if not asked or asked[-1].role == chat_pb2.ROLE_ASSISTANT:
        return False
    at = max((index for index, each in enumerate(asked) if each.role == chat_pb2.ROLE_USER), default=0)
    del request.messages[:]
    request.messages.extend([*asked[:at], *added, *asked[at:]])
    return True


def read_prompt(body: Fields, known: Collection[str], most_messages: int = LONG_MESSAGES) -> RequestOptions:
    """The parts of a request that a model reads, and whose tokens are counted."""
    order = RequestOptions(pb.GenerateRequest())
    take_model(order, body, known)
    request = order.request
    if "system" in body:
        text = _text_alone(body, "system")
        if text:
            request.messages.add(role=chat_pb2.ROLE_SYSTEM, content=text)
    for given in body.objects("messages", most_messages):
        _take_message(request, given)
    _take_tools(request, body)
    return order


def _take_message(request: pb.GenerateRequest, given: Fields) -> None:
    role = given.one_of("role", _ROLES)
    if role is None:
        raise given.wrong("role", "one of user, assistant")
    if not isinstance(given.raw("content"), list):
        request.messages.add(role=role, content=given.needed("content"))
        return
    message, before = chat_pb2.Message(role=role), len(request.messages)
    read = list[Fields]()  # blocks of the message's parts
    for block in given.objects("content"):
        _take_block(request, message, block)
        read += [block] * (len(message.parts) - len(read))
    note_documents(message, message.parts, read)
    if all(part.WhichOneof("kind") == "text" for part in message.parts):
        message.content = "".join(part.text for part in message.parts)
        del message.parts[:]
    if message.content or message.parts or message.tool_calls:
        request.messages.append(message)
    elif role == chat_pb2.ROLE_USER and len(request.messages) == before:  # and no results of tools
        raise InvalidInput(given.at("content"), "text that is not blank", "none")


def _take_block(request: pb.GenerateRequest, message: chat_pb2.Message, block: Fields) -> None:
    """Tool results come before the text of the same message, each as a message of its own."""
    kind = block.needed("type")
    if kind in _OF_ROLES and message.role != _OF_ROLES[kind]:
        raise block.wrong("type", f"in a message of role {_ROLE_NAMES[_OF_ROLES[kind]]} alone")
    match kind:
        case "text":
            message.parts.add(text=block.needed("text"))
        case "image" if not _is_elsewhere(block):
            message.parts.add(image=_picture(block))
        case "tool_use":
            call = compact(block.raw("input") or {}).decode()
            message.tool_calls.add(id=block.needed("id"), name=block.needed("name"), arguments=call)
        case "tool_result":
            _take_result(request, block)
        case _ if kind not in _THOUGHTS:
            message.parts.add(text=leave_part(block, kind))


def _take_result(request: pb.GenerateRequest, block: Fields) -> None:
    result = request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id=block.needed("tool_use_id"))
    listed = isinstance(block.raw("content"), list)
    blocks = block.objects("content") if listed else []
    first = _FAILED if block.flag("is_error") else ""  # which other APIs lack
    first += "" if listed else block.text("content") or ""
    texts = [chat_pb2.Part(text=text) for text in (first, *map(_text, blocks))]
    note_documents(result, texts, [block, *blocks])
    result.content = "".join(part.text for part in texts)


def _is_elsewhere(block: Fields) -> bool:
    """Whether a picture is a URL, or a file at the provider."""
    source = block.object("source")
    return source is not None and source.needed("type") != "base64"


def _picture(block: Fields) -> bytes:
    source = block.object("source")
    if source is None:
        raise block.wrong("source", "an object")
    source.text("media_type")  # unused: each engine detects the type
    return source.base64("data")


def _text_alone(given: Fields, name: str) -> str:
    """A string, or blocks of text. Other blocks are left for a provider."""
    return "".join(map(_text, given.objects(name))) if isinstance(given.raw(name), list) else given.text(name) or ""


def _text(block: Fields) -> str:
    kind = block.needed("type")
    return block.needed("text") if kind == "text" else leave_part(block, kind)


def _take_tools(request: pb.GenerateRequest, body: Fields) -> None:
    for given in body.objects("tools"):
        if (given.text("type") or "custom") == "custom":
            put_tool(request, given, "input_schema")
        else:
            given.leave()
    choice = body.object("tool_choice")
    if choice is None:
        return
    mode = choice.one_of("type", _MODES)
    if mode is None:
        raise InvalidInput(choice.at("type"), f"one of {', '.join(_MODES)}", "null")
    if mode == chat_pb2.TOOL_MODE_UNSPECIFIED:
        request.tool_choice.name = choice.needed("name")
    else:
        request.tool_choice.mode = mode
    if choice.flag("disable_parallel_tool_use"):
        request.parallel_tool_calls = False
    leave_choice_of_left(request, body)
