"""The demo's agent: a model calls two tools by itself, which are functions here, and answers with what they said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hedgerow import Answer, Message, Tool, ToolCall

if TYPE_CHECKING:
    from rich.console import Console

    from hedgerow import AsyncClient

TITLE = "An agent: the model itself calls two tools, and answers with what they say"
QUESTION = "What is the weather in Oslo and what time is it in Rome?"
CALLED = [("get_weather", {"city": "Oslo"}), ("clock", {"city": "Rome"})]
SAID = "The weather in Oslo is snowy. It is 09:30 in Rome."

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# By the names and in the words that the demo's models have learned; what they say is made up.
_TOOLS = (Tool("get_weather", "Get the current weather.", _CITY), Tool("clock", "Tells the time.", _CITY))
_DOES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "get_weather": lambda arguments: "snowy",
    "clock": lambda arguments: "09:30",
}


async def ask_an_agent(client: AsyncClient, console: Console) -> str:
    """One conversation of two questions to the model. Returns what fell short; empty when nothing did."""
    from hedgerow.cli.screen import print_account, written_as_it_comes

    console.rule(TITLE, align="left", style="dim")
    console.print(f"[bold]›[/] {QUESTION}")
    turns = [Message("user", QUESTION)]
    wanting = await client.ask(turns, tools=_TOOLS, tier="quality", temperature=0, cache="bypass")
    print_account(console, wanting)
    console.print()
    if shortfall := _shortfall(wanting):
        return f"{TITLE}: expected {shortfall}"
    turns.append(Message("assistant", tool_calls=wanting.tool_calls))
    turns += [Message("tool", _does(call), tool_call_id=call.id) for call in wanting.tool_calls]
    with written_as_it_comes() as write:
        answer = await client.ask(turns, tools=_TOOLS, tier="quality", temperature=0, cache="bypass", on_token=write)
    print_account(console, answer)
    console.print()
    return "" if answer.text == SAID else f"{TITLE}: expected {SAID!r}, got {answer.text!r}"


def _shortfall(answer: Answer) -> str:
    try:
        called = [(call.name, call.parsed()) for call in answer.tool_calls]
    except ValueError as error:
        return f"calls with JSON for arguments, got {error}"
    return "" if called == CALLED else f"the calls {CALLED}, got {called or answer.text}"


def _does(call: ToolCall) -> str:
    return _DOES[call.name](call.parsed())
