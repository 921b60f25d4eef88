"""The end of the service of this folder: the last of its files."""

from __future__ import annotations

from glob import glob

import pytest

from hedgerow.chat.v1 import chat_pb2
from tests.integration.vllm_engine.service import START_S, STORY, Service, ask, family

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2 * START_S)]


async def test_a_dead_engine_ends_the_calls_in_flight_and_the_process_and_leaves_no_file(service: Service) -> None:
    process = service.process
    engine = next(child for child in family(process) if "EngineCore" in " ".join(child.cmdline()))
    replies = aiter(service.stub.Generate(ask(STORY, min_tokens=500, max_tokens=500)))
    assert (await anext(replies)).text
    engine.kill()
    *_, last = [reply async for reply in replies]
    assert last.finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
    assert await process.wait() == 1
    assert glob(f"{process.spec.environment['TMPDIR']}/*vllm*") == []
