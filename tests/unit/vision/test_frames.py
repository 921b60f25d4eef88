"""Streams of frames, over a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hedgerow.vision.v1 import vision_pb2
from services.runtime.errors import InvalidInput
from services.vision.engine import Arrays
from services.vision.errors import EngineFailed
from services.vision.servicer import VisionServicer
from tests.unit.vision.fake_engine import FakeEngine
from tests.unit.vision.test_model import until_busy
from tests.unit.vision.test_repository import FakeEngines, put
from tests.unit.vision.test_servicer import CALL, RED, YELLOW


class Sender:
    """The client's side of a stream of frames."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[vision_pb2.ClassifyFramesRequest | None] = asyncio.Queue()

    def send(self, number: int, data: bytes | None = RED, **first: Any) -> None:
        frame = None if data is None else vision_pb2.Image(data=data)
        self._queue.put_nowait(vision_pb2.ClassifyFramesRequest(frame=frame, id=number, **first))

    def close(self) -> None:
        self._queue.put_nowait(None)

    async def requests(self) -> AsyncIterator[vision_pb2.ClassifyFramesRequest]:
        while request := await self._queue.get():
            yield request


@pytest.fixture
def sender() -> Sender:
    return Sender()


async def test_frames_are_named_until_the_client_closes(servicer: VisionServicer, sender: Sender) -> None:
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    sender.send(0, None, model="m", top_k=2)
    sender.send(1, RED)
    first = await anext(replies)
    assert (first.id, [label.name for label in first.labels], first.dropped) == (1, ["bright", "dark"], 0)
    assert first.age_ms > 0
    sender.send(2, YELLOW)
    sender.close()
    assert [(reply.id, reply.labels[0].name) async for reply in replies] == [(2, "green")]


async def test_frames_that_newer_ones_replaced_are_counted(
    servicer: VisionServicer, sender: Sender, engines: FakeEngines
) -> None:
    engine = engines.opened[0]
    engine.gate.clear()
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    sender.send(1)
    first = asyncio.ensure_future(anext(replies))
    await until_busy(engine)
    for number in (2, 3, 4):
        sender.send(number, YELLOW)
    sender.close()
    await asyncio.sleep(0.01)
    engine.gate.set()
    seen = [await first, *[reply async for reply in replies]]
    assert [reply.id for reply in seen] == [1, 4]
    assert sum(reply.dropped for reply in seen) == 2


async def test_a_bad_frame_has_a_problem_and_the_stream_goes_on(
    servicer: VisionServicer, sender: Sender, engines: FakeEngines
) -> None:
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    sender.send(1, b"no pic")
    reply = await anext(replies)
    assert reply.problem.startswith("frame: a PNG, JPEG, WebP, GIF or AVIF, got 6 bytes")
    assert not reply.labels
    sender.send(2, None)
    assert (await anext(replies)).problem == "frame: a picture in each message but the first, got none"
    engines.opened[0].failing = EngineFailed("out of memory")
    sender.send(3)
    assert (await anext(replies)).problem == "out of memory"
    engines.opened[0].failing = None
    sender.send(4)
    assert (await anext(replies)).labels[0].name == "bright"
    await replies.aclose()


class TwoClasses(FakeEngine):
    """Scores the first two classes alone."""

    def run(self, inputs: Arrays) -> Arrays:
        found = super().run(inputs)
        return {**found, "probabilities": found["probabilities"][:, :2]}


async def test_a_stream_goes_on_with_a_model_of_fewer_classes(
    servicer: VisionServicer, sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    sender.send(1, model="m", top_k=3)
    assert len((await anext(replies)).labels) == 3
    monkeypatch.setattr("tests.unit.vision.test_repository.FakeEngine", TwoClasses)
    put(tmp_path, "m", "two classes")
    (tmp_path / "m" / "labels.txt").write_text("dark\nbright")
    await servicer._repository.scan()
    sender.send(2)
    assert [label.name for label in (await anext(replies)).labels] == ["bright", "dark"]
    await replies.aclose()


@pytest.mark.parametrize("first", [{"top_k": 0}, {"model": "plain"}])
async def test_a_bad_beginning_ends_the_stream(servicer: VisionServicer, sender: Sender, first: dict[str, Any]) -> None:
    sender.send(1, **first)
    with pytest.raises(InvalidInput):
        await anext(servicer.ClassifyFrames(sender.requests(), CALL))


async def test_how_to_look_is_said_once(servicer: VisionServicer, sender: Sender) -> None:
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    sender.send(1)
    await anext(replies)
    sender.send(2, top_k=1)
    with pytest.raises(InvalidInput, match="top_k: in the first message only"):
        await anext(replies)


@pytest.mark.parametrize("frames", [0, 1])
async def test_a_drain_ends_streams_that_their_clients_keep_open(
    servicer: VisionServicer, sender: Sender, frames: int
) -> None:
    replies = servicer.ClassifyFrames(sender.requests(), CALL)
    for number in range(frames):
        sender.send(number)
        await anext(replies)
    waiting = asyncio.ensure_future(anext(replies, None))
    await asyncio.sleep(0)
    servicer.drain()
    assert await waiting is None
