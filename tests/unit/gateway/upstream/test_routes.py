"""The router's table, as a gateway takes it in."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.routes import Routes
from services.runtime.routing import Demand, Tier


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
