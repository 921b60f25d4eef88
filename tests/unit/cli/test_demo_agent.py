"""The demo's agent, with a scripted client in the place of the mesh."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from hedgerow import Answer, ToolCall
from hedgerow.cli.demo_agent import SAID, ask_an_agent
from tests.unit.cli.answers import an_answer

WEATHER, CLOCK = ToolCall("1", "get_weather", '{"city": "Oslo"}'), ToolCall("2", "clock", '{"city": "Rome"}')


class Scripted:
    """Gives one answer after the other, and keeps what it was asked."""

    def __init__(self, *answers: Answer):
        self.answers, self.asked = list(answers), list[Any]()

    async def ask(self, turns: Any, **options: Any) -> Answer:
        self.asked.append(list(turns))
        return self.answers.pop(0)


def calling(*calls: ToolCall) -> Answer:
    return replace(an_answer(), text="", tool_calls=calls)


async def outcome(*answers: Answer) -> tuple[str, list[Any]]:
    client = Scripted(*answers)
    return await ask_an_agent(client, Console(file=StringIO())), client.asked  # type: ignore[arg-type]


async def test_what_the_model_calls_is_done_and_told_to_it() -> None:
    short, asked = await outcome(calling(WEATHER, CLOCK), replace(an_answer(), text=SAID))
    assert short == ""
    told = [(turn.role, turn.content, turn.tool_call_id) for turn in asked[1][2:]]
    assert told == [("tool", "snowy", "1"), ("tool", "09:30", "2")]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((calling(CLOCK),), "expected the calls"),
        ((calling(WEATHER, replace(CLOCK, arguments="{")),), "expected calls with JSON for arguments"),
        ((calling(),), "expected the calls"),
        ((calling(WEATHER, CLOCK), replace(an_answer(), text="It rains.")), "got 'It rains.'"),
    ],
)
async def test_the_demo_says_what_its_agent_did_not_do(answers: tuple[Answer, ...], why: str) -> None:
    assert why in (await outcome(*answers))[0]
