"""The original body of a request: what of it the gateway has not read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.prompt_builder import Asked
from services.gateway.answer.stages.cache.cache_key import cache_question
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import NAMES, leave_recordings, original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import Fields, parse
from services.llm.engine import Model, Original
from services.llm.untranslated import check
from services.runtime.errors import InvalidInput

MODEL = Model("m", "anthropic", 0, 0, "", False)


def original_of(body: dict[str, Any], **headers: str) -> chat_pb2.Original:
    given = Fields(body)
    read_chat(given, {}, {"m"})
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return original(chat_pb2.API_CHAT_COMPLETIONS, json.dumps(body).encode(), given, own)


ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi", "name": "ann"}],
    "temperature": 0.3,
}


def test_fields_that_the_gateway_reads_are_translated_and_all_others_named_by_their_path() -> None:
    body = {**ASKED, "reasoning_effort": "low", "seed": None, "unknown": {"a": [1, None]}, "hedgerow": {"tier": "fast"}}
    assert dict(original_of(body).untranslated) == {
        NAMES: '{"messages[0].name":"ann"}',
        "reasoning_effort": '"low"',
        "unknown": '{"a":[1,null]}',
    }


AGENTS = [
    {"role": "system", "content": "Be brief.", "name": "planner"},
    {"role": "user", "content": "Hi", "name": "user"},
    {"role": "assistant", "content": "Hello.", "name": "planner"},
    {"role": "user", "content": "And now?", "name": "user"},
]


def test_names_that_only_repeat_the_roles_as_autogens_are_no_error_for_a_model_without_names() -> None:
    own = original_of({"model": "m", "messages": AGENTS})
    assert own.untranslated.keys() == {NAMES}
    assert [*json.loads(own.untranslated[NAMES]).values()] == ["planner", "user", "planner", "user"]
    check(Original("chat_completions", b"{}", untranslated=own.untranslated), MODEL)


def test_names_that_tell_participants_of_one_role_apart_are_refused() -> None:
    own = original_of({"model": "m", "messages": [*AGENTS, {"role": "user", "content": "Me too", "name": "bob"}]})
    with pytest.raises(InvalidInput, match=r"messages\[0\].name: no such field of model m"):
        check(Original("chat_completions", b"{}", untranslated=own.untranslated), MODEL)


def test_the_unread_parts_of_a_field_are_named() -> None:
    schema = {"name": "facts", "strict": True, "schema": {"type": "object"}}
    body = {**ASKED, "response_format": {"type": "json_schema", "json_schema": schema}}
    assert dict(original_of(body).untranslated) == {
        NAMES: '{"messages[0].name":"ann"}',
        "response_format.json_schema.name": '"facts"',
        "response_format.json_schema.strict": "true",
    }


@pytest.mark.parametrize(
    ("body", "place", "usual"),
    [
        ({"Model": "dear"}, "Model", "model"),
        ({"N": 5}, "N", "n"),
        ({"ſtream": True}, "ſtream", "stream"),
        ({"messages": [{"role": "user", "content": "Hi", "Content": "?"}]}, r"messages\[0\].Content", "content"),
        ({"tools": [{"type": "custom", "Type": "web_search"}]}, r"tools\[0\].Type", "type"),
    ],
)
def test_a_field_that_is_another_one_but_for_capital_letters_is_refused(
    body: dict[str, Any], place: str, usual: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^{place}: {usual} in lower case, got upper case$"):
        original_of({**ASKED, **body})
    assert original_of({**ASKED, "otherField": 1, "chat_template_kwargs": {"a": 1, "A": 2}})


def test_the_schema_of_a_tool_is_read_as_a_whole() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["a"]}}}
    assert set(original_of({**ASKED, "tools": [tool]}).untranslated) == {NAMES}


def texts(*said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": each} for each in said]


def test_texts_that_stand_side_by_side_are_another_question_than_one_text() -> None:
    contents: list[Any] = ["abc", texts("abc"), texts("a", "bc"), texts("ab", "c"), texts("a", "b", "c")]
    asked = [original_of({"model": "m", "messages": [{"role": "user", "content": each}]}) for each in contents]
    keys = [cache_question(pb.GenerateRequest(original=each), Asked(()), "acme").attachments for each in asked]
    assert keys[0] == keys[1] == []
    assert len({tuple(key) for key in keys}) == 4
    check(Original("chat_completions", b"", untranslated=dict(asked[-1].untranslated)), MODEL)  # refused by none


@pytest.mark.parametrize(("api", "name"), [(read_chat, "messages"), (read_response, "input")])
def test_recordings_are_left_for_a_provider_where_the_mesh_has_no_audio_service(api: Any, name: str) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "c291bmQ=", "format": "wav"}}
    words = {"type": "text" if name == "messages" else "input_text", "text": "What is it?"}
    turns = [{"role": "user", "content": [words, sound]}, {"role": "user", "content": "And now?"}]
    given = Fields({"model": "m", name: turns})
    request = api(given, {}, {"m"}).request
    leave_recordings(request, given)
    assert [message.content for message in request.messages] == ["What is it?[input_audio]", "And now?"]
    assert not any(message.parts for message in request.messages)
    left = dict(original(chat_pb2.API_CHAT_COMPLETIONS, b"{}", given, {}).untranslated)
    assert json.loads(left[f"{name}[0].content[1]"]) == sound
    assert left.keys() == {f"{name}[0].content[1]"}


def test_marks_of_a_cache_and_signed_thoughts_of_messages_are_not_read() -> None:
    marked = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
    body = Fields(
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": [marked]},
                {"role": "assistant", "content": [thought, {"type": "text", "text": "Hi"}]},
                {"role": "user", "content": "?"},
            ],
        }
    )
    read_messages(body, {}, {"m"})
    assert set(original(chat_pb2.API_MESSAGES, b"{}", body, {}).untranslated) == {
        "messages[0].content[0].cache_control",
        "messages[1].content[0].thinking",
        "messages[1].content[0].signature",
    }


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]}
ASKS, TELLS = {"role": "user", "content": "Q"}, {"role": "system", "content": "S"}


@pytest.mark.parametrize(
    ("turns", "roles", "unread"),
    [
        ([ASKS, TELLS], "SYSTEM USER", ()),
        ([ASKS, CALL, RESULT, TELLS, TELLS], "SYSTEM SYSTEM USER ASSISTANT TOOL", ()),
        ([ASKS, TELLS, CALL, RESULT], "USER SYSTEM ASSISTANT TOOL", ()),
        ([TELLS], "SYSTEM USER", ("messages[0]",)),
        ([ASKS, {"role": "assistant", "content": "A"}, TELLS], "USER ASSISTANT SYSTEM USER", ("messages[2]",)),
    ],
)
def test_system_messages_at_the_end_go_before_the_question(
    turns: list[dict[str, Any]], roles: str, unread: tuple[str, ...]
) -> None:
    body = Fields({"model": "m", "max_tokens": 9, "messages": turns})
    request = read_messages(body, {}, {"m"}).request
    assert [chat_pb2.Role.Name(each.role) for each in request.messages] == [f"ROLE_{name}" for name in roles.split()]
    assert tuple(body.unread()) == unread


def test_headers_for_providers_pass_within_limits() -> None:
    own = original_of(ASKED, anthropic_beta="b", openai_organization="o", openai_beta="c", cookie="d")
    assert dict(own.headers) == {"anthropic-beta": "b", "openai-beta": "c"}
    with pytest.raises(InvalidInput, match=r"openai-beta: at most 1024 characters, got 1025"):
        original_of(ASKED, openai_beta="x" * 1_025)
    with pytest.raises(InvalidInput, match=r"headers: at most 16 for the provider, got 17"):
        original_of(ASKED, **{f"openai_{number}": "x" for number in range(17)})


@pytest.mark.parametrize("text", ["caf\xe9", "a\tb", "a\x7f"])
def test_a_header_that_no_provider_could_read_the_same_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"openai-beta: printable characters of ASCII, got "):
        original_of(ASKED, openai_beta=text)


def nested(levels: int) -> bytes:
    return json.dumps(ASKED).encode()[:-1] + b',"unknown":' + b"[" * levels + b"]" * levels + b"}"


def test_a_body_nested_too_deeply_for_its_readers_is_refused() -> None:
    assert len(parse(nested(150)).raw("unknown")) == 1
    with pytest.raises(InvalidInput, match=r"^body: JSON \(nested too deeply\), got "):
        parse(nested(400))
