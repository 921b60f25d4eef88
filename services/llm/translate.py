"""proto ↔ domain: what an engine is asked, and what it answers."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.engine import (
    Chunk,
    Constraint,
    Feature,
    Finish,
    FinishReason,
    Message,
    Original,
    Part,
    Request,
    Sampling,
    TokenLogprob,
    Tool,
    ToolCall,
    ToolChoice,
)
from services.llm.relayed_usage import without_cache
from services.runtime.errors import InvalidInput

_SINGLE, _DIGITS = struct.Struct("<f"), 9  # of the contract's numbers; 9 digits distinguish any two
_ROLES: dict[int, Literal["system", "user", "assistant", "tool"]] = {
    chat_pb2.ROLE_SYSTEM: "system",
    chat_pb2.ROLE_USER: "user",
    chat_pb2.ROLE_ASSISTANT: "assistant",
    chat_pb2.ROLE_TOOL: "tool",
}
_MODES: dict[int, Literal["auto", "none", "required"]] = {
    chat_pb2.TOOL_MODE_UNSPECIFIED: "auto",
    chat_pb2.TOOL_MODE_AUTO: "auto",
    chat_pb2.TOOL_MODE_NONE: "none",
    chat_pb2.TOOL_MODE_REQUIRED: "required",
}
_APIS = {number: name.removeprefix("API_").lower() for name, number in chat_pb2.Api.items() if number}
_REASONS: dict[FinishReason, Any] = {
    reason: chat_pb2.FinishReason.Value(f"FINISH_REASON_{reason.name}") for reason in FinishReason
}
# A beginning that a model continues has a field of its own.
FEATURES: dict[Feature, Any] = {
    each: llm_pb2.Feature.Value(f"FEATURE_{each.name}") for each in Feature if each is not Feature.PREFIX
}
# Fields of a model's `generation_config`.
DEFAULTS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
)


def to_request(request: llm_pb2.GenerateRequest, tenant: str = "") -> Request:
    """The engine's request. Raises InvalidInput for a role, a part or a mode that is none."""
    original = _to_original(request) if request.HasField("original") else None
    return Request(
        messages=to_messages(request.messages, original.untranslated if original else {}),
        sampling=_to_sampling(request.sampling),
        constraint=_to_constraint(request.response_format),
        prefix=request.prefix,
        cache_salt=request.cache_salt,
        tenant=tenant,
        tools=to_tools(request.tools),
        tool_choice=_to_tool_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls if request.HasField("parallel_tool_calls") else True,
        original=original,
        most_tokens=request.most_tokens,
        omits=request.omit_untranslated,
    )


def _to_original(request: llm_pb2.GenerateRequest) -> Original:
    original = request.original
    if original.api not in _APIS:
        raise InvalidInput("original.api", f"one of {', '.join(_APIS.values())}", original.api)
    documents = frozenset(document.place for message in request.messages for document in message.documents)
    headers, untranslated = dict(original.headers), dict(original.untranslated)
    return Original(_APIS[original.api], original.body, headers, untranslated, documents)


def to_tools(tools: Iterable[chat_pb2.Tool]) -> tuple[Tool, ...]:
    """The tools that may be called."""
    return tuple(Tool(tool.name, tool.description, tool.parameters, tool.strict) for tool in tools)


def to_messages(messages: Iterable[chat_pb2.Message], untranslated: Mapping[str, str] = {}) -> tuple[Message, ...]:
    """The messages, with the documents among the fields that their caller has for another API."""
    return tuple(_to_message(f"messages[{index}]", message, untranslated) for index, message in enumerate(messages))


def _to_message(where: str, message: chat_pb2.Message, untranslated: Mapping[str, str]) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidInput(f"{where}.role", "system, user, assistant or tool", message.role)
    if message.content and message.parts:
        raise InvalidInput(f"{where}.parts", "none together with content", len(message.parts))
    content, parts, calls = message.content, tuple[Part, ...](), tuple[ToolCall, ...]()
    if message.parts:
        parts = tuple(_to_part(f"{where}.parts[{index}]", part) for index, part in enumerate(message.parts))
        if all(part.kind == "text" for part in parts):
            content, parts = content or "".join(part.text for part in parts), ()
    if documents := [each for each in message.documents if each.place in untranslated]:
        texts = parts or (Part("text", content),)
        content, parts = "", tuple(_with_documents(texts, documents, untranslated))
    if message.tool_calls:
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls)
    return Message(role, content, parts, calls, message.tool_call_id)


