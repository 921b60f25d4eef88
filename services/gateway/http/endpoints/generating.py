"""Routes that ask for an answer. The request is read in one dialect and given to the servicer that serves gRPC; its
events are written in that dialect, as a stream or in one piece."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import provider_fields
from services.gateway.api.choices import Choices
from services.gateway.api.servicer import GatewayServicer
from services.gateway.config import GatewaySettings
from services.gateway.decisions import Changed
from services.gateway.errors import refuses_choices
from services.gateway.http.dialects.original import leave_recordings, original
from services.gateway.http.dialects.writer import AnswerWriter, Write, WriteChoice
from services.gateway.http.endpoints import several
from services.gateway.http.endpoints.several import AskedAlone, Several, Take, for_each
from services.gateway.http.errors import BudgetTimeout, FirstTokenTimeout, Interrupted, with_http_names
from services.gateway.http.fields import Fields
from services.gateway.http.report import short, size_of_answer
from services.gateway.http.request_options import RequestOptions, settle_pace, settle_replacing
from services.gateway.http.server.client_watch import ConnectionWatch
from services.gateway.http.server.endpoint import Shape
from services.gateway.http.server.exchange import Exchange
from services.gateway.labels import Degraded
from services.runtime.aside import aside, size_in
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported
from services.runtime.rpc.boundary import Call
from services.runtime.strict_json import written

_TEXTS = frozenset({"delta", "tool_call", "reasoning", "relayed"})


class ReadBody(Protocol):
    """Reads a body; `known` are the models' names, `most_messages` the most that its conversation may have."""

    def __call__(
        self, body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = ..., /
    ) -> RequestOptions: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """An API's words for orders, answers and errors. `api`: as the models' services know it, where they do."""

    read: ReadBody
    write: Write
    shape: Shape
    api: chat_pb2.Api = chat_pb2.API_UNSPECIFIED
    choose: WriteChoice | None = None  # where a request may ask for several answers


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request as it is answered: its body, `data`, what was read from it, and the writer of the answer. Objects of
    its JSON are not kept: the garbage collector would look at 100,000 for as long as the answer takes. `before_end` is
    awaited before the end is written, and returns what comes before that in a stream."""

    data: bytes
    order: RequestOptions
    writer: AnswerWriter
    before_end: Callable[[pb.Final], Awaitable[bytes]] | None = None


# Reads a body, whose bytes are the first argument, with `aside`: the last one is the size as there.
Read = Callable[[bytes, Fields, int], Awaitable[RequestOptions]]
# Puts earlier turns before the input of a request of about a size; None where it is answered as it is.
Continue = Callable[[Exchange, Fields, int, Read], Awaitable[ReadRequest | None]]


@dataclass(frozen=True, slots=True)
class Generating:
    """Serves such a route."""

    dialect: Dialect
    servicer: GatewayServicer
    settings: GatewaySettings
    go_on: Continue | None = None
    alone: AskedAlone = field(default_factory=AskedAlone)

    async def __call__(self, exchange: Exchange) -> None:
        asked, tenant = await self._asked(exchange), exchange.credential.tenant
        order = asked.order
        settle_replacing(order, checks=tenant.checks_forms(by_default=self.settings.response_format.check))
        settle_pace(order)
        deadline = _deadline(order, exchange.headers)
        call = Call(exchange.metadata, deadline, exchange.span, exchange.peer, exchange.admitted)
        exchange.broken = asked.writer.broken
        with self._watch(exchange, order) as watch:
            take = partial(self._write if order.stream else self._gather, exchange, asked, watch)
            try:
                if order.choices == 1:
                    await self.servicer.answer(order.request, call, take)
                else:
                    await self._answer_several(exchange, asked, watch, call, take)
            except (InvalidInput, NotSupported) as refused:
                raise with_http_names(refused, order.request.original.untranslated) from None

    async def _asked(self, exchange: Exchange) -> ReadRequest:
        size, tenant = size_in(data := await exchange.json()), exchange.credential.tenant.name

        def read(data: bytes, body: Fields, size: int, /) -> Awaitable[RequestOptions]:
            return aside(tenant, size, partial(self._read, exchange.headers, data, body))

        if self.go_on and (asked := await self.go_on(exchange, await exchange.read(data), size, read)):
            return asked
        order = await aside(tenant, size, lambda: self._read(exchange.headers, data, exchange.parsed(data)))
        return ReadRequest(data, order, self.dialect.write(order, exchange.answer_id))

    def _read(self, headers: Mapping[str, str], data: bytes, body: Fields) -> RequestOptions:
        """The order in a body, which holds its caller's own words where the models' services know the API."""
        order = self.dialect.read(body, headers, self.settings.chat_models, self.settings.max_messages)
        if self.dialect.api:
            if not self.settings.audio_address:
                leave_recordings(order.request, body)
            order.request.original.CopyFrom(original(self.dialect.api, data, body, headers))
        else:
            for place in body.left():
                raise InvalidInput(place, "text, a picture in a data: URL, a recording or a function", "another type")
        return order

    async def _answer_several(
        self, exchange: Exchange, asked: ReadRequest, watch: ConnectionWatch, call: Call, whole: Take
    ) -> None:
        """Answer with several choices. `whole` takes the answer of a model that gives them all."""
        assert self.dialect.choose
        order, tenant = asked.order, exchange.credential.tenant.name

        async def send(data: bytes, last: bool) -> None:
            await exchange.reply.begin()
            watch.sent(last=last)
            await exchange.reply.write(data, last=last)

        def came(message: pb.GenerateResponse) -> None:
            if _has_text(message):
                watch.came()

        writers = [self.dialect.choose(order, exchange.answer_id, index) for index in range(order.choices)]
        answers = Several(order, writers, send, _refuse_empty, came, tenant)

        async def take(message: pb.GenerateResponse, choice: int | None = None, /) -> None:
            await (whole(message) if choice is None else answers.take(choice, message))

        await self.servicer.answer_choices(self._choices(exchange, asked), call, take)
        if answers.finals and not order.stream:
            answer = await self._in_one_piece(tenant, answers.size, answers.whole)
            watch.sent(last=True)
            await exchange.reply.whole(200, answer, short(answers.together))

    def _choices(self, exchange: Exchange, asked: ReadRequest) -> Choices:
        """The choices of a request: from a provider in one request, unless its model has refused that recently."""
        tenant, order = exchange.credential.tenant, asked.order

        def refused(error: InvalidInput) -> bool:
            separate = refuses_choices(error)
            if separate and order.request.model and not isinstance(error, provider_fields.NoneBeside):
                self.alone.note(order.model)
            return separate

        async def each() -> Sequence[pb.GenerateRequest]:
            provider_fields.check(
                chat_pb2.Original(untranslated={"n": str(order.choices)}), tenant.provider, tenant.name
            )
            several.check_choices(order.choices, tenant)
            several.check_bytes(order, exchange.bounds.most_bytes)
            size, separate = size_in(asked.data) * order.choices, several.separate
            return await aside(tenant.name, size, lambda: separate(order, exchange.parsed(asked.data)))

        tried = bool(self.dialect.api) and order.model not in self.alone
        return Choices(order.request, order.choices, tried, refused, each)

    async def _write(
        self, exchange: Exchange, asked: ReadRequest, watch: ConnectionWatch, message: pb.GenerateResponse
    ) -> None:
        """More of a stream."""
        reply, writer = exchange.reply, asked.writer
        if final := _final(message):
            _refuse_empty(final)
        tenant = exchange.credential.tenant.name
        data = b"".join(await for_each(message, writer.chunk, tenant))
        if final:
            if asked.before_end:
                if reply.status and data:
                    await reply.write(data)  # which does not wait for that
                    data = b""
                data += await asked.before_end(final)
            data += await aside(tenant, size_of_answer(final), partial(writer.end, final))
        if not data:
            return
        if _has_text(message):
            watch.came()
        if not reply.status:
            await reply.begin(short(final) if final else ())
        watch.sent(last=final is not None)
        await reply.write(data, last=final is not None)

    async def _gather(
        self, exchange: Exchange, asked: ReadRequest, watch: ConnectionWatch, message: pb.GenerateResponse
    ) -> None:
        """More of an answer that is sent in one piece, with its end."""
        if _has_text(message):
            watch.came()
        tenant = exchange.credential.tenant.name
        await for_each(message, asked.writer.gather, tenant)
        if final := _final(message):
            _refuse_empty(final)
            if asked.before_end:
                await asked.before_end(final)
            size = size_of_answer(final) * asked.order.choices  # of which it has the first one's objects
            answer = await self._in_one_piece(tenant, size, partial(asked.writer.whole, final))
            watch.sent(last=True)
            await exchange.reply.whole(200, answer, short(final))

    async def _in_one_piece(self, tenant: str, size: int, whole: Callable[[], Mapping[str, Any]]) -> bytes:
        """An answer whose objects have about `size`."""
        return await aside(tenant, size, lambda: written(whole(), size))

    def _watch(self, exchange: Exchange, order: RequestOptions) -> ConnectionWatch:
        silence_ms = self.settings.silence_ms if order.silence_ms is None else order.silence_ms
        beats = exchange.reply.beat if order.stream else None
        return ConnectionWatch(exchange.receive, silence_ms / 1000, self.settings.http.heartbeat_ms / 1000, beats)


def _refuse_empty(final: pb.Final) -> None:
    """Raise for an answer that is none: no text of it is a model's, or the rest of it is lost."""
    if final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED:
        raise Interrupted(f"{final.model}: the model broke in mid-answer", trace_id=final.trace_id)
    has_words = Degraded.LLM_TEMPLATE not in final.degraded and (final.text or final.tool_calls or final.reasoning)
    if has_words or final.finish_reason != chat_pb2.FINISH_REASON_BUDGET:
        return
    if final.cut.what == Changed.FIRST_TOKEN:
        raise FirstTokenTimeout(f"no text within the first {final.cut.after}", trace_id=final.trace_id)
    raise BudgetTimeout(f"no text within {final.budget_ms:.0f} ms", trace_id=final.trace_id)


def _final(message: pb.GenerateResponse) -> pb.Final | None:
    last = message.events[-1]
    return last.final if last.HasField("final") else None


def _has_text(message: pb.GenerateResponse) -> bool:
    return not _TEXTS.isdisjoint([event.WhichOneof("kind") for event in message.events])


def _deadline(order: RequestOptions, headers: Mapping[str, str]) -> Deadline:
    """How long the client reads: of no use for a stream, where it counts from byte to byte."""
    if not order.stream:
        with suppress(ValueError):
            if (seconds := float(headers.get("x-stainless-read-timeout", ""))) > 0:
                return Deadline.after(seconds)
    return Deadline.never()
