"""Fields that have another name in another API are kept, and fields that change no answer are no error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import parse
from services.llm import untranslated
from services.llm.dialects import anthropic_request, openai_request, responses_request
from services.llm.dialects.counterparts import EFFORTS, OPENAIS
from services.llm.engine import Constraint, Message, Model, Original, Request
from services.runtime.errors import InvalidInput

MODEL = Model("m", "any", 0, 0, "", False, takes=EFFORTS)
FORM = Constraint("json_schema", "{}")
PLACES = ("reasoning_effort", "output_config.effort", "reasoning", "reasoning.effort")


def asked(**untranslated: object) -> Request:
    fields = {place: json.dumps(given, separators=(",", ":")) for place, given in untranslated.items()}
    return Request((Message("user", "Hi"),), original=Original("any", b"{}", untranslated=fields))


def bodies(request: Request) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """For chat completions, Messages and Responses."""
    untranslated.check(request.original, MODEL)
    chat = openai_request.to_body(request, "m", 9, "max_tokens")
    return chat, anthropic_request.to_body(request, "m", 9), responses_request.to_body(request, "m", 9)


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
@pytest.mark.parametrize("place", PLACES)
def test_how_much_a_model_thinks_is_said_in_every_api(place: str, effort: str) -> None:
    chat, message, response = bodies(asked(**{place: {"effort": effort} if place == "reasoning" else effort}))
    assert chat["reasoning_effort"] == message["output_config"]["effort"] == response["reasoning"]["effort"] == effort


@pytest.mark.parametrize("place", ["reasoning_effort", "reasoning"])
def test_a_request_for_no_thoughts_is_said_in_every_api(place: str) -> None:
    request = asked(**{place: {"effort": "none"} if place == "reasoning" else "none"})
    chat, message, response = bodies(request)
    assert chat["reasoning_effort"] == response["reasoning"]["effort"] == "none"
    assert "output_config" not in message
    assert "thinking" not in anthropic_request.to_body(request, "m", 9, {"type": "adaptive"})


@pytest.mark.parametrize("effort", ["minimal", "vast"])
def test_an_effort_that_not_all_of_them_have_is_refused_by_name(effort: str) -> None:
    with pytest.raises(InvalidInput, match=r"^reasoning_effort: no such field"):
        bodies(asked(reasoning_effort=effort))


def test_openais_apis_have_further_values_in_common() -> None:
    openai = replace(MODEL, takes=OPENAIS)
    request = asked(**{"reasoning": {"effort": "minimal"}, "text.verbosity": "low"})
    untranslated.check(request.original, openai)
    chat = openai_request.to_body(request, "m", 9, "max_tokens")
    assert (chat["reasoning_effort"], chat["verbosity"]) == ("minimal", "low")
    request = replace(asked(reasoning_effort="minimal", verbosity="low"), constraint=FORM)
    untranslated.check(request.original, openai)
    response = responses_request.to_body(request, "m", 9)
    assert (response["reasoning"], response["text"]["verbosity"]) == ({"effort": "minimal"}, "low")
    assert response["text"]["format"]["type"] == "json_schema"


def test_a_search_without_options_is_no_field_that_says_nothing() -> None:
    with pytest.raises(InvalidInput, match=r"^web_search_options: no such field"):
        bodies(asked(web_search_options={}))


@pytest.mark.parametrize("fields", [{"user": "ann"}, {"safety_identifier": "ann"}, {"metadata": {"user_id": "ann"}}])
def test_the_end_user_is_named_in_every_api(fields: dict[str, object]) -> None:
    chat, message, response = bodies(asked(**fields))
    assert (chat["user"], message["metadata"], response["safety_identifier"]) == ("ann", {"user_id": "ann"}, "ann")


@pytest.mark.parametrize("fields", [{"user": "x" * 65}, {"user": 7}, {"metadata": {"a": "b"}}, {"metadata": [1]}, {}])
def test_an_invalid_name_of_an_end_user_is_omitted(fields: dict[str, object]) -> None:
    chat, message, response = bodies(asked(**fields))
    assert not {"user", "metadata", "safety_identifier", "reasoning"} & (chat.keys() | message.keys() | response.keys())


@pytest.mark.parametrize("place", ["response_format.json_schema", "text.format"])
def test_a_form_keeps_its_name_its_description_and_whether_it_is_strict(place: str) -> None:
    said = {"name": "facts", "strict": False, "description": "What is so."}
    request = replace(asked(**{f"{place}.{name}": given for name, given in said.items()}), constraint=FORM)
    chat, _, response = bodies(request)
    assert chat["response_format"]["json_schema"] == {**said, "schema": {}}
    assert response["text"]["format"] == {"type": "json_schema", **said, "schema": {}}


def test_a_form_without_a_name_of_its_own_gets_one() -> None:
    request = replace(asked(**{"response_format.json_schema.name": "no name"}), constraint=FORM)
    chat, _, _ = bodies(request)
    assert chat["response_format"]["json_schema"] == {"name": "answer", "strict": True, "schema": {}}


def untold(read: Any, body: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    data = json.dumps({"model": "m", "max_tokens": 9, **body}).encode()
    given = parse(data)
    request = read(given, {}, ["m"]).request
    fields = dict(original(chat_pb2.API_MESSAGES, data, given, {}).untranslated)
    untranslated.check(Original("any", data, untranslated=fields), MODEL)
    return [message.content for message in request.messages], fields


@pytest.mark.parametrize(("failed", "said"), [(True, "Error: no such file"), (False, "no such file")])
def test_the_result_of_a_failed_tool_begins_with_error(failed: bool, said: str) -> None:
    use = {"type": "tool_use", "id": "1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "is_error": failed, "content": "no such file"}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [use]}]
    texts, _ = untold(read_messages, {"messages": [*turns, {"role": "user", "content": [result]}]})
    assert texts[-1] == said


def test_a_redacted_thought_of_an_earlier_turn_is_no_error_for_other_models() -> None:
    turn = {
        "role": "assistant",
        "content": [{"type": "redacted_thinking", "data": "c2ln"}, {"type": "text", "text": "Hm"}],
    }
    turns = [{"role": "user", "content": "?"}, turn, {"role": "user", "content": "So?"}]
    texts, fields = untold(read_messages, {"messages": turns})
    assert (texts, fields) == (["?", "Hm", "So?"], {"messages[1].content[0].data": '"c2ln"'})


_PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}}
_FUNCTION = {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
_ANSWER = {  # as the packages of OpenAI, OpenRouter, LiteLLM and Gemini repeat it
    "role": "assistant",
    "content": "Hm",
    "parsed": {"a": 1},
    "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}],
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm"}],
    "provider_specific_fields": {"refusal": None},
    "tool_calls": [{"id": "1", "type": "function", "function": _FUNCTION, "extra_content": {"google": {"a": "b"}}}],
}
_THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
_MISTRALS = {"role": "assistant", "content": [_THINKING, {"type": "text", "text": "A"}]}
_PARSED = {"type": "output_text", "text": "Hm", "annotations": [], "parsed": {"a": 1}}
_ITEMS = [
    {"role": "user", "content": "?"},
    {"type": "message", "role": "assistant", "content": [_PARSED]},
    {"type": "function_call", "call_id": "1", **_FUNCTION},
    {"type": "function_call_output", "call_id": "1", "output": "1"},
]
_OF_THOUGHTS = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_messages, {"messages": [{"role": "user", "content": [_PICTURE]}]}),
        (read_messages, {"messages": _ITEMS[:1], "context_management": _OF_THOUGHTS}),
        (read_chat, {"messages": [_ITEMS[0], _ANSWER, {"role": "tool", "tool_call_id": "1", "content": "1"}]}),
        (read_chat, {"messages": [_ITEMS[0], _MISTRALS, _ITEMS[0]]}),
        (read_chat, {"messages": _ITEMS[:1], "usage": {"include": True}}),
        (read_response, {"input": _ITEMS}),
        (read_response, {"input": "?", "stream": True, "stream_options": {"include_obfuscation": False}}),
        (read_response, {"input": "?", "reasoning": {"effort": "low", "summary": "auto"}}),
        (read_response, {"input": "?", "reasoning": {"effort": "none"}}),
    ],
)
def test_fields_that_clients_add_automatically_are_no_error_for_other_models(read: Any, body: Any) -> None:
    untold(read, body)


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}]])
def test_a_user_message_without_content_is_refused_by_its_path(content: list[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^messages\[1\]\.content: text that is not blank, got none"):
        untold(read_messages, {"messages": [{"role": "user", "content": "?"}, {"role": "user", "content": content}]})


def test_edits_of_a_conversation_that_are_not_of_thoughts_are_refused() -> None:
    edits = {"edits": [*_OF_THOUGHTS["edits"], {"type": "clear_tool_uses_20250919"}]}
    with pytest.raises(InvalidInput, match=r"^context_management: no such field"):
        untold(read_messages, {"messages": _ITEMS[:1], "context_management": edits})


def test_the_name_of_a_tools_message_is_decoration() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call]}]
    _, fields = untold(
        read_chat, {"messages": [*turns, {"role": "tool", "tool_call_id": "1", "name": "f", "content": "1"}]}
    )
    assert fields == {}
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.name: no such field"):
        untold(read_chat, {"messages": [{"role": "user", "name": "ann", "content": "?"}]})


def test_a_reference_to_an_item_that_is_not_stored_says_what_to_send() -> None:
    fields = asked(**{"input[1]": {"type": "item_reference", "id": "msg_1"}}).original
    with pytest.raises(InvalidInput, match="stores no responses: send the item itself"):
        untranslated.check(fields, MODEL)
