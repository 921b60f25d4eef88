"""Requests of Responses that continue a stored response or refer to its items, and the storing of their answers.

A model gets the whole conversation as if the caller had sent it: the items of earlier turns, unchanged, before the
request's own, and an item in the place of a reference to it. The provider stores nothing and gets no id. A response is
stored before its last event is sent, so that the client's next request finds it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.answer.metrics import degrade
from services.gateway.http import json_limits
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.endpoints.generating import Read, ReadRequest
from services.gateway.http.fields import Fields
from services.gateway.http.report import report, size_of_answer
from services.gateway.http.request_options import RequestOptions
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.stored_responses import references
from services.gateway.http.stored_responses.memory import Retries
from services.gateway.http.stored_responses.store import (
    Owner,
    PreviousResponseNotFound,
    ResponseStore,
    StoredResponse,
    StoreUnavailable,
    lines,
)
from services.gateway.labels import Degraded
from services.runtime import strict_json
from services.runtime.aside import aside, size_in
from services.runtime.errors import InvalidInput

_PREVIOUS = "previous_response_id"
_OF_PROVIDERS = ("conversation", "background")  # state that a provider stores, not the gateway
_ID_BYTES = 24  # no caller guesses one


def owner(tenant: Tenant, order: RequestOptions) -> Owner | None:
    """The owner of the responses that a request stores and finds; None if responses belong to end users and the request
    names none. Of several names the first is the owner, because a request without a body has only one."""
    if tenant.hits.scope != "user":
        return Owner(tenant.name)
    names = order.request.end_user[:1]
    return Owner(tenant.name, tuple(names)) if names else None


@dataclass(frozen=True, slots=True)
class _Continuation:
    """A request that continues the response `previous`, or refers to the items `item_ids`."""

    exchange: Exchange
    whose: Owner | None
    previous: str
    item_ids: list[str]
    stores: bool  # its answer
    items: list[Any]  # of its own input
    data: bytes  # its own body


@dataclass(frozen=True, slots=True)
class StoredTurns:
    """Requests with and without an earlier response in the store."""

    store: ResponseStore
    retries: Retries

    async def __call__(self, exchange: Exchange, body: Fields, size: int, read: Read) -> ReadRequest | None:
        """Raises `PreviousResponseNotFound`, `ItemNotFound`, `StoreUnavailable`, and `InvalidInput` for a conversation
        that is larger than a request may be."""
        stores, previous = body.flag("store") is not False, body.text(_PREVIOUS)
        tenant = exchange.credential.tenant
        item_ids = await aside(tenant.name, size, partial(references.names, body))
        if any(map(body.seen, _OF_PROVIDERS)) or not (stores or previous or item_ids):
            return None
        given = {name: body.seen(name) for name in body if name != _PREVIOUS} | {"store": False}
        body = Fields(given)
        data = await aside(tenant.name, size, partial(strict_json.written, given, size))
        order = await read(data, body, size)  # its own input alone, so that errors have the caller's places
        whose = owner(tenant, order)
        stores = stores and whose is not None
        items = _items(given.get("input"))
        answer_id = secrets.token_hex(_ID_BYTES) if stores else exchange.answer_id
        if previous or item_ids:
            continuation = _Continuation(exchange, whose, previous or "", item_ids, stores, items, data)
            items, most, answer_id = await self._conversation(continuation, order.request.idempotency_key, answer_id)
            given["input"] = items
            data, body = await _joined_body(exchange, given, most, _PREVIOUS if previous else "input"), Fields(given)
            order = await read(data, body, size_in(data))  # with what was joined
        order.stored = {"store": stores, _PREVIOUS: previous, **({"id": f"resp_{answer_id}"} if stores else {})}
        order.echo = {**order.echo, **order.stored}
        writer = ResponseWriter(order, answer_id)
        if not (stores and whose):
            return ReadRequest(data, order, writer)

        written = await aside(tenant.name, size_in(data), partial(lines, items))  # their objects are not kept so long

        async def before_end(final: pb.Final) -> bytes:
            def close() -> tuple[bytes, StoredResponse]:
                return (writer.close(final) if order.stream else b""), StoredResponse(writer.whole(final), [])

            closing, answered = await aside(tenant.name, size_of_answer(final), close)
            await self._store(exchange, whose, answered, written, final)
            return closing

        return ReadRequest(data, order, writer, before_end)

    async def _conversation(self, continuation: _Continuation, key: str, answer_id: str) -> tuple[list[Any], int, str]:
        """The items that a model is asked with, about how many bytes they and the request have, and the answer's id. A
        retry with the same idempotency key has those of the first time."""
        if not (continuation.whose and key):
            return *await self._joined_items(continuation), answer_id
        own = strict_json.compact([continuation.previous, continuation.stores]) + continuation.data
        if found := await self.retries.find(continuation.whose, key, own):
            first, size = found
            continuation.exchange.expand(size)
            return first.input, size, first.response["id"]
        items, size = await self._joined_items(continuation)
        await self.retries.keep(continuation.whose, key, own, StoredResponse({"id": answer_id}, items), size)
        return items, size, answer_id

    async def _joined_items(self, continuation: _Continuation) -> tuple[list[Any], int]:
        """The items that a model is asked with, and about how many bytes they and the request have."""
        items, size = await self._own_items(continuation)
        if not continuation.previous:
            return items, size
        earlier, size = await self._earlier_items(continuation, size)
        return [*earlier, *items], size

    async def _own_items(self, continuation: _Continuation) -> tuple[list[Any], int]:
        """The request's own items, those that it refers to in their places, and about how many bytes it has then."""
        size, exchange = len(continuation.data), continuation.exchange
        if not continuation.item_ids:
            return continuation.items, size

        def expand(more: int) -> None:
            nonlocal size
            exchange.expand(size := size + more)

        found = await references.find(
            self.store, continuation.whose, continuation.item_ids, exchange.bounds.most_bytes, expand
        )
        return references.put_in(continuation.items, found), size

    async def _earlier_items(self, continuation: _Continuation, own_bytes: int) -> tuple[list[Any], int]:
        """The items before a request of `own_bytes`, which take room before they are fetched, and about how many bytes
        they and the request have."""
        whose, response_id = continuation.whose, continuation.previous
        if whose and (stored := await self.store.size(whose, response_id)):
            size = own_bytes + stored
            continuation.exchange.expand(size)
            if data := await self.store.get(whose, response_id):
                return (await aside(whose.tenant, size, partial(StoredResponse.parse, data))).conversation, size
        raise PreviousResponseNotFound(response_id)

    async def _store(
        self, exchange: Exchange, whose: Owner, answered: StoredResponse, asked: bytes, final: pb.Final
    ) -> None:
        """Store a response to the items `asked`, or have it and its report say that it is not stored."""
        response = answered.response

        def written() -> bytes:
            data = b"\n".join(filter(None, (answered.serialize(), asked)))
            json_limits.check(data, exchange.bounds.json)  # or the next turn could not be read
            return data

        try:
            data = await aside(whose.tenant, len(asked) + size_of_answer(final), written)
            stored = await references.keep(self.store, whose, answered, size_of_answer(final))
            stored = stored and await self.store.put(whose, response["id"], data)
            if not stored:
                await references.forget(self.store, whose, answered)
        except (InvalidInput, StoreUnavailable):
            stored = False
        if not stored:
            degrade(final, Degraded.RESPONSE_UNSTORED)
            response.update(store=False, hedgerow=report(final))


def _items(given: Any) -> list[dict[str, Any]]:
    """The items of an input."""
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given or ())


async def _joined_body(exchange: Exchange, given: Mapping[str, Any], size: int, field: str) -> bytes:
    """A body of about `size` bytes with earlier turns or items, which `field` has named. It has the limits of one
    that was sent, and takes its room."""
    tenant = exchange.credential.tenant.name
    data = await aside(tenant, size, partial(strict_json.written, given, size))
    if len(data) > (most := exchange.bounds.most_bytes):
        raise InvalidInput(field, f"a conversation of at most {most} bytes", f"{len(data)} bytes")
    exchange.expand(len(data))
    try:
        await aside(tenant, size, partial(json_limits.check, data, exchange.bounds.json))
    except InvalidInput as many:
        raise InvalidInput(field, f"a conversation of {many.metadata['limit']}", "more") from None
    return data
