"""OpenAI's older completions: a prompt in, a text out. The prompt is asked as a user's question."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http import sse
from services.gateway.http.dialects.chat_answer import finish_of, usage
from services.gateway.http.dialects.chat_request import take_choices, take_form, take_sampling, take_stream
from services.gateway.http.dialects.writer import ChoiceWriter
from services.gateway.http.fields import Fields
from services.gateway.http.report import found, report
from services.gateway.http.request_options import RequestOptions, take_model, take_options
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact, quoted

_REFUSED = ("suffix", "echo")
# Fields that nothing reads and on which no answer depends.
_OF_NO_EFFECT = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "store", "user"})
_EMPTY: tuple[Any, ...] = ("", [], {})


def read_completion(
    body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = 1
) -> RequestOptions:
    """The order of a completion, which is one message. Raises `InvalidInput` and `ModelUnknown`."""
    order = RequestOptions(pb.GenerateRequest())
    take_model(order, body, known)
    take_choices(order, body)
    if (best_of := body.whole("best_of")) not in (None, 1):
        raise InvalidInput("best_of", "1", best_of)
    body.refuse(*_REFUSED)
    logprobs = body.raw("logprobs")
    if not (logprobs is None or logprobs is False):  # 0 asks for the chosen tokens' own
        raise InvalidInput("logprobs", "not supported", compact(logprobs).decode())
    prompts = body.texts("prompt")
    if len(prompts) != 1:
        raise InvalidInput("prompt", "one string", len(prompts))
    order.request.messages.add(role=chat_pb2.ROLE_USER, content=prompts[0])
    take_stream(order, body)
    take_sampling(order.request, body)
    take_form(order.request, body, body.object("response_format"))
    take_options(order, headers, body)
    _refuse_unread(body)
    return order


def _refuse_unread(body: Fields) -> None:
    """A completion goes to no model as it is written: a field that nothing has read would be lost without a word."""
    for place, given in sorted(body.unread().items()):
        if not ("." in place or given is False or given in _EMPTY or place in _OF_NO_EFFECT):
            raise InvalidInput(place, "no such field of completions", compact(given).decode())


class CompletionWriter(ChoiceWriter):
    """Writes an answer, in chunks or whole."""

    def __init__(self, order: RequestOptions, answer_id: str, index: int = 0):
        """`index`: which of several answers to a question it is."""
        self._order, self._index = order, index
        same = {"id": f"cmpl-{answer_id}", "object": "text_completion", "created": int(time.time())}
        self._same = {**same, "model": order.model}
        usage = b',"usage":null' if order.usage else b""
        self._head = b"data: " + compact(self._same)[:-1] + usage + b',"choices":[{"index":%d,"text":' % index

    def chunk(self, event: pb.Event) -> bytes:
        """Text; and what was found, beside an empty one."""
        if event.HasField("delta"):
            return self._head + quoted(event.delta.text) + b',"logprobs":null,"finish_reason":null}]}\n\n'
        if not (self._order.findings and (findings := found(event))):
            return b""
        return self._head + b'"","logprobs":null,"finish_reason":null}],"hedgerow":' + compact(findings) + b"}\n\n"

    def end(self, final: pb.Final) -> bytes:
        mesh_report = report(final)
        return self.end_choice(final, None if self._order.usage else mesh_report) + self.end_all(
            final.usage, mesh_report
        )

    def end_choice(self, final: pb.Final, mesh_report: Mapping[str, Any] | None) -> bytes:
        choices = [{"index": self._index, "text": "", "logprobs": None, "finish_reason": finish_of(final)}]
        nothing = {"usage": None} if self._order.usage else {}
        return sse.event(
            {**self._same, **nothing, "choices": choices, **({"hedgerow": mesh_report} if mesh_report else {})}
        )

    def end_all(self, used: chat_pb2.Usage, mesh_report: Mapping[str, Any]) -> bytes:
        last = sse.event({**self._same, "choices": [], "usage": usage(used), "hedgerow": mesh_report})
        return (last if self._order.usage else b"") + sse.DONE

    def gather(self, event: pb.Event) -> None:
        """Collect nothing: the final event has the whole text."""

    def whole(self, final: pb.Final) -> dict[str, Any]:
        choices = [{"index": self._index, "text": final.text, "logprobs": None, "finish_reason": finish_of(final)}]
        same = {**self._same, "model": final.model or self._order.model}
        return {**same, "choices": choices, "usage": usage(final.usage), "hedgerow": report(final)}
