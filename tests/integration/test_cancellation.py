"""After a cancellation the model stops, its slot is free, and the tokens that it has read and written are charged. For
every route, by HTTP/1.1, by HTTP/2 through Envoy and by gRPC, at every moment. How soon: `hedgerow bench cancel`."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from hedgerow.audio.v1 import audio_pb2
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.processes import free_port
from tests.conftest import starting
from tests.integration.edge.running import Edge, edge_before
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted import Heard, Hold, serving
from tests.integration.scripted_audio import ScriptedAudio, segment, serve_audio
from tests.integration.scripted_cache import ScriptedCache, serve_cache
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.integration.wires import Asked, http1, http2
from tests.keys import digest
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 20
PER_MINUTE = 1_000  # tokens that a tenant has
WRITTEN, LIMIT = 300, 550  # tokens of the answer, and of what may come
PROMPT = "word " * 320  # 400 tokens, as they are estimated
CHARGED = {"waiting": 0, "before the first text": 400, "in mid-stream": 400 + WRITTEN, "not streamed": 400}
CHAT = "/v1/chat/completions"
SAID = [{"role": "user", "content": PROMPT}]
ROUTES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": SAID, "max_tokens": LIMIT},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": LIMIT},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": LIMIT},
    "/v1/messages": {"messages": SAID, "max_tokens": LIMIT},
}
TRANSCRIPTIONS, EMBEDDINGS, COUNTING = "/v1/audio/transcriptions", "/v1/embeddings", "/v1/messages/count_tokens"


FREE = "free"  # the key of a tenant without limits; each test has a tenant of its own
KEYS = [f"key-{number}" for number in range(80)]
_unused = itertools.count()


class HoldingLlm(ScriptedLlm):
    """Counts tokens when it is let."""

    counting: Hold | None = None

    async def CountTokens(self, request: Any, context: Any) -> llm_pb2.CountTokensResponse:
        if self.counting:
            self.requests.append(request)
            with self._noting_cancellation():
                await self.counting.release.wait()
        return await super().CountTokens(request, context)


@dataclass
class OneSlot:
    """A gateway whose one model has one slot, and an Envoy before it."""

    gateway: HttpGateway
    edge: Edge
    llm: HoldingLlm
    audio: ScriptedAudio
    cache: ScriptedCache
    channel: grpc.aio.Channel
    http: httpx.AsyncClient = field(repr=False)

    async def left(self, key: str) -> int:
        """The tokens that a tenant has left; asks for more than those."""
        answer = await self.http.post(CHAT, json={"model": "m", "messages": SAID, "max_tokens": 5_000}, headers=by(key))
        if answer.status_code == 200:
            return PER_MINUTE
        quoted = re.search(r"(\d+) of \d+ tokens a minute left", answer.json()["error"]["message"])
        return int(quoted[1]) if quoted else -1

    async def is_free(self) -> bool:
        """Whether another one gets an answer."""
        self.llm.script = [*words("Paris"), end()]
        asked = {"model": "m", "messages": [{"role": "user", "content": f"{next(_unused)}?"}]}
        return (await self.http.post(CHAT, json=asked, headers=by(FREE))).status_code == 200

    async def waiting(self) -> float:
        metrics = self.gateway.process.spec.environment["HEDGEROW_GATEWAY_METRICS_ADDRESS"]
        lines = (await self.http.get(f"http://{metrics}/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("hedgerow_waiting{"))


def by(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneSlot]:
    folder = tmp_path_factory.mktemp("cancellation")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        llm = await enter(serving(HoldingLlm(), llm_pb2_grpc.add_LLMServiceServicer_to_server))
        audio, cache = await enter(serve_audio()), await enter(serve_cache())
        limited = {"tokens_per_minute": PER_MINUTE, "concurrency": 1}
        tenants = {FREE: {"keys": [digest(FREE)]}, **{key: {"keys": [digest(key)], **limited} for key in KEYS}}
        gateway = await start_http_gateway(
            await enter(starting(folder / "logs")),
            llm,
            audio_address=audio.target,
            cache_address=cache.target,
            l1_cache_entries="0",
            default_budget_ms="60000",
            tenants=json.dumps(tenants),
            limit=json.dumps({"algorithm": "fixed", "initial": 1, "min": 1, "queue_ms": 30_000}),
            metrics_address=f"127.0.0.1:{free_port()}",
        )
        endpoint = {"address": gateway.process.spec.address, "http_port": gateway.port}
        edge = await enter(edge_before(folder, [endpoint], {}))
        http = await enter(httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S))
        channel = await enter(open_channel(gateway.process.spec.address))
        mesh = OneSlot(gateway, edge, llm, audio, cache, channel, http)
        await until(mesh.is_free)
        await until(lambda: _serves(edge))
        yield mesh


async def _serves(edge: Edge) -> bool:
    async with httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as http:
        return (await http.get("/v1/models", headers=by(FREE))).status_code == 200


@pytest.fixture
def mesh(standing: OneSlot) -> OneSlot:
    for each in (standing.llm, standing.audio, standing.cache):
        each.requests.clear()
        each.cancelled = asyncio.Event()
    return standing


@pytest.fixture
def key() -> str:
    return KEYS[next(_unused_keys)]


_unused_keys = itertools.count()


class _Grpc:
    """As a `Wire`'s."""

    def __init__(self, call: Any):
        self._call, self._read = call, b""

    async def until(self, mark: bytes) -> None:
        while mark not in self._read:
            message = await self._call.read()
            assert message is not grpc.aio.EOF, self._read
            self._read += b"".join(event.delta.text.encode() for event in message.events)

    async def leave(self) -> None:
        self._call.cancel()


