"""A real gateway that serves HTTP, before a scripted model in the test's own process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from launcher.processes import free_port
from tests.conftest import Start
from tests.forked import ServiceProcess
from tests.integration.scripted_llm import ScriptedLlm
from tests.waiting import until

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


@dataclass
class HttpGateway:
    """The gateway, and the model behind it."""

    process: ServiceProcess
    llm: ScriptedLlm
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


async def start_http_gateway(start: Start, llm: ScriptedLlm, **settings: str) -> HttpGateway:
    """Without a cache, so that every question reaches the model. It has found the model, unless it wants keys."""
    port = free_port()
    given = {
        "llm_addresses": json.dumps({"m": llm.target}),
        "cache_address": "",
        "router_address": "",
        "http_address": f"127.0.0.1:{port}",
        **settings,
    }
    gateway = HttpGateway(await start("gateway", **given), llm, port)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        await until(lambda: _has_found_the_model(http))
    return gateway


async def _has_found_the_model(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.post("/v1/messages/count_tokens", json=QUESTION)).status_code != 503
    except httpx.TransportError:  # a test that was stalled sent its headers later than the gateway's `header_ms`
        return False


@asynccontextmanager
async def raw(gateway: HttpGateway) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def post(path: str, body: Any, **headers: str) -> bytes:
    """A request, as bytes."""
    content = json.dumps(body).encode()
    sent = {"host": "localhost", "content-type": "application/json", "content-length": str(len(content)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in sent.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
