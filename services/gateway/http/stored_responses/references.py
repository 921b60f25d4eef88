"""References of an input to items of stored responses, as OpenAI's API has them: `{"type": "item_reference", "id": …}`.

A model gets the item in the reference's place. The callers that find a response find its items.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from services.gateway.http.fields import Fields
from services.gateway.http.stored_responses.store import ItemNotFound, Owner, ResponseStore, StoredResponse
from services.runtime.aside import aside
from services.runtime.errors import InvalidInput

T = TypeVar("T")
_REFERENCE = "item_reference"
_AT_ONCE = 8  # calls of one request to the store


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
    sizes = await _there(partial(store.size, owner), ids)
    size = sum(sizes[each] for each in named)
    if size > most_bytes:
        raise InvalidInput("input", f"items of at most {most_bytes} bytes", f"{size} bytes")
    expand(size)
    found = await _there(partial(store.get, owner), ids)
    return await aside(whose.tenant, size, lambda: {each: json.loads(data) for each, data in found.items()})


def put_in(items: list[dict[str, Any]], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items of an input, with those that are referred to in their places."""
    own = [found[item["id"]] if item.get("type") == _REFERENCE else item for item in items]
    return [item for item in own if item is not None]


async def keep(store: ResponseStore, whose: Owner, stored: StoredResponse, size: int) -> bool:
    """Store the items of a response's output, of about `size` bytes. Returns whether all are stored."""
    owner, items = replace(whose, kind="item"), await aside(whose.tenant, size, lambda: stored.items)
    return all(await _few_at_once(lambda name: store.put(owner, name, items[name]), [*items]))


async def forget(store: ResponseStore, whose: Owner, stored: StoredResponse) -> None:
    await _few_at_once(partial(store.delete, replace(whose, kind="item")), stored.item_ids)


async def _there(get: Callable[[str], Awaitable[T | None]], names: Sequence[str]) -> dict[str, T]:
    """The values of `get` by name. Raises `ItemNotFound` for the first name without one, and asks for few more."""
    found = dict[str, T]()
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        for name, one in zip(some, await _few_at_once(get, some), strict=True):
            if one is None:
                raise ItemNotFound(name)
            found[name] = one
    return found


async def _few_at_once(call: Callable[[str], Awaitable[T]], names: Sequence[str]) -> list[T]:
    """The results of all calls. An input may have thousands of references, and the store is for all tenants."""
    results = list[T]()
    for start in range(0, len(names), _AT_ONCE):
        results += await asyncio.gather(*map(call, names[start : start + _AT_ONCE]))
    return results
