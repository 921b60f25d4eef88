"""A caller's own words for a provider of the same API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.dialects.forwarding import encode, forwarded
from services.llm.engine import Message, Original, Request, Tool, ToolChoice
from services.runtime.errors import InvalidInput

ASKED = (Message("user", "Hi"),)


def words(**body: Any) -> Original:
    return Original("chat_completions", json.dumps(body).encode())


def test_nothing_is_translated_where_nothing_was_changed() -> None:
    def translate() -> dict[str, Any]:
        raise AssertionError("the body was parsed without need")

    own = words(model="m", stream=False, messages=[{"role": "user", "content": "Hi"}], temperature=0.3, hedgerow={})
    sent = forwarded(Request(ASKED), own, translate)
    assert json.loads(encode(sent)) == {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.3}


@pytest.mark.parametrize("field", ["messages", "input", "tools", "system"])
def test_a_long_field_arrives_as_it_was_written(field: str) -> None:
    written = b'[{"b" : 1e2, "a":"\\u00e9 \xc3\xa9 \\/", "n": 0.30, "big": 123456789012345678901234567890}]'
    own = Original("chat_completions", b'{"messages": [], "x": 0.3, "%s": %s }' % (field.encode(), written))
    sent = encode(forwarded(Request(ASKED), own, dict))
    assert b'"%s":%s' % (field.encode(), written) in sent


def test_fields_changed_by_a_policy_are_translated_and_others_unchanged() -> None:
    translated = {
        "messages": ["masked"],
        "tools": ["mesh"],
        "tool_choice": "none",
        "max_tokens": 256,
        "temperature": 0.5,
    }
    request = Request(ASKED, tools=(Tool("mesh"),), tool_choice=ToolChoice("none"))
    sent = forwarded(request, words(temperature=0.3, reasoning_effort="low"), lambda: translated)
    assert sent == {
        "messages": ["masked"],
        "tools": ["mesh"],
        "tool_choice": "none",
        "temperature": 0.3,
        "reasoning_effort": "low",
    }


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"original\.body: a JSON object, got 2 bytes"):
        forwarded(Request(ASKED), Original("chat_completions", b"[]"), dict)
