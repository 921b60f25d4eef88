"""Answers of OpenAI's Responses, event by event, without any I/O.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from services.llm.answer import Answer, BadEvent, More, type_of
from services.llm.dialects.events import parsed, to_logprob
from services.llm.dialects.events import usage as usage_of
from services.llm.engine import FinishReason, Usage

_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_WRITTEN = {  # by the kind of an item that is written piece by piece: its field, and the events of it
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_PARTS = {  # by the kind of a part: its field, the events of it, the events of its kind, and the name of its place
    "output_text": ("text", "response.output_text", "response.content_part", "content_index"),
    "refusal": ("refusal", "response.refusal", "response.content_part", "content_index"),
    "reasoning_text": ("text", "response.reasoning_text", "response.content_part", "content_index"),
    "summary_text": ("text", "response.reasoning_summary_text", "response.reasoning_summary_part", "summary_index"),
}
_WITHOUT_CALL = ("message", "reasoning")
_TYPES = {
    "rate_limit_exceeded": "rate_limit_error",
    "server_error": "api_error",
    "too_many_requests": "rate_limit_error",
}
_OF_REQUESTS = ("invalid_", "image", "_policy", "_mismatch")  # parts of the codes for a request's own faults


class ResponsesAnswer(Answer):
    """A response of items: messages, thoughts and calls. An item that asks the caller to
    act is a call; an item of the provider's own tools is not."""

    last_says: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._refused = self._thought = self._spoken = False  # whether there were refusals, thoughts, and text
        self._divides = False  # whether the next text is that of another message
        self._without_arguments = set[int]()  # calls, by their place in the output

    def is_last(self, event: str) -> bool:
        return any(end in event for end in _ENDS) and type_of(event) in _ENDS

    def split(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for number, event in enumerate(_events(body)):
            yield {**event, "sequence_number": number}

    def read(self, event: str, more: More) -> None:
        data = parsed(event)
        kind = data["type"]
        if kind in _TEXTS:
            more.text += ["\n\n"] if self._divides else []
            self._spoken, self._divides = True, False
            self._refused = self._refused or kind == "response.refusal.delta"
            more.text.append(str(data["delta"] or ""))
            more.logprobs += [to_logprob(each) for each in data.get("logprobs") or ()]
        elif kind in _THOUGHTS:
            self._thought = True
            more.reasoning.append(str(data["delta"] or ""))
        elif kind == "response.reasoning_summary_part.added" and self._thought:
            more.reasoning.append("\n\n")  # a paragraph, which texts do not end with a line break
        elif kind in _ARGUMENTS:
            self._without_arguments.discard(data["output_index"])
            more.tool_calls.append(self.calls.delta(data["output_index"], arguments=str(data["delta"] or "")))
        elif kind == "response.output_item.added":
            self._begin(data["output_index"], data["item"], more)
        elif kind == "response.output_item.done":
            self._end(data["output_index"], data["item"], more)
        elif kind in ("response.completed", "response.incomplete"):
            self._finish(data["response"])
        elif kind in ("response.failed", "error"):
            self._fail(data["response"]["error"] if kind == "response.failed" else data.get("error") or data)
        elif "_call." in kind:  # a tool of the provider's is at work
            more.others += 1

    def _begin(self, index: int, item: dict[str, Any], more: More) -> None:
        if item.get("call_id") and item["type"] not in _WITHOUT_CALL:
            self._without_arguments.add(index)
            more.tool_calls.append(self.calls.delta(index, str(item["call_id"]), str(item.get("name") or item["type"])))
        elif item["type"] == "message":
            self._divides = self._spoken
        elif item["type"] not in _WITHOUT_CALL:
            more.others += 1

    def _end(self, index: int, item: dict[str, Any], more: More) -> None:
        """Thoughts that are only given encrypted come now, and so do arguments that came in one piece."""
        if index in self._without_arguments:
            self._without_arguments.discard(index)
            arguments = item.get("arguments") or item.get("input")
            more.tool_calls += [self.calls.delta(index, arguments=str(arguments))] if arguments else []
        elif item["type"] == "reasoning":
            more.others += 1

    def _finish(self, response: dict[str, Any]) -> None:
        if response.get("usage"):
            self._usage = _to_usage(response["usage"])
        why = (response.get("incomplete_details") or {}).get("reason")
        if self._refused or why == "content_filter":
            self._reason = FinishReason.CONTENT_FILTER
        elif response.get("status") == "incomplete":
            self._reason = FinishReason.LENGTH
        else:
            self._reason = FinishReason.STOP

    def _fail(self, error: Any) -> None:
        """Fail with an error in the form of other APIs' stream errors."""
        said: dict[str, Any] = error if isinstance(error, dict) else {}
        code = str(said.get("code") or said.get("type") or "")
        kind = _TYPES.get(code, "invalid_request_error" if any(part in code for part in _OF_REQUESTS) else code)
        shown = {"type": kind, "code": said.get("code"), "message": said.get("message"), "param": said.get("param")}
        self.error = json.dumps({"error": shown})
        raise BadEvent


def _events(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The events of a response in one piece; raises BadEvent for one that has not ended."""
    status = body.get("status")
    if body.get("error") and status != "failed":
        yield {**body["error"], "code": body["error"].get("code") or body["error"].get("type"), "type": "error"}
        return
    if status not in ("completed", "incomplete", "failed"):
        raise BadEvent
    begun = {**body, "status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(body["output"]):
        yield from _item_events(item, index)
    yield {"type": f"response.{status}", "response": body}


def _item_events(item: Mapping[str, Any], index: int) -> Iterator[Mapping[str, Any]]:
    at = {"item_id": item.get("id"), "output_index": index}
    field, written = _WRITTEN.get(item["type"], ("", ""))
    lists = [name for name in ("content", "summary") if item.get(name)]
    begun = {**item, **{name: [] for name in lists}, **({field: ""} if field else {})}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if field:
        yield {"type": f"{written}.delta", **at, "delta": item[field]}
        yield {"type": f"{written}.done", **at, field: item[field]}
    for name in lists:
        for position, part in enumerate(item[name]):
            yield from _part_events(part, at, position)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(part: Mapping[str, Any], at: Mapping[str, Any], position: int) -> Iterator[Mapping[str, Any]]:
    if part["type"] not in _PARTS:
        return
    field, texts, parts, index = _PARTS[part["type"]]
    at = {**at, index: position}
    logprobs = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
    yield {"type": f"{parts}.added", **at, "part": {**part, field: ""}}
    yield {"type": f"{texts}.delta", **at, "delta": part[field], **logprobs}
    yield {"type": f"{texts}.done", **at, field: part[field], **logprobs}
    yield {"type": f"{parts}.done", **at, "part": part}


def _to_usage(usage: dict[str, Any]) -> Usage:
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return usage_of(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        read.get("cached_tokens"),
        written.get("reasoning_tokens"),
        read.get("cache_write_tokens"),
    )
