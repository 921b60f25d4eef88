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

FEW, MANY, LONG = (
    (Message("user", "Hello."),),
    (Message("user", "Hello."),) * 2_000,
    (Message("user", "m" * 1_100_000),),
)
TOOLS = tuple(Tool(f"tool_{number}", parameters=json.dumps({"title": "t" * 7_000})) for number in range(10))
NEVER = Deadline.never()
WORK = {
    "shown": lambda engine, asked: engine.count_tokens(asked.messages, asked.tools, NEVER),
    "reading": lambda engine, asked: engine._reading(asked, [1]),
    "constraint": lambda engine, asked: engine._structured(asked, NEVER),
}


class _Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("work", "messages", "tools", "large"),
    [
        *[("shown", FEW, TOOLS[:1], False), ("shown", MANY, TOOLS[:1], True), ("shown", FEW, TOOLS, True)],
        *[("reading", FEW, (), False), ("reading", MANY, (), True), ("reading", LONG, (), True)],
        *[("constraint", FEW, TOOLS[:1], False), ("constraint", FEW, TOOLS, True)],
    ],
)
async def test_large_conversations_and_tools_are_worked_on_beside_the_event_loop(
    work: str, messages: tuple[Message, ...], tools: tuple[Tool, ...], large: bool
) -> None:
    threads = list[int]()

    def noted(*_: Any) -> None:
        threads.append(get_ident())
        raise _Stop

    engine = VllmEngine.__new__(VllmEngine)
    engine._parsers = SimpleNamespace(**{work: noted})  # type: ignore[assignment]
    with pytest.raises(_Stop):
        await WORK[work](engine, Request(messages, tools=tools))
    assert (threads != [get_ident()]) is large
