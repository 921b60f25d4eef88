"""A unit test starts no process, loads no engine and connects to no address beyond loopback: a test that does so fails
here, and belongs in tests/integration."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.clock import PausedLoop
from tests.leftovers import nothing_left

_ENGINES = {"onnxruntime", "sentence_transformers", "tensorrt", "torch", "transformers", "vllm"}
_PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_LOOPBACK = ("127.", "::1", "localhost")
_watched = False  # an audit hook cannot be taken back


@pytest.fixture(autouse=True)
def _no_io() -> Iterator[None]:
    global _watched
    _watched = True
    yield
    _watched = False


@pytest.fixture(autouse=True)
def _tidy(request: pytest.FixtureRequest) -> None:
    """An asynchronous test leaves nothing behind when it and its fixtures are over."""
    inner = getattr(request.function, "hypothesis", None)
    if inspect.iscoroutinefunction(inner.inner_test if inner else request.function):
        request.getfixturevalue("_nothing_left")


@pytest.fixture
async def _nothing_left() -> AsyncIterator[None]:
    async with nothing_left():
        yield


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests marked `paused` take no time, and no busy machine comes between two of their steps."""
    return {"paused": PausedLoop} if item.get_closest_marker("paused") else {"asyncio": asyncio.new_event_loop}


def _audit(event: str, told: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event in _PROCESSES:
        raise AssertionError(f"a unit test starts no process: {event} {told[:2]}")
    if event == "import" and told[0] in _ENGINES:
        raise AssertionError(f"a unit test loads no engine: {told[0]}")
    if event == "socket.connect" and isinstance(told[1], tuple) and not told[1][0].startswith(_LOOPBACK):
        raise AssertionError(f"a unit test speaks to nobody beyond loopback: {told[1]}")


sys.addaudithook(_audit)
