"""The watch of a client while its answer is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.gateway.http.errors import SilenceTimeout
from services.gateway.http.server.client_watch import ConnectionWatch

pytestmark = pytest.mark.paused


async def _nothing() -> None:
    await asyncio.Event().wait()


def watch(silence_s: float) -> ConnectionWatch:
    return ConnectionWatch(_nothing, silence_s, 10.0, None)  # type: ignore[arg-type]


async def test_no_timer_runs_for_a_silence_before_the_first_text(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *given: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *given, **more)

    with watch(0.001):
        monkeypatch.setattr(loop, "call_at", counted)
        await asyncio.sleep(1)
    assert len(timers) == 1  # of the sleep


async def test_silence_is_measured_from_the_last_text() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def answer() -> None:
        with watch(1.0) as watched:
            await asyncio.sleep(5)
            watched.came()
            await asyncio.sleep(0.75)
            watched.came()
            await asyncio.sleep(5)

    with pytest.raises(SilenceTimeout, match="no more text for 1000 ms"):
        await answer()
    assert loop.time() - began == pytest.approx(6.75)


async def test_an_answer_whose_last_bytes_are_sent_is_not_silent() -> None:
    with watch(1.0) as watched:
        watched.came()
        watched.sent(last=True)
        await asyncio.sleep(5)
