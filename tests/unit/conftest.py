"""A unit test starts no process, loads no engine and connects to no address beyond loopback: a test that does so fails
here, and belongs in tests/integration."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from services.runtime.policy.fair_thread import FairThread
from tests.clock import PausedLoop
from tests.leftovers import nothing_left

_ENGINES = {"onnxruntime", "sentence_transformers", "tensorrt", "torch", "transformers", "vllm"}
_PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_LOOPBACK = ("127.", "::1", "localhost")
_FULL_COLLECTIONS_EVERY = 1_000  # collections of the middle generation, of which each asynchronous test makes one
Beside = Callable[[Any, str], list[bool]]
_watched: bool | None = None  # None: the audit hook, which cannot be taken back, is not there yet


@pytest.fixture(autouse=True, scope="session")
def _few_full_collections() -> Iterator[None]:
    """The garbage of a test is in the collector's first two generations. Full collections, after every tenth
    asynchronous test, would take a tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(*usual[:2], _FULL_COLLECTIONS_EVERY)
    yield
    gc.set_threshold(*usual)


@pytest.fixture(autouse=True, scope="session")
def _no_threads_on_a_paused_loop() -> Iterator[None]:
    """The time of a paused loop would leap to the next timer while a thread works."""
    run = FairThread.run

    async def run_here(thread: FairThread, tenant: str, call: Callable[[], Any]) -> Any:
        if not isinstance(asyncio.get_running_loop(), PausedLoop):
            return await run(thread, tenant, call)
        await asyncio.sleep(0)
        return call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FairThread, "run", run_here)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    global _watched
    if _watched is None:
        sys.addaudithook(_audit)
    _watched = True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    global _watched
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


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Beside:
    """Makes a function note whether each of its calls is on another thread than the event loop's."""

    def note(owner: Any, name: str) -> list[bool]:
        made, noted = getattr(owner, name), list[bool]()

        def call(*given: Any, **named: Any) -> Any:
            noted.append(threading.current_thread() is not threading.main_thread())
            return made(*given, **named)

        monkeypatch.setattr(owner, name, call)
        return noted

    return note


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests marked `paused` take no time, and no busy machine comes between two of their steps."""
    return {"paused": PausedLoop} if item.get_closest_marker("paused") else {"asyncio": asyncio.new_event_loop}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event in _PROCESSES:
        raise AssertionError(f"a unit test starts no process: {event} {arguments[:2]}")
    if event == "import" and arguments[0] in _ENGINES:
        raise AssertionError(f"a unit test loads no engine: {arguments[0]}")
    if event == "socket.connect" and isinstance(arguments[1], tuple) and not arguments[1][0].startswith(_LOOPBACK):
        raise AssertionError(f"a unit test connects to no address beyond loopback: {arguments[1]}")
