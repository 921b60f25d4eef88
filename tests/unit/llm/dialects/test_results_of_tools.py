"""Pictures and documents in the results of tools, and pictures by URL, at models of another API: screenshots and files
that a coding agent reads, for example."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from services.llm.dialects.openai_request import to_messages
from services.llm.engine import Message, Original, Part, ToolCall
from services.llm.vllm.messages import takes_picture, to_chat
from services.llm.vllm.text_tools import as_text
from services.runtime.errors import InvalidInput
from tests.unit.llm.dialects.test_documents import DATA, PDF, PNG, posted, read_turns

SEEN = f"data:image/png;base64,{PNG}"
URL = "https://a.test/b.png"
PARTS: dict[str, dict[str, dict[str, Any]]] = {  # by their API, of three kinds
    "messages": {
        "picture": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        "url": {"type": "image", "source": {"type": "url", "url": URL}},
        "file": {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        },
    },
    "responses": {
        "picture": {"type": "input_image", "image_url": SEEN, "detail": "auto"},
        "url": {"type": "input_image", "image_url": URL, "detail": "auto"},
        "file": {"type": "input_file", "filename": "a.pdf", "file_data": DATA},
    },
    "chat": {
        "picture": {"type": "image_url", "image_url": {"url": SEEN}},
        "url": {"type": "image_url", "image_url": {"url": URL}},
        "file": {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}},
    },
}
PAIRS = [*permutations(PARTS, 2)]
TEXT = {"messages": "text", "responses": "input_text", "chat": "text"}


def said(api: str, *contents: Any, after: str = "") -> list[dict[str, Any]]:
    """A conversation with two calls and these results, in the words of an API."""
    ids = [f"call_{number}" for number, _ in enumerate(contents)]
    if api == "messages":
        results: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": each, "content": content}
            for each, content in zip(ids, contents, strict=True)
        ]
        results += [{"type": "text", "text": after}] if after else []
        uses = [{"type": "tool_use", "id": each, "name": "look", "input": {}} for each in ids]
        return [user(), {"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    end = [user(after)] if after else []
    if api == "responses":
        calls = [{"type": "function_call", "call_id": each, "name": "look", "arguments": "{}"} for each in ids]
        outputs = [
            {"type": "function_call_output", "call_id": each, "output": content}
            for each, content in zip(ids, contents, strict=True)
        ]
        return [user(), *calls, *outputs, *end]
    made = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in ids]
    messages = [
        {"role": "tool", "tool_call_id": each, "content": content} for each, content in zip(ids, contents, strict=True)
    ]
    return [user(), {"role": "assistant", "content": None, "tool_calls": made}, *messages, *end]


def user(content: Any = "Look.") -> dict[str, Any]:
    return {"role": "user", "content": content}


def results(target: str, conversation: list[Any]) -> list[Any]:
    """The contents of the results of tools."""
    if target == "messages":
        return [each["content"] for each in conversation[-1]["content"]]
    return [each["output"] for each in conversation if each.get("type") == "function_call_output"]


@pytest.mark.parametrize("kind", ["picture", "url", "file"])
@pytest.mark.parametrize(("api", "target"), [pair for pair in PAIRS if pair[1] != "chat"])
async def test_the_result_of_a_tool_keeps_what_it_shows(api: str, target: str, kind: str) -> None:
    words, part = {"type": TEXT[api], "text": "Words. "}, PARTS[api][kind]
    conversation = await posted(target, read_turns(api, said(api, [words, part, words, part], [part, part])))
    words, part = {"type": TEXT[target], "text": "Words. "}, PARTS[target][kind]
    assert results(target, conversation) == [[words, part, words, part], [part, part]]


@pytest.mark.parametrize("kind", ["picture", "url", "file"])
@pytest.mark.parametrize("api", ["messages", "responses"])
async def test_chat_completions_have_what_tools_show_in_the_users_message_behind_all_results(
    api: str, kind: str
) -> None:
    before, part = {"type": TEXT[api], "text": "Before:"}, PARTS[api][kind]
    conversation = await posted("chat", read_turns(api, said(api, [before, part, part], [part])))
    names = [f"[attachment {number} of the tool results]" for number in (1, 2, 3)]
    assert [(each["role"], each["tool_call_id"], each["content"]) for each in conversation[2:4]] == [
        ("tool", "call_0", f"Before:\n{names[0]}\n{names[1]}"),
        ("tool", "call_1", names[2]),
    ]
    shown = [each for name in names for each in ({"type": "text", "text": name}, PARTS["chat"][kind])]
    assert conversation[4:] == [user(shown)]


@pytest.mark.parametrize("api", ["messages", "responses"])
async def test_what_the_user_says_after_the_results_follows_what_they_show_in_one_message(api: str) -> None:
    """Many templates accept no two turns of one role."""
    conversation = await posted("chat", read_turns(api, said(api, [PARTS[api]["picture"]], after="And now?")))
    assert [each["role"] for each in conversation] == ["user", "assistant", "tool", "user"]
    assert [part["type"] for part in conversation[-1]["content"]] == ["text", "image_url", "text"]
    assert conversation[-1]["content"][-1]["text"] == "And now?"


async def test_a_turn_of_the_assistant_stands_behind_what_the_results_before_it_show() -> None:
    turns = said("messages", [PARTS["messages"]["picture"]])
    turns += [{"role": "assistant", "content": "A cat."}, user("Sure?")]
    conversation = await posted("chat", read_turns("messages", turns))
    assert [each["role"] for each in conversation] == ["user", "assistant", "tool", "user", "assistant", "user"]


async def test_an_error_of_a_tool_keeps_its_screenshot() -> None:
    turns = said("messages", [{"type": "text", "text": "It broke."}, PARTS["messages"]["picture"]])
    turns[-1]["content"][0]["is_error"] = True
    (content,) = results("responses", await posted("responses", read_turns("messages", turns)))
    assert content == [{"type": "input_text", "text": "Error: It broke."}, PARTS["responses"]["picture"]]


@pytest.mark.parametrize("kind", ["picture", "url"])
@pytest.mark.parametrize(("api", "target"), PAIRS)
async def test_a_model_without_vision_refuses_the_picture_by_its_place(api: str, kind: str, target: str) -> None:
    places = {
        "messages": "messages[2].content[0].content[0]",
        "responses": "input[2].output[0]",
        "chat": "messages[2].content[0]",
    }
    with pytest.raises(InvalidInput) as refused:
        await posted(target, read_turns(api, said(api, [PARTS[api][kind]])), "top_k")
    assert refused.value.metadata["field"] == places[api]
    assert "no picture: model big takes none (`sees` in the mesh file)" in str(refused.value)


@pytest.mark.parametrize(("content", "text"), [([], ""), ("", ""), ("Done.", "Done."), (None, "")])
async def test_a_result_may_be_empty(content: Any, text: str) -> None:
    conversation = await posted("responses", read_turns("messages", said("messages", content)))
    assert results("responses", conversation) == [text]


@pytest.mark.parametrize(("api", "target"), PAIRS)
async def test_a_picture_by_url_in_a_question_passes_to_every_api(api: str, target: str) -> None:
    words = {"type": TEXT[api], "text": "What is it?"}
    (turn,) = await posted(target, read_turns(api, [user([PARTS[api]["url"], words])]))
    assert turn["content"] == [PARTS[target]["url"], {"type": TEXT[target], "text": "What is it?"}]
    (turn,) = await posted(target, read_turns(api, [user([PARTS[api]["url"]])]))
    assert turn["content"] == [PARTS[target]["url"]]


async def test_how_closely_to_look_is_said_between_openais_apis() -> None:
    part = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    (turn,) = await posted("responses", read_turns("chat", [user([part])]))
    assert turn["content"] == [{"type": "input_image", "image_url": URL, "detail": "low"}]


@pytest.mark.parametrize(
    ("api", "part"),
    [
        ("messages", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        ("messages", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PDF}}),
        ("messages", {"type": "search_result", "source": "a", "title": "b", "content": []}),
        ("responses", {"type": "input_image", "file_id": "file-1", "detail": "auto"}),
        ("responses", {"type": "input_image", "image_url": DATA, "detail": "auto"}),
    ],
)
async def test_what_no_other_api_has_is_refused_by_its_place(api: str, part: dict[str, Any]) -> None:
    place = "input[2].output[0]" if api == "responses" else "messages[2].content[0].content[0]"
    with pytest.raises(InvalidInput) as refused:
        await posted("chat", read_turns(api, said(api, [part])))
    assert refused.value.metadata["field"] == place


@pytest.mark.parametrize(("api", "target"), [("messages", "messages"), ("responses", "responses")])
async def test_a_conversation_that_the_gateway_has_changed_keeps_what_tools_show(api: str, target: str) -> None:
    request = read_turns(api, said(api, [PARTS[api]["picture"]]))
    request.original.body = b'{"max_tokens": 9}'
    assert results(target, await posted(target, request)) == [[PARTS[api]["picture"]]]


def shown(given: dict[str, Any]) -> tuple[Message, ...]:
    part = Part("document", place="messages[2].content[0].content[0]", given=json.dumps(given))
    called = Message("assistant", tool_calls=(ToolCall("call_0", "look", "{}"),))
    return (Message("user", "Look."), called, Message("tool", parts=(Part("text", "Here: "), part), tool_call_id="a"))


def test_vllm_gets_the_pictures_of_results_and_fetches_none() -> None:
    place = "messages[2].content[0].content[0]"
    own, part = Original("messages", b"{}", documents=frozenset({place})), PARTS["messages"]
    assert [takes_picture(own, place, json.dumps(part[kind])) for kind in ("picture", "url", "file")] == [
        True,
        False,
        False,
    ]
    assert not takes_picture(own, "messages[0].content[0]", json.dumps(part["picture"]))
    *_, last = to_chat(shown(part["picture"]), "", "salt")
    assert [each["type"] for each in last["content"]] == ["text", "image_url"]
    assert last["content"][1]["uuid"]


def test_a_model_without_tools_in_its_template_sees_what_they_show() -> None:
    *_, last = to_messages(as_text(shown(PARTS["messages"]["picture"]), (), takes_system=True))
    words = [each.get("text") for each in last["content"]]
    assert words == ["<tool_response>\n", "Here: ", None, "\n</tool_response>"]
