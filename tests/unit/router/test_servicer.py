from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hedgerow.router.v1 import router_pb2 as pb
from services.router.config import ModelSettings
from services.router.servicer import RouterServicer
from services.router.table import Table
from services.runtime.errors import InvalidInput
from tests.clock import PausedClock

CATALOGUE = [ModelSettings(name="small", tier="fast", context_tokens=100)]
NO_CALL: Any = None


def seen(outcome: int = pb.OBSERVED_OUTCOME_OK, model: str = "small") -> pb.ObserveRequest:
    return pb.ObserveRequest(observations=[pb.Observation(model=model, total_ms=5, outcome=outcome)])


async def coming(*requests: pb.ObserveRequest) -> AsyncIterator[pb.ObserveRequest]:
    for request in requests:
        yield request


async def test_observations_of_gateways_are_taken_and_sent_to_the_other_routers():
    published = list[pb.ObserveRequest]()
    servicer = RouterServicer(Table(CATALOGUE, 60, PausedClock()), 1, 1, published.append)
    requests = [seen(), seen(model="unknown here")]
    assert (await servicer.Observe(coming(*requests), NO_CALL)).taken == 1
    assert published == requests  # another router's catalogue may have it


async def test_impossible_observations_are_not_sent_to_other_routers():
    published = list[pb.ObserveRequest]()
    servicer = RouterServicer(Table(CATALOGUE, 60, PausedClock()), 1, 1, published.append)
    with pytest.raises(InvalidInput, match="1 to 3, got 9"):
        await servicer.Observe(coming(seen(outcome=9)), NO_CALL)
    assert published == []


@pytest.mark.parametrize("field", ["ttft_ms", "total_ms"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0])
def test_a_time_that_is_none_is_refused_and_nothing_is_taken(field: str, value: float) -> None:
    table = Table(CATALOGUE, 60, PausedClock())
    request = seen()
    request.observations.append(pb.Observation(**{"model": "small", "outcome": pb.OBSERVED_OUTCOME_OK, field: value}))
    with pytest.raises(InvalidInput, match=f"observations.{field}: 0 or more milliseconds"):
        RouterServicer(table, 1, 1).take(request)
    assert table.version == 1


def test_observations_of_other_routers_have_the_age_that_they_report():
    table = Table(CATALOGUE, 60, PausedClock())
    servicer = RouterServicer(table, 1, 1)
    assert servicer.take(seen(), age_s=30) == 1
    assert servicer.take(seen(), age_s=61) == 0
    assert table.models()[0].total.samples == 1


@pytest.mark.paused
async def test_a_watcher_that_gathers_changes_when_the_router_stops_does_not_wait_for_one_more() -> None:
    servicer = RouterServicer(Table(CATALOGUE, 60, PausedClock()), publish_interval_s=1, refresh_s=3_600)
    watching = servicer.WatchTable(pb.WatchTableRequest(), NO_CALL)
    await anext(watching)
    ends = asyncio.create_task(anext(watching, None))
    await asyncio.sleep(0.5)
    servicer.drain()
    async with asyncio.timeout(2):
        assert await ends is None
