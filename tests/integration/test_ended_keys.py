"""Calls under way end with their key, also while their model says nothing."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from tests.conftest import Start
from tests.integration.http_gateway import QUESTION, HttpGateway, start_http_gateway
from tests.integration.scripted import Hold
from tests.integration.scripted_llm import ScriptedLlm, words
from tests.keys import digest
from tests.waiting import until

KEPT = {"b": {"keys": [digest("kept")]}}
BEARER = {"authorization": "Bearer short"}
ASKED = pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="By gRPC?")])


def asked(question: str) -> dict[str, Any]:
    """One of its own for each call: equal questions share an answer."""
    return {**QUESTION, "messages": [{"role": "user", "content": question}]}


async def whole(gateway: HttpGateway) -> tuple[int, str]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as http:
        answer = await http.post("/v1/chat/completions", json=asked("Whole?"), headers=BEARER)
    return answer.status_code, answer.json()["error"]["code"]


async def streamed(gateway: HttpGateway) -> str:
    """The code of the error at the end of a stream that had begun."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as http:
        answer = await http.post("/v1/chat/completions", json={**asked("A stream?"), "stream": True}, headers=BEARER)
    assert (answer.status_code, "Par" in answer.text) == (200, True)
    last = [line for line in answer.text.splitlines() if line.startswith("data: {")][-1]
    code: str = json.loads(last.removeprefix("data: "))["error"]["code"]
    return code


async def by_grpc(gateway: HttpGateway) -> grpc.StatusCode:
    async with open_channel(gateway.process.spec.address) as channel:
        stub, headers = gateway_pb2_grpc.GatewayServiceStub(channel), tuple(BEARER.items())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in stub.Generate(ASKED, metadata=headers, timeout=30):
                pass
    return ended.value.code()


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_calls_whose_model_is_silent_end_with_their_key(
    start: Start, llm: ScriptedLlm, tmp_path: Path, how: str
) -> None:
    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", tmp_path / "tenants.yaml")

    write(json.dumps({**KEPT, "a": {"keys": [digest("short")]}}))
    gateway = await start_http_gateway(start, llm, tenants_file=str(tmp_path / "tenants.yaml"))
    llm.script = [*words("Par"), Hold()]
    calls = asyncio.gather(whole(gateway), streamed(gateway), by_grpc(gateway))
    await until(lambda: len(llm.requests) == 3)
    over = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    expiring = {"a": {"keys": [{"sha256": digest("short"), "expires": over}]}}
    write(json.dumps({**KEPT, **(expiring if how == "expired" else {})}))
    (status, code), last, generate = await calls
    wanted = "key_expired" if how == "expired" else "invalid_api_key"
    assert (status, code, last) == (401, wanted, wanted)
    assert generate is grpc.StatusCode.UNAUTHENTICATED
    async with asyncio.timeout(20):
        await llm.cancelled.wait()
