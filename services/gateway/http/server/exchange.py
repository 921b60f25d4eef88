"""One request by HTTP and its reply.

Headers are sent with the first bytes of an answer and not before, so that an error before them still has its status.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from opentelemetry.trace import Span, format_span_id
from starlette.types import Receive, Scope, Send

from services.gateway.admission.credential import Credential
from services.gateway.admission.intake import Intake, Limits
from services.gateway.admission.quota import CONVERSATION, NO_CLAIM
from services.gateway.http.errors import BodyLate, BodyTooLarge, ErrorResponse, Headers, NotJson
from services.gateway.http.fields import Fields, parse
from services.gateway.http.server.client_watch import Left
from services.gateway.http.server.connection import PEER
from services.gateway.http.sse import CONTENT_TYPE, PING
from services.runtime import telemetry
from services.runtime.aside import aside, size_in
from services.runtime.policy.waiting_bytes import Held
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER
from services.runtime.strict_json import compact

FOR_PROVIDERS = ("openai-", "anthropic-")  # headers that a model behind the same API gets
JSON = b"application/json"
NAMED_MODEL = "named_model"  # in a request's scope: the model that its path names, whatever its body names
SKIMMED_S, _SKIMMED_BYTES = 1.0, 1_048_576
_UNREAD_BYTES = 65_536  # above which the server waits for the client before it sends more
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_PASSED_ON = frozenset({b"traceparent", b"tracestate", TENANT_HEADER.encode(), EXPIRES_HEADER.encode()})


def _by_name(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name. Of a header in several lines the last one counts; lines of headers for providers become a list
    (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for raw, value in lines:
        name, text = raw.decode("latin-1"), _decoded(value)
        before = found.get(name) if name.startswith(FOR_PROVIDERS) else None
        found[name] = f"{before}, {text}" if before and before != text else text
    return found


def _decoded(value: bytes) -> str:
    """A header's text: UTF-8, as clients send names of their tenants and end users, or else Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@dataclass(slots=True)
