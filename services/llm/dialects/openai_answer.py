"""Answers of OpenAI's chat completions, event by event, without any I/O.

Source: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from services.llm.answer import Answer, BadEvent, More
from services.llm.dialects.events import count, parsed, to_logprob
from services.llm.dialects.events import usage as usage_of
from services.llm.engine import FinishReason, Usage

DONE = "[DONE]"
# Whatever else a server says ended the answer well: names for "the model stopped" differ. Gemini writes its own names
# in capitals, or behind others (`content_filter: RECITATION`).
_REASONS = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,  # Gemini
    "model_length": FinishReason.LENGTH,  # Mistral
    "model_context_window_exceeded": FinishReason.LENGTH,  # Z.ai
    "tool_calls": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    **dict.fromkeys(
        ("safety", "recitation", "prohibited_content", "blocklist", "spii", "sensitive"), FinishReason.CONTENT_FILTER
    ),  # Gemini; the last one: Z.ai
    "error": FinishReason.INTERRUPTED,
    "abort": FinishReason.INTERRUPTED,
    "function_call_filter": FinishReason.INTERRUPTED,  # Gemini: its model wrote a malformed call, which is not sent
    "insufficient_system_resource": FinishReason.INTERRUPTED,  # DeepSeek
    "network_error": FinishReason.INTERRUPTED,  # Z.ai
}
# Of a delta; its other fields reach only callers in the provider's own words.
_READ = frozenset({"role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls"})


class OpenAIAnswer(Answer):
    """Answers of OpenAI's chat completions, and of compatible servers."""

    def __init__(self, choices: int = 1) -> None:
        """`choices`: how many were asked for. The text is the first one's; of the others, tokens are counted."""
        super().__init__()
        self._refused, self._choices = False, choices
        self._customs: set[int] = set()  # calls of tools that a provider alone knows
        self._nameless = dict[Hashable, str]()  # calls whose id came before their name
        self._opened = set[int]()  # choices
        self._ended: dict[int, FinishReason] = {}  # why each choice has

    def is_last(self, event: str) -> bool:
        last = event == DONE
        if last and self._opened <= self._ended.keys():  # a server may make fewer choices than were asked for
            self._reason = self._reason or self._ended.get(0)
        return last

    def split(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if body.get("error"):
            yield body
            return
        same = {name: given for name, given in body.items() if name not in ("choices", "usage")}
        same["object"] = "chat.completion.chunk"
        choices = [dict(choice) for choice in body["choices"]]
        if not choices:
            raise BadEvent
        for place, choice in enumerate(choices):
            reason, said = choice.pop("finish_reason", None) or "stop", dict(choice.pop("message"))
            if said.get("tool_calls"):
                said["tool_calls"] = [{"index": index, **call} for index, call in enumerate(said["tool_calls"])]
            choice = {"index": place, **choice}
            yield {**same, "choices": [{**choice, "delta": said, "finish_reason": None}]}
            yield {**same, "choices": [{"index": choice["index"], "delta": {}, "finish_reason": reason}]}
        if body.get("usage"):
            yield {**same, "choices": [], "usage": body["usage"]}

    def read(self, event: str, more: More) -> None:
        message = parsed(event)
        if message.get("error"):
            self.error = event
            raise BadEvent
        if message.get("usage"):
            self._usage = _to_usage(message["usage"])
        for choice in message.get("choices") or ():
            self._read_choice(choice, more)

    def _read_choice(self, choice: dict[str, Any], more: More) -> None:
        first = self._choices == 1 or not choice.get("index")
        self._opened.add(index := 0 if first else choice["index"])
        delta = choice.get("delta") or {}
        if choice.get("usage"):  # Kimi
            self._usage = _to_usage(choice["usage"])
        if not first:
            more.others += any(delta.get(name) for name in delta if name != "role")
        else:
            self._read_first(choice, delta, more)
        if choice.get("finish_reason"):
            if self._nameless:
                raise BadEvent
            name = str(choice["finish_reason"]).partition(":")[0].lower()
            reason = _REASONS.get(name, FinishReason.STOP)
            self._ended[index] = FinishReason.CONTENT_FILTER if first and self._refused else reason
            if len(self._ended) >= self._choices:
                self._reason = self._ended.get(0, reason)

    def _read_first(self, choice: dict[str, Any], delta: dict[str, Any], more: More) -> None:
        if delta.get("refusal"):  # in place of the answer
            self._refused = True
            more.text.append(str(delta["refusal"]))
        if delta.get("content"):
            _read_content(delta["content"], more)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):  # vLLM and OpenRouter: the latter
            more.reasoning.append(str(reasoning))
        if transcript := (delta.get("audio") or {}).get("transcript"):
            more.text.append(str(transcript))
        for place, call in enumerate(delta.get("tool_calls") or ()):
            if call.get("custom") or call.get("index", place) in self._customs:
                self._customs.add(call.get("index", place))
                continue
            self._read_call(call.get("index", place), call, more)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):  # Together sends a number, of a token that it does not name
            more.logprobs += map(to_logprob, logprobs.get("content") or ())
        more.others += any(delta.get(name) for name in delta if name not in _READ or self._customs)

    def _read_call(self, key: Hashable, call: dict[str, Any], more: More) -> None:
        function = call.get("function") or {}
        id = str(call.get("id") or "") or self._nameless.get(key, "")
        name, arguments = str(function.get("name") or ""), _to_arguments(function.get("arguments"))
        if not (name or arguments or key in self.calls):
            self._nameless[key] = id
            return
        more.tool_calls.append(self.calls.delta(key, id, name, arguments))
        self._nameless.pop(key, None)


def _read_content(content: Any, more: More) -> None:
    """A text. Mistral's models that think have a list of parts in its place, and references among their thoughts:
    https://docs.mistral.ai/studio-api/conversations/reasoning"""
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        match part["type"]:
            case "text":
                more.text.append(str(part["text"] or ""))
            case "thinking":
                more.reasoning.append("".join(str(each.get("text") or "") for each in part["thinking"]))
            case _:
                more.others += 1


def _to_arguments(given: Any) -> str:
    """JSON as text, as the API has it, or as an object, which some servers send."""
    return given if isinstance(given, str) else json.dumps(given) if given else ""


def _to_usage(usage: dict[str, Any]) -> Usage:
    """Gemini and xAI count thoughts in the total alone, and bill them as generated tokens. DeepSeek and Kimi have names
    of their own for cached tokens."""
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    cached = (prompt.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    generated = count(usage.get("total_tokens")) - count(usage.get("prompt_tokens"))
    return usage_of(
        usage.get("prompt_tokens"),
        max(count(usage.get("completion_tokens")), generated),
        next((given for given in cached if given is not None), None),
        completion.get("reasoning_tokens"),
        prompt.get("cache_write_tokens"),  # OpenRouter
    )
