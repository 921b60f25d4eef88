"""Stored responses: one by its id, its removal, and its input, in pages as OpenAI's API lists it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import QueryParams

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.endpoints.stored_turns import owner
from services.gateway.http.errors import NotOffered
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_options
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.stored_responses import references
from services.gateway.http.stored_responses.store import Owner, ResponseNotFound, ResponseStore, StoredResponse
from services.runtime.aside import aside
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact, in_steps

_PAGE, _LARGEST_PAGE = 20, 100
_ORDERS = ("asc", "desc")
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class ResponseId(StringConvertor):
    """An id in a path. Other names there are routes that the gateway lacks, such as `compact`."""

    regex = "resp_[^/]+"


register_url_convertor("response_id", ResponseId())


class Responses:
    """Serves `/v1/responses/{id}` and `/v1/responses/{id}/input_items`."""

    def __init__(self, admission: EndpointAdmission, store: ResponseStore | None):
        self._admission, self._store = admission, store

    async def __call__(self, exchange: Exchange) -> None:
        """Get or remove a response by its id: one route, so that refusals name both methods."""
        await (self._remove if exchange.scope["method"] == "DELETE" else self._one)(exchange)

    async def _one(self, exchange: Exchange) -> None:
        if (stream := _query(exchange).get("stream", "false")) != "false":
            raise InvalidInput("stream", "false: a stored response comes in one piece", stream)
        async with self._admission.admitted(exchange):
            data, tenant = await self._data(exchange), exchange.credential.tenant.name
            written = await aside(tenant, len(data), lambda: in_steps(StoredResponse.parse(data).response))
            await exchange.reply.whole(200, written)

    async def input_items(self, exchange: Exchange) -> None:
        async with self._admission.admitted(exchange):
            data, tenant, query = await self._data(exchange), exchange.credential.tenant.name, _query(exchange)
            written = await aside(tenant, len(data), lambda: in_steps(_page_of(data, query)))
            await exchange.reply.whole(200, written)

    async def _remove(self, exchange: Exchange) -> None:
        async with self._admission.admitted(exchange):
            store, response_id = self._offered(), _id(exchange)
            whose, data = _owner(exchange), await self._data(exchange)
            if whose:
                stored = await aside(whose.tenant, len(data), partial(StoredResponse.parse, data))
                await references.forget(store, whose, stored)
            if not (whose and await store.delete(whose, response_id)):
                raise ResponseNotFound(response_id)
            await exchange.reply.whole(200, compact({"id": response_id, "object": "response", "deleted": True}))

    async def _data(self, exchange: Exchange) -> bytes:
        """The stored response, which takes room before it is fetched. Raises `BodiesWaiting`."""
        store, response_id, whose = self._offered(), _id(exchange), _owner(exchange)
        if whose and (size := await store.size(whose, response_id)):
            exchange.expand(size)
            if data := await store.get(whose, response_id):
                return data
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
    """The owner for a request without a body: a header names its end user."""
    order = RequestOptions(pb.GenerateRequest())
    take_options(order, exchange.headers, Fields({}))
    return owner(exchange.credential.tenant, order)


def _page_of(data: bytes, query: Mapping[str, str]) -> dict[str, Any]:
    stored = StoredResponse.parse(data)
    return page(stored.input, stored.response["id"], query)


def page(items: Sequence[Mapping[str, Any]], response_id: str, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the items that a response was asked with, as `limit`, `order` and `after` of the query ask for it.
    Raises `InvalidInput`."""
    limit, order, after = query.get("limit", str(_PAGE)), query.get("order", "desc"), query.get("after")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _LARGEST_PAGE):
        raise InvalidInput("limit", f"1 to {_LARGEST_PAGE}", limit)
    if order not in _ORDERS:
        raise InvalidInput("order", f"one of {', '.join(_ORDERS)}", order)
    listed = [_listed(item, f"{response_id.removeprefix('resp_')}_{index}") for index, item in enumerate(items)]
    if order == "desc":
        listed.reverse()
    if after is not None:
        positions = [position for position, item in enumerate(listed) if item["id"] == after]
        if not positions:
            raise InvalidInput("after", "the id of one of the items", after)
        listed = listed[positions[0] + 1 :]
    data = listed[: int(limit)]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": "", "last_id": ""}
    return {"object": "list", "data": data, **ends, "has_more": len(data) < len(listed)}


def _listed(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An item with the fields that OpenAI's API adds to it. `name`: the end of its id where it has none."""
    kind = item.get("type") or "message"
    listed = {**item, "type": kind, "id": item.get("id") or f"{_PREFIXES.get(kind, 'item')}_{name}"}
    if kind != "reasoning":
        listed["status"] = item.get("status") or "completed"
    if kind == "message":
        listed["content"] = [_part(part, item.get("role")) for part in _parts(item.get("content"))]
    return listed


def _parts(content: Any) -> list[Any]:
    """The parts of a content. A lenient provider may have taken others than texts and objects."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _part(part: Mapping[str, Any], role: Any) -> dict[str, Any]:
    """A part as its role has it: an assistant's texts are output."""
    if role == "assistant" and "text" in part:
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    if part.get("type") == "text":
        return {**part, "type": "input_text"}
    return {"detail": "auto", **part} if part.get("type") == "input_image" else dict(part)
