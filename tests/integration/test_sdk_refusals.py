"""What the SDK's errors say about refusals of a real gateway, before a scripted model."""

from __future__ import annotations

import json

import pytest

import hedgerow
from tests.conftest import Start
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm
from tests.keys import digest

pytestmark = pytest.mark.mesh


async def limited(start: Start, llm: ScriptedLlm, **limits: float) -> HttpGateway:
    """A gateway with one tenant, whose key is `secret`."""
    return await start_http_gateway(start, llm, tenants=json.dumps({"acme": {"keys": [digest("secret")], **limits}}))


async def test_an_item_of_a_batch_over_its_quota_says_when_to_come_back(start: Start, llm: ScriptedLlm) -> None:
    gateway = await limited(start, llm, requests_per_s=0.01, requests_burst=1)
    async with hedgerow.AsyncClient(gateway.process.spec.address, api_key="secret") as client:
        results = [result async for _, result in client.batch(["What?", "Why?"], budget_ms=500)]
    (error,) = [result for result in results if isinstance(result, hedgerow.HedgerowError)]
    assert isinstance(error, hedgerow.ResourceExhausted)
    assert (error.reason, error.metadata["quota"]) == ("QUOTA_EXCEEDED", "requests")
    assert error.retry_delay_s is not None
    assert 60 < error.retry_delay_s <= 100
    assert error.trace_id is not None
    assert len(error.trace_id) == 32
    assert [made.policy for made in error.decisions] == ["quota"]
