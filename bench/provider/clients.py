"""HTTP clients to compare, each as bare as it can be used: ask, find the first text, read to the end."""

from __future__ import annotations

import json
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar

import aiohttp
import httpx
import pyqwest
from httpx_sse import EventSource

from services.llm.config import LlmSettings
from services.llm.engine import Message, Request
from services.llm.openai_answer import DONE
from services.llm.openai_engine import OpenAIEngine
from services.llm.openai_wire import to_body
from services.llm.provider_config import OpenAISettings
from services.llm.transport.sse import EventParser
from services.runtime.deadline import Deadline

_REQUEST = Request((Message("user", "What is the capital of France?"),))
_BODY = to_body(_REQUEST, "simulated", 256, "max_tokens")
_HEADERS = {"authorization": "Bearer sk-simulated", "content-type": "application/json"}
_POOL = 64


class Client(ABC):
    """`url` is a provider's, `ca_file` the PEM of who signed its certificate, `http2` whether it speaks that."""

    name: ClassVar[str]
    can_http2: ClassVar[bool]

    @abstractmethod
    def __init__(self, url: str, ca_file: str, http2: bool): ...

    @abstractmethod
    async def first_s(self) -> float:
        """Seconds to the first text of an answer, of which all was read."""

    @abstractmethod
    async def close(self) -> None: ...


class HttpxUntilDone(Client):
    """httpx and httpx-sse, left at the last event: what the engine once did."""

    name, can_http2 = "httpx, left at [DONE]", True

    def __init__(self, url: str, ca_file: str, http2: bool):
        context = ssl.create_default_context(cafile=ca_file)
        limits = httpx.Limits(max_connections=_POOL, max_keepalive_connections=_POOL)
        self._client = httpx.AsyncClient(base_url=url, headers=_HEADERS, http2=http2, verify=context, limits=limits)

    async def first_s(self) -> float:
        return await first_s(self._events())

    async def _events(self) -> AsyncIterator[str]:
        async with self._client.stream("POST", "chat/completions", json=_BODY) as response:
            async for event in EventSource(response).aiter_sse():
                yield event.data
                if self._left_at(event.data):
                    return

    def _left_at(self, event: str) -> bool:
        return event == DONE

    async def close(self) -> None:
        await self._client.aclose()


class HttpxToTheEnd(HttpxUntilDone):
    """The same, read to the end of the body."""

    name, can_http2 = "httpx, to the end", True

    def _left_at(self, event: str) -> bool:
        return False


class Aiohttp(Client):
    """aiohttp."""

    name, can_http2 = "aiohttp", False

    def __init__(self, url: str, ca_file: str, http2: bool):
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_file), limit=_POOL)
        self._session = aiohttp.ClientSession(connector=connector, headers=_HEADERS)
        self._url = f"{url}/chat/completions"

    async def first_s(self) -> float:
        return await first_s(self._events())

    async def _events(self) -> AsyncIterator[str]:
        async with self._session.post(self._url, data=json.dumps(_BODY).encode()) as response:
            async for event in _parsed(response.content.iter_any()):
                yield event

    async def close(self) -> None:
        await self._session.close()


class Pyqwest(Client):
    """pyqwest."""

    name, can_http2 = "pyqwest", True

    def __init__(self, url: str, ca_file: str, http2: bool):
        self._url = f"{url}/chat/completions"
        self._transport = pyqwest.HTTPTransport(
            tls_ca_cert=Path(ca_file).read_bytes(), pool_max_idle_per_host=_POOL, enable_otel=False
        )

    async def first_s(self) -> float:
        return await first_s(self._events())

    async def _events(self) -> AsyncIterator[str]:
        request = pyqwest.Request("POST", self._url, pyqwest.Headers(_HEADERS.items()), json.dumps(_BODY).encode())
        async with await self._transport.execute(request) as response:
            async for event in _parsed(response.content):
                yield event

    async def close(self) -> None:
        await self._transport.aclose()


class Engine(Client):
    """The llm service's engine."""

    name: ClassVar[str] = "the engine"
    can_http2: ClassVar[bool] = True

    def __init__(self, url: str, ca_file: str, http2: bool):
        own = {"base_url": url, "ca_file": ca_file, "http_version": "2" if http2 else "1.1"}
        openai = OpenAISettings.model_validate({**own, "model": "simulated", "api_key": "sk-simulated"})
        self._engine = OpenAIEngine(LlmSettings(engine="openai", openai=openai))

    async def first_s(self) -> float:
        started, first = time.perf_counter(), 0.0
        async with aclosing(self._engine.generate(_REQUEST, Deadline.never())) as chunks:
            async for chunk in chunks:
                if chunk.text and not first:
                    first = time.perf_counter() - started
        return first

    async def close(self) -> None:
        await self._engine.close()


async def first_s(events: AsyncIterator[str]) -> float:
    """Seconds from now to the first text; all is read."""
    started, first = time.perf_counter(), 0.0
    async for event in events:
        if not first and event != DONE and json.loads(event)["choices"]:
            first = time.perf_counter() - started
    return first


async def _parsed(pieces: AsyncIterator[bytes | bytearray | memoryview]) -> AsyncIterator[str]:
    parser = EventParser(1 << 20)
    async for piece in pieces:
        for event in parser.feed(bytes(piece)):
            yield event
