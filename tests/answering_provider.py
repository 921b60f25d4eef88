"""A provider of each API, for clients with their own tools and response formats: answers whole or event by event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests import recorded_response as responses

Json = Mapping[str, Any]
TOOL, TEXT, FORM = "weather", "21 °C,  晴れ.", '{"city": "Tokyo"}'
SIGNATURE = "EqQBCgIYAhIkMTIz" * 8
_RESULTS = ("tool", "tool_result", "function_call_output")
_MADE = 1_767_000_000


@dataclass(frozen=True, slots=True)
class _Turn:
    """The call of a tool, or a text."""

    tool: str = ""
    text: str = ""


def answered(path: str, body: Json) -> Json | Sequence[Json]:
    """The answer in one piece, or the events of a stream, to a request by the path of one of the three APIs. `TOOL` is
    called once, and every other tool in place of an answer; all of them with `FORM`."""
    turn = _turn(body)
    match path.rpartition("/")[2]:
        case "messages":
            message = _message(turn, thinks=body.get("thinking", {}).get("type") == "enabled")
            return [*_message_events(message)] if body.get("stream") else message
        case "responses":
            return _response_events(turn) if body.get("stream") else _response_events(turn)[-1]["response"]
    completion = _completion(turn)
    usage = (body.get("stream_options") or {}).get("include_usage", False)
    return [*_chunks(completion, usage=usage)] if body.get("stream") else completion


def _turn(body: Json) -> _Turn:
    names = [(tool.get("function") or tool).get("name") for tool in body.get("tools") or ()]
    last = (body.get("messages") or body["input"])[-1]
    if TOOL in names and not _is_result(last):
        return _Turn(tool=TOOL)
    if others := [name for name in names if name != TOOL]:
        return _Turn(tool=others[0])
    forms = [body.get("response_format"), *((body.get(each) or {}).get("format") for each in ("output_config", "text"))]
    formed = any(form and form["type"] != "text" for form in forms)
    return _Turn(text=FORM if formed or "json" in json.dumps(body).lower() else TEXT)


def _is_result(item: Any) -> bool:
    """Whether a conversation ends with what a tool has returned."""
    if not isinstance(item, dict):
        return False
    parts = item.get("content")
    inner = parts if isinstance(parts, list) else []
    return {item.get("role"), item.get("type")} & {*_RESULTS} != set() or any(map(_is_result, inner))


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + 5] for at in range(0, len(text), 5))


def _completion(turn: _Turn) -> Json:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None, "annotations": []}
    if turn.tool:
        function = {"name": turn.tool, "arguments": FORM}
        message["tool_calls"] = [{"id": f"call_{turn.tool}", "type": "function", "function": function}]
    reason = "tool_calls" if turn.tool else "stop"
    details = {"reasoning_tokens": 20, "audio_tokens": 0}
    details |= {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    usage: dict[str, Any] = {"prompt_tokens": 80, "completion_tokens": 30, "total_tokens": 110}
    usage |= {"prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0}, "completion_tokens_details": details}
    return {
        **{"id": f"chatcmpl-{reason}", "object": "chat.completion", "created": _MADE, "model": "gpt-x-2026-01-01"},
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": usage,
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }


def _chunks(completion: Json, *, usage: bool) -> Iterator[Json]:
    (choice,) = completion["choices"]
    said = choice["message"]
    deltas: list[Json] = [{"content": piece} for piece in _pieces(said["content"] or "")]
    begun: dict[str, Any] = {"role": "assistant", "content": "" if deltas else None, "refusal": None}
    for call in said.get("tool_calls", ()):
        begun["tool_calls"] = [{"index": 0, **call, "function": {**call["function"], "arguments": ""}}]
        pieces = _pieces(call["function"]["arguments"])
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    same = {name: given for name, given in completion.items() if name != "usage"}
    same |= {"object": "chat.completion.chunk"} | ({"usage": None} if usage else {})
    for delta in (begun, *deltas):
        yield {**same, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    yield {**same, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}]}
    if usage:
        yield {**same, "choices": [], "usage": completion["usage"]}


def _message(turn: _Turn, *, thinks: bool) -> Json:
    said: Json = {"type": "text", "text": turn.text, "citations": None}
    if turn.tool:
        called = {"id": f"toolu_{turn.tool}", "name": turn.tool, "input": json.loads(FORM)}
        said = {"type": "tool_use", **called, "caller": {"type": "direct"}}
    thought = {"type": "thinking", "thinking": "Tokyo, so\n", "signature": SIGNATURE}
    usage: dict[str, Any] = {"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2_048}
    usage |= {"output_tokens": 89, "service_tier": "standard"}
    return {
        **{"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-x-20260101"},
        "content": [thought, said] if thinks else [said],
        **{"stop_reason": "tool_use" if turn.tool else "end_turn", "stop_sequence": None},
        "usage": usage,
    }


def _message_events(message: Json) -> Iterator[Json]:
    usage = message["usage"]
    ended = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    started = {**message, "content": [], "usage": {**usage, "output_tokens": 1}, **dict.fromkeys(ended)}
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(message["content"]):
        begun, deltas = _split_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield {"type": "ping"}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield {"type": "message_stop"}


def _split_block(block: Json) -> tuple[Json, Iterable[Json]]:
    match block["type"]:
        case "tool_use":
            pieces = ["", *_pieces(json.dumps(block["input"]))]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": each} for each in pieces]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": each} for each in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
    return {**block, "text": ""}, [{"type": "text_delta", "text": each} for each in _pieces(block["text"])]


def _response_events(turn: _Turn) -> Sequence[Json]:
    item, steps = responses.message(turn.text), responses.said(*_pieces(turn.text), index=1)
    if turn.tool:
        item = {**responses.CALL, "name": turn.tool, "arguments": FORM}
        steps = responses.called(1, item)
    ended = responses.ended([responses.THOUGHT, item])
    return responses.numbered([*responses.begun(), *responses.thought(), *steps, ended])
