"""The router's table in a gateway, and contexts of models: what the model's own service says, then the table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from grpc.aio import UsageError

from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.router import Routes, follow_contexts
from services.runtime.errors import NotSupported, Unavailable
from services.runtime.routing import Demand, Tier

pytestmark = pytest.mark.paused


@dataclass
class Telling:
    """A replica that says one after the other, and the last again and again."""

    says: list[int | Exception]
    asked: int = field(default=0)

    async def context_tokens(self, timeout_s: float) -> int:
        step = self.says[min(self.asked, len(self.says) - 1)]
        self.asked += 1
        if isinstance(step, Exception):
            raise step
        return step


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
    contexts = await known(routes, fleet(own=[Telling([0])], hub=[Telling([40_960])], url=[Telling([200_000])]))
    assert contexts == {"own": 4_096, "hub": 40_960, "url": 200_000}
    assert routes.least_context == 4_096
    routes._take(table(own=4_096, hub=0, url=128_000))  # the next one
    assert [routes.context_tokens(name) for name in contexts] == list(contexts.values())


async def test_the_smallest_of_several_replicas_counts() -> None:
    contexts = await known(routes_of(own=0), fleet(own=[Telling([8_192]), Telling([0]), Telling([4_096])]))
    assert contexts == {"own": 4_096}


async def test_a_service_that_is_away_is_asked_again_soon_and_one_that_cannot_say_seldom() -> None:
    away, old = Telling([Unavailable("away"), Unavailable("away"), 8_192]), Telling([NotSupported("GetModel")])
    routes = routes_of(own=0, url=7)
    assert await known(routes, fleet(own=[away], url=[old]), after_s=50) == {"own": 8_192, "url": 7}
    assert away.asked == 3


async def test_a_replica_that_leaves_before_its_turn_is_not_asked() -> None:
    class Leaves(Telling):
        async def context_tokens(self, timeout_s: float) -> int:
            replicas.pop()
            return await super().context_tokens(timeout_s)

    followed = fleet(own=[Leaves([8_192]), Telling([UsageError("Channel is closed.")])])
    replicas = followed.pools["own"].replicas
    assert await known(routes_of(own=0), followed) == {"own": 8_192}


async def test_without_a_table_a_context_is_known_and_no_model() -> None:
    routes = Routes(("own",), expected=False)
    assert await known(routes, fleet(own=[Telling([8_192])])) == {"own": 8_192}
    assert routes.model("own") is None


def test_an_unknown_context_length_limits_nothing() -> None:
    routes = routes_of(own=0, hub=0)
    assert routes.least_context == 0
    assert routes.context_tokens("own") == routes.context_tokens("missing") == 0


class LaterRouter:
    """It knows one more tier than this gateway."""

    async def tables(self) -> AsyncGenerator[router_pb2.WatchTableResponse, None]:
        models = [router_pb2.Model(name="small", tier=router_pb2.MODEL_TIER_FAST)]
        new = router_pb2.Model(name="vast")
        new.MergeFromString(b"\x10\x09")  # the second field, 9
        yield router_pb2.WatchTableResponse(models=[*models, new])


async def test_a_tier_that_a_later_router_knows_is_as_none() -> None:
    routes = Routes(["small", "vast"], expected=True)
    await routes.follow(LaterRouter())  # type: ignore[arg-type]
    small, vast = routes.model("small"), routes.model("vast")
    assert small
    assert vast
    assert (small.tier, vast.tier) == (Tier.FAST, Tier.UNSPECIFIED)


async def test_a_model_that_does_not_chat_has_its_price_and_is_never_chosen() -> None:
    routes = Routes(["small", "vast"], expected=True, never=["small"])
    await routes.follow(LaterRouter())  # type: ignore[arg-type]
    chosen = routes.choose(Demand(Tier.UNSPECIFIED, "What is 2 + 2?", 1_000, 7))
    assert routes.model("small")
    assert chosen
    assert (chosen.model, chosen.alternatives) == ("vast", ())
    routes.learn("small", 512)
    assert (routes.context_tokens("small"), routes.least_context) == (512, 0)


def test_a_question_with_pictures_is_for_models_with_vision() -> None:
    routes = Routes(["blind", "small", "large"], expected=True)
    rows = {"blind": (1, False), "small": (1, True), "large": (3, True)}
    models = (router_pb2.Model(name=name, tier=tier, sees=sees) for name, (tier, sees) in rows.items())
    routes._take(router_pb2.WatchTableResponse(models=models))
    assert (routes.sees("small"), routes.sees("blind"), routes.sees("away")) == (True, False, False)
    assert (routes.sees(""), routes.sees("", every=True)) == (True, False)
    asked = Demand(Tier.UNSPECIFIED, "What is this?", 1_000, 7, pictures=True)
    chosen = routes.choose(asked)
    assert chosen
    assert (chosen.model, chosen.alternatives) == ("small", ("large",))
    assert routes.choose(asked, below=Tier.FAST) is None
