"""Responses as they are read: what the gateway's contract has a place for, and what is left to a provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission import provider_fields
from services.gateway.errors import FieldDenied
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions
from services.runtime.errors import InvalidInput

USER: dict[str, Any] = {"role": "user", "content": "?"}


def read(**body: Any) -> tuple[RequestOptions, chat_pb2.Original]:
    asked = {"model": "m", "input": "?", **body}
    given = Fields(asked)
    order = read_response(given, {}, {"m"})
    return order, original(chat_pb2.API_RESPONSES, json.dumps(asked).encode(), given, {})


def test_unread_fields_are_named_by_their_path() -> None:
    file = {"type": "input_file", "file_id": "f"}
    parts = [{"type": "input_text", "text": "a", "field_of_tomorrow": 1}, file]
    search = {"type": "web_search", "filters": {}}
    _, own = read(
        input=[{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": parts}],
        tools=[search, {"type": "function", "name": "f", "strict": False}],
        reasoning={"effort": "low"},
        service_tier="flex",
        include=["reasoning.encrypted_content"],
        metadata=None,
    )
    assert {place: json.loads(given) for place, given in own.untranslated.items()} == {
        "input[0]": {"type": "item_reference", "id": "msg_1"},
        "input[1].content[0].field_of_tomorrow": 1,
        "input[1].content[1]": file,
        "tools[0]": search,
        "reasoning.effort": "low",
        "service_tier": "flex",
        "include": ["reasoning.encrypted_content"],
    }


def test_policies_read_the_texts_of_what_is_left_to_a_provider() -> None:
    shell = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "total 0", "stderr": ""}]}
    picture = {"type": "image_generation_call", "id": "i", "result": "iVBORw0K" * 1_000}
    order, _ = read(input=[{"role": "assistant", "content": "Hi"}, shell, picture])
    assert [(each.role, each.content) for each in order.request.messages] == [
        (chat_pb2.ROLE_ASSISTANT, "Hi"),
        (chat_pb2.ROLE_USER, "total 0"),
        (chat_pb2.ROLE_USER, "…"),
    ]


def test_an_answer_repeats_no_large_objects() -> None:
    order, _ = read(metadata={"a": [0.5] * 70_000}, instructions="x" * 300_000, reasoning={"effort": "low"})
    assert order.echo["metadata"] == {}
    assert len(order.echo["instructions"]) == 300_000
    assert order.echo["reasoning"] == {"effort": "low"}


def test_results_belong_to_calls_that_are_there() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]}
    order, own = read(input=[USER, call, result])
    assert [each.role for each in order.request.messages] == [
        chat_pb2.ROLE_USER, chat_pb2.ROLE_ASSISTANT, chat_pb2.ROLE_TOOL,
    ]  # fmt: skip
    assert "input[2]" not in own.untranslated
    order, own = read(input=[result], previous_response_id="resp_1")
    assert [each.role for each in order.request.messages] == [chat_pb2.ROLE_USER]
    assert "input[0]" in own.untranslated


@pytest.mark.parametrize("kept", [{"previous_response_id": "r"}, {"conversation": "c"}, {"background": True}], ids=str)
def test_a_request_with_state_at_a_provider_is_for_it_alone(kept: dict[str, Any]) -> None:
    order, _ = read(**kept)
    assert (order.request.single_attempt, order.request.cache.bypass) == (True, True)
    with pytest.raises(
        InvalidInput, match=r"^\w+: none where the router chooses: name the model that knows it, got auto"
    ):
        read(model="auto", **kept)
    order, _ = read(background=False, store=True)
    assert (order.request.single_attempt, order.request.cache.bypass) == (False, False)


@pytest.mark.parametrize(
    "odd",
    [
        {"input": None},
        {"input": [{"type": 7}]},
        {"input": [{"role": "nobody", "content": "?"}]},
        {"input": [{"role": "user", "content": [{"text": "?"}]}]},
        {"tools": [{"name": "f"}]},
        {"tool_choice": "sometimes"},
        {"tool_choice": 7},
        {"parallel_tool_calls": "yes"},
        {"include": "all"},
    ],
    ids=str,
)
def test_a_request_that_is_invalid_at_every_provider_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read(**odd)


def test_a_provider_keeps_nothing_of_a_tenant_without_permission() -> None:
    _, own = read(store=None)
    provider_fields.settle_store(own, (), "acme")
    assert json.loads(own.body)["store"] is False
    _, own = read()
    body = own.body
    provider_fields.settle_store(own, ("store",), "acme")
    assert own.body == body
    own.api = chat_pb2.API_CHAT_COMPLETIONS
    provider_fields.settle_store(own, (), "acme")
    assert own.body == body


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b' { "temperature": 1e0, "input": "\xc3\xa9"}', b'{"store":false, "temperature": 1e0, "input": "\xc3\xa9"}'),
        (b'{"input":"?","store":null}', b'{"input":"?","store":false}'),
        (b'{"input":"?","st\\u006Fre":null}', b'{"input":"?","store":false}'),
        (b"{}", b'{"store":false}'),
    ],
)
def test_a_body_of_which_the_provider_keeps_nothing_is_otherwise_as_it_was_written(body: bytes, sent: bytes) -> None:
    own = chat_pb2.Original(api=chat_pb2.API_RESPONSES, body=body)
    provider_fields.settle_store(own, (), "acme")
    assert own.body == sent


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_a_tenant_without_permission_goes_on_with_nothing_that_was_kept(field: str) -> None:
    _, own = read(**{field: "x"})
    with pytest.raises(FieldDenied, match=rf"^{field}: none for tenant acme, got .*; `provider: \[store\]`"):
        provider_fields.settle_store(own, (), "acme")
    provider_fields.settle_store(own, ("store",), "acme")
