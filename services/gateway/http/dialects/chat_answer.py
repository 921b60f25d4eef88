"""Writing answers as OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.metrics import degrade
from services.gateway.http import sse
from services.gateway.http.dialects.chat_relay import RelayedChat
from services.gateway.http.dialects.writer import ChoiceWriter
from services.gateway.http.report import adds_words, found, report
from services.gateway.http.request_options import RequestOptions
from services.gateway.labels import Degraded
from services.runtime.strict_json import compact, quoted

# A budget that is spent is a length that was reached; that it was the time, the report says.
_FINISHES = {
    chat_pb2.FINISH_REASON_LENGTH: "length",
    chat_pb2.FINISH_REASON_BUDGET: "length",
    chat_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
    chat_pb2.FINISH_REASON_CONTENT_FILTER: "content_filter",
}


def finish_of(final: pb.Final) -> str:
    """`stop`, `length`, `tool_calls` or `content_filter`: clients know no others."""
    return _FINISHES.get(final.finish_reason, "stop")


class ChatWriter(ChoiceWriter):
    """Writes an answer, in chunks or whole. The first chunk has the role; all have the same id."""

    def __init__(self, order: RequestOptions, answer_id: str, index: int | None = None):
        """`index`: which of several answers to a question it is, each of which was asked separately."""
        self._order, self._id, self._created = order, f"chatcmpl-{answer_id}", int(time.time())
        self._index, self._wanted = index or 0, order.choices if index is None else 1
        same = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": order.model}
        usage = b',"usage":null' if order.usage else b""
        self._same = b"data: " + compact(same)[:-1] + usage
        self._head = self._same + b',"choices":[{"index":%d,"delta":' % self._index
        self._tail = b',"logprobs":null,"finish_reason":null}]}\n\n'
        self._begun = False
        own = {} if index is None else {"id": self._id}
        self._relayed, self._own_words = RelayedChat(usage=order.usage, index=self._index, own=own), False
        self._followed: dict[str, Any] = {}  # what all chunks of the provider say

    def chunk(self, event: pb.Event) -> bytes:
        if event.in_relayed:
            return b""
        match event.WhichOneof("kind"):
            case "relayed":
                return self._relay(event.relayed.events)
            case "delta":
                text = self._text(event.delta)
            case "tool_call":
                text = self._delta(b'{"tool_calls":[' + compact(_tool_delta(event.tool_call)) + b"]}")
            case "reasoning":
                text = self._delta(b'{"reasoning_content":' + quoted(event.reasoning.text) + b"}")
            case _:
                findings = found(event) if self._order.findings else None
                if not findings:
                    return b""
                text = (
                    self._head + b'{},"logprobs":null,"finish_reason":null}],"hedgerow":' + compact(findings) + b"}\n\n"
                )
        return self._begin() + text

    def end(self, final: pb.Final) -> bytes:
        if self._relayed.ended:
            self._compare(self._relayed.begun, final)
            return self._relayed.end(report(final))
        mesh_report = report(final)
        return self.end_choice(final, None if self._order.usage else mesh_report) + self.end_all(
            final.usage, mesh_report
        )

    def end_choice(self, final: pb.Final, mesh_report: Mapping[str, Any] | None) -> bytes:
        if self._relayed.ended:
            return self._relayed.held(mesh_report)
        finish = b'{},"logprobs":null,"finish_reason":"%s"}]' % finish_of(final).encode()
        ends = [self._same + b',"choices":[{"index":%d,"delta":' % each + finish for each in self._relayed.unfinished()]
        last = b',"hedgerow":' + compact(mesh_report) if mesh_report else b""
        return self._begin() + self._relayed.held() + b"}\n\n".join(ends) + last + b"}\n\n"

    def end_all(self, used: chat_pb2.Usage, mesh_report: Mapping[str, Any]) -> bytes:
        if not self._order.usage:
            return sse.DONE
        last = self._same.removesuffix(b',"usage":null') + b',"choices":[],"usage":' + compact(usage(used))
        return last + b',"hedgerow":' + compact(mesh_report) + b"}\n\n" + sse.DONE

    def gather(self, event: pb.Event) -> None:
        if event.HasField("relayed"):
            self._relayed.gather(event.relayed.events)
        elif adds_words(event):
            self._own_words = True

    def whole(self, final: pb.Final) -> dict[str, Any]:
        if not self._own_words and (relayed := self._relayed.whole()):
            for choice in relayed["choices"]:
                choice["finish_reason"] = choice.get("finish_reason") or finish_of(final)
            self._compare(len(relayed["choices"]), final)
            return {**relayed, "hedgerow": report(final)}
        message: dict[str, Any] = {"role": "assistant", "content": final.text, "refusal": None, "annotations": []}
        if final.reasoning:
            message["reasoning_content"] = final.reasoning
        if final.tool_calls:
            message["content"] = final.text or None
            message["tool_calls"] = [tool_call(call) for call in final.tool_calls]
        choice = {
            "index": self._index,
            "message": message,
            "logprobs": {"content": logprobs(final.logprobs), "refusal": None} if final.logprobs else None,
            "finish_reason": finish_of(final),
        }
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": final.model or self._order.model,
            "choices": [choice],
            "usage": usage(final.usage),
            "hedgerow": report(final),
        }

    def _compare(self, choices: int, final: pb.Final) -> None:
        """Mark the answer of a server that has ignored `n`."""
        if choices < self._wanted:
            degrade(final, Degraded.LLM_CHOICES)

    def _relay(self, events: Iterable[bytes]) -> bytes:
        """The provider's chunks. Later chunks of the gateway's own repeat the fields that they have in common."""
        data = self._relayed.chunks(events)
        if self._relayed.same and self._relayed.same is not self._followed:
            self._begun, self._followed = True, self._relayed.same
            self._same = b"data: " + compact(self._followed)[:-1]
            self._head = self._same + b',"choices":[{"index":%d,"delta":' % self._index
        return data

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._delta(b'{"role":"assistant","content":""}')

    def _text(self, delta: pb.TextDelta) -> bytes:
        content = b'{"content":' + quoted(delta.text) + b"}"
        if not delta.logprobs:
            return self._delta(content)
        logprobs_json = compact({"content": logprobs(delta.logprobs), "refusal": None})
        return self._head + content + b',"logprobs":' + logprobs_json + b',"finish_reason":null}]}\n\n'

    def _delta(self, delta: bytes) -> bytes:
        return self._head + delta + self._tail


def usage(used: chat_pb2.Usage) -> dict[str, Any]:
    """Tokens, in OpenAI's words."""
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_prompt_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning_tokens,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def tool_call(call: chat_pb2.ToolCall) -> dict[str, Any]:
    """A whole call."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def logprobs(tokens: Iterable[chat_pb2.TokenLogprob]) -> list[dict[str, Any]]:
    """Tokens and how likely they were, each with its alternatives."""
    return [{**_logprob(token), "top_logprobs": [_logprob(other) for other in token.top]} for token in tokens]


def _logprob(token: chat_pb2.TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.bytes)}


def _tool_delta(delta: chat_pb2.ToolCallDelta) -> dict[str, Any]:
    """The first of each call has an id, a type and a name; all have an index."""
    fields: dict[str, Any] = {"index": delta.index, "function": {"arguments": delta.arguments}}
    if delta.id or delta.name:
        fields |= {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": delta.arguments}}
    return fields
