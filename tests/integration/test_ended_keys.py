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
from google.protobuf.message import Message

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


def asked(question: str) -> dict[str, Any]:
    """One of its own for each call: equal questions share an answer."""
    return {**QUESTION, "messages": [{"role": "user", "content": question}]}


def ask(question: str) -> pb.GenerateRequest:
    """The same by gRPC."""
    return pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=question)])


async def whole(gateway: HttpGateway) -> tuple[int, str]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        answer = await http.post("/v1/chat/completions", json=asked("Whole?"), headers=BEARER)
    return answer.status_code, answer.json()["error"]["code"]


async def streamed(gateway: HttpGateway, begun: asyncio.Event) -> str:
    """The code of the error at the end of a stream that had begun, which sets `begun`."""
    body = {**asked("A stream?"), "stream": True}
    lines = []
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json=body, headers=BEARER) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            lines.append(line)
            if "Par" in line:
                begun.set()
    last = [line for line in lines if line.startswith("data: {")][-1]
    code: str = json.loads(last.removeprefix("data: "))["error"]["code"]
    return code


async def by_grpc(gateway: HttpGateway, method: str, request: Message) -> grpc.StatusCode:
    """How the call ends."""
    async with open_channel(gateway.process.spec.address) as channel:
        call = getattr(gateway_pb2_grpc.GatewayServiceStub(channel), method)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [response async for response in call(request, metadata=tuple(BEARER.items()), timeout=60)]
    return ended.value.code()


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_calls_of_a_silent_model_end_with_their_key(
    start: Start, llm: ScriptedLlm, tmp_path: Path, how: str
) -> None:
    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", tmp_path / "tenants.yaml")

    write(json.dumps({**KEPT, "a": {"keys": [digest("short")], "warm": True}}))
    # The keys end calls before the model's silence does, also on a busy machine.
    patient = {"default_budget_ms": "60000", "stall_ms": "60000"}
    gateway = await start_http_gateway(start, llm, tenants_file=str(tmp_path / "tenants.yaml"), **patient)
    llm.script = [*words("Par"), Hold()]
    batch = pb.GenerateBatchRequest(requests=[ask("One?"), ask("Two?"), ask("Three?")])
    begun = asyncio.Event()
    calls = asyncio.gather(
        whole(gateway),
        streamed(gateway, begun),
        by_grpc(gateway, "Generate", ask("By gRPC?")),
        by_grpc(gateway, "GenerateBatch", batch),
        by_grpc(gateway, "Warm", pb.WarmRequest()),
    )
    await until(lambda: len(llm.requests) == 7)  # one for each item, and one for the warm-up
    async with asyncio.timeout(20):
        await begun.wait()
    over = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    expiring = {"a": {"keys": [{"sha256": digest("short"), "expires": over}]}}
    write(json.dumps({**KEPT, **(expiring if how == "expired" else {})}))
    (status, code), last, *codes = await calls
    wanted = "key_expired" if how == "expired" else "invalid_api_key"
    assert (status, code, last) == (401, wanted, wanted)
    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
    async with asyncio.timeout(20):
        await llm.cancelled.wait()
