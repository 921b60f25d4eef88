"""The output of `hedgerow cache stats`."""

from __future__ import annotations

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow_cli.cache_stats import get_stats, show


class ScriptedCacheService:
    """Has one reply."""

    def __init__(self, reply: cache_pb2.GetStatsResponse):
        self.reply, self.asked = reply, ""

    async def GetStats(self, request: cache_pb2.GetStatsRequest, timeout: float) -> cache_pb2.GetStatsResponse:
        self.asked = request.tenant
        return self.reply


async def test_a_tenants_categories_are_shown_with_their_thresholds(capsys: pytest.CaptureFixture[str]) -> None:
    reply = cache_pb2.GetStatsResponse(threshold=0.87, wrong_share=0.002, wrong_share_lower=0, wrong_share_upper=0.01)
    reply.category_thresholds.add(category="chat", threshold=0.75, verified=600)
    reply.category_thresholds.add(category="dosages", threshold=2, verified=140)
    reply.category_thresholds.add(category="prices", threshold=0.9, verified=400, drift="scores")
    service = ScriptedCacheService(reply)
    found = await get_stats("acme", 1, service)
    assert service.asked == "acme"
    assert found["category_thresholds"][0] == {"category": "chat", "threshold": 0.75, "verified": 600, "drift": ""}
    show([{"address": "one:1", **found}])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["one:1", "chat", "600", "0.750"] in shown
    assert ["one:1", "dosages", "140", "off"] in shown
    assert ["one:1", "prices", "400", "0.900,", "drifting:", "scores"] in shown


async def test_without_categories_and_verdicts_only_the_counts_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = await get_stats("acme", 1, ScriptedCacheService(cache_pb2.GetStatsResponse(threshold=0.945)))
    assert (found["wrong_share"], found["category_thresholds"]) == (None, [])
    show([{"address": "one:1", **found}, {"address": "two:1", **found, "exact_hits": 7}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["cache", "one:1", "two:1"]
    assert lines[4] == ["exact", "0", "7"]
    assert len(lines) == 9
