"""The watch names code that blocks an event loop: on real loops, and step by step on a paused clock."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop
from prometheus_client import REGISTRY

from services.runtime.line_limit import EVERY_S
from services.runtime.process.loop_watch import report as reporting
from services.runtime.process.loop_watch.place import IN_C, CodePlace
from services.runtime.process.loop_watch.report import MOST_FUNCTIONS, OTHER, Block, BlockReporter
from services.runtime.process.loop_watch.watch import LoopWatch, watching
from tests.clock import PausedClock
from tests.waiting import until

_LONG_S = 0.4
_TRIES = 5  # on a machine without a core to spare, the watch may come when a block is over
_LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


def blocks_in_a_call() -> None:
    """Waits without a core, as a read from a slow disk does."""
    time.sleep(_LONG_S)


def blocks_in_python() -> None:
    until = time.monotonic() + _LONG_S
    while time.monotonic() < until:
        pass


def blocks_in_c() -> None:
    """Holds the interpreter's lock, so that no other thread runs."""
    sum(range(20_000_000))


@pytest.mark.parametrize("new_loop", _LOOPS)
@pytest.mark.parametrize("blocks", [blocks_in_a_call, blocks_in_python, blocks_in_c])
def test_a_function_that_blocks_the_loop_is_named_in_the_metric_and_in_the_log(
    blocks: Callable[[], None], new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
):
    name = f"{__name__}.{blocks.__name__}"

    async def asks_something_heavy() -> None:
        blocks()

    async def main() -> None:
        with watching(50):
            for _ in range(_TRIES):
                await asyncio.create_task(asks_something_heavy())
                with suppress(TimeoutError):
                    return await until(lambda: any(name in each for each in caplog.messages), 2)
        raise AssertionError(f"{name} is not named")

    before = _blocks(name)
    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    line = next(each for each in caplog.messages if name in each)
    assert line.startswith("event loop was blocked: ")
    assert f"task {asks_something_heavy.__qualname__}" in line
    assert _blocks(name) > before


def _blocks(function: str) -> float:
    return REGISTRY.get_sample_value("hedgerow_loop_blocked_seconds_count", {"function": function}) or 0


@pytest.mark.parametrize("new_loop", _LOOPS)
def test_a_loop_with_short_callbacks_has_no_reports(new_loop: Callable[[], asyncio.AbstractEventLoop]):
    reported: list[Block] = []

    async def main() -> None:
        with watching(2_000, reported.append):  # no machine is as busy as that
            for number in range(200):
                hashlib.sha256(bytes(number)).digest()
                await asyncio.sleep(0.001 * (number % 3))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert reported == []


async def test_a_threshold_of_zero_watches_nothing():
    with watching(0, pytest.fail):  # type: ignore[arg-type]
        assert "loop-watch" not in {thread.name for thread in threading.enumerate()}


class Scripted:
    """A watch of a loop that does what a test says."""

    def __init__(self, threshold_s: float = 0.05):
        self.clock, self.cpu, self.reported = PausedClock(), PausedClock(), list[Block]()
        self.at: CodePlace | None = None
        self.asked: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.watch = LoopWatch(
            threshold_s,
            self.reported.append,
            cpu=self.cpu,
            seen=lambda: self.at,
            task=lambda: "Generate",
            ask=self.asked.append,
            later=lambda seconds, then: self.timers.append(then),
            clock=self.clock,
        )

    def run(self, at: CodePlace | None, seconds: float, cpu_s: float | None = None) -> None:
        """The loop is somewhere, for some time."""
        self.at = at
        self.clock.advance(seconds)
        self.cpu.advance(seconds if cpu_s is None else cpu_s)

    def look(self, at: CodePlace | None, seconds: float, cpu_s: float | None = None) -> None:
        """The loop is somewhere, for some time, at the end of which the watch looks."""
        self.run(at, seconds, cpu_s)
        self.watch.look()

    def answers(self) -> None:
        asked, self.asked = self.asked, []
        for each in asked:
            each()

    def ends(self) -> None:
        """The loop answers, and has nothing to do when the watch looks again."""
        self.answers()
        self.look(None, 0.025, cpu_s=0)


_FEED, _STORE = CodePlace("services.x.feed", 7), CodePlace("services.x.store", 9)


def test_an_idle_loop_is_never_asked():
    loop = Scripted()
    for _ in range(100):
        loop.look(None, 0.025, cpu_s=0)
    loop.look(None, 0.025, cpu_s=0.001)  # a short callback that is over
    assert not loop.asked


