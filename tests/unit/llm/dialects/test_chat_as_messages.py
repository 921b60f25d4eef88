"""Chat completions at Anthropic's Messages API: what of a body has no place in the contract."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.original import original
from services.gateway.http.fields import Fields
from services.llm.servicer import _read
from services.runtime.errors import InvalidInput, NotSupported
from tests.unit.llm.providers.messages_api import answer, ended, engine, maker_s, provider, text

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(80)).decode()
PDF = base64.b64encode(b"%PDF-1.7 and more").decode()
MARK = {"type": "ephemeral", "ttl": "1h"}
THINKING = {"type": "enabled", "budget_tokens": 2_048}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
CALL = {"id": "a:0", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "a:0", "content": "noon"}
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
ASKED = {"role": "user", "content": "Time?"}


async def sent(changed: bool = False, **body: Any) -> dict[str, Any]:
    """The body that the provider gets. `changed`: whether a policy has changed the conversation."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], **body}
    given = Fields(body)
    order = read_chat(given, {}, {"m"}).request
    own = original(chat_pb2.API_CHAT_COMPLETIONS, json.dumps(body).encode(), given, {})
    if changed:
        own.body = b"{}"
    asked = llm_pb2.GenerateRequest(messages=order.messages, tools=order.tools, original=own)
    asked.sampling.CopyFrom(order.sampling)
    simulated = provider(*text("Hi."), *ended())
    wanted, _ = _read(asked, "acme", engine(simulated).describe())
    await answer(simulated, wanted)
    maker_s("MessageCreateParams").validate_python(simulated.body)
    return simulated.body


def user(*parts: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts), **fields}]


async def test_marks_of_the_prompt_cache_stay_where_the_caller_set_them() -> None:
    marked = {"type": "text", "text": "Long.", "cache_control": MARK}
    said = await sent(
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}, marked]},
            {"role": "user", "content": "Hello.", "cache_control": MARK},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": []}], "tool_calls": [CALL]},
            {**RESULT, "cache_control": MARK},
        ],
        tools=[*TOOLS, {"type": "function", "function": {"name": "f"}, "cache_control": MARK}],
        cache_control=MARK,
    )
    assert said["system"] == [{"type": "text", "text": "Be brief."}, marked]
    assert said["messages"][0]["content"] == [{"type": "text", "text": "Hello.", "cache_control": MARK}]
    assert said["messages"][1]["content"] == [{"type": "tool_use", "id": "a_0", "name": "clock", "input": {}}]
    noon = [{"type": "text", "text": "noon"}]
    result = {"type": "tool_result", "tool_use_id": "a_0", "content": noon, "cache_control": MARK}
    assert said["messages"][2]["content"] == [result]
    assert [tool.get("cache_control") for tool in said["tools"]] == [None, MARK]
    assert said["cache_control"] == MARK


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/plain;base64,SGk="}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
        ),
        (
            {"type": "file", "file": {"file_data": f"data:image/png;base64,{PNG}"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
        (
            {"type": "file", "file": {"file_id": "https://a.test/b.pdf"}},
            {"type": "document", "source": {"type": "url", "url": "https://a.test/b.pdf"}},
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}},
            {"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG[:8]}\n{PNG[8:]}"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
    ],
    ids=["pdf", "text", "picture in a file", "file by URL", "document", "picture by URL", "picture of another type"],
)
async def test_documents_and_pictures_are_blocks_with_their_marks(part: dict[str, Any], block: object) -> None:
    question = {"type": "text", "text": "What is it?"}
    said = await sent(messages=user(question, {**part, "cache_control": MARK}))
    assert said["messages"] == [{"role": "user", "content": [question, {**block, "cache_control": MARK}]}]


async def test_thinking_is_the_callers_and_has_room_beside_the_answer() -> None:
    said = await sent(thinking=THINKING)
    assert (said["thinking"], said["max_tokens"]) == (THINKING, 4_096 + 2_048)
    assert (await sent(thinking=THINKING, max_tokens=3_000))["max_tokens"] == 3_000
    assert (await sent(thinking={"type": "disabled"}))["thinking"] == {"type": "disabled"}
    assert (await sent(changed=True, thinking=THINKING))["thinking"] == THINKING


async def test_signed_thoughts_return_within_a_turn_and_without_them_it_has_no_thinking() -> None:
    called = {"role": "assistant", "content": "Well.", "tool_calls": [CALL]}
    said = await sent(messages=[ASKED, {**called, "thinking_blocks": [THOUGHT]}, RESULT], thinking=THINKING)
    assert [block["type"] for block in said["messages"][1]["content"]] == ["thinking", "text", "tool_use"]
    assert (said["messages"][1]["content"][0], said["thinking"]) == (THOUGHT, THINKING)
    assert "thinking" not in await sent(messages=[ASKED, called, RESULT], thinking=THINKING)


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, r"messages\[0\].content\[0\].file.file_data: the file as"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,?"}}, r"content\[0\].file.file_data: base64"),
        ({"type": "file", "file": 7}, r"messages\[0\].content\[0\].file: an object"),
        ({"type": "image_url", "image_url": {"url": "ftp://a"}}, r"content\[0\].image_url: a data: URL in base64"),
        ({"type": "video_url", "video_url": {"url": "https://a"}}, r"messages\[0\].content\[0\]: no such field"),
        ({"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}}, r"messages\[0\].parts\[0\].audio"),
    ],
)
async def test_a_part_without_a_counterpart_is_refused_by_its_path(part: dict[str, Any], place: str) -> None:
    with pytest.raises((InvalidInput, NotSupported), match=place):
        await sent(messages=user(part))
