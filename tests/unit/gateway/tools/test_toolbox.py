"""Which tools of which sources a tenant has, and calls of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings
from services.gateway.tools.listing import ListedTool
from services.gateway.tools.toolbox import RequestTools, Toolbox
from services.runtime.errors import InvalidInput, Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.scripted_tools import ScriptedTools, toolbox

pytestmark = pytest.mark.paused

WEATHER, NEWS = pb.MeshTool(name="weather"), pb.MeshTool(name="news")
OFFERED = [pb.MeshTool(name="weather", offered=True), pb.MeshTool(name="news", offered=True)]
OTHER = replace(EVERYTHING, name="other")


def permitted(*tools: str) -> Tenant:
    return replace(EVERYTHING, name="some", tools=tools)


def source(*names: str, said: object = "rain", after_s: float = 0.01) -> ScriptedTools:
    return ScriptedTools(**dict.fromkeys(names or ("weather",), (after_s, said)))


async def equipped(box: Toolbox, *asked: pb.MeshTool, tenant: Tenant = EVERYTHING, **fields: object) -> RequestTools:
    return await box.resolve(pb.GenerateRequest(mesh_tools=asked, **fields), tenant, 1)


async def listed(box: Toolbox) -> ListedTool:
    """`weather`."""
    tool = (await equipped(box, WEATHER)).beforehand[0].tool
    assert tool
    return tool


async def called(box: Toolbox, tool: ListedTool, tenant: Tenant = EVERYTHING, arguments: str = "{}") -> str:
    outcome = await box.client_of(tool).call(tool, arguments, tenant, 0, 30, INVALID_SPAN, lambda: False)
    return outcome.result.content


async def leave(box: Toolbox, tool: ListedTool, after_s: float) -> None:
    """Call, and be gone before there is a result."""
    calling = asyncio.create_task(called(box, tool))
    await asyncio.sleep(after_s)
    calling.cancel()
    await asyncio.wait({calling})


async def test_a_tool_that_fails_for_one_tenant_is_not_called_for_that_tenant_alone():
    tools = source()
    box = toolbox(tools, breaker={"in_a_row": 2, "open_ms": 60_000})
    tool = await listed(box)
    await called(box, tool)
    tools.says["weather"] = (0.01, Unavailable("kb: gone"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            await called(box, tool, OTHER)
    tools.says["weather"] = (0.01, "rain")
    assert await called(box, tool) == "rain"
    with pytest.raises(Unavailable, match="of this tenant alone"):
        await called(box, tool, OTHER)


async def test_a_cancelled_call_does_not_open_the_breaker_of_a_slow_tool():
    box = toolbox(source(after_s=2), expected={"tool_ms": 500}, breaker={"in_a_row": 2})
    tool = await listed(box)
    for _ in range(3):
        await leave(box, tool, 0.6)
    assert await called(box, tool, OTHER) == "rain"


async def test_a_cancelled_probe_lets_the_next_caller_probe():
    tools = source(said=Unavailable("kb: gone"))
    box = toolbox(tools, breaker={"in_a_row": 1, "open_ms": 100})
    tool = await listed(box)
    with pytest.raises(Unavailable):
        await called(box, tool)
    await asyncio.sleep(1)
    tools.says["weather"] = (0.01, "rain")
    await leave(box, tool, 0.005)
    assert await called(box, tool) == "rain"


async def test_a_result_answers_again_for_as_long_as_its_tool_says_and_for_its_tenant_alone():
    tools = source()
    tools.extras["weather"] = {"reusable_ms": 5_000}
    box = toolbox(tools)
    tool = await listed(box)
    for tenant, arguments, calls in ((EVERYTHING, "{}", 1), (EVERYTHING, "{}", 1), (OTHER, "{}", 2)):
        await called(box, tool, tenant, arguments)
        assert len(tools.calls) == calls
    await asyncio.sleep(6)
    await called(box, tool)
    assert len(tools.calls) == 3


async def test_to_a_tenant_that_may_use_none_there_is_none_and_nothing_is_called():
    tools = source("weather", "news")
    box = toolbox(tools)
    with pytest.raises(InvalidInput, match=r"mesh_tools\[0\].name: one of none, got weather"):
        await equipped(box, WEATHER, tenant=permitted())
    some = permitted("kb/wea*")
    assert (await equipped(box, WEATHER, tenant=some)).beforehand[0].tool
    with pytest.raises(InvalidInput, match=r"mesh_tools\[0\].name: one of kb/weather, got news"):
        await equipped(box, NEWS, tenant=some)
    assert not tools.calls
    none = await box.list(permitted(), 1)
    assert not none.tools
    assert not none.sources


async def test_no_caller_waits_for_the_list_of_an_absent_source():
    tools, other = source(), source("news")
    box = toolbox(tools, other)
    tools.away = Unavailable("kb: gone")
    await box.list(EVERYTHING, 1)
    await asyncio.sleep(2)
    tools.list_s, began = 60, loop_clock()
    weather, news = (await equipped(box, WEATHER, pb.MeshTool(name="kb1/news"))).beforehand
    assert loop_clock() - began < 0.01
    assert weather.tool is None
    assert news.tool
    await asyncio.sleep(60)  # until the list is there


async def test_an_ambiguous_name_calls_neither_of_two_tools():
    box = toolbox(source(), source("weather", "radar"))
    found = await box.list(EVERYTHING, 1)
    assert [(each.source, each.description.tool.name) for each in found.tools] == [
        ("kb", "weather"),
        ("kb1", "weather"),
        ("kb1", "radar"),
    ]
    problem = "tools of another source have these names, too, so ask by source/name: weather"
    assert [each.problem for each in found.sources] == [problem, problem]
    for asked in (WEATHER, OFFERED[0]):
        with pytest.raises(InvalidInput, match="the name of one tool alone: kb/weather or kb1/weather, got weather"):
            await equipped(box, asked)
    named = [pb.MeshTool(name="kb1/weather"), pb.MeshTool(name="kb/weather", offered=True)]
    request_tools = await equipped(box, *named)
    assert [each.tool and each.tool.source for each in request_tools.beforehand] == ["kb1"]
    assert {name: tool.source for name, tool in request_tools.offered.items()} == {"weather": "kb"}
    for both in ([*named, pb.MeshTool(source="kb1")], [pb.MeshTool(source="kb1"), pb.MeshTool(source="kb")]):
        with pytest.raises(InvalidInput, match=r"tools of different names, got kb1?/weather and kb1?/weather"):
            await equipped(box, *both)
    (call,) = (await equipped(box, WEATHER, tenant=permitted("kb1/*"))).beforehand
    assert call.tool
    assert call.tool.source == "kb1"


async def test_a_tool_is_not_called_for_a_source_that_has_not_listed_its_own_of_this_name():
    right, wrong = source(), source()
    right.away = Unavailable("kb: gone")
    box = toolbox(right, wrong)
    request_tools = await equipped(box, WEATHER, OFFERED[0])
    assert [each.tool for each in request_tools.beforehand] == [None]
    assert (dict(request_tools.offered), request_tools.away) == ({}, ["weather"])
    only = await equipped(box, WEATHER, tenant=permitted("kb/weather"))
    assert [each.tool for each in only.beforehand] == [None]


async def test_the_list_of_a_source_is_bounded_and_omissions_are_logged():
    tools = source(*(f"tool_{number}" for number in range(10_000)))
    tools.extras["tool_0"] = {"tool": None}
    found = await toolbox(tools, max_tools=5, max_description_bytes=16).list(EVERYTHING, 1)
    assert len(found.tools) == 4
    (of_source,) = found.sources
    assert of_source.problem == (
        "left out: '' (name: 1 to 64 letters, digits, _ and -, got 0 characters); at most 5 tools, got 10000"
    )


async def test_a_tool_of_the_settings_that_its_source_lacks_is_a_problem():
    settings = {"tools": ["weather", "wether"]}
    (of_source,) = (await toolbox(source("weather", "news"), own=settings).list(EVERYTHING, 1)).sources
    assert of_source.problem == "not listed by the source: wether"


async def test_a_description_is_cut_and_hides_nothing():
    tools = source("a")
    tools.extras["a"] = {"tool": {"name": "files.read", "description": "Reads\U000e0041\u202e\x1b[2J" + "x" * 100}}
    (found,) = (await toolbox(tools, max_description_bytes=20).list(EVERYTHING, 1)).tools
    assert found.description.tool.name == "files_read"
    assert found.description.tool.description == "Reads   [2Jxxxxxxxxx"


async def test_all_tools_of_a_source_can_be_offered():
    box = toolbox(source("weather", "news"))
    assert list((await equipped(box, pb.MeshTool(source="kb"))).offered) == ["weather", "news"]
    with pytest.raises(InvalidInput, match="one of kb, got elsewhere"):
        await equipped(box, pb.MeshTool(source="elsewhere"))


async def test_ambiguous_or_unknown_tool_names_are_refused():
    box = toolbox(source("weather", "news"))
    with pytest.raises(InvalidInput, match="none with the name of a tool of the mesh"):
        await equipped(box, *OFFERED, tools=[chat_pb2.Tool(name="news")])
    with pytest.raises(InvalidInput, match=r"tool_choice\.name: one of news, weather, got radar"):
        await equipped(box, *OFFERED, tool_choice=chat_pb2.ToolChoice(name="radar"))


def test_a_source_is_reached_in_one_way():
    for ways in ({}, {"address": "a:1", "url": "http://a"}):
        with pytest.raises(ValueError, match="one of address, url and command"):
            GatewaySettings(llm_addresses={"m": "unused"}, tools={"sources": {"kb": ways}})