def test_a_loop_that_is_often_busy_keeps_a_timer_though_it_waits_at_each_look():
    loop = Scripted()
    loop.look(None, 0.05, cpu_s=0.005)
    loop.answers()
    for _ in range(16):  # the watch gets no core
        loop.run(None, 0.0125)
        loop.timers.pop()()
    loop.watch.look()
    loop.ends()
    assert loop.reported == []


def test_a_block_lasts_from_the_question_to_the_answer():
    loop = Scripted()
    for _ in range(4):
        loop.look(_FEED, 0.025, cpu_s=0.01)
    loop.ends()
    [block] = loop.reported
    assert (block.place, block.task, block.looks, block.seen) == (_FEED, "Generate", 4, 4)
    assert (block.wall_s, block.cpu_s) == (pytest.approx(0.075), pytest.approx(0.03))
    assert not loop.asked


def test_blocks_below_the_threshold_are_not_reported():
    loop = Scripted()
    loop.look(_FEED, 0.025)
    loop.run(_FEED, 0.02)
    loop.answers()
    loop.look(None, 0.005, cpu_s=0)
    assert loop.reported == []


def test_a_delay_of_the_watch_counts_as_far_as_the_loop_was_computing():
    loop = Scripted()
    loop.look(_FEED, 0.2, cpu_s=0.15)  # 0.175 s late
    loop.ends()
    assert loop.reported[0].wall_s == pytest.approx(0.15)


def test_a_delay_of_the_watch_is_no_block_of_a_loop_that_has_turned_meanwhile():
    loop = Scripted()
    loop.look(_FEED, 0.025)
    loop.answers()
    for _ in range(16):  # the watch gets no core
        loop.run(_FEED, 0.0125)
        loop.timers.pop()()
    loop.look(_FEED, 0.002)
    loop.run(_FEED, 0.004)
    loop.ends()
    assert loop.reported == []


def test_a_loop_that_was_busy_keeps_its_timer_for_a_second():
    loop = Scripted()
    loop.look(_FEED, 0.025)
    loop.answers()
    fired = 0
    while loop.timers:
        loop.run(None, 0.0125, cpu_s=0)
        loop.timers.pop()()
        fired += 1
    assert fired == 80


def test_a_delay_of_the_watch_alone_is_no_block():
    loop = Scripted()
    loop.look(_FEED, 5, cpu_s=0.001)  # the machine stood still
    loop.ends()
    assert loop.reported == []


def test_a_block_is_named_by_its_most_sampled_function():
    loop = Scripted()
    for at in (_STORE, _FEED, _FEED, _STORE, CodePlace("services.x.feed", 8)):
        loop.look(at, 0.025)
    loop.ends()
    assert (loop.reported[0].place, loop.reported[0].seen, loop.reported[0].looks) == (_FEED, 3, 5)


def test_c_code_called_by_the_loop_is_found_by_its_cpu_time():
    loop = Scripted()
    loop.look(None, 0.3)
    loop.ends()
    assert loop.reported[0].place == IN_C


def test_a_block_that_goes_on_is_reported_before_it_ends():
    loop = Scripted()
    for _ in range(400):
        loop.look(_FEED, 0.025, cpu_s=0)
    assert [block.ended for block in loop.reported] == [False]
    loop.answers()
    loop.watch.look()
    assert [block.ended for block in loop.reported] == [False, True]


def _lines(caplog: pytest.LogCaptureFixture, *blocks: Block, report: BlockReporter) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, reporting.__name__):
        for block in blocks:
            report(block)
    return list(caplog.messages)


def test_a_storm_of_blocks_writes_a_line_a_minute(caplog: pytest.LogCaptureFixture):
    clock, function = PausedClock(), "services.storm.feed"
    report, block = BlockReporter(clock), Block(CodePlace(function, 7, "re.sub"), "Generate", 0.187, 0.186)
    assert _lines(caplog, *[block] * 500, report=report) == [
        "event loop was blocked: 187 ms (186 ms of CPU time) in services.storm.feed:7 (in re.sub), task Generate"
    ]
    assert _blocks(function) == 500
    clock.advance(EVERY_S)
    [line] = _lines(caplog, block, report=report)
    assert line.endswith("; 499 more reports of this function since its last line")


def test_labels_are_bounded(caplog: pytest.LogCaptureFixture):
    report = BlockReporter(PausedClock())
    blocks = [Block(CodePlace(f"services.many.f{number}"), "", 0.1, 0.1) for number in range(MOST_FUNCTIONS + 10)]
    before = _blocks(OTHER)
    assert len(_lines(caplog, *blocks, report=report)) == MOST_FUNCTIONS + 1
    assert _blocks(OTHER) == before + 10
