"""What the SDK sends, and what it refuses to send."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow import InvalidArgument, Message
from hedgerow._request import generate_request
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb


def test_a_text_is_one_message_and_leaves_every_choice_to_the_gateway() -> None:
    request = generate_request("Why?")
    assert [(m.role, m.content) for m in request.messages] == [(chat_pb2.ROLE_USER, "Why?")]
    assert request.tier == pb.TIER_UNSPECIFIED
    assert not request.HasField("budget_ms")
    assert not request.sampling.HasField("temperature")
    assert request.response_format.WhichOneof("constraint") is None
    assert not request.cache.bypass


def test_one_stop_string_is_not_taken_for_its_letters() -> None:
    assert generate_request("?", stop="END").sampling.stop == ["END"]


def test_zero_and_empty_are_values_not_absence() -> None:
    request = generate_request("", temperature=0.0, seed=0, budget_ms=0)
    assert request.sampling.HasField("temperature")
    assert request.sampling.HasField("seed")
    assert request.HasField("budget_ms")


def test_a_budget_that_makes_no_sense_is_for_the_gateway_to_refuse() -> None:
    assert generate_request("?", budget_ms=-5).budget_ms == -5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier": "best"}, "tier: fast, balanced or quality, got best"),
        ({"cache": "never"}, "cache: use or bypass, got never"),
        ({"json_schema": "{}", "regex": "a"}, "response_format: one of json_schema and regex, got both"),
        ({"budget_ms": 2**40}, "budget_ms: Value out of range: 1099511627776"),
        ({"messages": [Message("bot", "")]}, "messages[0].role: system, user or assistant, got bot"),  # type: ignore[arg-type]
        ({"messages": "\ud800"}, "messages[0].content: "),
        ({"stop": ["\ud800"]}, "stop: "),
    ],
)
def test_what_can_never_work_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        generate_request(**{"messages": "?", **options})
    assert caught.value.message.startswith(message)
    assert caught.value.reason == "INVALID_INPUT"
    assert caught.value.metadata["field"] == message.partition(":")[0]


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="budget"):
        generate_request("?", budget=5)  # type: ignore[call-arg]
