"""Stored responses: one by its id, its input, and its removal."""

from __future__ import annotations

from functools import partial

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import QueryParams

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.stored_turns import owner
from services.gateway.http.endpoints.auxiliary_admission import Aside
from services.gateway.http.endpoints.input_items import page
from services.gateway.http.errors import NotOffered
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_options
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.sse import compact
from services.gateway.http.stored_responses import references
from services.gateway.http.stored_responses.errors import ResponseNotFound
from services.gateway.http.stored_responses.store import Owner, ResponseStore, StoredResponse
from services.runtime.aside import aside
from services.runtime.errors import InvalidInput


class ResponseId(StringConvertor):
    """An id in a path. Other names there are routes that the gateway lacks, such as `compact`."""

    regex = "resp_[^/]+"


register_url_convertor("response_id", ResponseId())


class Responses:
    """Serves `/v1/responses/{id}` and `/v1/responses/{id}/input_items`."""

    def __init__(self, aside: Aside, store: ResponseStore | None):
        self._aside, self._store = aside, store

    async def __call__(self, exchange: Exchange) -> None:
        """One response by its id, or its removal: one route, whose refusals name both methods."""
        await (self._remove if exchange.scope["method"] == "DELETE" else self._one)(exchange)

    async def _one(self, exchange: Exchange) -> None:
        if (stream := _query(exchange).get("stream", "false")) != "false":
            raise InvalidInput("stream", "false: a stored response comes in one piece", stream)
        async with self._aside.admitted(exchange):
            stored = await self._find(exchange)
            await exchange.reply.whole(200, compact(stored.response))

    async def input_items(self, exchange: Exchange) -> None:
        async with self._aside.admitted(exchange):
            stored = await self._find(exchange)
            await exchange.reply.whole(200, compact(page(stored.input, stored.response["id"], _query(exchange))))

    async def _remove(self, exchange: Exchange) -> None:
        async with self._aside.admitted(exchange):
            store, response_id = self._offered(), _id(exchange)
            whose, stored = _owner(exchange), await self._find(exchange)
            if whose:
                await references.forget(store, whose, stored)
            if not (whose and await store.delete(whose, response_id)):
                raise ResponseNotFound(response_id)
            await exchange.reply.whole(200, compact({"id": response_id, "object": "response", "deleted": True}))

    async def _find(self, exchange: Exchange) -> StoredResponse:
        store, response_id, whose = self._offered(), _id(exchange), _owner(exchange)
        if whose and (data := await store.get(whose, response_id)):
            return await aside(len(data), partial(StoredResponse.parse, data))
        raise ResponseNotFound(response_id)

    def _offered(self) -> ResponseStore:
        if self._store is None:
            raise NotOffered(
                "responses: not stored here; HEDGEROW_GATEWAY_RESPONSES__TTL_MS says for how long they are"
            )
        return self._store


def _id(exchange: Exchange) -> str:
    response_id: str = exchange.scope["path_params"]["id"]
    return response_id


def _query(exchange: Exchange) -> QueryParams:
    return QueryParams(exchange.scope["query_string"])


def _owner(exchange: Exchange) -> Owner | None:
    """That of a request without a body: its end user is named in a header."""
    order = RequestOptions(pb.GenerateRequest())
    take_options(order, exchange.headers, Fields({}))
    return owner(exchange.credential.tenant, order)
