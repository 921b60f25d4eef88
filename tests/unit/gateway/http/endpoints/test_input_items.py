"""The input of a stored response, as a client lists it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.gateway.http.endpoints import responses
from services.gateway.http.endpoints.responses import Responses, page
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.stored_responses.memory import MemoryResponses
from services.gateway.http.stored_responses.store import Owner, StoredResponse
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import in_steps
from tests.recorded_response import CALL, THOUGHT, message
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.calling import admission, replied

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ITEMS: list[Any] = [
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]},
    {"role": "user", "content": [{"type": "input_text", "text": "?"}]},
    {"role": "assistant", "content": "A moment."},
    THOUGHT,
    message("Tokyo."),
    CALL,
    {"type": "function_call_output", "call_id": "call_1", "output": "21"},
]


def listed(**query: str) -> dict[str, Any]:
    return page(ITEMS, "resp_7", query)


def test_items_have_the_form_of_openais_types() -> None:
    from openai.types.responses import ResponseItem

    found = listed(order="asc")
    item = TypeAdapter[Any](ResponseItem)
    for each in found["data"]:
        item.validate_python(each, strict=True)
    assert [each["id"] for each in found["data"]] == ["msg_7_0", "msg_7_1", "msg_7_2", "msg_7_3", "rs_1", "msg_1",
                                                      "fc_1", "fco_7_7"]  # fmt: skip
    assert [each["content"] for each in found["data"][:4]] == [
        [{"type": "input_text", "text": "Be brief."}],
        [{"type": "input_image", "image_url": PIXEL, "detail": "auto"}],
        [{"type": "input_text", "text": "?"}],
        [{"type": "output_text", "text": "A moment.", "annotations": [], "logprobs": []}],
    ]
    assert found["data"][4:7] == [THOUGHT, message("Tokyo."), CALL]


@pytest.mark.parametrize("content", [["x", 5], 5, {"text": "x"}])
def test_a_content_that_is_none_of_openais_api_has_no_parts(content: Any) -> None:
    assert page([{"role": "assistant", "content": content}], "resp_7", {})["data"][0]["content"] == []


def test_pages_follow_each_other_from_the_last_item_on() -> None:
    seen: list[str] = []
    found = listed(limit="3")
    while True:
        names = [each["id"] for each in found["data"]]
        assert (found["first_id"], found["last_id"]) == (names[0], names[-1])
        seen += names
        if not found["has_more"]:
            break
        found = listed(limit="3", after=found["last_id"])
    assert seen == [each["id"] for each in reversed(listed(order="asc")["data"])]
    assert listed(after="msg_7_0") == {"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": False}


async def test_long_items_are_listed_and_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = list[bool]()

    def noted(value: object) -> bytes:
        beside.append(threading.current_thread() is not threading.main_thread())
        return in_steps(value)

    monkeypatch.setattr(responses, "in_steps", noted)
    store = MemoryResponses(60, 1_000_000, 1_000_000)
    for each in ("x", "x" * 100_000):
        stored = StoredResponse({"id": "resp_1"}, [{"role": "user", "content": each}])
        await store.put(Owner(EVERYTHING.name), "resp_1", stored.serialize())

        async def serve(exchange: Exchange) -> None:
            exchange.scope["path_params"] = {"id": "resp_1"}
            await Responses(admission(), store).input_items(exchange)

        status, listed = await replied(serve)
        assert (status, listed["data"][0]["content"][0]["text"]) == (200, each)
    assert beside == [False, True]


@pytest.mark.parametrize(
    ("name", "given"),
    [("limit", "0"), ("limit", "101"), ("limit", "all"), ("limit", "²"), ("order", "up"), ("after", "msg_8")],
)
def test_a_page_that_cannot_be_is_refused(name: str, given: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}: "):
        listed(**{name: given})
