"""What OpenAI's chat completions answer, event by event, without any I/O.

Source: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

from typing import Any

from services.llm.answer import Answer, BadEvent, More
from services.llm.engine import FinishReason, TokenLogprob, Usage
from services.llm.provider_events import parsed
from services.llm.provider_events import usage as usage_of

DONE = "[DONE]"
# Whatever else a server says ended the answer well: names for "the model stopped" differ.
_REASONS = {
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.INTERRUPTED,
    "abort": FinishReason.INTERRUPTED,
}


class OpenAIAnswer(Answer):
    """Of OpenAI, and of servers like it."""

    def __init__(self) -> None:
        super().__init__()
        self._refused = False

    def is_last(self, event: str) -> bool:
        return event == DONE

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
        delta = choice.get("delta") or {}
        if delta.get("refusal"):  # in place of the answer
            self._refused = True
            more.text.append(str(delta["refusal"]))
        if delta.get("content"):
            more.text.append(str(delta["content"]))
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):  # vLLM and OpenRouter: the latter
            more.reasoning.append(str(reasoning))
        for place, call in enumerate(delta.get("tool_calls") or ()):
            function = call.get("function") or {}
            key, id = call.get("index", place), str(call.get("id") or "")
            name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
            more.tool_calls.append(self.calls.delta(key, id, name, arguments))
        for told in (choice.get("logprobs") or {}).get("content") or ():
            more.logprobs.append(_to_logprob(told))
        if choice.get("finish_reason"):
            reason = _REASONS.get(choice["finish_reason"], FinishReason.STOP)
            self._reason = FinishReason.CONTENT_FILTER if self._refused else reason


def _to_logprob(told: dict[str, Any]) -> TokenLogprob:
    token, encoded = str(told["token"]), told.get("bytes")
    top = tuple(_to_logprob(likely) for likely in told.get("top_logprobs") or ())
    return TokenLogprob(token, token.encode() if encoded is None else bytes(encoded), float(told["logprob"]), top)


def _to_usage(usage: dict[str, Any]) -> Usage:
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return usage_of(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        prompt.get("cached_tokens"),
        completion.get("reasoning_tokens"),
        prompt.get("cache_write_tokens"),  # OpenRouter
    )
