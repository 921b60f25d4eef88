"""Conversations in vLLM's words."""

from __future__ import annotations

from services.llm.engine import Message, Part, ToolCall
from services.llm.size import characters
from services.llm.vllm.messages import has_media, to_chat

SEEN = Message("user", parts=(Part("text", "This?"), Part("image", data=b"\x89PNG\r\n\x1a\n")))


def name(message: Message, salt: str) -> str:
    """The id by which vLLM caches the picture."""
    (said,) = to_chat((message,), "", salt)
    text, image = said["content"]
    assert text == {"type": "text", "text": "This?"}
    uuid: str = image["uuid"]
    return uuid


def test_a_read_picture_is_reused_for_the_same_salt_alone() -> None:
    other = Message("user", parts=(SEEN.parts[0], Part("image", data=b"\x89PNG\r\n\x1a\n.")))
    assert name(SEEN, "a") == name(SEEN, "a")
    assert len({name(SEEN, "a"), name(SEEN, "b"), name(SEEN, ""), name(other, "a")}) == 4


def test_the_beginning_of_an_answer_is_the_last_message() -> None:
    assert to_chat((Message("user", "Hi."),), "Good", "")[-1] == {"role": "assistant", "content": "Good"}


def test_all_that_is_written_is_counted() -> None:
    assert characters((SEEN, Message("assistant", "ab", tool_calls=(ToolCall("a", "b", "{}"),)))) == 9
    assert has_media((SEEN,))
    assert not has_media((Message("user", "Hi."),))
