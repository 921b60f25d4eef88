"""Clients that leave, that are slow, and a gateway that leaves: bare connections to a real process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.integration.http_gateway import QUESTION, HttpGateway, post, raw, start_http_gateway
from tests.integration.scripted import Hold
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.waiting import until

PATH = "/v1/chat/completions"
WAIT_S = 20
LEFT = 'hedgerow_http_seconds_count{route="/v1/chat/completions",status="499"}'
# A model may be silent for longer than the default on a busy machine.
PATIENT = {"x_hedgerow_budget_ms": "60000", "x_hedgerow_silence_ms": "60000"}


async def metric(gateway: HttpGateway, name: str) -> float:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("stream", [True, False], ids=["in mid-stream", "before an answer"])
async def test_a_client_that_resets_its_connection_stops_the_model_and_frees_its_slot(
    start: Start, llm: ScriptedLlm, stream: bool
) -> None:
    """One that closes it, at every moment: test_cancellation.py."""
    tenants = json.dumps({"local": {"concurrency": 1}})
    gateway = await start_http_gateway(start, llm, tenants=tenants)
    llm.script = [*words(*(["Par"] if stream else [])), Hold()]
    async with raw(gateway) as (reader, writer):
        writer.write(post(PATH, {**QUESTION, "stream": stream}))
        await until(lambda: llm.requests)
        if stream:
            await reader.readuntil(b"Par")
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    async with asyncio.timeout(WAIT_S):
        await llm.cancelled.wait()
    llm.script = [*words("Paris"), end()]
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        await until(lambda: _answered(http))
    await until(lambda: metric(gateway, LEFT), holds=lambda left: left == 1)
    assert "ERROR" not in gateway.process.log.read_text()


async def _answered(http: httpx.AsyncClient) -> bool:
    return (await http.post(PATH, json=QUESTION)).status_code == 200


async def test_a_client_that_leaves_before_its_body_is_there_is_forgotten(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm)
    async with raw(gateway) as (_, writer):
        writer.write(post(PATH, QUESTION)[:-10])
        await writer.drain()
    await until(lambda: metric(gateway, LEFT))
    assert not llm.requests


async def test_a_client_that_reads_nothing_is_cut_off(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, http='{"write_ms": 300}')
    llm.script = [*words("x" * 200_000) * 200, Hold()]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.setblocking(False)
    with connection:
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", gateway.port))
        await asyncio.get_running_loop().sock_sendall(connection, post(PATH, {**QUESTION, "stream": True}, **PATIENT))
        await until(lambda: metric(gateway, LEFT))


async def test_a_stopping_gateway_is_unready_and_finishes_answers_in_flight(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, lame_duck_ms="6000", grace_ms="20000")
    hold = Hold()
    llm.script = [*words("Par"), hold, *words("is"), end()]
    # The model is silent until the gateway takes no more.
    async with raw(gateway) as (reader, writer), httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        writer.write(post(PATH, {**QUESTION, "stream": True}, **PATIENT))
        await reader.readuntil(b"Par")
        assert (await http.get("/health")).status_code == 200
        gateway.process.signal(signal.SIGTERM)
        await until(lambda: _health(http), holds=lambda status: status == 503)
        assert (await http.get("/v1/models")).headers["connection"] == "close"
        await until(lambda: _health(http), holds=lambda status: status == 0)  # it takes no more
        hold.release.set()
        assert (await asyncio.wait_for(_rest(reader), WAIT_S)).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert await gateway.process.wait() == 0


async def test_a_stream_that_outlasts_the_grace_ends_with_an_error(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, grace_ms="300")
    llm.script = [*words("Par"), Hold()]
    async with raw(gateway) as (reader, writer):
        writer.write(post(PATH, {**QUESTION, "stream": True}))
        await reader.readuntil(b"Par")
        gateway.process.signal(signal.SIGTERM)
        assert b'"message":"the gateway is stopping"' in await asyncio.wait_for(_rest(reader), WAIT_S)
    assert await gateway.process.wait() == 0
    assert "Traceback" not in gateway.process.log.read_text()


async def test_a_port_that_is_taken_ends_the_start(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm)
    with pytest.raises(Exception, match=r"http_address: cannot listen at .*"):
        await start_http_gateway(start, llm, http_address=f"127.0.0.1:{gateway.port}")


async def _health(http: httpx.AsyncClient) -> int:
    try:
        return (await http.get("/health")).status_code
    except httpx.TransportError:
        return 0


async def _rest(reader: asyncio.StreamReader) -> Any:
    """Until the connection ends, by whatever means."""
    data = b""
    try:
        while piece := await reader.read(65_536):
            data += piece
    except ConnectionError:
        pass
    return data
