"""The end user of a request by HTTP: which field names it, and which field takes precedence."""

from __future__ import annotations

import pytest

from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import Fields
from tests.unit.gateway.http.chats import ASKED, read


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, []),
        ({"user": "anna"}, ["anna"]),
        ({"safety_identifier": "s-1"}, ["s-1"]),
        ({"metadata": {"user_id": "anna"}}, ["anna"]),
        ({"user": "anna", "safety_identifier": "anna"}, ["anna"]),
        ({"user": "anna", "safety_identifier": "s-1"}, ["s-1", "anna"]),
        ({"user": "", "metadata": {"other": 1}}, []),
        ({"user": 7, "metadata": None}, ["7"]),
        ({"user": "anna", "hedgerow": {"end_user": "bert"}}, ["bert"]),
    ],
)
def test_an_end_user_has_the_names_that_the_request_has_for_it_or_the_one_of_the_option(body, names) -> None:
    assert list(read(**body).request.end_user) == names


def test_every_api_has_a_field_for_the_end_user() -> None:
    body = {"model": "m", "messages": ASKED, "max_tokens": 9, "metadata": {"user_id": "anna"}}
    message = read_messages(Fields(body), {}, ["m"])
    response = read_response(Fields({"model": "m", "input": "Hi", "user": "anna"}), {}, ["m"])
    assert list(message.request.end_user) == list(response.request.end_user) == ["anna"]


def test_a_provider_gets_these_fields_as_they_came() -> None:
    given = {"user": "anna", "metadata": {"user_id": "anna", "team": "x"}}
    body = Fields({"model": "m", "messages": ASKED, **given})
    read_chat(body, {}, ["m"])
    untranslated = original(1, b"", body, {}).untranslated
    assert untranslated == {"user": '"anna"', "metadata": '{"user_id":"anna","team":"x"}'}
