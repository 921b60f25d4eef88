"""Writing answers as Anthropic's Messages: blocks that start, grow and stop."""

from __future__ import annotations

from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import prompt_tokens
from services.gateway.http import sse
from services.gateway.http.dialects.messages_relay import RelayedMessages, input_of
from services.gateway.http.dialects.writer import AnswerWriter
from services.gateway.http.errors import ANTHROPIC, ErrorResponse
from services.gateway.http.report import adds_words, found, report
from services.gateway.http.request_options import RequestOptions

_STOPS = {
    chat_pb2.FINISH_REASON_LENGTH: "max_tokens",
    chat_pb2.FINISH_REASON_BUDGET: "max_tokens",
    chat_pb2.FINISH_REASON_TOOL_CALLS: "tool_use",
    chat_pb2.FINISH_REASON_CONTENT_FILTER: "refusal",
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_PARAMS = {"image_url": "image"}  # what OpenAI's callers know by another name
_TEXT, _THINKING = -1, -2  # in place of a tool call's index


def error(failure: ErrorResponse) -> dict[str, Any]:
    """An error in Anthropic's shape. `code` and `param` are ours."""
    kind = _TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "api_error")
    message, param = failure.overflow.anthropic(failure.message) if failure.overflow else failure.message, failure.param
    if param in _PARAMS:
        param, message = _PARAMS[param], _PARAMS[param] + message.removeprefix(param)
    shown: dict[str, Any] = {"type": kind, "message": message, "code": failure.code, "param": param}
    if param == "thread":  # with which a client sends its whole conversation
        shown["details"] = {"error_code": "thread_unsupported_request"}
    if failure.provider_error and failure.provider_api == ANTHROPIC:
        shown = dict(failure.provider_error)
    return {"type": "error", "error": shown, **({"hedgerow": failure.report} if failure.report else {})}


class MessageWriter(AnswerWriter):
    """Writes an answer, in events or whole."""

    def __init__(self, order: RequestOptions, answer_id: str):
        self._order, self._id = order, f"msg_{answer_id}"
        self._begun, self._blocks = False, 0
        self._open: int | None = None  # the key of the block that is open: one at a time, as Anthropic's clients expect
        self._indices: dict[int, int] = {}  # of the last block of each key
        self._relayed, self._own_words = RelayedMessages(), False

    def chunk(self, event: pb.Event) -> bytes:
        block: dict[str, Any]
        if event.in_relayed:
            return b""
        match event.WhichOneof("kind"):
            case "relayed":
                data = self._relayed.chunks(event.relayed.events)
                self._begun = self._begun or self._relayed.begun
                return data
            case "delta":
                return self._grow(_TEXT, _text(""), "text_delta", "text", event.delta.text)
            case "reasoning":
                block = {"type": "thinking", "thinking": "", "signature": ""}
                return self._grow(_THINKING, block, "thinking_delta", "thinking", event.reasoning.text)
            case "tool_call":
                call = event.tool_call
                block = _tool_use(call, {})
                return self._grow(call.index, block, "input_json_delta", "partial_json", call.arguments)
        if self._order.findings and (findings := found(event)):
            return self._begin() + sse.named(_delta(None, {"output_tokens": 0}, findings))
        return b""

    def end(self, final: pb.Final) -> bytes:
        if self._relayed.ended:
            return self._relayed.end(report(final))
        delta = _delta(stop_reason(final), _usage(final.usage), report(final))
        stops = self._relayed.stops() + self._stop()
        return self._begin() + stops + sse.named(delta) + sse.named({"type": "message_stop"})

    def broken(self, failure: ErrorResponse) -> bytes:
        return sse.named(error(failure))

    def gather(self, event: pb.Event) -> None:
        if event.HasField("relayed"):
            self._relayed.gather(event.relayed.events)
        elif adds_words(event):
            self._own_words = True

    def whole(self, final: pb.Final) -> dict[str, Any]:
        if not self._own_words and (relayed := self._relayed.whole()):
            return {**relayed, "hedgerow": report(final)}
        content: list[dict[str, Any]] = []
        if final.reasoning:
            content.append({"type": "thinking", "thinking": final.reasoning, "signature": ""})
        if text := final.text.removeprefix(self._order.request.prefix):
            content.append(_text(text))
        content += (_tool_use(call, input_of(call.arguments)) for call in final.tool_calls)
        return {
            **self._message(final.model or self._order.model, _usage(final.usage)),
            "content": content,
            "stop_reason": stop_reason(final),
            "hedgerow": report(final),
        }

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        # An estimate: the prompt's tokens are known at the end, and reported there.
        usage = _usage(chat_pb2.Usage(prompt_tokens=prompt_tokens(self._order.request.messages)))
        return sse.named({"type": "message_start", "message": self._message(self._order.model, usage)})

    def _grow(self, key: int, block: dict[str, Any], kind: str, name: str, text: str) -> bytes:
        """More of a block, which starts where it is not open, and stops where another one starts. A call has one block:
        a late piece of it comes after its stop, because clients find blocks by their index."""
        data = self._begin()
        if key != self._open and (key in (_TEXT, _THINKING) or key not in self._indices):
            data += self._relayed.stops() + self._stop()
            self._blocks = max(self._blocks, self._relayed.blocks)
            self._open, self._indices[key], self._blocks = key, self._blocks, self._blocks + 1
            data += sse.named({"type": "content_block_start", "index": self._indices[key], "content_block": block})
        if not text:
            return data
        delta = {"type": kind, name: text}
        return data + sse.named({"type": "content_block_delta", "index": self._indices[key], "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        index, self._open = self._indices[self._open], None
        return sse.named({"type": "content_block_stop", "index": index})

    def _message(self, model: str, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": usage,
        }


def stop_reason(final: pb.Final) -> str:
    """`end_turn`, `max_tokens`, `tool_use` or `refusal`."""
    return _STOPS.get(final.finish_reason, "end_turn")


def _delta(reason: str | None, usage: dict[str, Any], mesh_report: dict[str, Any]) -> dict[str, Any]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": usage, "hedgerow": mesh_report}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": []}  # the published schema needs it, the AI SDK refuses null


def _tool_use(call: chat_pb2.ToolCall | chat_pb2.ToolCallDelta, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given, "caller": {"type": "direct"}}


def _usage(used: chat_pb2.Usage) -> dict[str, Any]:
    return {
        "cache_creation": None,
        "inference_geo": None,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
        "server_tool_use": None,
        "service_tier": "standard",
        "input_tokens": used.prompt_tokens - used.cached_prompt_tokens - used.cache_write_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cached_prompt_tokens,
        "output_tokens": used.completion_tokens,
    }