@asynccontextmanager
async def by_grpc(mesh: OneSlot, key: str) -> AsyncIterator[Asked]:
    asked = gateway_pb2.GenerateRequest(
        model="m",
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=PROMPT)],
        sampling=chat_pb2.Sampling(max_tokens=LIMIT),
    )
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(mesh.channel)
    yield (call := _Grpc(stub.Generate(asked, metadata=tuple(by(key).items()), timeout=WAIT_S)))
    await call.leave()


def by_http(mesh: OneSlot, wire: str, key: str, path: str, **given: Any) -> AbstractAsyncContextManager[Asked]:
    """HTTP/1.1 is the gateway's own, HTTP/2 is Envoy's."""
    request = httpx.Request("POST", f"http://gateway{path}", headers=by(key), **given)
    headers = {name: request.headers[name] for name in ("authorization", "content-type")}
    send, address = (http2, mesh.edge.address) if wire == "h2" else (http1, f"127.0.0.1:{mesh.gateway.port}")
    return send(address, path, headers, request.read())


def moments() -> Iterator[Any]:
    """Everything that asks a model: (wire, route, moment)."""
    for moment in CHARGED:
        for wire, route in itertools.product(("http/1.1", "h2"), ROUTES):
            yield wire, route, moment
        if moment != "not streamed":
            yield "gRPC", "Generate", moment


@pytest.mark.parametrize(("wire", "route", "moment"), [*moments()])
async def test_cancelling_a_generation_cancels_the_call_to_the_model(
    mesh: OneSlot, key: str, wire: str, route: str, moment: str
) -> None:
    def ask() -> AbstractAsyncContextManager[Asked]:
        if wire == "gRPC":
            return by_grpc(mesh, key)
        body = {"model": "m", "stream": moment != "not streamed", **ROUTES[route]}
        return by_http(mesh, wire, key, route, json=body)

    if moment == "waiting":
        await _leave_the_line(mesh, ask())
    else:
        begun = moment != "before the first text"
        mesh.llm.script = [*([llm_pb2.GenerateResponse(text="Paris", tokens=WRITTEN)] if begun else []), Hold()]
        async with ask() as asked:
            await until(lambda: mesh.llm.requests)
            if moment == "in mid-stream":
                await asked.until(b"Paris")
            await asked.leave()
            async with asyncio.timeout(WAIT_S):
                await mesh.llm.cancelled.wait()
    charged = PER_MINUTE - CHARGED[moment]
    # Tokens refilled during the test are fewer than the noise between two moments; whole answers may have begun.
    least = charged - WRITTEN if moment == "not streamed" else charged
    mesh.llm.script = [*words("Paris"), end()]
    await until(lambda: mesh.left(key), holds=lambda left: least <= left < charged + 200)
    await until(mesh.is_free)


async def _leave_the_line(mesh: OneSlot, asking: AbstractAsyncContextManager[Asked]) -> None:
    """Another caller has the slot, and keeps it for longer."""
    hold = Hold()
    mesh.llm.script = [*words("Par"), hold, end()]
    stream = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"{next(_unused)}?"}]}
    async with by_http(mesh, "http/1.1", FREE, CHAT, json=stream) as other:
        await other.until(b"Par")
        async with asking as asked:
            await until(mesh.waiting)
            await asked.leave()
            await until(mesh.waiting, holds=lambda waits: waits == 0)
        hold.release.set()
        await other.until(b"[DONE]")
    assert len(mesh.llm.requests) == 1


def beside() -> Iterator[Any]:
    """Everything that asks another service: (wire, route, moment)."""
    for wire in ("http/1.1", "h2"):
        for moment in ("before the first text", "in mid-stream", "not streamed"):
            yield wire, TRANSCRIPTIONS, moment
        yield wire, EMBEDDINGS, "not streamed"
        yield wire, COUNTING, "not streamed"


@pytest.mark.parametrize(("wire", "route", "moment"), [*beside()])
async def test_cancelling_a_request_cancels_its_call_to_another_service(
    mesh: OneSlot, key: str, wire: str, route: str, moment: str
) -> None:
    mesh.audio.script, mesh.cache.hold, mesh.llm.counting = [Heard(), Hold()], Hold(), Hold()
    given: dict[str, Any] = {"json": {"model": "m", "messages": SAID}}
    service: Any = mesh.llm
    if route == TRANSCRIPTIONS:
        service, given = mesh.audio, {"files": {"file": b"RIFF....WAVE"}}
        given["data"] = {"stream": str(moment != "not streamed").lower()}
        if moment == "in mid-stream":
            mesh.audio.script = [Heard(), audio_pb2.TranscribeResponse(segment=segment(0, "Hello.")), Hold()]
    elif route == EMBEDDINGS:
        service, given = mesh.cache, {"json": {"input": "one"}}
    async with by_http(mesh, wire, key, route, **given) as asked:
        await (asked.until(b"Hello.") if moment == "in mid-stream" else until(lambda: service.requests))
        await asked.leave()
        async with asyncio.timeout(WAIT_S):
            await service.cancelled.wait()
    mesh.cache.hold = mesh.llm.counting = None
    counted = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    # The tenant has one slot.
    await until(lambda: mesh.http.post(COUNTING, json=counted, headers=by(key)), holds=lambda value: value.is_success)
    mesh.llm.script = [*words("Paris"), end()]
    await until(lambda: mesh.left(key), holds=lambda left: left == PER_MINUTE)  # no tokens
