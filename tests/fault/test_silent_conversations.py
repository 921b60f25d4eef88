"""Open conversations do not harm other callers: silent ones that fill all slots, ones without a credential, ones that
send too fast."""

from __future__ import annotations

import asyncio
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from hedgerow.channel import done_sending, open_channel, send
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.faulty_llm import Behaviour, FaultyLlm
from tests.fault.memory import forget_peak, peak_mib
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.fault.test_tenants import tenants, write
from tests.forked import ServiceProcess
from tests.models import SAMPLES
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_FORMAT = audio_pb2.AudioFormat(encoding=audio_pb2.ENCODING_PCM_S16LE)
_BLOCK_S = 0.1
_SILENCE = bytes(3_200)  # of a block


class Talk:
    """An open conversation. `responses`: the messages that it has received."""

    def __init__(self, caller: Asker):
        self._call = caller.stub.Converse(metadata=caller.metadata)
        self.responses: list[pb.ConverseResponse] = []
        self._reading = asyncio.create_task(self._read())
        self._hushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        options = pb.ConverseOptions(request=pb.GenerateRequest(model=MODEL), format=_FORMAT)
        await send(self._call, pb.ConverseRequest(options=options))

    def hush(self) -> None:
        """Send silence from now on."""
        self._hushing = asyncio.create_task(self._hush())

    async def say(self, recording: Path) -> None:
        with wave.open(str(recording)) as sound:
            data = sound.readframes(sound.getnframes())
        for at in range(0, len(data), len(_SILENCE)):
            await send(self._call, pb.ConverseRequest(audio=data[at : at + len(_SILENCE)]))
        await done_sending(self._call)

    async def send(self, data: bytes) -> bool:
        return await send(self._call, pb.ConverseRequest(audio=data))

    def heard(self) -> str:
        return " ".join(each.transcript.text for each in self.responses if each.transcript.final)

    @property
    def over(self) -> bool:
        return self._reading.done()

    async def end(self, within_s: float = 20) -> tuple[grpc.StatusCode, str]:
        """How it ends."""
        async with asyncio.timeout(within_s):
            return await self._reading

    async def close(self) -> None:
        for task in filter(None, (self._hushing, self._reading)):
            task.cancel()
        self._call.cancel()
        await asyncio.gather(*filter(None, (self._hushing, self._reading)), return_exceptions=True)

    async def _read(self) -> tuple[grpc.StatusCode, str]:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self.responses.append(response)
            return grpc.StatusCode.OK, ""
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""

    async def _hush(self) -> None:
        while await send(self._call, pb.ConverseRequest(audio=_SILENCE)):
            await asyncio.sleep(_BLOCK_S)


@asynccontextmanager
async def talking(caller: Asker, number: int, silent: bool = True) -> AsyncIterator[list[Talk]]:
    """So many conversations, in which nothing is said."""
    talks = [Talk(caller) for _ in range(number)]
    try:
        for talk in talks:
            await talk.open()
            if silent:
                talk.hush()
        yield talks
    finally:
        await asyncio.gather(*(talk.close() for talk in talks))


@pytest.fixture
def spoken(models: Path) -> Path:
    return SAMPLES / "capital-of-france.wav"


async def _mesh(
    starter: Processes, llm: FaultyLlm, models: Path, streams: int = 8, **settings: object
) -> tuple[ServiceProcess, ServiceProcess]:
    # With long steps a stream needs little of the model, so that the slots run out, on slow machines too.
    model = str(models / "demo-whisper")
    audio = await starter.start("audio", model=model, max_streams=streams, max_load=1, step_ms=1_000)
    return audio, await starter.gateway(llm.address, audio_address=audio.spec.address, **settings)


async def _open(audio: ServiceProcess) -> int:
    """How many streams the audio service has."""
    async with open_channel(audio.spec.address) as channel:
        stub: Any = audio_pb2_grpc.AudioServiceStub(channel)
        return int((await stub.GetModel(audio_pb2.GetModelRequest(), timeout=5)).streams)


async def test_a_caller_silent_in_every_conversation_keeps_no_other_caller_out(
    starter: Processes, llm: FaultyLlm, report: Report, models: Path, spoken: Path
):
    streams = 4
    audio, gateway = await _mesh(starter, llm, models, streams, tenants=tenants("a", "b"))
    address = gateway.spec.address
    async with asking(address, "key-a") as a, asking(address, "key-b") as b, talking(a, streams + 2) as silent:
        await until(lambda: sum(talk.over for talk in silent) == 2)  # there are no more
        assert await _open(audio) == streams
        with report.case(32, "a tenant is silent in every conversation there is; another opens its own") as row:
            began = time.monotonic()
            async with talking(b, 2, silent=False) as talks:
                await asyncio.gather(*(talk.say(spoken) for talk in talks))
                ends = [await talk.end() for talk in talks]
            row.measured("both answered", (time.monotonic() - began) * 1000, 15_000)
            row.tally(ok=sum(code is grpc.StatusCode.OK for code, _ in ends))
            assert [code for code, _ in ends] == [grpc.StatusCode.OK] * 2, ends
            assert all("capital of France" in talk.heard() for talk in talks)
            assert all(any(response.HasField("answer") for response in talk.responses) for talk in talks)
            gave_way = [await talk.end() for talk in silent if talk.over]
            row.tally(failed=len(gave_way))
            assert len(gave_way) == 4
            assert {code for code, _ in gave_way} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert sum("this stream was preempted" in details for _, details in gave_way) == 2


