"""The engine's own work on a request, without an engine."""

from __future__ import annotations

import json
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from services.llm.engine import Message, Request, Tool
from services.llm.vllm.engine import VllmEngine
from services.runtime.deadline import Deadline

HELLO = Message("user", "Hello.")
TOOLS = tuple(Tool(f"tool_{number}", parameters=json.dumps({"title": "t" * 7_000})) for number in range(10))


class _Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("messages", "tools", "large"), [(10, TOOLS[:1], False), (2_000, TOOLS[:1], True), (10, TOOLS, True)]
)
async def test_many_messages_and_large_tools_are_translated_beside_the_event_loop(
    messages: int, tools: tuple[Tool, ...], large: bool
) -> None:
    threads = list[int]()

    def shown(*_: Any) -> None:
        threads.append(get_ident())
        raise _Stop

    engine = VllmEngine.__new__(VllmEngine)
    engine._parsers = SimpleNamespace(shown=shown)  # type: ignore[assignment]
    with pytest.raises(_Stop):
        await engine.count_tokens((HELLO,) * messages, tools, Deadline.never())
    assert (threads != [get_ident()]) is large


async def test_a_long_conversation_is_validated_beside_the_event_loop_for_its_parser() -> None:
    threads = list[int]()
    engine = VllmEngine.__new__(VllmEngine)
    engine._parsers = SimpleNamespace(reading=lambda *_: threads.append(get_ident()))  # type: ignore[assignment]
    for messages in (HELLO,), (HELLO,) * 2_000, (Message("user", "m" * 1_100_000),):
        await engine._reading(Request(messages), [1])
    assert [thread == get_ident() for thread in threads] == [True, False, False]


async def test_the_grammar_of_large_tools_is_written_beside_the_event_loop() -> None:
    threads = list[int]()
    engine = VllmEngine.__new__(VllmEngine)
    engine._parsers = SimpleNamespace(constraint=lambda request: threads.append(get_ident()))  # type: ignore[assignment]
    for tools in (TOOLS[:1], TOOLS):
        assert await engine._structured(Request((HELLO,), tools=tools), Deadline.never()) is None
    assert [thread == get_ident() for thread in threads] == [True, False]
