"""The processes of an llm service with vLLM: how they start, and how they end."""

from __future__ import annotations

import signal
from dataclasses import replace
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2_grpc
from launcher.processes import ServiceSpec, check_health, free_port
from tests.forked import ServiceProcess
from tests.integration.vllm_engine.service import (
    START_S,
    STORY,
    WITHOUT_END,
    ask,
    family,
    gone,
    spec,
)
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="function"), pytest.mark.timeout(2 * START_S)]


def meeting_in(folder: str, wanted: ServiceSpec) -> ServiceSpec:
    """The same, with all that its processes leave for each other in `folder`."""
    return replace(wanted, environment={**wanted.environment, "TMPDIR": folder})


async def test_a_wrong_engine_setting_stops_the_start_and_is_named(tmp_path: Path) -> None:
    wrong = {"VLLM__MAX_NUM_SEQ": "4", "VLLM__MODEL": "/no/such/model"}
    started = [
        ServiceProcess(spec(f"wrong-{setting}", f"127.0.0.1:{free_port()}", **{setting: value}), tmp_path)
        for setting, value in wrong.items()
    ]
    for setting, process in zip(wrong, started, strict=True):
        assert await process.wait() == 2
        assert setting.removeprefix("VLLM__").lower() in process.tail(3)
        assert "loading" not in process.tail()  # as it says before it imports vLLM


async def test_sigterm_while_loading_ends_everything(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as scratch:  # shorter than pytest's: a socket's path is short
        sockets = f"{scratch}/hedgerow-vllm-*"  # where its processes meet
        process = ServiceProcess(meeting_in(scratch, spec("loading", address)), tmp_path)
        await until(lambda: has_engine(process), 120, every_s=0.1)
        assert glob(sockets)
        started = family(process)
        assert await check_health(address, 20) == "NOT_SERVING"
        process.signal(signal.SIGTERM)
        assert await process.wait() == 0
        await until(lambda: gone(started), 30)
        assert not glob(sockets)


async def has_engine(process: ServiceProcess) -> bool:
    return len(family(process)) > 1


async def test_a_dead_engine_ends_the_calls_in_flight_and_the_process_and_leaves_no_file(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as scratch:  # shorter than pytest's: a socket's path is short
        process = ServiceProcess(meeting_in(scratch, spec("dying", address, MAX_TOKENS_CAP="1000")), tmp_path)
        try:
            await process.wait_serving(START_S)
            engine = next(child for child in family(process) if "EngineCore" in " ".join(child.cmdline()))
            async with open_channel(address) as channel:
                request = ask(STORY, max_tokens=1000, temperature=1.9, logit_bias=[WITHOUT_END])
                call = llm_pb2_grpc.LLMServiceStub(channel).Generate(request)
                replies = aiter(call)
                assert (await anext(replies)).text
                engine.kill()
                *_, last = [reply async for reply in replies]
            assert last.finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
            assert await process.wait() == 1
        finally:
            await process.stop()
        assert glob(f"{scratch}/*vllm*") == []
