"""OpenAI's chat completions on the wire: the body that is sent, and what comes back, without any I/O.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
from typing import Any

from services.llm.engine import Chunk, Constraint, Finish, FinishReason, Message, Request, Usage
from services.runtime.errors import InvalidInput

DONE = "[DONE]"
# Whatever else a server says ended the answer well: names for "the model stopped" differ.
_REASONS = {
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.INTERRUPTED,
    "error": FinishReason.INTERRUPTED,
    "abort": FinishReason.INTERRUPTED,
}


# vLLM's servers: leave the last message open instead of beginning a new one.
_GO_ON = {"add_generation_prompt": False, "continue_final_message": True}


def to_messages(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    """A conversation as JSON."""
    return [{"role": message.role, "content": message.content} for message in messages]


def to_body(request: Request, model: str, max_tokens: int, max_tokens_field: str) -> dict[str, Any]:
    """What is posted. Raises InvalidInput for a constraint that this API cannot express."""
    sampling = request.sampling
    begun = (Message("assistant", request.prefix),) if request.prefix else ()
    optional = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "response_format": _to_response_format(request.constraint) if request.constraint else None,
    }
    return {
        "model": model,
        "messages": to_messages((*request.messages, *begun)),
        "stream": True,
        "stream_options": {"include_usage": True},
        max_tokens_field: max_tokens,
        **(_GO_ON if begun else {}),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _to_response_format(constraint: Constraint) -> dict[str, Any]:
    match constraint.kind:
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            try:
                schema = json.loads(constraint.value)
            except ValueError as error:
                raise InvalidInput("response_format.json_schema", f"JSON ({error})", constraint.value) from None
            return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        case "regex":
            raise InvalidInput("response_format", "json_schema or json_object, with this engine", "regex")


class _Broken(Exception):
    """An event is an error, or not a chat completion."""


class Answer:
    """Turns the events of one stream into chunks, and counts."""

    def __init__(self) -> None:
        self.broken = False  # what comes now cannot be trusted
        self.error = ""  # the event that said so, when it was the provider's own error
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._tokens = 0
        self._held = Chunk("", 0)  # text that came with the end travels with it

    @property
    def begun(self) -> bool:
        """Whether there is anything to give: text, or an end."""
        return self._tokens > 0 or self._reason is not None

    def add(self, events: list[str]) -> Chunk | None:
        """The text of events that arrived together."""
        text, tokens = "", 0
        for event in events:
            if event == DONE or self.broken:
                break
            try:
                more = self._read(event)
            except _Broken:
                self.broken = True
                break
            text, tokens = text + more, tokens + bool(more)
        self._tokens += tokens
        if self._reason:
            self._held = Chunk(self._held.text + text, self._held.tokens + tokens)
            return None
        return Chunk(text, tokens) if text else None

    def finish(self) -> Chunk:
        """The end: without a reason from the provider, the text is incomplete."""
        usage = self._usage or Usage(completion_tokens=self._tokens)
        handed_on = self._tokens - self._held.tokens
        finish = Finish(self._reason or FinishReason.INTERRUPTED, usage)
        return Chunk(self._held.text, max(usage.completion_tokens - handed_on, 0), finish)

    def _read(self, event: str) -> str:
        """The text of one event, which holds about one token; the usage at the end has the true count."""
        try:
            message = json.loads(event)
            if message.get("error"):
                self.error = event
                raise _Broken
            if message.get("usage"):
                self._usage = _to_usage(message["usage"])
            return "".join(self._read_choice(choice) for choice in message.get("choices") or ())
        except (ValueError, AttributeError, TypeError):
            raise _Broken from None

    def _read_choice(self, choice: dict[str, Any]) -> str:
        if choice.get("finish_reason"):
            self._reason = _REASONS.get(choice["finish_reason"], FinishReason.STOP)
        return str((choice.get("delta") or {}).get("content") or "")


def _to_usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        cached_prompt_tokens=int(details.get("cached_tokens") or 0),
    )
