"""The conversation of a request: roles, parts, calls of tools and their results."""

from __future__ import annotations

import pytest

from hedgerow.chat.v1.chat_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_USER, Message, Part, ToolCall
from hedgerow.gateway.v1.gateway_pb2 import Audio, GenerateRequest
from services.gateway.admission import messages
from services.runtime.errors import InvalidInput

ASKED = Message(role=ROLE_USER, content="What time is it in Oslo?")
CALLED = Message(role=ROLE_ASSISTANT, tool_calls=[ToolCall(id="1", name="clock", arguments='{"city": "Oslo"}')])
TOLD = Message(role=ROLE_TOOL, tool_call_id="1", content="12:30")


def check(*given: Message, **fields: object) -> int:
    return messages.check(GenerateRequest(messages=given, **fields), most=8)


def parts(*given: Part, role: int = ROLE_USER) -> Message:
    return Message(role=role, parts=given)


def flat(*given: Message, **fields: object) -> GenerateRequest:
    request = GenerateRequest(messages=given, **fields)
    messages.flatten(request)
    return request


def test_a_tool_call_and_its_result_are_valid_messages():
    assert check(ASKED, CALLED, TOLD) == len('What time is it in Oslo?clock{"city": "Oslo"}12:30')
    check(ASKED, CALLED, Message(role=ROLE_TOOL, tool_call_id="1"))  # a tool may give back nothing


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([ASKED, TOLD], r"messages\[1\]\.tool_call_id: the id of a call before it, got '1'"),
        ([ASKED, CALLED], r"messages\[1\]\.role: ROLE_USER or ROLE_TOOL for the last message, got ROLE_ASSISTANT"),
        (
            [Message(role=ROLE_USER, content="?", tool_calls=CALLED.tool_calls)],
            r"tool_calls: only in messages of the assistant",
        ),
        ([Message(role=ROLE_USER, content="?", tool_call_id="1")], r"tool_call_id: none outside of ROLE_TOOL, got 1"),
        ([Message(role=ROLE_ASSISTANT, tool_calls=[ToolCall(id="1")]), ASKED], r"tool_calls\[0\]\.name: 1 or more"),
        ([Message(role=ROLE_ASSISTANT), ASKED], r"messages\[0\]\.content: text that is not blank, got ''"),
        (
            [Message(role=ROLE_USER, content="?", parts=[Part(text="?")])],
            r"messages\[0\]\.parts: none together with content",
        ),
        ([parts(*[Part(text="x")] * 257)], r"messages\[0\]\.parts: at most 256, got 257"),
        (
            [Message(role=ROLE_ASSISTANT, tool_calls=CALLED.tool_calls[:] * 129), ASKED],
            r"messages\[0\]\.tool_calls: at most 128, got 129",
        ),
        ([parts(Part())], r"messages\[0\]\.parts\[0\]: text, image or audio, got nothing"),
        ([parts(Part(text="?"), Part(image=b""))], r"messages\[0\]\.parts\[1\]\.image: 1 or more bytes, got 0"),
        ([parts(Part(text=" "))], r"messages\[0\]\.parts: text that is not blank, a picture or a recording, got blank"),
        (
            [parts(Part(image=b"x"), role=ROLE_SYSTEM), ASKED],
            r"parts\[0\]: image only in messages of the user, got ROLE_SYSTEM",
        ),
        ([parts(Part(audio=b"x")), ASKED], r"parts\[0\]: one recording, in the last message, got another"),
        ([parts(Part(audio=b"x"), Part(audio=b"x"))], r"parts\[0\]: one recording, in the last message, got another"),
    ],
)
def test_messages_that_are_no_conversation_are_refused(bad: list[Message], message: str):
    with pytest.raises(InvalidInput, match=message):
        check(*bad)


def test_parts_become_text_pictures_and_a_recording():
    asked = parts(Part(text="Which is it?"), Part(image=b"1"), Part(text="And where?"), Part(audio=b"2"))
    request = flat(parts(Part(text="Look."), Part(image=b"0")), Message(role=ROLE_ASSISTANT, content="Yes?"), asked)
    assert [message.content for message in request.messages] == ["Look.", "Yes?", "Which is it?\nAnd where?"]
    assert [image.data for image in request.images] == [b"0", b"1"]
    assert request.audio.data == b"2"
    assert not any(message.parts for message in request.messages)


def test_a_picture_alone_is_a_message_without_text():
    alone, captioned = parts(Part(image=b"1")), parts(Part(text=""), Part(image=b"2"))
    check(alone, captioned)
    request = flat(alone, captioned)
    assert [message.content for message in request.messages] == [messages.NO_TEXT] * 2
    assert [image.data for image in request.images] == [b"1", b"2"]


def test_a_recording_alone_is_the_question():
    request = flat(ASKED, Message(role=ROLE_ASSISTANT, content="Noon."), parts(Part(audio=b"1")))
    assert (len(request.messages), request.audio.data) == (2, b"1")


def test_content_and_its_one_part_are_the_same():
    assert flat(parts(Part(text="Why?"))) == flat(Message(role=ROLE_USER, content="Why?"))


def test_a_recording_alone_is_admitted_without_messages():
    assert check(audio=Audio(data=b"x")) == 0