def _with_documents(
    parts: Iterable[Part], documents: Sequence[chat_pb2.Document], untranslated: Mapping[str, str]
) -> Iterator[Part]:
    """The parts, with the documents in the place of the characters that stand for them, if any do. These are counted in
    all texts of the message together."""
    begin, waiting = 0, deque(documents)
    for part in parts:
        if part.kind != "text":
            yield part
            continue
        at, end = begin, begin + len(part.text)
        while waiting and waiting[0].begin < end:
            document = waiting.popleft()
            yield from _text(part.text[at - begin : document.begin - begin])
            yield _document(document, untranslated)
            at = document.end
        yield from _text(part.text[at - begin :])
        begin = end
    yield from (_document(each, untranslated) for each in waiting)  # behind all texts


def _document(document: chat_pb2.Document, untranslated: Mapping[str, str]) -> Part:
    return Part("document", place=document.place, given=untranslated[document.place])


def _text(text: str) -> Iterator[Part]:
    if text:
        yield Part("text", text)


def _to_part(where: str, part: chat_pb2.Part) -> Part:
    match part.WhichOneof("kind"):
        case "text":
            return Part("text", text=part.text)
        case "image":
            return Part("image", data=part.image)
        case "audio":
            return Part("audio", data=part.audio)
    raise InvalidInput(where, "text, image or audio", "nothing")


def _to_sampling(sampling: chat_pb2.Sampling) -> Sampling:
    said: dict[str, Any] = {
        field.name: _as_written(value) if isinstance(value, float) else value for field, value in sampling.ListFields()
    }
    said |= {
        "stop": tuple(sampling.stop),
        "logit_bias": tuple((bias.token, _as_written(bias.bias)) for bias in sampling.logit_bias),
        "stop_token_ids": tuple(sampling.stop_token_ids),
    }
    return Sampling(**said)


def _as_written(number: float) -> float:
    """The shortest decimal number that is `number` in the contract's single precision: 0.3 and not 0.30000001192…"""
    packed = _SINGLE.pack(number)
    digits = (float(f"{number:.{digits}g}") for digits in range(1, _DIGITS))
    return next((shorter for shorter in digits if _packs_as(shorter, packed)), number)


def _packs_as(number: float, packed: bytes) -> bool:
    try:
        return _SINGLE.pack(number) == packed
    except OverflowError:  # rounded beyond the largest
        return False


def from_sampling(sampling: Sampling) -> chat_pb2.Sampling:
    """The numbers of a model's defaults."""
    return chat_pb2.Sampling(**{name: getattr(sampling, name) for name in DEFAULTS})


def _to_constraint(response_format: chat_pb2.ResponseFormat) -> Constraint | None:
    match response_format.WhichOneof("constraint"):
        case "json_schema":
            return Constraint("json_schema", response_format.json_schema)
        case "regex":
            return Constraint("regex", response_format.regex)
        case "json_object" if response_format.json_object:
            return Constraint("json_object")
        case "choice":
            return Constraint("choice", json.dumps(list(response_format.choice.values), ensure_ascii=False))
        case "grammar":
            return Constraint("grammar", response_format.grammar)
    return None


def _to_tool_choice(choice: chat_pb2.ToolChoice) -> ToolChoice:
    if choice.WhichOneof("choice") == "name":
        return ToolChoice("named", choice.name)
    if choice.mode not in _MODES:
        raise InvalidInput("tool_choice.mode", "auto, none or required", choice.mode)
    return ToolChoice(_MODES[choice.mode])


def to_response(chunk: Chunk, *, report_cached: bool = True) -> llm_pb2.GenerateResponse:
    """A message of the stream. The count of cached prompt tokens is only for billing if the cache may hold other
    tenants' prompts."""
    finish, relayed = _to_finish(chunk.finish) if chunk.finish else None, chunk.relayed
    if finish and not report_cached:
        finish.usage.cached_prompt_tokens = finish.usage.cache_write_tokens = 0
    if not report_cached:
        relayed = tuple(map(without_cache, relayed))
    return llm_pb2.GenerateResponse(
        text=chunk.text,
        tokens=chunk.tokens,
        finish=finish,
        tool_calls=[chat_pb2.ToolCallDelta(**asdict(delta)) for delta in chunk.tool_calls],
        reasoning=chunk.reasoning,
        logprobs=[_to_logprob(logprob) for logprob in chunk.logprobs],
        relayed=[event.encode() for event in relayed],
    )


def _to_logprob(logprob: TokenLogprob) -> chat_pb2.TokenLogprob:
    top = [_to_logprob(likely) for likely in logprob.top]
    return chat_pb2.TokenLogprob(token=logprob.token, bytes=logprob.bytes, logprob=logprob.logprob, top=top)


def _to_finish(finish: Finish) -> llm_pb2.Finish:
    return llm_pb2.Finish(
        reason=_REASONS[finish.reason],
        usage=chat_pb2.Usage(**asdict(finish.usage)),
        queue_ms=finish.queue_ms,
        billed_cached_tokens=finish.usage.cached_prompt_tokens,
        billed_cache_write_tokens=finish.usage.cache_write_tokens,
    )