async def test_conversations_count_against_their_tenants_concurrency(
    starter: Processes, llm: FaultyLlm, report: Report, models: Path, spoken: Path
):
    (limited,) = tenants("a").values()
    _, gateway = await _mesh(starter, llm, models, tenants={"a": limited | {"concurrency": 2}})
    async with asking(gateway.spec.address, "key-a") as caller:
        with report.case(32, "a tenant opens more conversations than it may have requests at once") as row:
            async with talking(caller, 1) as silent, talking(caller, 1, silent=False) as talks:
                await asyncio.sleep(0)
                await talks[0].say(spoken)
                assert await talks[0].end() == (grpc.StatusCode.OK, "")  # its turns need no slot of their own
                assert any(response.HasField("answer") for response in talks[0].responses)
                row.tally(ok=1)
                async with talking(caller, 2) as more:
                    await until(lambda: any(talk.over for talk in more))
                    (refused,) = [await talk.end() for talk in more if talk.over]
                    assert refused == (grpc.StatusCode.RESOURCE_EXHAUSTED, "tenant a: 2 of 2 requests at once")
                    outcome = await caller.ask("And a question?")
                    assert outcome.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                    row.tally(failed=2)
                assert not silent[0].over
            await caller.until(lambda outcome: outcome.ok, within_s=10)  # all slots are free again


async def test_a_conversation_without_audio_ends(starter: Processes, llm: FaultyLlm, report: Report, models: Path):
    _, gateway = await _mesh(starter, llm, models, conversation_idle_ms=500)
    async with asking(gateway.spec.address) as caller, talking(caller, 1, silent=False) as talks:
        with report.case(32, "a conversation in which nothing is sent") as row:
            began = time.monotonic()
            end = await talks[0].end()
            row.tally(failed=1)
            row.detected(time.monotonic() - began, 0.6)
            assert end == (grpc.StatusCode.DEADLINE_EXCEEDED, "audio: some at least every 0.5 s, got none")


async def test_a_conversation_ends_with_its_key(
    starter: Processes, llm: FaultyLlm, report: Report, models: Path, tmp_path: Path
):
    write(file := tmp_path / "tenants.yaml", tenants("a", "b"))
    _, gateway = await _mesh(starter, llm, models, tenants_file=str(file))
    address = gateway.spec.address
    async with (
        asking(address, "key-a") as a,
        asking(address, "key-b") as b,
        talking(a, 1) as revoked,
        talking(b, 1) as kept,
    ):
        with report.case(32, "a key is revoked while its conversation and its answer go on") as row:
            await asyncio.sleep(0.5)  # both are under way
            assert not revoked[0].over
            llm.behaviour = Behaviour(tokens=2_000, each_ms=20)
            answer = a.start("A long story?")
            await answer.first_text()
            write(file, tenants("b"))
            began = time.monotonic()
            code, _ = await revoked[0].end()
            outcome = await answer.end()
            row.tally(failed=2)
            row.detected(time.monotonic() - began, 2)
            assert (code, outcome.code) == (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAUTHENTICATED)
            assert not kept[0].over


async def test_audio_that_comes_too_fast_waits_at_its_sender(
    starter: Processes, llm: FaultyLlm, report: Report, models: Path
):
    _, gateway = await _mesh(starter, llm, models)
    number, blocks = 4, 160  # of 8 s each; the audio service takes 5 s ahead
    async with asking(gateway.spec.address) as caller, talking(caller, number, silent=False) as talks:
        forget_peak(gateway)
        before, sent = peak_mib(gateway), [0]
        with report.case(32, f"{number} conversations send {blocks // 4} MiB each as fast as they can") as row:
            sending = [asyncio.create_task(_flood(talk, blocks, sent)) for talk in talks]
            await _stands(sent)
            row.measured("memory", peak_mib(gateway) - before, 4 * number + 8, " MiB", slack=1.5)
            assert [await talk.end() for talk in talks if talk.over] == []
            assert sent[0] < number * blocks  # they are held back
            row.tally(ok=number)
            for task in sending:
                task.cancel()
            await asyncio.wait(sending)


async def _flood(talk: Talk, blocks: int, sent: list[int]) -> None:
    for _ in range(blocks):
        await talk.send(bytes(256 * 1024))
        sent[0] += 1


async def _stands(sent: list[int]) -> None:
    """Return when nothing was sent for a second."""
    before, since = sent[0], time.monotonic()

    def stands() -> bool:
        nonlocal before, since
        if sent[0] != before or not before:
            before, since = sent[0], time.monotonic()
        return time.monotonic() - since > 1

    await until(stands, 20)
