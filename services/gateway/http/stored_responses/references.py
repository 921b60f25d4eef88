"""References of an input to items of stored responses, as OpenAI's API has them: `{"type": "item_reference", "id": …}`.

A model gets the item in the reference's place. The callers that find a response find its items.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from services.gateway.http.fields import Fields
from services.gateway.http.stored_responses.errors import ItemNotFound
from services.gateway.http.stored_responses.store import Owner, ResponseStore, StoredResponse
from services.runtime.errors import InvalidInput

_REFERENCE = "item_reference"


def names(body: Fields) -> list[str]:
    """The ids that the items of a body's input refer to, in their order. Raises `InvalidInput`."""
    if not isinstance(body.seen("input"), list):
        return []
    return [item.needed("id") for item in body.objects("input") if item.seen("type") == _REFERENCE]


async def find(
    store: ResponseStore, whose: Owner | None, named: list[str], most_bytes: int, expand: Callable[[int], None]
) -> Mapping[str, Any]:
    """The items by their ids; None for one that a model does not get again. They take room with `expand` before they
    are fetched, each as often as it is named. Raises `ItemNotFound` and `InvalidInput`."""
    if whose is None:
        raise ItemNotFound(named[0])
    owner, ids = replace(whose, kind="item"), [*dict.fromkeys(named)]
    sizes = dict(zip(ids, await asyncio.gather(*(store.size(owner, each) for each in ids)), strict=True))
    size = sum(sizes[each] or 0 for each in named)
    if size > most_bytes:
        raise InvalidInput("input", f"items of at most {most_bytes} bytes", f"{size} bytes")
    expand(size)
    found = dict(zip(ids, await asyncio.gather(*(store.get(owner, each) for each in ids)), strict=True))
    if missing := next((each for each, data in found.items() if data is None), None):
        raise ItemNotFound(missing)
    return {each: json.loads(data or b"null") for each, data in found.items()}


def put_in(items: list[dict[str, Any]], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items of an input, with those that are referred to in their places."""
    own = [found[item["id"]] if item.get("type") == _REFERENCE else item for item in items]
    return [item for item in own if item is not None]


async def keep(store: ResponseStore, whose: Owner, stored: StoredResponse) -> bool:
    """Store the items of a response's output. Returns whether all are stored."""
    owner = replace(whose, kind="item")
    return all(await asyncio.gather(*(store.put(owner, name, data) for name, data in stored.items.items())))


async def forget(store: ResponseStore, whose: Owner, stored: StoredResponse) -> None:
    """Remove the items of a response's output."""
    owner = replace(whose, kind="item")
    await asyncio.gather(*(store.delete(owner, name) for name in stored.items))
