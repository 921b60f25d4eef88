"""References of an input to items of stored responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.gateway.http.fields import Fields
from services.gateway.http.stored_responses import references
from services.gateway.http.stored_responses.memory import MemoryResponses
from services.gateway.http.stored_responses.store import ItemNotFound, Owner, StoredResponse
from services.runtime.errors import InvalidInput

ACME, ANNA = Owner("acme"), Owner("acme", ("anna",))
SAID = {"type": "message", "id": "msg_0123456789abcdef", "role": "assistant", "content": "A" * 1_000}
SHORT = {"type": "message", "id": "msg_1", "role": "assistant", "content": "Short."}
THOUGHT = {"type": "reasoning", "id": "rs_0123456789abcdef", "summary": []}
MOST = 1_000_000


async def stored(*output: dict[str, Any]) -> MemoryResponses:
    store = MemoryResponses(60, MOST, MOST)
    assert await references.keep(store, ACME, StoredResponse({"id": "resp_1", "output": list(output)}, []), 0)
    return store


async def find(store: MemoryResponses, named: list[str], owner: Owner | None = ACME) -> Any:
    return await references.find(store, owner, named, MOST, lambda _: None)


async def test_an_item_replaces_each_reference_to_it() -> None:
    body = Fields({"input": [{"role": "user"}, *[{"type": "item_reference", "id": SAID["id"]}] * 2]})
    named = references.names(body)
    found = await find(await stored(THOUGHT, SAID), named)
    sent = {name: given for name, given in SAID.items() if name != "id"}
    assert references.put_in(body.seen("input"), found) == [{"role": "user"}, sent, sent]


async def test_a_thought_without_its_encrypted_text_is_left_out() -> None:
    store = await stored(THOUGHT, SAID)
    found = await find(store, [THOUGHT["id"]])  # type: ignore[list-item]
    assert references.put_in([{"type": "item_reference", "id": THOUGHT["id"]}], found) == []
    opened = {**THOUGHT, "encrypted_content": "gAAA"}
    assert (await find(await stored(opened, SAID), [opened["id"]])) == {THOUGHT["id"]: opened}  # type: ignore[list-item]


@pytest.mark.parametrize("owner", [Owner("umbra"), ANNA, None], ids=["tenant", "end user", "no end user"])
async def test_another_callers_item_is_unknown(owner: Owner | None) -> None:
    with pytest.raises(ItemNotFound, match="Item with id 'msg_0123456789abcdef' not found"):
        await find(await stored(SAID), [SAID["id"]], owner)  # type: ignore[list-item]


async def test_a_short_id_names_no_item_because_it_may_come_again() -> None:
    store = await stored(SHORT, SAID)
    with pytest.raises(ItemNotFound, match="'msg_1' not found"):
        await find(store, [str(SAID["id"]), "msg_1"])


async def test_an_item_is_no_response_and_a_response_no_item() -> None:
    store = await stored(SAID)
    assert await store.get(ACME, str(SAID["id"])) is None
    await store.put(ACME, "resp_0123456789abcdef", b"{}")
    with pytest.raises(ItemNotFound):
        await find(store, ["resp_0123456789abcdef"])


async def test_items_take_room_as_often_as_they_are_named_before_they_are_fetched() -> None:
    store, taken, name = await stored(SAID), list[int](), str(SAID["id"])
    size = len(json.dumps({**SAID, "id": None}))
    await references.find(store, ACME, [name] * 3, MOST, taken.append)
    assert 0 <= 3 * size - taken[0] < 300
    with pytest.raises(InvalidInput, match="input: items of at most 2000 bytes"):
        await references.find(store, ACME, [name] * 3, 2_000, taken.append)
    assert len(taken) == 1


async def test_forgotten_items_are_gone() -> None:
    store = await stored(SAID)
    await references.forget(store, ACME, StoredResponse({"id": "resp_1", "output": [SAID]}, []))
    with pytest.raises(ItemNotFound):
        await find(store, [SAID["id"]])  # type: ignore[list-item]


class _Counting(MemoryResponses):
    """Counts calls, and how many of them run at once."""

    def __init__(self) -> None:
        super().__init__(60, MOST, MOST)
        self.calls = self.running = self.most = 0

    async def size(self, owner: Owner, response_id: str) -> int | None:
        self.calls, self.running = self.calls + 1, self.running + 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return await super().size(owner, response_id)


async def test_a_request_with_many_references_asks_the_store_for_few_at_once() -> None:
    store, ids = _Counting(), [f"msg_{number:016}" for number in range(100)]
    output = [{**SHORT, "id": each} for each in ids]
    assert await references.keep(store, ACME, StoredResponse({"id": "resp_1", "output": output}, []), 0)
    assert [*await find(store, ids)] == ids
    assert store.calls == 100
    assert 1 < store.most <= 8


async def test_the_first_reference_to_nothing_ends_the_search() -> None:
    store = _Counting()
    with pytest.raises(ItemNotFound, match="'msg_0000000000000000' not found"):
        await find(store, [f"msg_{number:016}" for number in range(10_000)])
    assert store.calls <= 8
