"""The order in which a stored conversation takes room, is fetched and is stored."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.intake import DEFAULT_LIMITS
from services.gateway.errors import BodiesWaiting
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.endpoints.generating import Dialect, Generating
from services.gateway.http.endpoints.stored_turns import StoredTurns
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.fields import Fields, parse
from services.gateway.http.request_options import RequestOptions
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.stored_responses import memory
from services.gateway.http.stored_responses.memory import Retries
from services.gateway.http.stored_responses.store import Owner, StoredResponse
from services.gateway.settings.serving import KeptSettings
from services.runtime.aside import LARGE_BYTES, size_in, size_of

FINAL = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP, model="m", text="Tokyo.")
EARLIER = StoredResponse({"id": "resp_1", "output": []}, [{"role": "user", "content": "A" * 5_000}]).serialize()


class Steps:
    """A store, an exchange and its reply that write down the calls that they get. `room`: for a body."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.taken, self._room = list[str](), room
        self.bounds, self.status, self.reply = SimpleNamespace(most_bytes=room, json=DEFAULT_LIMITS), 200, self
        self.credential = SimpleNamespace(tenant=SimpleNamespace(name="acme", hits=SimpleNamespace(scope="tenant")))
        self.answer_id, self.written = "id1", b""

    async def size(self, owner: Owner, response_id: str) -> int | None:
        return len(EARLIER)

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        self.taken.append("get")
        return EARLIER

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        self.taken.append("put")
        return True

    async def delete(self, owner: Owner, response_id: str) -> bool:
        raise NotImplementedError

    def expand(self, size: int) -> None:
        self.taken.append("room")
        if size > self._room:
            raise BodiesWaiting("later", retry_delay_s=1)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        self.written += data
        self.taken.append("end" if last else "text")


def _turns(store: Steps) -> StoredTurns:
    return StoredTurns(store, Retries(KeptSettings(), lambda tenant, key: False))


async def _order(data: bytes, body: Fields, size: int, /) -> RequestOptions:
    return RequestOptions(pb.GenerateRequest(), stream=True)


async def test_a_conversation_takes_room_before_it_is_fetched() -> None:
    body = Fields({"model": "m", "input": "And its river?", "previous_response_id": "resp_1"})
    full = Steps(room=len(EARLIER))
    with pytest.raises(BodiesWaiting):
        await _turns(full)(cast(Exchange, full), body, 0, _order)
    assert full.taken == ["room"]
    roomy = Steps()
    asked = await _turns(roomy)(cast(Exchange, roomy), body, 0, _order)
    assert roomy.taken == ["room", "get", "room"]
    assert asked
    assert [item["content"] for item in json.loads(asked.data)["input"]] == ["A" * 5_000, "And its river?"]


async def test_a_short_request_that_goes_on_with_a_long_conversation_is_read_as_a_large_one() -> None:
    earlier = StoredResponse({"id": "resp_1", "output": []}, [{"role": "user", "content": "A"}] * 2_000).serialize()

    class Long(Steps):
        async def get(self, owner: Owner, response_id: str) -> bytes | None:
            return earlier

    sizes = list[int]()

    async def order(data: bytes, body: Fields, size: int, /) -> RequestOptions:
        sizes.append(size)
        return RequestOptions(pb.GenerateRequest())

    data = b'{"model":"m","input":"?","previous_response_id":"resp_1"}'
    store: Any = Long()
    assert await _turns(store)(store, Fields(json.loads(data)), size_in(data), order)
    alone, joined = sizes
    assert alone <= LARGE_BYTES < joined
    assert joined > size_of(2_000)


async def test_no_objects_of_the_json_of_a_request_are_kept_while_it_is_answered() -> None:
    body = json.dumps({"model": "m", "input": [{"role": "user", "content": "A"}] * 2_000}).encode()

    class Sent(Steps):
        headers: ClassVar[dict[str, str]] = {}

        async def json(self) -> bytes:
            return body

        def parsed(self, data: bytes) -> Fields:
            return parse(data)

        async def read(self, data: bytes) -> Fields:
            return parse(data)

    settings = cast(Any, SimpleNamespace(chat_models=["m"], max_messages=2_000, audio_address=""))
    dialect = Dialect(read_response, ResponseWriter, ErrorResponse.openai, chat_pb2.API_RESPONSES)
    for store in (None, Steps()):
        generating = Generating(dialect, cast(Any, None), settings, _turns(store) if store else None)
        asked = await generating._asked(cast(Exchange, Sent()))
        assert len(asked.order.request.messages) == 2_000
        assert asked.order.request.original.body == asked.data
        gc.collect()
        assert [each for each in gc.get_objects() if type(each) is Fields and "content" in each] == []


async def test_a_large_request_with_a_key_is_compared_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    large = list[bool]()

    async def noted(tenant: str, size: int, work: Callable[[], Any]) -> Any:
        large.append(size > LARGE_BYTES)
        return work()

    monkeypatch.setattr(memory, "aside", noted)
    kept = Retries(KeptSettings(), lambda tenant, key: True)
    for length in (1_000, 2_000_000):
        await kept.keep(Owner("acme"), "key", b"x" * length, StoredResponse({"id": "resp_1"}, []), 0)
        assert await kept.find(Owner("acme"), "key", b"x" * length)
    assert large == [False, False, False, False, True, False, False, True], "written and read, each beside a digest"


async def test_a_body_is_written_in_the_order_of_its_fields() -> None:
    steps: Any = Steps()
    given = {"model": "m", "input": [{"role": "user", "content": "?"}], "top_p": 0.5, "store": False}
    asked = await _turns(steps)(steps, Fields({**given, "previous_response_id": "resp_1"}), 0, _order)
    assert asked
    assert [*json.loads(asked.data)] == [*given]


async def test_the_last_text_does_not_wait_for_the_store() -> None:
    steps: Any = Steps()
    asked = await _turns(steps)(steps, Fields({"model": "m", "input": "?"}), 0, _order)
    assert asked
    message = pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="Tokyo.")), pb.Event(final=FINAL)])
    watch: Any = SimpleNamespace(came=lambda: None, sent=lambda last: None)
    await Generating(cast(Any, None), cast(Any, None), cast(Any, None))._write(steps, asked, watch, message)
    assert steps.taken == ["text", "put", "put", "end"], "the item and the response are stored"
    assert steps.written.count(b'"type":"response.completed"') == 1


class _Small(Steps):
    """A store whose tenant has no room for a whole response, and has some for its items."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = set[str]()

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        self.taken.append(owner.kind)
        if owner.kind == "item":
            self.stored.add(response_id)
        return owner.kind == "item"

    async def delete(self, owner: Owner, response_id: str) -> bool:
        self.stored.remove(response_id)
        return True


async def test_a_response_that_is_not_stored_leaves_no_items() -> None:
    small: Any = _Small()
    asked = await _turns(small)(small, Fields({"model": "m", "input": "?"}), 0, _order)
    assert asked
    assert asked.before_end
    asked.writer.chunk(pb.Event(delta=pb.TextDelta(text="Tokyo.")))
    final = pb.Final()
    final.CopyFrom(FINAL)
    await asked.before_end(final)
    assert "response:unstored" in final.degraded
    assert (small.taken, small.stored) == (["item", "response"], set())
