"""Connections to a provider are kept, shared and resumed, and no caller gets an error when they close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.provider.server import Behaviour, Protocol, SimulatedProvider
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.certificate_authority import make_authority, write_identity
from tests.certificates import server_tls
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_AT_ONCE = 8
_REQUEST = llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello?")])
_LONG = Behaviour(tokens=2_000, each_ms=20)
_STOP, _INTERRUPTED = chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_INTERRUPTED


@dataclass(frozen=True)
class Kind:
    """A way to reach a provider."""

    protocol: Protocol
    tls: bool

    def __str__(self) -> str:
        return f"{'HTTP/2' if self.protocol == 'http2' else 'HTTP/1.1'}{' over TLS' if self.tls else ''}"


each_kind = pytest.mark.parametrize("kind", [Kind("http1", False), Kind("http1", True), Kind("http2", True)], ids=str)
Asking = Callable[[], Any]


@asynccontextmanager
async def _asked_over(kind: Kind, starter: Processes, folder: Path) -> AsyncIterator[tuple[SimulatedProvider, Asking]]:
    """A provider, and how to ask the llm service that asks it."""
    authority = make_authority()
    write_identity(folder, authority.pem(), authority.issue("llm", 1))
    async with SimulatedProvider(kind.protocol, server_tls(folder) if kind.tls else None) as provider:
        own = {"openai__base_url": provider.url, "openai__model": "simulated"}
        if kind.tls:
            own["openai__ca_file"] = str(folder / "ca.crt")
        if kind.protocol == "http2":
            own["openai__http_version"] = "2"
        service = await starter.start("llm", engine="openai", **own)
        async with open_channel(service.spec.address) as channel:
            stub: Any = llm_pb2_grpc.LLMServiceStub(channel)
            yield provider, partial(stub.Generate, _REQUEST, timeout=30)


async def _reason(ask: Asking) -> int:
    """How one answer ended."""
    *_, last = [reply async for reply in ask()]
    return int(last.finish.reason)


@each_kind
async def test_answers_follow_each_other_on_kept_connections(
    starter: Processes, report: Report, full_size: bool, tmp_path: Path, kind: Kind
):
    count = 500 if full_size else 64
    async with _asked_over(kind, starter, tmp_path) as (provider, ask):
        with report.case(38, f"{count} answers over {kind}, {_AT_ONCE} at once") as row:
            left = iter(range(count))

            async def caller() -> None:
                for _ in left:
                    assert await _reason(ask) == _STOP
                    row.tally(ok=1)

            await asyncio.gather(*(caller() for _ in range(_AT_ONCE)))
            assert provider.counts.asked == count
            most = 1 if kind.protocol == "http2" else _AT_ONCE
            row.measured("connections opened", provider.counts.accepted, most, "", slack=2)


@each_kind
async def test_a_kept_connection_that_dies_costs_no_answer(
    starter: Processes, report: Report, full_size: bool, tmp_path: Path, kind: Kind
):
    times = 50 if full_size else 5
    async with _asked_over(kind, starter, tmp_path) as (provider, ask):
        deaths: dict[str, Callable[[], None]] = {
            "closed by the provider": provider.close_connections,
            "reset while idle": lambda: provider.close_connections(by_reset=True),
            "found dead when it is used": lambda: provider.upcoming.append(Behaviour(dies_after=0)),
        }
        for name, kill in deaths.items():
            with report.case(38, f"connection over {kind}, {name}, before each of {times} calls") as row:
                assert await _reason(ask) == _STOP
                accepted, resumed = provider.counts.accepted, provider.counts.resumed
                for _ in range(times):
                    kill()
                    assert await _reason(ask) == _STOP
                    row.tally(ok=1)
                if kind.tls:
                    share = (provider.counts.resumed - resumed) / (provider.counts.accepted - accepted)
                    row.measured("TLS handshakes resumed", 100 * share, 100, " %", at_least=True, slack=2)


@each_kind
async def test_a_connection_that_dies_in_an_answer_costs_only_its_rest(
    starter: Processes, report: Report, tmp_path: Path, kind: Kind
):
    async with _asked_over(kind, starter, tmp_path) as (provider, ask):
        with report.case(38, f"provider over {kind} dies in mid-answer, and before each answer") as row:
            provider.upcoming = [Behaviour(dies_after=2)]
            assert await _reason(ask) == _INTERRUPTED
            row.tally(degraded=1)
            assert await _reason(ask) == _STOP
            row.tally(ok=1)
            provider.behaviour = Behaviour(dies_after=0)
            asked = provider.counts.asked
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _reason(ask)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert provider.counts.asked - asked <= 2  # a kept connection and a new one
            row.tally(failed=1)


@each_kind
async def test_a_provider_is_notified_at_once_of_a_cancelled_call(
    starter: Processes, report: Report, full_size: bool, tmp_path: Path, kind: Kind
):
    count = 20 if full_size else 4
    async with _asked_over(kind, starter, tmp_path) as (provider, ask):
        for when, behaviour in {"before the first token": Behaviour(first_ms=60_000), "later": _LONG}.items():
            with report.case(38, f"{count} callers leave {when}, {kind}") as row:
                provider.behaviour, stopped = behaviour, provider.counts.stopped
                asked = provider.counts.asked
                calls = [ask() for _ in range(count)]
                if behaviour is _LONG:
                    await asyncio.gather(*(call.read() for call in calls))
                await until(lambda asked=asked: provider.counts.asked == asked + count)
                left = time.monotonic()
                for call in calls:
                    call.cancel()
                await until(lambda stopped=stopped: provider.counts.stopped == stopped + count, 5)
                row.detected(time.monotonic() - left, 0.1)
                row.tally(failed=count)


@each_kind
@pytest.mark.parametrize("after_done", ["silence", "flood"])
async def test_bytes_after_the_end_delay_no_caller(
    starter: Processes, report: Report, tmp_path: Path, kind: Kind, after_done: Any
):
    async with _asked_over(kind, starter, tmp_path) as (provider, ask):
        with report.case(38, f"{after_done} behind the last event, {kind}") as row:
            provider.behaviour = Behaviour(after_done=after_done)
            started = time.monotonic()
            for _ in range(5):
                assert await _reason(ask) == _STOP
                row.tally(ok=1)
            row.measured("an answer", (time.monotonic() - started) / 5 * 1000, 50)
            await until(lambda: provider.answering == 0, 10)  # let go of
