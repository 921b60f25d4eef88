"""Callers that say that they record their calls: the operator decides which ones are recorded here."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from contextlib import AsyncExitStack

import pytest

from launcher.processes import free_port
from tests.fault.asking import asking
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.integration.collector import collecting
from tests.keys import tenants

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_A_SECOND = 1_000
_RATIO = 0.01
_PARTS = 50  # of a second
_UNANSWERED = 60  # at a time on a connection, where the gateway permits 64
_SIGMAS = 8  # more than a share of so many calls ever is off
_SPAN = "00f067aa0ba902b7"


def _trace_id(number: int) -> str:
    """The lowest there are: a sampler that goes by ids takes them all."""
    return f"{number + 1:032x}"


def _request(number: int) -> bytes:
    """Without a credential, recorded by its caller."""
    lines = ["GET /v1/models HTTP/1.1", "host: localhost", f"traceparent: 00-{_trace_id(number)}-{_SPAN}-01"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _flood(port: int, number: int) -> tuple[int, float]:
    """So many calls, in order on one connection: how many were refused, and in how many seconds they were sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    numbers, began = iter(range(number)), time.monotonic()
    unanswered = asyncio.Semaphore(_UNANSWERED)

    async def send() -> float:
        while some := list(itertools.islice(numbers, _A_SECOND // _PARTS)):
            for _ in some:
                await unanswered.acquire()
            writer.write(b"".join(map(_request, some)))
            await writer.drain()
            await asyncio.sleep(1 / _PARTS)
        return time.monotonic() - began

    async def read() -> int:
        refused = 0
        while refused < number:
            if b"HTTP/1.1 401 " in await reader.readline():  # a body has no line end
                refused += 1
                unanswered.release()
            assert not reader.at_eof()
        return refused

    try:
        refused, seconds = await asyncio.gather(read(), send())
    finally:
        writer.close()
    return refused, seconds


@pytest.mark.parametrize("trusting", [False, True], ids=["default", "trusting"])
async def test_the_operator_decides_which_calls_are_recorded(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool, trusting: bool
):
    number, port = (10 if full_size else 1) * _A_SECOND, free_port()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        traces = await enter(collecting())
        gateway = await starter.gateway(
            llm.address,
            tenants=tenants("b"),
            http_address=f"127.0.0.1:{port}",
            otlp_endpoint=f"http://{traces.address}",
            trace_ratio=_RATIO,
            trust_traceparent=trusting,
        )
        b = await enter(asking(gateway.spec.address, "key-b"))
        before = await honest_before(b)
        what = "which the operator trusts" if trusting else "unauthenticated"
        with report.case(51, f"{number:,} calls with a traceparent that says sampled, {what}") as row:
            async with asking_beside(b) as during:
                refused, seconds = await _flood(port, number)
            check(row, before, during)
            row.tally(failed=refused)
            assert refused == number
            await gateway.stop()  # sends the spans that wait
            recorded = sum(_trace_id(each) in traces.traces for each in range(number))
            if trusting:
                assert recorded > number / 2, recorded  # there is something to be had; its queue has an end
                return
            most = number * _RATIO + _SIGMAS * math.sqrt(number * _RATIO)
            assert recorded <= most, recorded
            row.measured("calls a second", number / seconds, _A_SECOND * 0.8, "", at_least=True)
