"""Answers of OpenAI's Responses, event by event, without any I/O.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from services.llm.answer import Answer, BadEvent, More, type_of
from services.llm.dialects.events import parsed
from services.llm.dialects.events import usage as usage_of
from services.llm.engine import FinishReason, TokenLogprob, Usage

_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_WITHOUT_CALL = ("message", "reasoning")
_TYPES = {"rate_limit_exceeded": "rate_limit_error", "server_error": "api_error"}


class ResponsesAnswer(Answer):
    """A response of items: messages, thoughts and calls. An item that asks the caller to
    act is a call; an item of the provider's own tools is not."""

    last_says: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._refused = False
        self._without_arguments = set[int]()  # calls, by their place in the output

    def is_last(self, event: str) -> bool:
        return any(end in event for end in _ENDS) and type_of(event) in _ENDS

    def read(self, event: str, more: More) -> None:
        told = parsed(event)
        kind = told["type"]
        if kind in _TEXTS:
            self._refused = self._refused or kind == "response.refusal.delta"
            more.text.append(str(told["delta"]))
            more.logprobs += [_to_logprob(each) for each in told.get("logprobs") or ()]
        elif kind in _THOUGHTS:
            more.reasoning.append(str(told["delta"]))
        elif kind in _ARGUMENTS:
            self._without_arguments.discard(told["output_index"])
            more.tool_calls.append(self.calls.delta(told["output_index"], arguments=str(told["delta"])))
        elif kind == "response.output_item.added":
            self._begin(told["output_index"], told["item"], more)
        elif kind == "response.output_item.done":
            self._end(told["output_index"], told["item"], more)
        elif kind in ("response.completed", "response.incomplete"):
            self._finish(told["response"])
        elif kind in ("response.failed", "error"):
            self._fail(told["response"]["error"] if kind == "response.failed" else told)
        elif "_call." in kind:  # a tool of the provider's is at work
            more.others += 1

    def _begin(self, index: int, item: dict[str, Any], more: More) -> None:
        if item.get("call_id") and item["type"] not in _WITHOUT_CALL:
            self._without_arguments.add(index)
            more.tool_calls.append(self.calls.delta(index, str(item["call_id"]), str(item.get("name") or item["type"])))
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
        """In the words that other APIs have for errors in a stream."""
        said: dict[str, Any] = error if isinstance(error, dict) else {}
        code = str(said.get("code") or "")
        kind = _TYPES.get(code, "invalid_request_error" if code.startswith(("invalid_", "image_")) else code)
        shown = {"type": kind, "message": said.get("message"), "param": said.get("param")}
        self.error = json.dumps({"error": shown})
        raise BadEvent


def _to_logprob(told: dict[str, Any]) -> TokenLogprob:
    token, encoded = str(told.get("token") or ""), told.get("bytes")
    top = tuple(_to_logprob(likely) for likely in told.get("top_logprobs") or ())
    return TokenLogprob(token, token.encode() if encoded is None else bytes(encoded), float(told["logprob"]), top)


def _to_usage(usage: dict[str, Any]) -> Usage:
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return usage_of(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        read.get("cached_tokens"),
        written.get("reasoning_tokens"),
        read.get("cache_write_tokens"),
    )
