"""Writing answers as OpenAI's Responses: items that are opened, filled and done, each step an event with a number."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http import sse
from services.gateway.http.dialects.chat_answer import logprobs
from services.gateway.http.dialects.responses_relay import RelayedResponse
from services.gateway.http.dialects.writer import AnswerWriter
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.report import adds_words, found, report, size_of_answer
from services.gateway.http.request_options import RequestOptions
from services.gateway.http.sse import GrowingTexts
from services.runtime.strict_json import Write, compact, written

_INCOMPLETE = {
    chat_pb2.FINISH_REASON_LENGTH: "max_output_tokens",
    chat_pb2.FINISH_REASON_BUDGET: "max_output_tokens",
    chat_pb2.FINISH_REASON_CONTENT_FILTER: "content_filter",
}
_MESSAGE, _REASONING = -1, -2  # in place of a tool call's index


class ResponseWriter(AnswerWriter):
    """Writes a response, in events or whole."""

    def __init__(self, order: RequestOptions, answer_id: str):
        self._order, self._id, self._created = order, answer_id, int(time.time())
        self._sequence, self._items = 0, list[dict[str, Any]]()
        self._open: dict[int, int] = {}  # positions in `_items`
        self._logprobs: list[dict[str, Any]] = []
        self._growing = GrowingTexts()
        self._relayed, self._own_words = RelayedResponse(order.stored), False
        self._whole: dict[str, Any] = {}
        self._write: Write = compact

    def chunk(self, event: pb.Event) -> bytes:
        if event.in_relayed and not self._sequence:
            return b""
        match event.WhichOneof("kind"):
            case "relayed":  # whose first event the client has, writes the rest
                return b"" if self._sequence else self._relayed.chunks(event.relayed.events)
            case "delta":
                return self._begin() + self._text(event.delta)
            case "reasoning":
                return self._begin() + self._thought(event.reasoning.text)
            case "tool_call":
                return self._begin() + self._call(event.tool_call)
        if self._order.findings and not self._relayed.begun and (findings := found(event)):
            self._growing.settle()
            response = {**self._base("in_progress"), "output": self._items, "hedgerow": findings}
            return self._begin() + self._event("response.in_progress", response=response)
        return b""

    def end(self, final: pb.Final) -> bytes:
        data = b"" if self._whole else self.close(final)
        if self._relayed.ended:
            return data + self._relayed.end(self._whole, self._write)
        return data + self._event(f"response.{self._whole['status']}", response=self._whole)

    def close(self, final: pb.Final) -> bytes:
        """The last events of a stream but one: every item is done, and the response is as `whole` has it."""
        self._write = partial(written, size=size_of_answer(final))
        if self._relayed.ended:
            self._whole = {**self._relayed.whole(), "hedgerow": report(final)}
            return b""
        status = "incomplete" if final.finish_reason in _INCOMPLETE else "completed"
        data = self._begin(status) + b"".join(self._done(key, status) for key in list(self._open))
        if not self._relayed.begun and all(item["type"] == "reasoning" for item in self._items):
            data += self._text(pb.TextDelta()) + self._done(_MESSAGE, status)
        self._whole = self._response(final, self._items)
        return data

    def broken(self, failure: ErrorResponse) -> bytes:
        data = self._begin("incomplete")  # without which OpenAI's client takes no error
        data += self._event("error", code=failure.code, message=failure.message, param=failure.param)
        self._growing.settle()
        failed = {"code": "server_error", "message": failure.message}
        unstored = {"store": False} if self._order.stored else {}
        response = {**self._base("failed"), **unstored, "output": self._items, "error": failed}
        return data + self._event("response.failed", response=response)

    def gather(self, event: pb.Event) -> None:
        if event.HasField("relayed"):
            self._relayed.chunks(event.relayed.events)
        elif adds_words(event):
            self._own_words = True

    def whole(self, final: pb.Final) -> dict[str, Any]:
        """The response in one piece, the same object each time."""
        self._whole = self._whole or self._in_one_piece(final)
        return self._whole

    def _in_one_piece(self, final: pb.Final) -> dict[str, Any]:
        if not self._own_words and (relayed := self._relayed.whole()):
            return {**relayed, "hedgerow": report(final)}
        status = "incomplete" if final.finish_reason in _INCOMPLETE else "completed"
        items = []
        if final.reasoning:
            items.append(_reasoning(f"rs_{self._id}", final.reasoning, status))
        if final.text or not final.tool_calls:
            items.append(_message(f"msg_{self._id}", final.text, status, logprobs(final.logprobs)))
        for number, call in enumerate(final.tool_calls):
            item = _function_call(f"fc_{self._id}_{number}", call.id, call.name)
            items.append({**item, "arguments": call.arguments, "status": status})
        return self._response(final, items)

    def _begin(self, status: str = "completed") -> bytes:
        """The first events; where a provider's have begun, the last ones of what it has left open, with `status`."""
        if self._sequence:
            return b""
        if self._relayed.begun:
            self._sequence, self._items = self._relayed.sequence, self._relayed.items()
            return b"".join(self._event(kind, **fields) for kind, fields in self._relayed.close(status))
        response = {**self._base("in_progress"), "output": []}
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _text(self, delta: pb.TextDelta) -> bytes:
        data = b""
        if _MESSAGE not in self._open:
            data = self._done(_REASONING) + self._added(_MESSAGE, _message(self._new("msg"), None, "in_progress", []))
            data += self._part("added", _MESSAGE, _output_text("", []))
        delta_logprobs = logprobs(delta.logprobs)
        self._growing.add(self._item(_MESSAGE)["content"][0], "text", delta.text)
        self._logprobs += delta_logprobs
        return data + self._event(
            "response.output_text.delta",
            **self._at(_MESSAGE),
            content_index=0,
            delta=delta.text,
            logprobs=delta_logprobs,
        )

    def _thought(self, text: str) -> bytes:
        data = b""
        if _REASONING not in self._open:
            data = self._added(_REASONING, _reasoning(self._new("rs"), "", "in_progress"))
            data += self._part("added", _REASONING, {"type": "reasoning_text", "text": ""})
        self._growing.add(self._item(_REASONING)["content"][0], "text", text)
        return data + self._event("response.reasoning_text.delta", **self._at(_REASONING), content_index=0, delta=text)

    def _call(self, delta: chat_pb2.ToolCallDelta) -> bytes:
        data, key = b"", delta.index
        if key not in self._open:
            data = self._done(_REASONING) + self._done(_MESSAGE)
            data += self._added(key, _function_call(self._new("fc"), delta.id, delta.name))
        self._growing.add(self._item(key), "arguments", delta.arguments)
        if not delta.arguments:
            return data
        return data + self._event("response.function_call_arguments.delta", **self._at(key), delta=delta.arguments)

    def _added(self, key: int, item: dict[str, Any]) -> bytes:
        self._open[key] = len(self._items)
        self._items.append(item)
        shown = {**item, "content": []} if "content" in item else item
        return self._event("response.output_item.added", output_index=self._open[key], item=shown)

    def _done(self, key: int, status: str = "completed") -> bytes:
        """The last events of an item; none where it is not open."""
        if key not in self._open:
            return b""
        self._growing.settle()
        item, at = self._item(key), self._at(key)
        item["status"] = status
        if key == _MESSAGE:
            text, logprobs = item["content"][0]["text"], self._logprobs
            item["content"] = [_output_text(text, logprobs)]
            data = self._event("response.output_text.done", **at, content_index=0, text=text, logprobs=logprobs)
            data += self._part("done", key, item["content"][0])
            self._logprobs = []
        elif key == _REASONING:
            text = item["content"][0]["text"]
            data = self._event("response.reasoning_text.done", **at, content_index=0, text=text)
            data += self._part("done", key, item["content"][0])
        else:
            data = self._event("response.function_call_arguments.done", **at, arguments=item["arguments"])
        data += self._event("response.output_item.done", output_index=at["output_index"], item=item)
        del self._open[key]
        return data

    def _part(self, step: str, key: int, part: dict[str, Any]) -> bytes:
        return self._event(f"response.content_part.{step}", **self._at(key), content_index=0, part=part)

    def _item(self, key: int) -> dict[str, Any]:
        return self._items[self._open[key]]

    def _at(self, key: int) -> dict[str, Any]:
        return {"item_id": self._item(key)["id"], "output_index": self._open[key]}

    def _new(self, kind: str) -> str:
        return f"{kind}_{self._id}_{len(self._items)}"

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return sse.as_written(kind, self._write({"type": kind, "sequence_number": number, **fields}))

    def _response(self, final: pb.Final, items: list[dict[str, Any]]) -> dict[str, Any]:
        reason = _INCOMPLETE.get(final.finish_reason)
        return {
            **self._base("incomplete" if reason else "completed"),
            "model": final.model or self._order.model,
            "completed_at": int(time.time()),
            "incomplete_details": {"reason": reason} if reason else None,
            "output": items,
            "usage": _usage(final.usage),
            "hedgerow": report(final),
        }

    def _base(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "completed_at": None,
            "model": self._order.model,
            "usage": None,
            **self._order.echo,
            **self._relayed.same,
        }


def _message(item_id: str, text: str | None, status: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    content = [_output_text(text or "", logprobs)]
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def _output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _reasoning(item_id: str, text: str, status: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"id": item_id, "type": "reasoning", "summary": [], "status": status, "content": content}


def _function_call(item_id: str, call_id: str, name: str) -> dict[str, Any]:
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": "",
        "status": "in_progress",
    }


def _usage(used: chat_pb2.Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_prompt_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
    }
