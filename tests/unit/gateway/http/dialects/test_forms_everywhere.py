"""Response formats in each API of the gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.chat.v1 import chat_pb2
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.completions import read_completion
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.endpoints.generating import ReadBody
from services.gateway.http.fields import parse
from services.runtime.errors import InvalidInput

Format = chat_pb2.ResponseFormat
ASKED = [{"role": "user", "content": "Hello"}]
# How each API asks, and where it has a format.
CHAT: tuple[ReadBody, Any, tuple[str, ...]] = (read_chat, {"messages": ASKED}, ("response_format",))
RESPONSES: tuple[ReadBody, Any, tuple[str, ...]] = (read_response, {"input": "Hello"}, ("text", "format"))
MESSAGES: tuple[ReadBody, Any, tuple[str, ...]] = (
    read_messages,
    {"messages": ASKED, "max_tokens": 9},
    ("output_config", "format"),
)
EARLIER_MESSAGES = (*MESSAGES[:2], ("output_format",))  # as Inspect writes it
COMPLETIONS: tuple[ReadBody, Any, tuple[str, ...]] = (read_completion, {"prompt": "Hello"}, ("response_format",))
APIS = pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES, EARLIER_MESSAGES, COMPLETIONS])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
CHOICES = st.lists(_TEXT, min_size=1, unique=True)


def read(api: tuple[ReadBody, Any, tuple[str, ...]], **more: Any) -> Format:
    reader, body, _ = api
    return reader(parse(json.dumps({"model": "m", **body, **more}).encode()), {}, ["m"]).request.response_format


def of_type(api: tuple[ReadBody, Any, tuple[str, ...]], wanted: Any) -> Any:
    """A format where this API has it."""
    for name in reversed(api[2]):
        wanted = {name: wanted}
    return wanted


@APIS
@given(CHOICES, _TEXT)
def test_a_choice_and_a_grammar_are_the_same_by_every_api_and_in_both_spellings(
    api: Any, texts: list[str], rules: str
) -> None:
    for kind, said, wanted in (
        ("choice", texts, Format(choice=chat_pb2.Choice(values=texts))),
        ("grammar", rules, Format(grammar=rules)),
    ):
        assert read(api, **of_type(api, {"type": kind, kind: said})) == wanted
        assert read(api, structured_outputs={kind: said}) == wanted


@APIS
def test_an_error_in_a_response_format_names_its_field(api: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(api, **of_type(api, {"type": "choice", "choice": ["yes", 1]}))
    assert caught.value.message == f"{'.'.join(api[2])}.choice[1]: a string, got 1"
    with pytest.raises(InvalidInput) as caught:
        read(api, **of_type(api, {"type": "json_object"}), structured_outputs={"choice": ["yes"]})
    assert caught.value.message.endswith("alone, got choice beside another format")
