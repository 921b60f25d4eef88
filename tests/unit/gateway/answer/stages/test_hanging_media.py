"""A model of vision or audio that hangs is closed to all tenants; too little time of one caller closes it to none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import grpc
import pytest

from hedgerow.audio.v1 import audio_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.policies.baseline import LatencyBaseline, WorkBaseline
from services.gateway.policies.breaker import State
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.media import AudioBackend, AudioCalls, Media
from services.gateway.upstream.replica import make_breaker
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.scripted_media import ScriptedVision, looking
from tests.unit.gateway.upstream.scripted_call import failed

pytestmark = pytest.mark.paused
FOR_EVER_S = 3_600.0


class Model:
    """Works for `each_s` at each picture, or second of a recording; `hangs` after it has read a recording."""

    each_s, hangs = 0.01, False

    def takes_s(self, amount: float) -> float:
        return FOR_EVER_S if self.hangs else self.each_s * amount


class Vision(ScriptedVision):
    def __init__(self, model: Model):
        super().__init__([("cat", 0.9)])
        self._model = model

    def classify(self, request, timeout_s, metadata) -> Vision:
        self._pause_s = self._model.takes_s(len(request.images))
        return self


class AudioChannel:
    """Leads to an audio service: it reads a recording of as many seconds as it has bytes, and transcribes it."""

    def __init__(self, model: Model):
        self.model = model

    def stream_stream(self, *_: object) -> Callable[..., AudioCall]:
        return lambda timeout, metadata: AudioCall(self.model, timeout)


class AudioCall:
    def __init__(self, model: Model, timeout_s: float):
        self._model, self._ends_at = model, loop_clock() + timeout_s
        self._audio_s, self._sent = 0, asyncio.Event()

    def done(self) -> bool:
        return False

    async def wait_for_connection(self) -> None: ...

    async def write(self, request: audio_pb2.TranscribeRequest) -> None:
        self._audio_s += len(request.data)

    async def done_writing(self) -> None:
        self._sent.set()

    def cancel(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[audio_pb2.TranscribeResponse]:
        await self._sent.wait()
        yield audio_pb2.TranscribeResponse(recording=audio_pb2.Recording(duration_s=self._audio_s))
        takes_s, left_s = self._model.takes_s(self._audio_s), self._ends_at - loop_clock()
        await asyncio.sleep(min(takes_s, left_s))
        if takes_s >= left_s:
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED)
        yield audio_pb2.TranscribeResponse(summary=audio_pb2.TranscribeSummary(text="Why?", audio_s=self._audio_s))


class Asking:
    """Questions of several tenants with media of an `amount`: pictures, or seconds of a recording."""

    def __init__(self, kind: str):
        self.kind, self.model = kind, Model()
        usual = LatencyBaseline(0.2, loop_clock)
        self.breaker: TenantAwareBreaker = make_breaker(BreakerSettings(), kind, usual, loop_clock)
        audio = AudioCalls(AudioChannel(self.model), WorkBaseline(usual, 0.2))  # type: ignore[arg-type]
        vision = looking(Vision(self.model), self.breaker) if kind == "vision" else None
        self._media = Media(vision, AudioBackend(audio, self.breaker) if kind == "audio" else None)

    async def ask(self, tenant: str, amount: int, slice_s: float) -> str:
        """How the answer is degraded, if it is. `slice_s`: the time for the media."""
        scene = Scene(senses=self._media)
        scene.tenant = replace(ACME, name=tenant)
        scene.budget_ms = slice_s * 1000 / (0.25 if self.kind == "vision" else 0.5)
        images, audio = [pb.Image(data=b"a picture")] * amount, pb.Audio(data=bytes(amount))
        final = await scene.final(**({"images": images} if self.kind == "vision" else {"audio": audio}))
        return " ".join(final.degraded)

    async def are_answered(self, amount: int) -> None:
        for _ in range(20):
            assert await self.ask("b", amount, 1.0) == ""


@pytest.fixture(params=["vision", "audio"])
async def asking(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param)


@pytest.mark.parametrize("known", [False, True])
async def test_five_calls_of_one_tenant_with_too_little_time_close_nothing(asking: Asking, known: bool) -> None:
    """60 units take 0.6 s. Of others it is known, or not, that one takes 10 ms."""
    if known:
        await asking.are_answered(amount=1)
        await asyncio.sleep(60)
    for _ in range(5):
        assert await asking.ask("a", 60, 0.5) == f"{asking.kind}:budget"
    assert asking.breaker.would_admit("a")
    assert await asking.ask("b", 1, 0.5) == ""


@pytest.mark.parametrize("amount", [1, 20])
async def test_a_model_that_hangs_is_closed_to_all_and_a_probe_opens_it_again(asking: Asking, amount: int) -> None:
    await asking.are_answered(amount)
    asking.model.hangs = True
    for number in range(6):
        assert await asking.ask("ab"[number % 2], amount, 0.5) == f"{asking.kind}:budget"
    assert asking.breaker.state is State.OPEN
    assert await asking.ask("another", 1, 0.5) == f"{asking.kind}:unavailable"
    await asyncio.sleep(2)
    assert await asking.ask("another", amount, 0.5) == f"{asking.kind}:budget", "the breaker's probe hangs as well"
    assert await asking.ask("another", amount, 0.5) == f"{asking.kind}:unavailable"
    asking.model.hangs = False
    await asyncio.sleep(2)
    assert await asking.ask("another", amount, 0.5) == ""
    assert asking.breaker.state is State.CLOSED
