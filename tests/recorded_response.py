"""Events of responses as OpenAI's API sends them, with fields that the gateway's own contract does not have.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]
ID = "resp_68a1f0"
USAGE: Event = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 21,
}
CALL: Event = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Tokyo"}',
    "status": "completed",
}
THOUGHT: Event = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Japan, so Tokyo."}],
    "encrypted_content": "gAAAAABo",
}


def response(status: str, output: Iterable[Event] = (), **more: Any) -> dict[str, Any]:
    """The object that events have at the beginning and at the end."""
    ended = status != "in_progress"
    return {
        "id": ID,
        "object": "response",
        "created_at": 1_750_000_000,
        "status": status,
        "background": False,
        "billing": {"payer": "developer"},
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "gpt-x-2026-01-01",
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": None,
        "service_tier": "default" if ended else "auto",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": USAGE if ended else None,
        "user": None,
        "metadata": {},
        **more,
    }


def message(*texts: str, status: str = "completed") -> dict[str, Any]:
    """An item with one part of text."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "".join(texts)}
    return {
        "id": "msg_1",
        "type": "message",
        "status": status,
        "content": [part],
        "phase": "final_answer",
        "role": "assistant",
    }


def begun() -> list[Event]:
    """The first two."""
    return [{"type": f"response.{each}", "response": response("in_progress")} for each in ("created", "in_progress")]


def ended(output: Iterable[Event], status: str = "completed", **more: Any) -> Event:
    """The last one."""
    return {"type": f"response.{status}", "response": response(status, output, **more)}


def thought(index: int = 0) -> list[Event]:
    """An item of reasoning, with a summary of what was thought."""
    at = {"item_id": THOUGHT["id"], "output_index": index}
    part, (text,) = {**at, "summary_index": 0}, THOUGHT["summary"]
    empty = {"type": "summary_text", "text": ""}
    return [
        _item("added", index, {**THOUGHT, "summary": [], "encrypted_content": "gAAA"}),
        {"type": "response.reasoning_summary_part.added", **part, "part": empty},
        {"type": "response.reasoning_summary_text.delta", **part, "delta": "Japan, ", "obfuscation": "a1"},
        {"type": "response.reasoning_summary_text.delta", **part, "delta": "so Tokyo.", "obfuscation": "b"},
        {"type": "response.reasoning_summary_text.done", **part, "text": text["text"]},
        {"type": "response.reasoning_summary_part.done", **part, "part": text},
        _item("done", index, THOUGHT),
    ]


def said(*texts: str, index: int = 0) -> list[Event]:
    """An item of text, piece by piece."""
    item, at = message(*texts), {"item_id": "msg_1", "output_index": index, "content_index": 0}
    (part,) = item["content"]
    delta = {"type": "response.output_text.delta", **at, "logprobs": []}
    return [
        _item("added", index, {**item, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *({**delta, "delta": text, "obfuscation": "zz"} for text in texts),
        {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        _item("done", index, item),
    ]


def called(index: int = 0, call: Event = CALL) -> list[Event]:
    """A function call, piece by piece."""
    at = {"item_id": call["id"], "output_index": index}
    delta = {"type": "response.function_call_arguments.delta", **at, "obfuscation": "q"}
    return [
        _item("added", index, {**call, "arguments": "", "status": "in_progress"}),
        {**delta, "delta": call["arguments"][:8]},
        {**delta, "delta": call["arguments"][8:]},
        {"type": "response.function_call_arguments.done", **at, "arguments": call["arguments"], "name": call["name"]},
        _item("done", index, call),
    ]


def numbered(events: Iterable[Event]) -> Sequence[Event]:
    """Those, each with its `sequence_number`."""
    return tuple({**event, "sequence_number": number} for number, event in enumerate(events))


def _item(step: str, index: int, item: Event) -> Event:
    return {"type": f"response.output_item.{step}", "output_index": index, "item": item}


RESPONSE = numbered(
    [*begun(), *thought(), *said("Tok", "yo.", index=1), ended([THOUGHT, message("Tok", "yo.")])],
)
