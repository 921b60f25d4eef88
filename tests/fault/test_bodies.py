"""Bodies by HTTP that would cost more than they are worth, from one tenant, while another asks its questions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from launcher.processes import free_port
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.beside import asking_beside
from tests.fault.faulty_llm import faulty_llm
from tests.fault.memory import container_mib, forget_peak, peak_mib
from tests.fault.mesh import UNLIMITED, processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.keys import tenants

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_MIB = 1 << 20
_CHAT = "/v1/chat/completions"
_HOSTILE = 24  # tenants
_LEAST_BESIDE = 20  # calls of B
_HEAD = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}],'.encode()
_DIGITS = b"1" * 5_000


@dataclass(frozen=True, slots=True)
class Scene:
    gateway: ServiceProcess
    port: int
    b: Asker


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    names = ["b", *(f"a{number}" for number in range(_HOSTILE))]
    async with AsyncExitStack() as stack:
        starter = await stack.enter_async_context(processes(tmp_path_factory.mktemp("bodies")))
        llm, port = await stack.enter_async_context(faulty_llm()), free_port()
        gateway = await starter.gateway(
            llm.address,
            http_address=f"127.0.0.1:{port}",
            http={"body_ms": 5_000},
            tenants=tenants(*names),
            **UNLIMITED,
        )
        b = await stack.enter_async_context(asking(gateway.spec.address, "key-b"))
        yield Scene(gateway, port, b)


def _repeated(before: bytes, each: bytes, times: int, behind: bytes) -> bytes:
    return before + b",".join([each] * times) + behind


def _schema() -> bytes:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(100_000)}}
    return json.dumps({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}).encode()


_TOOL = b'{"type":"function","function":{"name":"t","parameters":{"type":"object"}}}'
_PICTURE = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,aGFsbG8="}}'
_BODIES = {
    "22 MiB of {}": lambda: _repeated(_HEAD + b'"x":[', b"{}", 22 * _MIB // 3, b"]}"),
    "700,000 messages": lambda: _repeated(
        f'{{"model":"{MODEL}","messages":['.encode(), b'{"role":"user","content":"a"}', 700_000, b"]}"
    ),
    "100,000 tools": lambda: _repeated(_HEAD + b'"tools":[', _TOOL, 100_000, b"]}"),
    "100,000 stop strings": lambda: _repeated(_HEAD + b'"stop":[', b'"x"', 100_000, b"]}"),
    "100,000 pictures": lambda: _repeated(
        f'{{"model":"{MODEL}","messages":[{{"role":"user","content":['.encode(), _PICTURE, 100_000, b"]}]}"
    ),
    "a schema of 100,000 properties": lambda: _HEAD + b'"response_format":' + _schema() + b"}",
    "a number of 5,000 digits": lambda: _HEAD + b'"seed":' + _DIGITS + b"}",
    "a token of 5,000 digits": lambda: _HEAD + b'"logit_bias":{"' + _DIGITS + b'":1}}',
}


@pytest.mark.parametrize("kind", _BODIES)
async def test_a_body_of_too_many_values_is_refused_before_it_becomes_objects(
    scene: Scene, report: Report, kind: str
) -> None:
    body = await asyncio.to_thread(_BODIES[kind])
    headers = {"authorization": "Bearer key-a0", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{scene.port}", timeout=60) as http:
        with report.case(43, f"JSON of {len(body) / _MIB:.1f} MiB: {kind}") as row:
            await http.post(_CHAT, content=_HEAD[:-1] + b"}", headers=headers)
            forget_peak(scene.gateway)
            before = peak_mib(scene.gateway)
            async with asking_beside(scene.b, _LEAST_BESIDE) as outcomes:
                began = time.perf_counter()
                refused = await http.post(_CHAT, content=body, headers=headers)
                seconds = time.perf_counter() - began
            row.count(*outcomes)
            assert refused.status_code in (400, 413), refused.text
            assert [each for each in outcomes if not each.ok] == []
            row.measured("refused after", seconds * 1000, 250)
            allowed = 2 * len(body) / _MIB + 8  # and what the other calls need
            row.measured("peak memory", peak_mib(scene.gateway) - before, allowed, " MiB", slack=2)


@pytest.mark.parametrize("header", ["x-stainless-retry-count", "x-stainless-read-timeout", "x-hedgerow-budget-ms"])
async def test_a_header_of_5000_digits_is_no_error_of_ours(scene: Scene, report: Report, header: str) -> None:
    headers = {"authorization": "Bearer key-a0", "content-type": "application/json", header: "1" * 5_000}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{scene.port}", timeout=60) as http:
        with report.case(43, f"5,000 digits in {header}") as row:
            answer = await http.post(_CHAT, content=_HEAD[:-1] + b"}", headers=headers)
            assert answer.status_code in (200, 400), answer.text
            row.tally(ok=1)


async def _short(port: int, key: str, length: int) -> int:
    """The status of a body that is one byte short, and then late; 0: the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = ("POST /v1/chat/completions HTTP/1.1", "host: g", "content-type: application/json")
    lines = (*head, f"content-length: {length}", f"authorization: Bearer {key}", "", "")
    reading = asyncio.create_task(reader.readline())
    try:
        writer.write("\r\n".join(lines).encode())
        piece = b" " * _MIB
        for _ in range(length // _MIB):
            writer.write(piece)
            await writer.drain()
            if reading.done():
                break
        else:
            writer.write(b" " * (length % _MIB - 1))
        line = await asyncio.wait_for(reading, 30)
        return int(line.split()[1]) if line else 0
    except OSError:
        return 0
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()


async def test_bodies_that_are_one_byte_short_share_one_room(scene: Scene, report: Report, full_size: bool) -> None:
    many, length = 100 if full_size else 48, 25 * _MIB + 2
    with report.case(44, f"{many} bodies of 25 MiB, each one byte short, of {_HOSTILE} tenants at once") as row:
        forget_peak(scene.gateway)
        async with asking_beside(scene.b, _LEAST_BESIDE) as outcomes:
            ended: Sequence[int] = await asyncio.gather(
                *(_short(scene.port, f"key-a{number % _HOSTILE}", length) for number in range(many))
            )
        row.count(*outcomes)
        assert set(ended) <= {0, 408, 413, 503}
        assert 503 in ended
        assert [each for each in outcomes if not each.ok] == []
        row.measured("resident memory", peak_mib(scene.gateway), container_mib("gateway"), " MiB", slack=1)
        after = await _whole(scene.port, "key-a0")
        assert after == 200  # the room is there again


async def _whole(port: int, key: str) -> int:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    body = _HEAD[:-1] + b" " * (3 * _MIB) + b"}"
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        return (await http.post(_CHAT, content=body, headers=headers)).status_code
