"""A model's context is what its own service says, then what the router's table says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.routes import Routes, follow_contexts
from services.runtime.errors import NotSupported, Unavailable

pytestmark = pytest.mark.paused


@dataclass
class Telling:
    """A replica that says one after the other, and the last again and again."""

    says: list[int | Exception]
    asked: int = field(default=0)

    async def context_tokens(self, timeout_s: float) -> int:
        told = self.says[min(self.asked, len(self.says) - 1)]
        self.asked += 1
        if isinstance(told, Exception):
            raise told
        return told


def table(**contexts: int) -> router_pb2.WatchTableResponse:
    rows = (router_pb2.Model(name=name, tier=1, context_tokens=tokens) for name, tokens in contexts.items())
    return router_pb2.WatchTableResponse(version=1, models=rows)


def fleet(**replicas: list[Telling]) -> Any:
    pools = {
        name: SimpleNamespace(model=name, replicas=[SimpleNamespace(llm=llm) for llm in llms])
        for name, llms in replicas.items()
    }
    return SimpleNamespace(pools=pools)


async def known(routes: Routes, followed: Any, after_s: float = 1.0) -> dict[str, int]:
    following = asyncio.create_task(follow_contexts(followed, routes))
    await asyncio.sleep(after_s)
    following.cancel()
    await asyncio.wait({following})
    return {name: routes.context_tokens(name) for name in followed.pools}


def routes_of(**contexts: int) -> Routes:
    routes = Routes(("own", "hub", "url"), expected=True)
    routes._take(table(**contexts))
    return routes


async def test_a_service_is_stronger_than_the_table_and_silence_changes_nothing() -> None:
    routes = routes_of(own=4_096, hub=0, url=128_000)
    told = await known(routes, fleet(own=[Telling([0])], hub=[Telling([40_960])], url=[Telling([200_000])]))
    assert told == {"own": 4_096, "hub": 40_960, "url": 200_000}
    assert routes.least_context == 4_096
    routes._take(table(own=4_096, hub=0, url=128_000))  # the next one
    assert [routes.context_tokens(name) for name in told] == list(told.values())


async def test_the_smallest_of_several_replicas_counts() -> None:
    told = await known(routes_of(own=0), fleet(own=[Telling([8_192]), Telling([0]), Telling([4_096])]))
    assert told == {"own": 4_096}


async def test_a_service_that_is_away_is_asked_again_soon_and_one_that_cannot_say_seldom() -> None:
    away, old = Telling([Unavailable("away"), Unavailable("away"), 8_192]), Telling([NotSupported("GetModel")])
    routes = routes_of(own=0, url=7)
    assert await known(routes, fleet(own=[away], url=[old]), after_s=50) == {"own": 8_192, "url": 7}
    assert away.asked == 3


async def test_without_a_table_a_context_is_known_and_no_model() -> None:
    routes = Routes(("own",), expected=False)
    assert await known(routes, fleet(own=[Telling([8_192])])) == {"own": 8_192}
    assert routes.model("own") is None


def test_a_context_that_nobody_knows_limits_nothing() -> None:
    routes = routes_of(own=0, hub=0)
    assert routes.least_context == 0
    assert routes.context_tokens("own") == routes.context_tokens("missing") == 0