class HttpReply:
    """The reply. `status` is 0 until the headers are out; `ends`: whether the bytes now being sent are its last."""

    send: Send
    headers: Headers = field(default_factory=list)
    status: int = 0
    ends: bool = False

    async def whole(
        self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), kind: bytes = JSON
    ) -> None:
        """Everything at once, as `write` sends the last of a stream."""
        length = (b"content-length", b"%d" % len(body))
        await self._start(status, [(b"content-type", kind), length, *headers])
        await self.write(body, last=True)

    async def begin(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """The headers of a stream, unless they are out."""
        if not self.status:
            own = [(b"content-type", CONTENT_TYPE), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
            await self._start(200, [*own, *headers])

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """More of a stream. When the `last` has been sent, its client has read all but 64 KiB of it: until then the
        request holds its slot and its memory."""
        self.ends = last
        if last and len(data) > _UNREAD_BYTES:
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
            data = b""
        await self.send({"type": "http.response.body", "body": data, "more_body": not last})

    async def beat(self) -> None:
        """A sign of life of a stream that has nothing else to send."""
        if not self.ends:
            await self.begin()
            await self.write(PING)

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *self.headers]})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a body: its bytes, the time of its arrival, its values, and the memory that it shares with others."""

    most_bytes: int
    within_ms: int
    json: Limits
    intake: Intake | None


class Exchange:
    """A request and its reply. `span` is set while it is served, `credential` where the route wants one."""

    span: Span
    credential: Credential
    broken: Callable[[ErrorResponse], bytes] | None = None  # the last words of the stream that has begun

    def __init__(self, scope: Scope, receive: Receive, send: Send, bounds: Bounds):
        self.scope, self.receive, self.reply, self.bounds = scope, receive, HttpReply(send), bounds
        self._held: Held | None = None  # of the room for bodies
        self.headers = _by_name(scope["headers"])
        self.peer: str = scope.get(PEER, "")  # empty in plain text
        self._read = not {"content-length", "transfer-encoding"} & self.headers.keys()
        self._waits = self.headers.get("expect", "").lower() == "100-continue"  # with its body, until it is asked for

    @cached_property
    def metadata(self) -> telemetry.Metadata:
        """The caller's metadata, as by gRPC."""
        authorization = self.headers.get("authorization", "")
        key = self.headers.get("x-api-key") or self.headers.get("api-key")  # Anthropic's clients, Azure's
        if key and not authorization.lower().startswith("bearer "):
            authorization = f"Bearer {key}"
        credentials = [("authorization", authorization)] if authorization else []
        passed = (header for header in self.scope["headers"] if header[0] in _PASSED_ON)
        return (*credentials, *((name.decode(), _decoded(value)) for name, value in passed))

    @property
    def is_anthropics(self) -> bool:
        """Whether a client of Anthropic asks, which expects some fields and headers of its own."""
        return "anthropic-version" in self.headers

    @cached_property
    def trace_id(self) -> str:
        return telemetry.trace_id(self.span)

    @property
    def answer_id(self) -> str:
        """A unique id of an answer, because several requests may belong to one trace."""
        return format_span_id(self.span.get_span_context().span_id) + self.trace_id[:8]

    def name(self) -> None:
        """Have the reply say whose it is."""
        own, context = self.headers.get("x-request-id", ""), self.span.get_span_context()
        request_id = own if _REQUEST_ID.fullmatch(own) else self.trace_id
        parent = f"00-{self.trace_id}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
        self.reply.headers += [
            (b"x-request-id", request_id.encode()),
            *([(b"request-id", request_id.encode())] if self.is_anthropics else []),
            (b"x-hedgerow-trace-id", self.trace_id.encode()),
            (b"traceparent", parent.encode()),
        ]

    async def body(self) -> bytes:
        """The whole body. Raises `NotJson` for a compressed one, `BodyTooLarge`, `QuotaExceeded`, `BodiesWaiting`,
        `BodyLate` and `Left`."""
        if (encoding := self.headers.get("content-encoding", "").strip().lower()) not in ("", "identity"):
            raise NotJson("content-encoding", "identity: no compressed body", encoding)
        most, within_ms, intake = self.bounds.most_bytes, self.bounds.within_ms, self.bounds.intake
        if (length := self.headers.get("content-length", "").lstrip("0")).isdecimal() and int(length) > most:
            raise BodyTooLarge("body", f"at most {most} bytes", f"{length} bytes")
        try:
            async with asyncio.timeout(within_ms / 1000):
                keyed = bool(self.headers.get("idempotency-key"))  # whether it may be for an answer that has a place
                claim = NO_CLAIM if keyed else CONVERSATION
                reading = intake.reading(self.credential.tenant, self.trace_id, claim) if intake else nullcontext()
                with reading as self._held:
                    return await self._all(most, self._held)
        except TimeoutError:
            raise BodyLate(f"body: within {within_ms} ms, got less") from None

    def admitted(self) -> None:
        """The request is admitted, or over: its body takes no more of the room for those that are not."""
        if self._held:
            self._held.give_back()

    def expand(self, size: int) -> None:
        """The request has `size` bytes, more than its body, until it is admitted, or over if it is. Raises
        `BodiesWaiting`."""
        if self._held is None and self.bounds.intake:
            self._held = Held(self.bounds.intake.waiting, self.credential.tenant.name)
        if self._held:
            self._held.keep(size)

    async def fields(self) -> Fields:
        """The object that a JSON body is."""
        return await self.read(await self.json())

    async def read(self, body: bytes) -> Fields:
        """The object that a JSON body is, read beside the event loop where it is large."""
        return await aside(self.credential.tenant.name, size_in(body), partial(self.parsed, body))

    def parsed(self, body: bytes) -> Fields:
        """The object that a JSON body is, with the model that the path names."""
        return parse(body, self.bounds.json, self.scope.get(NAMED_MODEL, ""))

    async def json(self) -> bytes:
        """A body that says it is JSON, or has no type and comes with a key: a page can send other bodies, without a
        key, to wherever its reader can connect, unasked. Raises `Shed` for a large one under pressure of its tenant."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and (kind or self.credential.tenant.anonymous):
            raise NotJson("content-type", "application/json", kind or "none")
        body = await self.body()
        if intake := self.bounds.intake:
            intake.admission.parses(self.credential.tenant, self.trace_id, size_in(body))
        return body

    async def _all(self, most: int, held: Held | None = None, *, keep: bool = True) -> bytes:
        whole, size, more, self._waits = io.BytesIO(), 0, True, False
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Left
            piece, more = message.get("body", b""), message.get("more_body", False)
            self._read = not more
            size += len(piece)
            if size > most:
                raise BodyTooLarge("body", f"at most {most} bytes", f"{size} bytes or more")
            if held:
                held.take(len(piece))
            if keep:
                if not more and size == len(piece):
                    whole = io.BytesIO(piece)  # which shares it
                else:
                    whole.write(piece)
        return whole.getvalue()

    async def _skim(self) -> bool:
        """Whether the rest of a refused body ends soon. To close before its end would take the answer from its
        client."""
        if self._waits:
            return False
        with suppress(BodyTooLarge, TimeoutError):
            async with asyncio.timeout(SKIMMED_S):
                await self._all(_SKIMMED_BYTES, keep=False)
        return self._read

    async def fail(self, failure: ErrorResponse, body: Any) -> None:
        """An end that is none of the route's own: a status, or the last words of a stream."""
        if self.reply.status:
            await self.reply.write(self.broken(failure) if self.broken and not self.reply.ends else b"", last=True)
            return
        unread = [] if self._read or await self._skim() else [(b"connection", b"close")]
        await self.reply.whole(failure.status, compact(body), [*failure.headers(), *unread])
