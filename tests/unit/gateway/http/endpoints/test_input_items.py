"""The input of a stored response, as a client lists it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from services.gateway.http.endpoints.responses import page
from services.runtime.errors import InvalidInput
from tests.recorded_response import CALL, THOUGHT, message

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


@pytest.mark.parametrize(
    ("name", "given"),
    [("limit", "0"), ("limit", "101"), ("limit", "all"), ("limit", "²"), ("order", "up"), ("after", "msg_8")],
)
def test_a_page_that_cannot_be_is_refused(name: str, given: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}: "):
        listed(**{name: given})
