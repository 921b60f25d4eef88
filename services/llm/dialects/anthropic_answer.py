"""Answers of Anthropic's Messages API, event by event, without any I/O.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from services.llm.answer import Answer, BadEvent, More, type_of
from services.llm.dialects.events import count, parsed
from services.llm.dialects.events import usage as usage_of
from services.llm.engine import FinishReason

_OF_PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
}


class AnthropicAnswer(Answer):
    """A message of blocks: text, thoughts and calls."""

    def __init__(self) -> None:
        super().__init__()
        self._totals: dict[str, Any] = {}  # usage so far: prompt tokens come in the first event, the others in the last
        self._without_arguments: dict[
            int, str
        ] = {}  # calls without argument deltas so far: the input of their first event
        self._others = set[int]()  # blocks of neither text nor calls

    def is_last(self, event: str) -> bool:
        return '"message_stop"' in event and type_of(event) == "message_stop"

    def split(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if body["type"] == "error":
            yield body
            return
        if body["type"] != "message":
            raise BadEvent
        ends = {name: body.get(name) for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_start", "message": {**body, **dict.fromkeys(ends), "content": []}}
        for index, block in enumerate(body["content"]):
            begun, deltas = _split_block(block)
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": ends, "usage": body.get("usage") or {}}
        yield {"type": "message_stop"}

    def read(self, event: str, more: More) -> None:
        message = parsed(event)
        match message["type"]:
            case "error":
                self.error = event
                raise BadEvent
            case "message_start":
                self._count(message["message"].get("usage"))
            case "content_block_start":
                self._begin(message["index"], message["content_block"], more)
            case "content_block_delta":
                self._read_delta(message["index"], message["delta"], more)
            case "content_block_stop":
                arguments = self._without_arguments.pop(message["index"], "")
                if arguments:
                    more.tool_calls.append(self.calls.delta(message["index"], arguments=arguments))
            case "message_delta":
                self._count(message.get("usage"))
                if reason := message["delta"].get("stop_reason"):
                    self._reason = self._to_reason(reason)
            case _:
                pass  # a ping, or a newer kind of event, which clients of this API must ignore

    def _to_reason(self, reason: str) -> FinishReason:
        """A reason on which only callers of this API can act, such as `pause_turn` or `compaction`, is that of a length
        limit: the caller continues the turn."""
        return _REASONS.get(reason, FinishReason.LENGTH if self.relays else FinishReason.INTERRUPTED)

    def _begin(self, index: int, block: dict[str, Any], more: More) -> None:
        match block["type"]:
            case "tool_use":
                more.tool_calls.append(self.calls.delta(index, str(block["id"] or ""), str(block["name"] or "")))
                self._without_arguments[index] = json.dumps(block.get("input") or {})
            case "text" if block.get("text"):
                more.text.append(str(block["text"]))
            case "thinking":
                more.reasoning += [str(block["thinking"])] if block.get("thinking") else []
            case kind if kind != "text":  # a provider's own tool, for example
                self._others.add(index)
                more.others += 1

    def _read_delta(self, index: int, delta: dict[str, Any], more: More) -> None:
        match delta["type"]:
            case "text_delta":
                more.text.append(str(delta["text"] or ""))
            case "thinking_delta":
                more.reasoning.append(str(delta["thinking"] or ""))
            case "input_json_delta" if index in self._others:
                more.others += 1
            case "input_json_delta" if delta["partial_json"]:
                self._without_arguments.pop(index, None)
                more.tool_calls.append(self.calls.delta(index, arguments=str(delta["partial_json"])))

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Update the usage: an event has some of the totals."""
        self._totals |= {name: value for name, value in (usage or {}).items() if value is not None}
        plain, cached, written = (count(self._totals.get(name)) for name in _OF_PROMPT)
        details = self._totals.get("output_tokens_details") or {}
        if "output_tokens" in self._totals:
            thinking = details.get("thinking_tokens")
            prompt, completion = plain + cached + written, self._totals["output_tokens"]
            self._usage = usage_of(prompt, completion, cached, thinking, written)


def _split_block(block: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """A block as its first event has it, and its deltas. Other kinds of blocks come whole in the first event."""
    match block["type"]:
        case "text":
            cited = [{"type": "citations_delta", "citation": each} for each in block.get("citations") or ()]
            begun = {**block, "text": "", **({"citations": []} if cited else {})}
            return begun, [{"type": "text_delta", "text": block["text"]}, *cited]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}] if block.get("signature") else []
            return {**block, "thinking": "", "signature": ""}, [*deltas]
        case "tool_use":
            arguments = json.dumps(block.get("input") or {})
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
    return block, []
