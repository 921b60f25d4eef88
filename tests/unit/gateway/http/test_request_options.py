"""Hedgerow's own options of a request, in its body and its headers."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.request_options import settle_replacing
from services.runtime.errors import InvalidInput
from tests.unit.gateway.http.chats import read, refused


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("budget-ms", "soon", "a whole number, got 'soon'"),
        ("findings", "yes", "true or false, got 'yes'"),
        ("cache-allow", "sampled, all", "some of sampled, time_bound, personal, got all"),
        ("priority", "high", "one of realtime, normal, got 'high'"),
        ("tier", "best", "one of auto, fast, balanced, quality, got 'best'"),
        ("hit-chars-per-s", "-1", "0 to 1000000, got -1.0"),
    ],
)
def test_a_header_is_refused_under_its_own_name(name: str, value: str, message: str) -> None:
    assert refused({f"x-hedgerow-{name}": value}) == f"x-hedgerow-{name}: {message}"


def test_a_header_overrides_a_list_and_a_flag_of_the_body() -> None:
    own = {"cache_allow": ["personal"], "findings": True, "end_user": "anna"}
    headers = {"x-hedgerow-cache-allow": "sampled, time_bound", "x-hedgerow-findings": "false"}
    order = read({**headers, "x-hedgerow-end-user": "bert"}, hedgerow=own)
    assert list(order.request.cache.allow) == [pb.QUESTION_KIND_SAMPLED, pb.QUESTION_KIND_TIME_BOUND]
    assert (list(order.request.end_user), order.findings) == (["bert"], False)
    cascade = read({"x-hedgerow-cascade": "rules"}, model="auto", hedgerow={"cascade": "logprobs, form"})
    assert list(cascade.request.cascade.verifiers) == [pb.VERIFIER_RULES]


def test_a_header_that_is_no_option_is_refused_as_a_field_of_the_body_is() -> None:
    message = refused({"x-hedgerow-budgetms": "300"})
    assert message.startswith("x-hedgerow-budgetms: one of x-hedgerow-budget-ms, x-hedgerow-cache, ")
    assert read({"x-hedgerow-tenant": "acme", "x-hedgerow-trace-id": "4b", "x-other": "1"}).model == "m"


def test_tools_of_the_mesh_are_given_by_name_or_with_options() -> None:
    given = ["search_manual", {"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "news", "offered": True}]
    own = {"mesh_tools": [*given, {"source": "files"}], "tool_steps": 1, "tool_calls": 3}
    request = read(hedgerow=own).request
    assert list(request.mesh_tools) == [
        pb.MeshTool(name="search_manual"),
        pb.MeshTool(name="weather", arguments='{"city": "Oslo"}'),
        pb.MeshTool(name="news", offered=True),
        pb.MeshTool(source="files"),
    ]
    assert request.tool_limits == pb.ToolLimits(steps=1, calls=3)
    headers = {"x-hedgerow-mesh-tools": "weather, news", "x-hedgerow-tool-calls": "1"}
    asked = read(headers, hedgerow=own).request
    assert [tool.name for tool in asked.mesh_tools] == ["weather", "news"]
    assert asked.tool_limits.calls == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([3], "hedgerow.mesh_tools[0]: a name or an object, got neither"),
        ([{"name": "a", "url": "http://a"}], "hedgerow.mesh_tools[0].url: one of name, source, arguments, offered"),
        ([{"name": "a", "source": "b"}], "hedgerow.mesh_tools[0].source: none together with a name, got 'b'"),
        ([{"name": "a", "arguments": "{}"}], "hedgerow.mesh_tools[0].arguments: an object, got '{}'"),
        ("weather", "hedgerow.mesh_tools: an array, got 'weather'"),
    ],
)
def test_an_invalid_tool_of_the_mesh_is_refused_by_its_path(given: Any, problem: str) -> None:
    assert problem in refused(hedgerow={"mesh_tools": given})


def test_a_guard_is_asked_for_by_what_it_looks_for() -> None:
    asked = read({"x-hedgerow-guard": "injection=refuse, personal=mask"}, hedgerow={"guard": "secrets=refuse"})
    mask, refuse = pb.GUARD_ACTION_MASK, pb.GUARD_ACTION_REFUSE
    assert asked.request.guard == pb.GuardPolicy(injection=refuse, personal=mask, secrets=refuse)
    assert not read().request.HasField("guard")
    assert refused(hedgerow={"guard": "personal"}).startswith("hedgerow.guard: mask or refuse for some of injection,")


@pytest.mark.parametrize(("own", "repair"), [({}, True), ({"repair": False}, False), ({"repair": True}, True)])
def test_an_answer_in_one_piece_is_repaired_unless_it_must_not_be(own: dict[str, bool], repair: bool) -> None:
    order = read(hedgerow=own)
    settle_replacing(order, checks=True)
    assert order.request.repair == repair


@pytest.mark.parametrize("headers", [{"x-hedgerow-repair": "true"}, {"x-hedgerow-cascade-at-once": "true"}])
def test_options_that_replace_text_are_refused_beside_stream(headers: dict[str, str]) -> None:
    order = read({**headers, "x-hedgerow-cascade": "rules"}, stream=True)
    with pytest.raises(InvalidInput, match="none together with stream"):
        settle_replacing(order, checks=True)


def test_a_stream_is_not_repaired_automatically() -> None:
    order = read(stream=True)
    settle_replacing(order, checks=True)
    assert not order.request.repair


def test_at_once_is_for_a_cascade() -> None:
    with pytest.raises(InvalidInput, match="with a cascade"):
        settle_replacing(read(hedgerow={"cascade_at_once": True}), checks=True)
