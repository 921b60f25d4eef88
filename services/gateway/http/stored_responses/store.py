"""Stored responses: their owners, their form, the interface of their stores, and the errors of missing ones."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from services.runtime.errors import InvalidInput, Missing, ServiceError, Unavailable, shorten
from services.runtime.strict_json import in_steps

_SHORTEST_ID = 16  # characters
_ID_OPTIONAL = ("message", "function_call")  # in an input, unlike calls of a provider's own tools


@dataclass(frozen=True, slots=True)
class Owner:
    """The callers that find a response: all of a tenant, or those of one `end_user`. Items of its output are stored
    separately, for the same callers, with the `kind` item."""

    tenant: str
    end_user: tuple[str, ...] = ()
    kind: Literal["response", "item"] = "response"

    def storage_name(self, stored_id: str) -> str:
        """The key of a stored response or item: a digest of owner and id. An id is unknown to every other owner."""
        whose = json.dumps([self.kind, self.tenant, *self.end_user, stored_id])
        return hashlib.sha256(whose.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and all items of the model's input: earlier turns, then the request's own."""

    response: dict[str, Any]
    input: list[dict[str, Any]]

    @property
    def conversation(self) -> list[Any]:
        """The items before the input of the next turn."""
        return [*self.input, *(item for _, item in _items_for_model(self.response["output"]) if item)]

    @property
    def items(self) -> dict[str, bytes]:
        """The items of the output by their ids, as JSON for an `item_reference`; `null` for a thought that only its
        provider can read. Items with ids that could be guessed are left out."""
        return {name: in_steps(item, _line) if item else b"null" for name, item in self._named}

    @property
    def item_ids(self) -> list[str]:
        return [*dict(self._named)]

    @property
    def _named(self) -> list[tuple[str, dict[str, Any] | None]]:
        return [each for each in _items_for_model(self.response["output"]) if len(each[0]) >= _SHORTEST_ID]

    def serialize(self) -> bytes:
        """The response as lines of JSON, one for the response and one for each item: between two lines a thread lets
        the event loop run."""
        return b"\n".join([in_steps(self.response, _line), *map(_line, self.input)])

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The response that was serialized as `data`."""
        response, *items = map(json.loads, io.BytesIO(data))
        return cls(response, items)


def lines(items: Iterable[dict[str, Any]]) -> bytes:
    """Lines of JSON, one for each item."""
    return b"\n".join(map(_line, items))


def _line(given: object) -> bytes:
    """JSON without escapes, which are two to three times as long as letters of most alphabets. A provider may have sent
    half a surrogate pair."""
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def _items_for_model(output: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any] | None]]:
    """(id, item) for an answer's items, as the input of a model that stores nothing; None for an item that it could not
    read. OpenAI's API looks up a thought without encrypted text by its id, and the thought before an item with an id.
    So with such a thought, all thoughts and all ids are left out. Without thoughts, ids are left out where they are
    optional, because they would make equal conversations differ for the cache."""
    thoughts = [item for item in output if item.get("type") == "reasoning"]
    if thoughts and all(item.get("encrypted_content") for item in thoughts):
        return [(_id(item), item) for item in output]
    always = bool(thoughts)
    return [(_id(item), None if item in thoughts else _without_id(item, always)) for item in output]


def _id(item: dict[str, Any]) -> str:
    return str(item.get("id") or "")


def _without_id(item: dict[str, Any], always: bool) -> dict[str, Any]:
    """An item without its id, if the id is optional in an input, or `always`."""
    if not (always or item.get("type") in _ID_OPTIONAL):
        return item
    return {name: given for name, given in item.items() if name != "id"}


class ResponseStore(Protocol):
    """Responses as bytes, each for a limited time. Beyond its bytes, a tenant loses the least recently used one."""

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        """Store a response in place of any with its id. Returns whether it is stored: not where it alone exceeds the
        bytes. Raises `StoreUnavailable`."""

    async def size(self, owner: Owner, response_id: str) -> int | None:
        """About how many bytes `get` would return. Raises `StoreUnavailable`."""

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        """A stored response, which is then the most recently used. Raises `StoreUnavailable`."""

    async def delete(self, owner: Owner, response_id: str) -> bool:
        """Remove a response. Returns whether it was there. Raises `StoreUnavailable`."""


class PreviousResponseNotFound(InvalidInput):
    """The request continues a response that is not stored, or not for this caller."""

    reason = "PREVIOUS_RESPONSE_NOT_FOUND"

    def __init__(self, response_id: str):
        message = f"Previous response with id '{shorten(response_id)}' not found."
        ServiceError.__init__(self, message, field="previous_response_id")


class ItemNotFound(Missing):
    """The input refers to an item that is not stored, or not for this caller."""

    reason = "ITEM_NOT_FOUND"

    def __init__(self, item_id: str):
        super().__init__(f"Item with id '{shorten(item_id)}' not found.", field="input")


class ResponseNotFound(Missing):
    """The response is not stored, or not for this caller."""

    reason = "RESPONSE_NOT_FOUND"

    def __init__(self, response_id: str):
        super().__init__(f"Response with id '{shorten(response_id)}' not found.")


class StoreUnavailable(Unavailable):
    """The store of responses cannot be reached."""

    reason = "STORE_UNAVAILABLE"
