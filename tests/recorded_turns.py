"""Turns of a conversation with a tool, event by event as the providers of both APIs stream them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.recording_provider import Events

SIGNATURE = "EqQBCgIYAhIkMTIz" * 8
_USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 2_048,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 2_048},
    "service_tier": "standard",
    "inference_geo": "not_available",
    "server_tool_use": None,
    "output_tokens_details": None,
    "output_tokens": 1,
}


def _message(reason: str, *blocks: tuple[Mapping[str, Any], list[Mapping[str, Any]]]) -> Events:
    """A message of blocks: each as it starts, and what is added to it."""

    def events() -> Iterator[Mapping[str, Any]]:
        same = {"type": "message", "role": "assistant", "model": "claude-x-20260101", "stop_details": None}
        started = {"id": f"msg_{reason}", **same, "content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": {**started, "container": None, "usage": _USAGE}}
        yield {"type": "ping"}
        for index, (block, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            yield {"type": "content_block_stop", "index": index}
        usage = {**_USAGE, "output_tokens": 89, "output_tokens_details": {"thinking_tokens": 20}}
        delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": None, "container": None}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}

    return tuple(events())


_THOUGHT = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        {"type": "thinking_delta", "thinking": "Tokyo, so I need"},
        {"type": "thinking_delta", "thinking": " the tool.\n"},
        {"type": "signature_delta", "signature": SIGNATURE},
    ],
)
_USE = (
    {"type": "tool_use", "id": "toolu_01A", "name": "weather", "input": {}, "caller": {"type": "direct"}},
    [{"type": "input_json_delta", "partial_json": part} for part in ("", '{"city": "T', "oky", 'o"}')],
)
_SAID = (
    {"type": "text", "text": "", "citations": None},
    [{"type": "text_delta", "text": "21 °C"}, {"type": "text_delta", "text": ", 晴れ."}],
)
MESSAGES: tuple[Events, Events] = (_message("tool_use", _THOUGHT, _USE), _message("end_turn", _SAID))


def _chat(reason: str, *deltas: Mapping[str, Any]) -> Events:
    same = {"id": f"chatcmpl-{reason}", "object": "chat.completion.chunk", "created": 1_767_000_000}
    same |= {"model": "gpt-x-2026-01-01", "service_tier": "default", "system_fingerprint": "fp_1"}
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason})
    usage = {
        "prompt_tokens": 80,
        "completion_tokens": 30,
        "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 20,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    chunks = [{**same, "choices": [choice], "usage": None, "obfuscation": "aB3"} for choice in choices]
    return *chunks, {**same, "choices": [], "usage": usage, "obfuscation": "x"}


def _call(**function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": function}]}


_BEGUN = {"index": 0, "id": "call_01A", "type": "function", "function": {"name": "weather", "arguments": ""}}
CHATS: tuple[Events, Events] = (
    _chat(
        "tool_calls",
        {"role": "assistant", "content": None, "tool_calls": [_BEGUN], "refusal": None},
        *(_call(arguments=part) for part in ('{"city"', ':"Tok', 'yo"}')),
    ),
    _chat("stop", {"role": "assistant", "content": "", "refusal": None}, {"content": '{"c": '}, {"content": "21}"}),
)
